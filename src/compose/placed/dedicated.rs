//! A pod for one tenant: a shard like the others, with a volume and a name of its own.

use crate::install::SHARD;
use serde_json::{Value, json};
use sublet_api::{VirtualCluster, marks};
use sublet_machinery::ObjectExt;
use sublet_operator::tenant_service;

/// What one tenant's process asks for; the shared ones have room for many.
const MEMORY_REQUEST: &str = "48Mi";

/// The name of the `StatefulSet`; of its one pod it is the stem.
pub fn set_name(cluster: &VirtualCluster<'_>) -> String {
    tenant_service::short_name(cluster)
}

pub fn pod_name(cluster: &VirtualCluster<'_>) -> String {
    format!("{}-0", set_name(cluster))
}

/// The pod of a tenant, made like the shards of this installation: image, rights and storage follow theirs.
pub fn stateful_set(shards: &Value, cluster: &VirtualCluster<'_>, namespace: &str) -> Value {
    let labels = tenant_service::labels(cluster);
    let mut template = shards["spec"]["template"].clone();
    template["metadata"] = json!({"labels": labels});
    template["spec"].as_object_mut().map(|s| s.remove("topologySpreadConstraints"));
    template["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!(MEMORY_REQUEST);
    let claims: Vec<Value> = shards
        .array_at("/spec/volumeClaimTemplates")
        .iter()
        .map(|c| {
            let mut spec = c["spec"].clone();
            spec.as_object_mut().map(|s| s.remove("volumeMode"));
            json!({"metadata": {"name": c.name()}, "spec": spec})
        })
        .collect();
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {
            "name": set_name(cluster), "namespace": namespace, "labels": labels,
            "annotations": {marks::VIRTUAL_CLUSTER: format!("{}/{}", cluster.namespace(), cluster.name())},
        },
        "spec": {
            "replicas": 1, "serviceName": SHARD,
            "selector": {"matchLabels": {marks::CONTROL_PLANE_OF: cluster.uid()}},
            // It goes with its tenant, or when the tenant has moved elsewhere.
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
            "template": template,
        },
    });
    if !claims.is_empty() {
        set["spec"]["volumeClaimTemplates"] = json!(claims);
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::{Options, parts};

    #[test]
    fn a_dedicated_pod_is_as_restricted_as_a_shard_and_selects_itself_alone() {
        let all = parts(&Options::default());
        let shards = all.workloads.iter().find(|o| o.kind() == "StatefulSet").unwrap();
        let object = json!({"metadata": {"name": "alpha", "namespace": "team-a", "uid": "u"}});
        let set = stateful_set(shards, &VirtualCluster::new(&object), "sublet-system");
        let spec = &set["spec"]["template"]["spec"];
        assert_eq!(spec["securityContext"], shards["spec"]["template"]["spec"]["securityContext"]);
        assert_eq!(set["spec"]["selector"]["matchLabels"], json!({"sublet.dev/control-plane-of": "u"}));
        assert_eq!(set["spec"]["template"]["metadata"]["labels"]["sublet.dev/control-plane-of"], "u");
        assert_eq!(set["spec"]["volumeClaimTemplates"][0]["metadata"]["name"], "stores");
        assert!(set.name().len() <= 20, "the names of revisions and claims are longer");
    }
}
