//! The built-in types: one table of nodes, built once in a process and shared by all API servers in it.

mod build;
mod golang;
pub(crate) mod parse;
mod zero;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use sublet_machinery::{NodeId, Schema, Table};

/// The types of the built-in kinds.
#[derive(Debug)]
pub struct Builtin {
    pub table: Arc<Table>,
    /// By published name: `io.k8s.api.core.v1.Pod`.
    types: HashMap<Box<str>, NodeId>,
    /// By `group/version/kind`.
    kinds: HashMap<&'static str, NodeId>,
    zeros: zero::Zeros,
    /// The scalar fields that are left out when they are zero.
    vanishing: zero::Vanishing,
}

/// The built-in types.
pub fn builtin() -> &'static Builtin {
    static BUILTIN: OnceLock<Builtin> = OnceLock::new();
    BUILTIN.get_or_init(|| build::build(TYPES, MESSAGES))
}

impl Builtin {
    /// A type by its published name, such as `io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta`.
    pub fn named(&self, name: &str) -> Option<Schema> {
        self.types.get(name).map(|id| self.schema(*id))
    }

    /// The type registered for a kind. Kinds without a published type, such as `PodExecOptions`, have none.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<Schema> {
        self.kinds.get(format!("{group}/{version}/{kind}").as_str()).map(|id| self.schema(*id))
    }

    /// The type of `metadata` in every object.
    pub fn object_meta(&self) -> Schema {
        self.named(OBJECT_META).expect("the facts have ObjectMeta")
    }

    fn schema(&self, root: NodeId) -> Schema {
        Schema { table: self.table.clone(), root }
    }
}

pub const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
/// Written by `sublet-facts`.
pub(crate) const TYPES: &str = include_str!("types.txt");
/// Written by `sublet-facts`.
pub(crate) const MESSAGES: &str = include_str!("messages.txt");
/// Written by `sublet-facts`.
pub(crate) const RESOURCES: &str = include_str!("resources.tsv");
/// Written by `sublet-facts`.
pub(crate) const GROUPS: &str = include_str!("groups.tsv");

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sublet_machinery::{ListType, MapType, PatchStrategy, SchemaNode, ValueType};

    fn at<'a>(schema: &'a Schema, path: &str) -> SchemaNode<'a> {
        path.split('.').fold(schema.node(), |node, step| match step {
            "[]" => node.items().expect("items"),
            "{}" => node.additional().expect("additional"),
            name => node.property(name).unwrap_or_else(|| panic!("no {name} in {path}")),
        })
    }

    #[test]
    fn the_pod_type_has_its_facts() {
        let pod = builtin().kind("", "v1", "Pod").expect("Pod");
        assert_eq!(pod.node().type_name.as_deref(), Some("io.k8s.api.core.v1.Pod"));
        let containers = at(&pod, "spec.containers");
        assert_eq!(containers.list_type, ListType::Map);
        assert_eq!(containers.patch_strategy, PatchStrategy::Merge);
        assert_eq!(containers.patch_merge_key.as_deref(), Some("name"));
        assert_eq!(at(&pod, "spec.volumes").patch_strategy, PatchStrategy::MergeRetainKeys);
        let ports = at(&pod, "spec.containers.[].ports");
        assert_eq!(ports.list_map_keys, ["containerPort".into(), "protocol".into()] as [Box<str>; 2]);
        assert_eq!(at(&pod, "spec.containers.[].ports.[].protocol").default, Some(json!("TCP")));
        assert_eq!(at(&pod, "spec.containers.[].resources.limits.{}").format.as_deref(), Some("quantity"));
        assert!(at(&pod, "spec.containers.[].livenessProbe.httpGet.port").int_or_string);
        assert_eq!(at(&pod, "spec.nodeSelector").map_type, MapType::Atomic);
        assert_eq!(at(&pod, "metadata.creationTimestamp").format.as_deref(), Some("date-time"));
        assert_eq!(at(&pod, "metadata.ownerReferences").patch_merge_key.as_deref(), Some("uid"));
        assert_eq!(at(&pod, "spec.activeDeadlineSeconds").value_type, ValueType::Integer);
        assert!(at(&pod, "metadata.managedFields.[].fieldsV1").preserve_unknown);
    }

    #[test]
    fn placeholders_are_no_defaults() {
        let deployment = builtin().kind("apps", "v1", "Deployment").expect("Deployment");
        assert_eq!(at(&deployment, "spec").default, None);
        assert_eq!(at(&deployment, "spec.strategy").patch_strategy, PatchStrategy::RetainKeys);
        assert_eq!(at(&deployment, "spec.strategy").default, None);
        assert_eq!(at(&deployment, "spec.template.spec.containers.[].name").default, None);
        let table = &builtin().table;
        let defaults = (0..table.len()).filter(|id| table.node(*id as NodeId).default.is_some()).count();
        // Fifteen, four of them again with the name of their Go type.
        assert_eq!(defaults, 19);
    }

    #[test]
    fn real_zero_defaults_stay() {
        let pod = builtin().kind("", "v1", "Pod").expect("Pod");
        assert_eq!(at(&pod, "spec.containers.[].livenessProbe.grpc.service").default, Some(json!("")));
        assert_eq!(at(&pod, "spec.containers.[].env.[].valueFrom.fileKeyRef.optional").default, Some(json!(false)));
    }

    #[test]
    fn recursive_types_name_themselves() {
        let crd = builtin().kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").expect("CustomResourceDefinition");
        let schema = at(&crd, "spec.versions.[].schema.openAPIV3Schema");
        assert_eq!(schema.property("properties").and_then(SchemaNode::additional).map(SchemaNode::id), Some(schema.id()));
        assert!(at(&crd, "spec.versions.[].schema.openAPIV3Schema.default").preserve_unknown);
        assert_eq!(at(&crd, "spec.versions.[].schema.openAPIV3Schema.items").value_type, ValueType::Any);
    }

    #[test]
    fn secrets_hold_bytes() {
        let secret = builtin().kind("", "v1", "Secret").expect("Secret");
        assert_eq!(at(&secret, "data.{}").format.as_deref(), Some("byte"));
    }

    #[test]
    fn the_table_is_small() {
        let table = &builtin().table;
        assert!(table.len() < 1500, "{} nodes", table.len());
    }
}
