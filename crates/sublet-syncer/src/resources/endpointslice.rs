//! EndpointSlices that the host's controllers do not make themselves: those of services without a
//! selector, written by people or mirrored from Endpoints. A slice has one owner, here or there.

use super::manifest::{Field, copied, translated};
use super::{KindId, Refusal, SyncedKind, Translation, service};
use crate::translate::TenantKey;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

pub const ENDPOINT_SLICE: SyncedKind = SyncedKind {
    group: "discovery.k8s.io",
    fields: &[&FIELDS],
    select: |object, _| is_custom(object),
    hook: to_host,
    ..SyncedKind::core_v1(KindId::EndpointSlice, "EndpointSlice", "endpointslices")
};

const FIELDS: [Field; 3] = [copied("/addressType"), copied("/ports"), translated("/endpoints")];

const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
/// Slices with this value are made on the host as well, from the host's pods.
const BY_SELECTOR: &str = "endpointslice-controller.k8s.io";
/// The host's controllers leave slices with this value alone.
const BY_US: &str = "sublet.dev";

fn is_custom(slice: &Value) -> bool {
    let service = slice.label(service::SERVICE_NAME_LABEL).unwrap_or_default();
    slice.label(MANAGED_BY_LABEL) != Some(BY_SELECTOR) && !service::is_api_service(&TenantKey::new(slice.namespace(), service))
}

fn to_host(host: &mut Value, tenant: &Value, translation: &Translation<'_>) -> Result<(), Refusal> {
    let namespace = tenant.namespace();
    if let Some(name) = tenant.label(service::SERVICE_NAME_LABEL) {
        host.set_label(service::SERVICE_NAME_LABEL, &translation.refer(&service::SERVICE, namespace, name));
    }
    host.set_label(MANAGED_BY_LABEL, BY_US);
    let mut endpoints = tenant.array_at("/endpoints").to_vec();
    for endpoint in &mut endpoints {
        let target = &endpoint["targetRef"];
        if target.is_null() {
            continue;
        }
        let copy = (target["kind"] == "Pod")
            .then(|| TenantKey::new(target["namespace"].as_str().unwrap_or(namespace), target["name"].as_str().unwrap_or_default()));
        match copy.and_then(|key| translation.view.host_copy(KindId::Pod, &key)) {
            Some(pod) => {
                endpoint["targetRef"] = json!({"kind": "Pod", "namespace": pod.namespace(), "name": pod.name(), "uid": pod.uid()});
            }
            // A reference that leads nowhere on the host says nothing there.
            None => {
                endpoint.remove_at("/targetRef");
            }
        }
    }
    host["endpoints"] = Value::Array(endpoints);
    Ok(())
}
