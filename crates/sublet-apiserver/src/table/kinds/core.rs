//! The columns of the core group, but for pods.

use super::{network, pod, storage};
use crate::registry::Column;
use crate::table::Printing;
use crate::table::age::{UNKNOWN, since};
use crate::table::columns::{NONE, age, count, each, integer, labels, name, named, scalar, string, text, text_or, wide};
use serde_json::Value;
use std::collections::BTreeSet;
use sublet_machinery::ObjectExt;

pub(in crate::table) fn columns(plural: &str) -> Option<Vec<Column>> {
    Some(match plural {
        "pods" => pod::columns(),
        "componentstatuses" => component_statuses(),
        "configmaps" => {
            vec![name(), string("Data", "The number of keys.", |o, _| (entries(o, "/data") + entries(o, "/binaryData")).into()), age()]
        }
        "endpoints" => network::endpoints(),
        "events" => events(),
        "namespaces" => vec![name(), string("Status", "The phase of the namespace.", |o, _| text(o, "/status/phase").into()), age()],
        "nodes" => nodes(),
        "persistentvolumeclaims" => storage::claims(),
        "persistentvolumes" => storage::volumes(),
        "podtemplates" => vec![
            name(),
            string("Containers", "The names of the containers.", |o, _| each(o.array_at("/template/spec/containers"), "name")),
            string("Images", "The images of the containers.", |o, _| each(o.array_at("/template/spec/containers"), "image")),
            string("Pod Labels", "The labels of the pods.", |o, _| labels(o.object_at("/template/metadata/labels")).into()),
        ],
        "replicationcontrollers" => replication_controllers(),
        "resourcequotas" => vec![
            name(),
            string("Request", "Used and allowed, but for limits.", |o, _| quota(o, false).into()),
            string("Limit", "Used and allowed limits.", |o, _| quota(o, true).into()),
            age(),
        ],
        "secrets" => vec![
            name(),
            string("Type", "What the secret is for.", |o, _| text(o, "/type").into()),
            string("Data", "The number of keys.", |o, _| entries(o, "/data").into()),
            age(),
        ],
        "serviceaccounts" => vec![name(), age()],
        "services" => network::services(),
        _ => return None,
    })
}

fn entries(object: &Value, pointer: &str) -> usize {
    object.object_at(pointer).map_or(0, serde_json::Map::len)
}

fn component_statuses() -> Vec<Column> {
    fn healthy(object: &Value) -> Option<&Value> {
        object.array_at("/conditions").iter().find(|c| c["type"] == "Healthy")
    }
    fn part(object: &Value, pointer: &str) -> Value {
        healthy(object).map(|c| text(c, pointer)).unwrap_or_default().into()
    }
    vec![
        name(),
        string("Status", "Whether the component is healthy.", |o, _| {
            healthy(o).map_or("Unknown", |c| if c["status"] == "True" { "Healthy" } else { "Unhealthy" }).into()
        }),
        string("Message", "What the component says about itself.", |o, _| part(o, "/message")),
        string("Error", "Why the component is not healthy.", |o, _| part(o, "/error")),
    ]
}

fn replication_controllers() -> Vec<Column> {
    vec![
        name(),
        integer("Desired", "Replicas asked for.", |o, _| count(o, "/spec/replicas")),
        integer("Current", "Replicas that exist.", |o, _| count(o, "/status/replicas")),
        integer("Ready", "Replicas that are ready.", |o, _| count(o, "/status/readyReplicas")),
        age(),
        wide(string("Containers", "The names of the containers.", |o, _| each(o.array_at("/spec/template/spec/containers"), "name"))),
        wide(string("Images", "The images of the containers.", |o, _| each(o.array_at("/spec/template/spec/containers"), "image"))),
        wide(string("Selector", "The labels of the pods.", |o, _| labels(o.object_at("/spec/selector")).into())),
    ]
}

fn quota(object: &Value, limits: bool) -> String {
    let used = object.pointer("/status/used");
    let hard = object.object_at("/status/hard").into_iter().flatten();
    let of_kind = hard.filter(|(resource, _)| resource.starts_with("limits.") == limits);
    let text = |value: Option<&Value>| value.and_then(scalar).unwrap_or_else(|| "0".into());
    let parts = of_kind.map(|(resource, hard)| format!("{resource}: {}/{}", text(used.and_then(|u| u.get(resource))), text(Some(hard))));
    parts.collect::<Vec<_>>().join(", ")
}

fn nodes() -> Vec<Column> {
    vec![
        name(),
        string("Status", "Whether the node is ready and takes pods.", |o, _| node_status(o).into()),
        string("Roles", "The roles that labels give the node.", |o, _| node_roles(o).into()),
        age(),
        string("Version", "The version of the kubelet.", |o, _| text(o, "/status/nodeInfo/kubeletVersion").into()),
        wide(string("Internal-IP", "The address inside the cluster.", |o, _| node_address(o, "InternalIP"))),
        wide(string("External-IP", "The address outside the cluster.", |o, _| node_address(o, "ExternalIP"))),
        wide(string("OS-Image", "The operating system.", |o, _| text_or(o, "/status/nodeInfo/osImage", UNKNOWN).into())),
        wide(string("Kernel-Version", "The kernel and its architecture.", |o, _| {
            let kernel = text_or(o, "/status/nodeInfo/kernelVersion", UNKNOWN);
            match text(o, "/status/nodeInfo/architecture") {
                "" => kernel.into(),
                architecture => format!("{kernel} ({architecture})").into(),
            }
        })),
        wide(string("Container-Runtime", "The container runtime and its version.", |o, _| {
            text_or(o, "/status/nodeInfo/containerRuntimeVersion", UNKNOWN).into()
        })),
    ]
}

fn node_status(node: &Value) -> String {
    // The last condition of a type counts.
    let ready = node.array_at("/status/conditions").iter().rfind(|c| c["type"] == "Ready");
    let status = ready.map_or("Unknown", |c| if c["status"] == "True" { "Ready" } else { "NotReady" });
    if node.bool_at("/spec/unschedulable") == Some(true) { format!("{status},SchedulingDisabled") } else { status.into() }
}

fn node_roles(node: &Value) -> String {
    let mut roles = BTreeSet::new();
    for (key, value) in node.labels().into_iter().flatten() {
        let role = match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => role,
            None if key == "kubernetes.io/role" => value.as_str().unwrap_or_default(),
            None => continue,
        };
        if !role.is_empty() {
            roles.insert(role);
        }
    }
    if roles.is_empty() { NONE.into() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn node_address(node: &Value, address_type: &str) -> Value {
    let found = node.array_at("/status/addresses").iter().find(|a| a["type"] == address_type);
    found.map_or(NONE, |a| text(a, "/address")).into()
}

/// Events of both groups: `events.k8s.io/v1` calls the same things differently.
pub(super) fn events() -> Vec<Column> {
    vec![
        string("Last Seen", "The time since it happened last.", |o, p| {
            let last = match o.pointer("/series") {
                Some(series) if series.is_object() => Some(since(series.str_at("/lastObservedTime"), p.now)),
                _ => either(o, "/lastTimestamp", "/deprecatedLastTimestamp").map(|t| since(Some(t), p.now)),
            };
            last.unwrap_or_else(|| first_seen(o, p)).into()
        }),
        string("Type", "Normal or Warning.", |o, _| text(o, "/type").into()),
        string("Reason", "A short word for why it happened.", |o, _| text(o, "/reason").into()),
        string("Object", "What it is about.", |o, _| event_object(o).into()),
        wide(string("Subobject", "The part of the object it is about.", |o, _| {
            either(o, "/involvedObject/fieldPath", "/regarding/fieldPath").unwrap_or_default().into()
        })),
        wide(string("Source", "Who reports it.", |o, _| event_source(o).into())),
        string("Message", "What happened.", |o, _| either(o, "/message", "/note").unwrap_or_default().trim().into()),
        wide(string("First Seen", "The time since it happened first.", |o, p| first_seen(o, p).into())),
        wide(string("Count", "How often it happened.", |o, _| {
            let counted = o.i64_at("/count").or_else(|| o.i64_at("/deprecatedCount")).filter(|c| *c != 0);
            match o.pointer("/series") {
                Some(series) if series.is_object() => count(series, "/count"),
                _ => counted.unwrap_or(1).into(),
            }
        })),
        wide(named("Name", |o, _| o.name().into())),
    ]
}

fn either<'a>(object: &'a Value, core: &str, events: &str) -> Option<&'a str> {
    object.str_at(core).or_else(|| object.str_at(events)).filter(|t| !t.is_empty())
}

fn first_seen(event: &Value, printing: &Printing<'_>) -> String {
    let first = either(event, "/firstTimestamp", "/deprecatedFirstTimestamp");
    since(first.or_else(|| event.str_at("/eventTime")), printing.now)
}

fn event_object(event: &Value) -> String {
    let kind = either(event, "/involvedObject/kind", "/regarding/kind").unwrap_or_default().to_lowercase();
    match either(event, "/involvedObject/name", "/regarding/name") {
        Some(name) => format!("{kind}/{name}"),
        None => kind,
    }
}

fn event_source(event: &Value) -> String {
    let component = either(event, "/source/component", "/deprecatedSource/component");
    let component = component.or_else(|| either(event, "/reportingComponent", "/reportingController")).unwrap_or_default();
    let host = either(event, "/source/host", "/deprecatedSource/host").or_else(|| event.str_at("/reportingInstance"));
    match host.filter(|h| !h.is_empty()) {
        Some(host) => format!("{component}, {host}"),
        None => component.to_string(),
    }
}
