//! Volumes: what they name, in the host's names.

use super::containers::refer;
use super::{bundle, certificate, downward, token};
use crate::index::VOLUME_SECRETS;
use crate::resources::{Refusal, Translation, configmap, persistentvolumeclaim, secret};
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

pub(super) fn translate(host: &mut Value, tenant: &Value, translation: &Translation<'_>) -> Result<(), Refusal> {
    let mut volumes = tenant["spec"]["volumes"].clone();
    let Some(items) = volumes.as_array_mut().filter(|items| !items.is_empty()) else { return Ok(()) };
    // Sources are numbered over the whole pod: the number is part of the key in the pod's Secret.
    let mut next = Numbers::default();
    for (index, volume) in items.iter_mut().enumerate() {
        translate_one(volume, index, tenant, &mut next, translation)?;
    }
    host["spec"]["volumes"] = volumes;
    Ok(())
}

/// The next of each kind of source that the pod's Secret holds.
#[derive(Default)]
struct Numbers {
    token: usize,
    bundle: usize,
    certificate: usize,
}

impl Numbers {
    fn take(next: &mut usize) -> usize {
        *next += 1;
        *next - 1
    }
}

fn translate_one(
    volume: &mut Value,
    index: usize,
    tenant: &Value,
    next: &mut Numbers,
    translation: &Translation<'_>,
) -> Result<(), Refusal> {
    let namespace = tenant.namespace();
    refer(volume, "/configMap/name", namespace, &configmap::CONFIG_MAP, translation);
    for pointer in VOLUME_SECRETS {
        refer(volume, pointer, namespace, &secret::SECRET, translation);
    }
    refer(volume, "/persistentVolumeClaim/claimName", namespace, &persistentvolumeclaim::PERSISTENT_VOLUME_CLAIM, translation);
    if volume.get("ephemeral").is_some_and(Value::is_object) {
        // The tenant's ephemeral volume controller makes the claim; the host only mounts it.
        let claim = format!("{}-{}", tenant.name(), volume["name"].as_str().unwrap_or_default());
        let claim = translation.refer(&persistentvolumeclaim::PERSISTENT_VOLUME_CLAIM, namespace, &claim);
        *volume = json!({"name": volume["name"], "persistentVolumeClaim": {"claimName": claim}});
    }
    if volume.get("glusterfs").is_some_and(Value::is_object) {
        return Err(Refusal::new(format!("spec.volumes[{index}].glusterfs"), "names Endpoints, which do not exist on the host"));
    }
    rewrite_items(volume.get_mut("downwardAPI"));
    let Some(sources) = volume.pointer_mut("/projected/sources").and_then(Value::as_array_mut) else { return Ok(()) };
    for source in sources {
        refer(source, "/configMap/name", namespace, &configmap::CONFIG_MAP, translation);
        refer(source, "/secret/name", namespace, &secret::SECRET, translation);
        rewrite_items(source.get_mut("downwardAPI"));
        let own = if let Some(path) = source.str_at("/serviceAccountToken/path") {
            vec![json!({"key": token::data_key(Numbers::take(&mut next.token)), "path": path})]
        } else if let Some(bundle) = source.get("clusterTrustBundle").filter(|b| b.is_object()) {
            vec![json!({"key": bundle::data_key(Numbers::take(&mut next.bundle)), "path": bundle["path"]})]
        } else if let Some(certificate) = source.get("podCertificate").filter(|c| c.is_object()) {
            certificate::items(Numbers::take(&mut next.certificate), certificate)
        } else {
            continue;
        };
        *source = json!({"secret": {"name": token::secret_name(translation.names, namespace, tenant.name()), "items": own}});
    }
    Ok(())
}

fn rewrite_items(downward_api: Option<&mut Value>) {
    let Some(items) = downward_api.and_then(|d| d.get_mut("items")).and_then(Value::as_array_mut) else { return };
    for item in items {
        if let Some(path) = item.pointer_mut("/fieldRef/fieldPath")
            && let Some(text) = path.as_str()
        {
            *path = json!(downward::host_path(text));
        }
    }
}
