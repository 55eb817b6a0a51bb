//! What refers to what: the objects that a pod uses, for reference counts and wake-ups.

use serde_json::Value;
use std::collections::BTreeSet;
use sublet_machinery::ObjectExt;

pub const CONFIG_MAPS: &str = "configmaps";
pub const SECRETS: &str = "secrets";

/// A pod's reference to an object of its own namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    pub resource: &'static str,
    pub name: String,
}

/// Every ConfigMap and Secret that the pod names, optional ones included: they may appear later.
pub fn references(pod: &Value) -> BTreeSet<Reference> {
    let mut found = BTreeSet::new();
    let spec = &pod["spec"];
    for container in containers(spec) {
        for env in container.array_at("/env") {
            note(&mut found, CONFIG_MAPS, &env["valueFrom"]["configMapKeyRef"]["name"]);
            note(&mut found, SECRETS, &env["valueFrom"]["secretKeyRef"]["name"]);
        }
        for from in container.array_at("/envFrom") {
            note(&mut found, CONFIG_MAPS, &from["configMapRef"]["name"]);
            note(&mut found, SECRETS, &from["secretRef"]["name"]);
        }
    }
    for volume in spec.array_at("/volumes") {
        note(&mut found, CONFIG_MAPS, &volume["configMap"]["name"]);
        for source in volume.array_at("/projected/sources") {
            note(&mut found, CONFIG_MAPS, &source["configMap"]["name"]);
            note(&mut found, SECRETS, &source["secret"]["name"]);
        }
        for pointer in VOLUME_SECRETS {
            if let Some(name) = volume.pointer(pointer) {
                note(&mut found, SECRETS, name);
            }
        }
    }
    for pull in spec.array_at("/imagePullSecrets") {
        note(&mut found, SECRETS, &pull["name"]);
    }
    found
}

/// Where volumes name secrets of the pod's namespace.
pub const VOLUME_SECRETS: [&str; 10] = [
    "/secret/secretName",
    "/azureFile/secretName",
    "/csi/nodePublishSecretRef/name",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/flexVolume/secretRef/name",
    "/iscsi/secretRef/name",
    "/rbd/secretRef/name",
    "/scaleIO/secretRef/name",
    "/storageos/secretRef/name",
];

/// The containers of all three lists.
pub fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["/initContainers", "/containers", "/ephemeralContainers"].into_iter().flat_map(|list| spec.array_at(list))
}

fn note(found: &mut BTreeSet<Reference>, resource: &'static str, name: &Value) {
    if let Some(name) = name.as_str().filter(|n| !n.is_empty()) {
        found.insert(Reference { resource, name: name.to_string() });
    }
}

/// The key under which an index finds the pods that use an object.
pub fn usage_key(resource: &str, namespace: &str, name: &str) -> String {
    format!("{resource}/{namespace}/{name}")
}

/// The parts of a [`usage_key`]: resource, namespace and name.
pub fn parse_usage_key(key: &str) -> Option<(&str, &str, &str)> {
    let (resource, rest) = key.split_once('/')?;
    let (namespace, name) = rest.split_once('/')?;
    Some((resource, namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_way_to_name_a_config_map_or_secret_counts() {
        let pod = json!({"spec": {
            "containers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": "a"}}}, {"valueFrom": {"secretKeyRef": {"name": "s1"}}}]}],
            "initContainers": [{"envFrom": [{"configMapRef": {"name": "b"}}, {"secretRef": {"name": "s2"}}]}],
            "ephemeralContainers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": "c", "optional": true}}}]}],
            "volumes": [
                {"configMap": {"name": "d"}},
                {"projected": {"sources": [{"configMap": {"name": "e"}}, {"secret": {"name": "s3"}}]}},
                {"secret": {"secretName": "s4"}},
                {"csi": {"nodePublishSecretRef": {"name": "s5"}}},
            ],
            "imagePullSecrets": [{"name": "s6"}, {}],
        }});
        let names = |resource| references(&pod).into_iter().filter(|r| r.resource == resource).map(|r| r.name).collect::<Vec<_>>();
        assert_eq!(names(CONFIG_MAPS), ["a", "b", "c", "d", "e"]);
        assert_eq!(names(SECRETS), ["s1", "s2", "s3", "s4", "s5", "s6"]);
    }
}
