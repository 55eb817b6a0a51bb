//! PersistentVolumes bound to claims of the tenant.

use super::{ShownKind, is_shown_by_us, labels, pick};
use crate::engine::host::HostKind;
use crate::resources::persistentvolumeclaim::PERSISTENT_VOLUME_CLAIM;
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
    namespace: "",
    // A volume whose claim is gone stays in sight as Released for as long as the host keeps it.
    select: |host, shown, translation| {
        is_in_our_namespace(host, translation)
            && (claim_of(host, translation).is_some()
                || shown.is_some_and(|s| is_shown_by_us(s) && s.annotation(marks::UID) == Some(host.uid())))
    },
    to_tenant: |host, shown, translation| {
        let mut spec = host["spec"].clone();
        spec["claimRef"] = match claim_of(host, translation) {
            Some(key) => {
                let mut claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": key.namespace, "name": key.name});
                if let Some(live) = translation.view.object(KindId::PersistentVolumeClaim, &key) {
                    claim["uid"] = json!(live.uid());
                }
                claim
            }
            None if host.str_at("/spec/claimRef/name") == Some(&reserved_name(host, translation)) => Value::Null,
            None => shown.map(|s| s["spec"]["claimRef"].clone()).unwrap_or_default(),
        };
        drop_secret_refs(&mut spec);
        let annotations = json!({marks::AGREED: host["spec"]["persistentVolumeReclaimPolicy"]});
        json!({"metadata": {"labels": labels(host), "annotations": annotations}, "spec": spec, "status": pick(&host["status"], &["phase", "message", "reason", "lastPhaseTransitionTime"])})
    },
    edits,
    linger_seconds: 0,
};

/// A volume that was ever bound stays bound to its namespace: that is how the host knows whose it is.
fn is_in_our_namespace(host: &Value, translation: &Translation<'_>) -> bool {
    host.str_at("/spec/claimRef/namespace") == Some(translation.names.host_namespace(""))
}

/// The tenant's claim behind the host claim that the volume is bound to.
fn claim_of(host: &Value, translation: &Translation<'_>) -> Option<TenantKey> {
    let claim = &host["spec"]["claimRef"];
    if !is_in_our_namespace(host, translation) {
        return None;
    }
    let key = translation.view.tenant_key(KindId::PersistentVolumeClaim, claim["name"].as_str()?)?;
    let copy = translation.view.host_copy(KindId::PersistentVolumeClaim, &key)?;
    (claim["uid"].is_null() || claim["uid"].as_str() == Some(copy.uid())).then_some(key)
}

/// What the tenant changed: the reclaim policy, and the claim of a volume that is bound no more.
fn edits(host: &Value, tenant: &Value, translation: &Translation<'_>) -> Option<Vec<Value>> {
    let mut operations = Vec::new();
    let policy = &tenant["spec"]["persistentVolumeReclaimPolicy"];
    let edited = tenant.annotation(marks::AGREED).is_some_and(|agreed| policy.as_str() != Some(agreed));
    if edited && *policy != host["spec"]["persistentVolumeReclaimPolicy"] {
        operations.push(json!({"op": "replace", "path": "/spec/persistentVolumeReclaimPolicy", "value": policy}));
    }
    operations
        .extend(claim_edit(host, tenant, translation).map(|claim| json!({"op": "replace", "path": "/spec/claimRef", "value": claim})));
    (!operations.is_empty()).then_some(operations)
}

/// The claim that the host's volume is to be kept for, where the tenant wants another one. Never for
/// nobody: then any claim of the host could bind the volume with the tenant's data on it.
fn claim_edit(host: &Value, tenant: &Value, translation: &Translation<'_>) -> Option<Value> {
    if host.str_at("/status/phase") == Some("Bound") {
        return None;
    }
    let (now, wish) = (&host["spec"]["claimRef"], &tenant["spec"]["claimRef"]);
    let name = match wish.str_at("/name") {
        // As it was shown: the claim that it was bound to.
        Some(_) if wish["uid"].is_string() => return None,
        Some(name) => translation.refer(&PERSISTENT_VOLUME_CLAIM, wish.str_at("/namespace").unwrap_or_default(), name),
        None => match translation.view.claim_for(tenant.name()) {
            Some(claim) => translation.refer(&PERSISTENT_VOLUME_CLAIM, claim.namespace(), claim.name()),
            None => reserved_name(host, translation),
        },
    };
    let same = now.str_at("/name") == Some(&name);
    // Without the UID, so that a new claim of the name can have it.
    let settled = same && (now["uid"].is_null() || claim_of(host, translation).is_some());
    let namespace = translation.names.host_namespace("");
    (!settled).then(|| json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}))
}

/// A name that no claim has, for a volume that waits for its next one.
fn reserved_name(host: &Value, translation: &Translation<'_>) -> String {
    translation.names.derived_name("released", &TenantKey::new("", host.name()), PERSISTENT_VOLUME_CLAIM.name_bytes_max)
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
