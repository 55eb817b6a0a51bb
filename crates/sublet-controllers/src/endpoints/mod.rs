//! Where services lead: Endpoints and EndpointSlices from the pods that a service selects, and slices
//! that mirror hand-made Endpoints.

mod address;
mod legacy;
mod mirror;
mod pack;
mod slices;
mod subsets;

pub(crate) use legacy::controller as endpoints;
pub(crate) use mirror::controller as endpoint_slice_mirroring;
pub(crate) use slices::controller as endpoint_slices;

use crate::kit::pods;
use crate::kit::selector::Selector;
use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::ObjectExt;
use sublet_runtime::manager::Mapping;
use sublet_runtime::resources::{NODES, SERVICES};
use sublet_runtime::{Change, Ctx, Informer, Key};

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const HEADLESS: &str = "service.kubernetes.io/headless";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

/// Slices by the service that they are for.
const BY_SERVICE: &str = "service";

/// Lets slices be found by their service; to be called before the informer runs.
pub(crate) fn index_slices(informer: &Informer) {
    informer.add_index(BY_SERVICE, |slice| match slice.label(SERVICE_NAME) {
        Some(name) => vec![format!("{}/{name}", slice.namespace())],
        None => Vec::new(),
    });
}

/// The slices of a service that a controller manages, without those on their way out.
fn slices_of(ctx: &Ctx, namespace: &str, service: &str, manager: &str) -> Vec<Arc<Value>> {
    let informer = ctx.informer(&sublet_runtime::resources::ENDPOINT_SLICES);
    let mut slices = informer.by_index(BY_SERVICE, &format!("{namespace}/{service}"));
    slices.retain(|s| s.label(MANAGED_BY) == Some(manager) && !s.is_deleting());
    slices
}

/// The service of a changed slice, when the controller manages it before or after.
fn service_of_slice(manager: &'static str) -> impl Fn(&Change, &Mapping) -> Vec<Key> + Send + Sync {
    move |change, _| {
        let mut keys = Vec::new();
        for slice in [&change.old, &change.new].into_iter().flatten().filter(|s| s.label(MANAGED_BY) == Some(manager)) {
            let key = Key::new(slice.namespace(), slice.label(SERVICE_NAME).unwrap_or_default());
            if !key.name.is_empty() && !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }
}

/// The services that select a changed pod, before or after, if the change matters to them.
fn services_of_pod(change: &Change, mapping: &Mapping) -> Vec<Key> {
    if let (Some(old), Some(new)) = (&change.old, &change.new)
        && !matters(old, new)
    {
        return Vec::new();
    }
    let sides: Vec<&Arc<Value>> = [&change.old, &change.new].into_iter().flatten().collect();
    let services = mapping.informer(&SERVICES).list(Some(change.object().namespace()));
    let selects = |service: &Value| {
        let selector = Selector::of_map(service.object_at("/spec/selector"));
        sides.iter().any(|pod| selector.matches_object(pod))
    };
    services.iter().filter(|s| selects(s)).map(|s| Key::of(s)).collect()
}

fn matters(old: &Value, new: &Value) -> bool {
    let fields = ["/metadata/labels", "/spec/nodeName", "/spec/hostname", "/spec/subdomain", "/status/podIP", "/status/podIPs"];
    old.uid() != new.uid()
        || old.is_deleting() != new.is_deleting()
        || pods::is_terminal(old) != pods::is_terminal(new)
        || pods::is_ready(old) != pods::is_ready(new)
        || fields.iter().any(|f| old.pointer(f) != new.pointer(f))
}

/// Whether the controllers of endpoints care for a service: it selects pods and is no alias.
fn is_selecting(service: &Value) -> bool {
    service.str_at("/spec/type") != Some("ExternalName") && service.pointer("/spec/selector").is_some_and(Value::is_object)
}

fn is_headless(service: &Value) -> bool {
    matches!(service.str_at("/spec/clusterIP"), None | Some("" | "None"))
}

fn publishes_not_ready(service: &Value) -> bool {
    service.bool_at("/spec/publishNotReadyAddresses").unwrap_or(false)
}

/// Has an address and has not ended.
fn is_endpoint(pod: &Value, include_terminating: bool) -> bool {
    let has_address = !pod.str_at("/status/podIP").unwrap_or_default().is_empty() || !pod.array_at("/status/podIPs").is_empty();
    has_address && !pods::is_terminal(pod) && (include_terminating || !pod.is_deleting())
}

/// The zone of a node; `None` when the node does not exist.
fn zone_of(ctx: &Ctx, node: &str) -> Option<Option<String>> {
    let node = ctx.informer(&NODES).get("", node)?;
    Some(node.label("topology.kubernetes.io/zone").filter(|z| !z.is_empty()).map(str::to_string))
}
