//! Which replica set is the new one, and making it.

use super::annotations;
use super::replicas::{max_surge, new_size, oldest_first, sum, wanted};
use crate::kit::{count_at, template};
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::ObjectExt;

const HASH_LABEL: &str = "pod-template-hash";

/// Two pod templates mean the same, whatever hash label they carry.
pub(super) fn same_template(a: &Value, b: &Value) -> bool {
    without_hash(a) == without_hash(b)
}

fn without_hash(template: &Value) -> Value {
    let mut plain = template::plain(template);
    plain.remove_at(&format!("/metadata/labels/{HASH_LABEL}"));
    plain
}

/// Splits the sets into the one with the deployment's template, the oldest if there are several, and
/// the others.
pub(super) fn split(deployment: &Value, mut sets: Vec<Arc<Value>>) -> (Option<Value>, Vec<Value>) {
    sets.sort_by(|a, b| oldest_first(a, b));
    let wanted = without_hash(&deployment["spec"]["template"]);
    let new = sets.iter().position(|s| without_hash(&s["spec"]["template"]) == wanted);
    let new = new.map(|at| sets.remove(at).as_ref().clone());
    (new, sets.into_iter().map(|s| s.as_ref().clone()).collect())
}

/// The new replica set, with the size that the others leave it.
pub(super) fn make(deployment: &Value, old: &[Value], revision: i64) -> Value {
    let mut pod_template = deployment["spec"]["template"].clone();
    let collisions = deployment.i64_at("/status/collisionCount");
    let hash = template::template_hash(&pod_template, collisions);
    pod_template.set_at(&format!("/metadata/labels/{HASH_LABEL}"), json!(hash));
    let mut selector = deployment["spec"]["selector"].clone();
    selector.set_at(&format!("/matchLabels/{HASH_LABEL}"), json!(hash));
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": template::joined_name(deployment.name(), &hash), "namespace": deployment.namespace(),
            "ownerReferences": [template::controller_reference(deployment, &super::DEPLOYMENT)],
            "labels": pod_template["metadata"]["labels"].clone(),
        },
        "spec": {"replicas": new_size(deployment, sum(old, "/spec/replicas"), 0), "selector": selector, "template": pod_template},
    });
    let min_ready = count_at(deployment, "/spec/minReadySeconds");
    if min_ready > 0 {
        set["spec"]["minReadySeconds"] = json!(min_ready);
    }
    annotations::bring_up_to_date(deployment, &mut set, revision);
    annotations::set_sizes(&mut set, wanted(deployment), wanted(deployment) + max_surge(deployment));
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_label_does_not_make_templates_differ() {
        let a = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"x": 1}});
        let b = json!({"metadata": {"labels": {"a": "b", HASH_LABEL: "h"}, "creationTimestamp": null}, "spec": {"x": 1}});
        assert!(same_template(&a, &b));
        assert!(!same_template(&a, &json!({"metadata": {"labels": {"a": "b"}}, "spec": {"x": 2}})));
    }
}
