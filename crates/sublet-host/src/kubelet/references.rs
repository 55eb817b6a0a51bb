//! Config maps, secrets and claims that a pod needs before its containers can start.

use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::resources::{CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, SECRETS};

/// Reads an object of the pod's namespace.
pub(crate) type Lookup<'a> = &'a dyn Fn(&Gvr, &str) -> Option<Arc<Value>>;

/// A kind of object with keys: how messages call it.
#[derive(Clone, Copy)]
struct Keyed {
    gvr: &'static Gvr,
    word: &'static str,
    kind: &'static str,
    missing_key: &'static str,
}

static CONFIG_MAPS_GVR: Gvr = CONFIG_MAPS;
static SECRETS_GVR: Gvr = SECRETS;
static CLAIMS_GVR: Gvr = PERSISTENT_VOLUME_CLAIMS;
const CONFIG_MAP: Keyed =
    Keyed { gvr: &CONFIG_MAPS_GVR, word: "configmap", kind: "ConfigMap", missing_key: "configmap references non-existent config key" };
const SECRET: Keyed = Keyed { gvr: &SECRETS_GVR, word: "secret", kind: "Secret", missing_key: "references non-existent secret key" };

/// Why a volume cannot be mounted yet, in the words of the FailedMount event.
pub(crate) fn volume_trouble(pod: &Value, lookup: Lookup<'_>) -> Option<String> {
    pod.array_at("/spec/volumes").iter().find_map(|volume| {
        let name = volume["name"].as_str().unwrap_or_default();
        if let Some(claim) = claim_name(pod, volume) {
            return claim_trouble(pod, name, &claim, lookup);
        }
        source_trouble(volume, lookup).map(|why| format!("MountVolume.SetUp failed for volume \"{name}\" : {why}"))
    })
}

fn source_trouble(volume: &Value, lookup: Lookup<'_>) -> Option<String> {
    if let Some(source) = volume.get("configMap") {
        return keyed_trouble(CONFIG_MAP, source, "name", lookup);
    }
    if let Some(source) = volume.get("secret") {
        return keyed_trouble(SECRET, source, "secretName", lookup);
    }
    volume.array_at("/projected/sources").iter().find_map(|source| {
        let config_map = source.get("configMap").and_then(|s| keyed_trouble(CONFIG_MAP, s, "name", lookup));
        config_map.or_else(|| source.get("secret").and_then(|s| keyed_trouble(SECRET, s, "name", lookup)))
    })
}

fn keyed_trouble(keyed: Keyed, source: &Value, name_field: &str, lookup: Lookup<'_>) -> Option<String> {
    let optional = source["optional"] == true;
    let name = source[name_field].as_str().unwrap_or_default();
    let Some(object) = lookup(keyed.gvr, name) else {
        return (!optional).then(|| format!("{} \"{name}\" not found", keyed.word));
    };
    let missing = source.array_at("/items").iter().filter_map(|i| i["key"].as_str()).find(|key| !has_key(&object, key))?;
    (!optional).then(|| format!("{}: {missing}", keyed.missing_key))
}

fn claim_trouble(pod: &Value, volume: &str, claim: &str, lookup: Lookup<'_>) -> Option<String> {
    let why = match lookup(&CLAIMS_GVR, claim) {
        None => format!("failed to fetch PVC from API server: persistentvolumeclaims \"{claim}\" not found"),
        Some(found) if found.is_deleting() => "PVC is being deleted".to_string(),
        Some(found) if found.str_at("/status/phase") != Some("Bound") => "PVC is not bound".to_string(),
        Some(_) => return None,
    };
    Some(format!(
        "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], failed to process volumes=[{volume}]: error processing PVC {}/{claim}: {why}",
        pod.namespace()
    ))
}

/// The claim behind a volume, ephemeral ones included.
pub(crate) fn claim_name(pod: &Value, volume: &Value) -> Option<String> {
    if let Some(name) = volume.str_at("/persistentVolumeClaim/claimName") {
        return Some(name.to_string());
    }
    volume.get("ephemeral")?;
    Some(format!("{}-{}", pod.name(), volume["name"].as_str().unwrap_or_default()))
}

/// Why the environment of a container cannot be made, as CreateContainerConfigError tells it.
pub(crate) fn config_trouble(pod: &Value, container: &Value, lookup: Lookup<'_>) -> Option<String> {
    let from_all = container.array_at("/envFrom").iter().find_map(|source| {
        let keyed = [("configMapRef", CONFIG_MAP), ("secretRef", SECRET)];
        keyed.into_iter().find_map(|(field, keyed)| keyed_trouble(keyed, source.get(field)?, "name", lookup))
    });
    from_all.or_else(|| {
        container.array_at("/env").iter().find_map(|variable| {
            let from = variable.get("valueFrom")?;
            [("configMapKeyRef", CONFIG_MAP), ("secretKeyRef", SECRET)]
                .into_iter()
                .find_map(|(field, keyed)| key_trouble(pod, keyed, from.get(field)?, lookup))
        })
    })
}

fn key_trouble(pod: &Value, keyed: Keyed, reference: &Value, lookup: Lookup<'_>) -> Option<String> {
    if reference["optional"] == true {
        return None;
    }
    let name = reference["name"].as_str().unwrap_or_default();
    let key = reference["key"].as_str().unwrap_or_default();
    match lookup(keyed.gvr, name) {
        None => Some(format!("{} \"{name}\" not found", keyed.word)),
        Some(object) if !has_key(&object, key) => Some(format!("couldn't find key {key} in {} {}/{name}", keyed.kind, pod.namespace())),
        Some(_) => None,
    }
}

fn has_key(object: &Value, key: &str) -> bool {
    ["data", "binaryData"].iter().any(|field| object[*field].get(key).is_some())
}

/// Everything that the pod refers to, so that it can be woken when one of them appears.
pub(crate) fn references(pod: &Value) -> Vec<(&'static Gvr, String)> {
    let mut found = Vec::new();
    let mut add = |gvr: &'static Gvr, name: Option<&str>| {
        if let Some(name) = name {
            found.push((gvr, name.to_string()));
        }
    };
    for volume in pod.array_at("/spec/volumes") {
        add(&CONFIG_MAPS_GVR, volume.str_at("/configMap/name"));
        add(&SECRETS_GVR, volume.str_at("/secret/secretName"));
        add(&CLAIMS_GVR, claim_name(pod, volume).as_deref());
        for source in volume.array_at("/projected/sources") {
            add(&CONFIG_MAPS_GVR, source.str_at("/configMap/name"));
            add(&SECRETS_GVR, source.str_at("/secret/name"));
        }
    }
    for container in pod.array_at("/spec/initContainers").iter().chain(pod.array_at("/spec/containers")) {
        for source in container.array_at("/envFrom") {
            add(&CONFIG_MAPS_GVR, source.str_at("/configMapRef/name"));
            add(&SECRETS_GVR, source.str_at("/secretRef/name"));
        }
        for variable in container.array_at("/env") {
            add(&CONFIG_MAPS_GVR, variable.str_at("/valueFrom/configMapKeyRef/name"));
            add(&SECRETS_GVR, variable.str_at("/valueFrom/secretKeyRef/name"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lookup(gvr: &Gvr, name: &str) -> Option<Arc<Value>> {
        match (&*gvr.resource, name) {
            ("configmaps", "here") => Some(Arc::new(json!({"data": {"a": "1"}, "binaryData": {"b": ""}}))),
            ("persistentvolumeclaims", "bound") => Some(Arc::new(json!({"status": {"phase": "Bound"}}))),
            ("persistentvolumeclaims", "pending") => Some(Arc::new(json!({"status": {"phase": "Pending"}}))),
            _ => None,
        }
    }

    #[test]
    fn volumes_wait_for_what_they_name() {
        let check = |volume: Value, expected: Option<&str>| {
            let pod = json!({"metadata": {"namespace": "n", "name": "p"}, "spec": {"volumes": [volume]}});
            assert_eq!(volume_trouble(&pod, &lookup).as_deref(), expected, "{pod}");
        };
        check(json!({"name": "v", "configMap": {"name": "here"}}), None);
        check(
            json!({"name": "v", "configMap": {"name": "gone"}}),
            Some("MountVolume.SetUp failed for volume \"v\" : configmap \"gone\" not found"),
        );
        check(json!({"name": "v", "secret": {"secretName": "gone", "optional": true}}), None);
        check(
            json!({"name": "v", "configMap": {"name": "here", "items": [{"key": "b"}, {"key": "c"}]}}),
            Some("MountVolume.SetUp failed for volume \"v\" : configmap references non-existent config key: c"),
        );
        check(
            json!({"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}, {"secret": {"name": "s"}}]}}),
            Some("MountVolume.SetUp failed for volume \"v\" : secret \"s\" not found"),
        );
        check(json!({"name": "v", "persistentVolumeClaim": {"claimName": "bound"}}), None);
        let pod = json!({"metadata": {"namespace": "n", "name": "p"}, "spec": {"volumes": [
            {"name": "v", "persistentVolumeClaim": {"claimName": "pending"}}]}});
        assert!(volume_trouble(&pod, &lookup).unwrap().ends_with("error processing PVC n/pending: PVC is not bound"));
    }

    #[test]
    fn environments_wait_for_keys() {
        let check = |variable: Value, expected: Option<&str>| {
            let pod = json!({"metadata": {"namespace": "n"}});
            assert_eq!(config_trouble(&pod, &json!({"env": [variable]}), &lookup).as_deref(), expected);
        };
        check(json!({"name": "A", "valueFrom": {"configMapKeyRef": {"name": "here", "key": "a"}}}), None);
        check(
            json!({"name": "A", "valueFrom": {"configMapKeyRef": {"name": "here", "key": "x"}}}),
            Some("couldn't find key x in ConfigMap n/here"),
        );
        check(json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "x"}}}), Some("secret \"s\" not found"));
        check(json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "x", "optional": true}}}), None);
    }
}
