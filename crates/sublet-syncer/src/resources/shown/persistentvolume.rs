//! PersistentVolumes bound to claims of the tenant.

use super::{ShownKind, is_shown_by_us, labels, pick};
use crate::engine::host::HostKind;
use crate::resources::{KindId, Translation};
use crate::translate::TenantKey;
use serde_json::{Value, json};
use sublet_api::marks;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources as gvr;

pub(super) const PERSISTENT_VOLUME: ShownKind = ShownKind {
    id: KindId::PersistentVolume,
    host: HostKind::PersistentVolumes,
    gvr: gvr::PERSISTENT_VOLUMES,
    kind: "PersistentVolume",
    // A volume whose claim is gone stays in sight as Released for as long as the host keeps it.
    select: |host, shown, translation| {
        claim_of(host, translation).is_some()
            || host["spec"]["claimRef"].is_object()
                && shown.is_some_and(|s| is_shown_by_us(s) && s.annotation(marks::UID) == Some(host.uid()))
    },
    to_tenant: |host, shown, translation| {
        let mut spec = host["spec"].clone();
        spec["claimRef"] = match claim_of(host, translation) {
            Some(key) => {
                let mut claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": key.namespace, "name": key.name});
                if let Some(live) = translation.view.claim(&key) {
                    claim["uid"] = json!(live.uid());
                }
                claim
            }
            None => shown.map(|s| s["spec"]["claimRef"].clone()).unwrap_or_default(),
        };
        drop_secret_refs(&mut spec);
        json!({"metadata": {"labels": labels(host)}, "spec": spec, "status": pick(&host["status"], &["phase", "message", "reason", "lastPhaseTransitionTime"])})
    },
    linger_seconds: 0,
};

/// The tenant's claim behind the host claim that the volume is bound to.
fn claim_of(host: &Value, translation: &Translation<'_>) -> Option<TenantKey> {
    let claim = &host["spec"]["claimRef"];
    if claim["namespace"].as_str() != Some(translation.names.host_namespace("")) {
        return None;
    }
    let key = translation.view.tenant_key(KindId::PersistentVolumeClaim, claim["name"].as_str()?)?;
    let copy = translation.view.host_copy(KindId::PersistentVolumeClaim, &key)?;
    (claim["uid"].is_null() || claim["uid"].as_str() == Some(copy.uid())).then_some(key)
}

/// Secrets of the host's drivers are no business of a tenant.
fn drop_secret_refs(spec: &mut Value) {
    for source in spec.as_object_mut().into_iter().flatten().filter_map(|(_, v)| v.as_object_mut()) {
        source.retain(|key, _| !key.ends_with("SecretRef") && key != "secretRef" && key != "secretName" && key != "secretNamespace");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_drivers_are_not_shown() {
        let mut spec = json!({"csi": {"driver": "d", "nodePublishSecretRef": {"name": "s"}}, "rbd": {"secretRef": {}}, "capacity": {"storage": "1Gi"}});
        drop_secret_refs(&mut spec);
        assert_eq!(spec, json!({"csi": {"driver": "d"}, "rbd": {}, "capacity": {"storage": "1Gi"}}));
    }
}
