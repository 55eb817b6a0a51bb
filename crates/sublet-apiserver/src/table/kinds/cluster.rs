//! The columns of access, certificates, scheduling, flow control and device kinds.

use crate::registry::Column;
use crate::table::age::{human, since};
use crate::table::columns::{NONE, age, boolean, count, integer, labels, name, string, text, text_or, wide};
use crate::table::kinds::core;
use serde_json::Value;
use sublet_machinery::ObjectExt;

pub(in crate::table) fn columns(plural: &str) -> Option<Vec<Column>> {
    Some(match plural {
        "certificatesigningrequests" => signing_requests(),
        "clustertrustbundles" => {
            vec![name(), string("SignerName", "The signer of the bundle.", |o, _| text_or(o, "/spec/signerName", NONE).into())]
        }
        "podcertificaterequests" => pod_certificates(),
        "leases" => vec![name(), string("Holder", "Who holds the lease.", |o, _| text(o, "/spec/holderIdentity").into()), age()],
        "events" => core::events(),
        "flowschemas" => flow_schemas(),
        "prioritylevelconfigurations" => priority_levels(),
        "rolebindings" | "clusterrolebindings" => bindings(),
        "runtimeclasses" => vec![name(), string("Handler", "What runs the pods.", |o, _| text(o, "/handler").into()), age()],
        "priorityclasses" => vec![
            name(),
            integer("Value", "The priority.", |o, _| count(o, "/value")),
            boolean("Global-Default", "Whether pods without class get it.", |o, _| o.bool_at("/globalDefault").unwrap_or_default().into()),
            age(),
            string("PreemptionPolicy", "Whether others make room.", |o, _| text(o, "/preemptionPolicy").into()),
        ],
        "deviceclasses" | "resourceclaimtemplates" => vec![name(), age()],
        "devicetaintrules" => device_taints(),
        "resourceclaims" => {
            vec![name(), string("State", "Whether the claim is allocated and in use.", |o, _| claim_state(o).into()), age()]
        }
        "resourceslices" => vec![
            name(),
            string("Node", "The node of the devices.", |o, _| text(o, "/spec/nodeName").into()),
            string("Driver", "The driver of the devices.", |o, _| text(o, "/spec/driver").into()),
            string("Pool", "The pool of the devices.", |o, _| text(o, "/spec/pool/name").into()),
            age(),
        ],
        "storageversionmigrations" => migrations(),
        _ => return None,
    })
}

fn bindings() -> Vec<Column> {
    fn subjects(object: &Value, kind: &str) -> Value {
        let of_kind = object.array_at("/subjects").iter().filter(|s| s["kind"] == kind);
        let names = of_kind.map(|s| match kind {
            "ServiceAccount" => format!("{}/{}", text(s, "/namespace"), text(s, "/name")),
            _ => text(s, "/name").to_string(),
        });
        names.collect::<Vec<_>>().join(", ").into()
    }
    vec![
        name(),
        string("Role", "The role that is given.", |o, _| format!("{}/{}", text(o, "/roleRef/kind"), text(o, "/roleRef/name")).into()),
        age(),
        wide(string("Users", "The users that have it.", |o, _| subjects(o, "User"))),
        wide(string("Groups", "The groups that have it.", |o, _| subjects(o, "Group"))),
        wide(string("ServiceAccounts", "The service accounts that have it.", |o, _| subjects(o, "ServiceAccount"))),
    ]
}

fn signing_requests() -> Vec<Column> {
    vec![
        name(),
        age(),
        string("SignerName", "Who is asked to sign.", |o, _| text_or(o, "/spec/signerName", NONE).into()),
        string("Requestor", "Who asks.", |o, _| text(o, "/spec/username").into()),
        string("RequestedDuration", "How long the certificate should hold.", |o, _| {
            o.i64_at("/spec/expirationSeconds").map_or_else(|| NONE.into(), human).into()
        }),
        string("Condition", "How far the request is.", |o, _| {
            let has = |condition_type: &str| o.array_at("/status/conditions").iter().any(|c| c["type"] == condition_type);
            let mut status = if has("Denied") {
                "Denied"
            } else if has("Approved") {
                "Approved"
            } else {
                "Pending"
            }
            .to_string();
            if has("Failed") {
                status.push_str(",Failed");
            }
            if !text(o, "/status/certificate").is_empty() {
                status.push_str(",Issued");
            }
            status.into()
        }),
    ]
}

fn pod_certificates() -> Vec<Column> {
    vec![
        name(),
        string("PodName", "The pod that gets the certificate.", |o, _| text(o, "/spec/podName").into()),
        string("ServiceAccountName", "The service account of the pod.", |o, _| text(o, "/spec/serviceAccountName").into()),
        string("NodeName", "The node of the pod.", |o, _| text(o, "/spec/nodeName").into()),
        string("SignerName", "Who is asked to sign.", |o, _| text(o, "/spec/signerName").into()),
        string("State", "Pending, Issued, Denied or Failed.", |o, _| {
            let mut known =
                o.array_at("/status/conditions").iter().map(|c| text(c, "/type")).filter(|t| ["Issued", "Denied", "Failed"].contains(t));
            known.next_back().unwrap_or("Pending").into()
        }),
        string("UnverifiedUserAnnotations", "What the pod says about itself.", |o, _| {
            labels(o.object_at("/spec/unverifiedUserAnnotations")).into()
        }),
    ]
}

fn flow_schemas() -> Vec<Column> {
    vec![
        name(),
        string("PriorityLevel", "The priority level of the requests.", |o, _| text(o, "/spec/priorityLevelConfiguration/name").into()),
        string("MatchingPrecedence", "Lower ones are tried first.", |o, _| count(o, "/spec/matchingPrecedence")),
        string("DistinguisherMethod", "How flows are told apart.", |o, _| {
            o.str_at("/spec/distinguisherMethod/type").unwrap_or(NONE).into()
        }),
        age(),
        string("MissingPL", "Whether the priority level is missing.", |o, _| {
            let dangling = o.condition("Dangling");
            dangling.map_or("?", |c| text(c, "/status")).into()
        }),
    ]
}

fn priority_levels() -> Vec<Column> {
    fn number(object: &Value, pointer: &str) -> Value {
        object.pointer(pointer).filter(|v| v.is_number()).cloned().unwrap_or_else(|| NONE.into())
    }
    vec![
        name(),
        string("Type", "Limited or Exempt.", |o, _| text(o, "/spec/type").into()),
        string("NominalConcurrencyShares", "The share of requests in flight.", |o, _| number(o, "/spec/limited/nominalConcurrencyShares")),
        string("Queues", "The number of queues.", |o, _| number(o, "/spec/limited/limitResponse/queuing/queues")),
        string("HandSize", "Queues a flow may use.", |o, _| number(o, "/spec/limited/limitResponse/queuing/handSize")),
        string("QueueLengthLimit", "Requests that may wait in a queue.", |o, _| {
            number(o, "/spec/limited/limitResponse/queuing/queueLengthLimit")
        }),
        age(),
    ]
}

fn device_taints() -> Vec<Column> {
    vec![
        name(),
        string("Key", "The key of the taint.", |o, _| text(o, "/spec/taint/key").into()),
        string("Value", "The value of the taint.", |o, _| text(o, "/spec/taint/value").into()),
        string("Effect", "What the taint does.", |o, _| text(o, "/spec/taint/effect").into()),
        string("TimeAdded", "The time since the taint was added.", |o, p| {
            o.str_at("/spec/taint/timeAdded").map(|t| since(Some(t), p.now)).unwrap_or_default().into()
        }),
        age(),
    ]
}

fn claim_state(claim: &Value) -> String {
    let allocated = claim.pointer("/status/allocation").is_some_and(Value::is_object);
    let states = [
        (claim.is_deleting(), "deleted"),
        (!allocated && !claim.is_deleting(), "pending"),
        (allocated, "allocated"),
        (allocated && !claim.array_at("/status/reservedFor").is_empty(), "reserved"),
    ];
    states.into_iter().filter(|(holds, _)| *holds).map(|(_, word)| word).collect::<Vec<_>>().join(",")
}

fn migrations() -> Vec<Column> {
    vec![
        Column { format: String::new(), ..name() },
        string("Resource", "What is migrated.", |o, _| match (text(o, "/spec/resource/resource"), text(o, "/spec/resource/group")) {
            (resource, "") => resource.into(),
            (resource, group) => format!("{resource}.{group}").into(),
        }),
        string("Status", "How far the migration is.", |o, _| {
            let mut holding = o.array_at("/status/conditions").iter().filter(|c| c["status"] == "True").map(|c| text(c, "/type"));
            holding.rfind(|t| ["Running", "Failed", "Succeeded"].contains(t)).unwrap_or("Unknown").into()
        }),
    ]
}
