//! A pod learns zone and region of its node as labels, when it is bound or made on the node.

use super::{Attributes, Operation, Plugin};
use crate::reader::Writer;
use crate::strategy::edit::ensure;
use async_trait::async_trait;
use std::sync::Arc;
use sublet_machinery::{ApiError, ObjectExt};

pub(super) struct PodTopologyLabels;

const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

#[async_trait]
impl Plugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is("pods") && matches!(attributes.subresource, "" | "binding")
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let binding = attributes.subresource == "binding";
        let Some(object) = attributes.object.as_mut() else { return Ok(()) };
        let node = match binding {
            true if object.str_at("/target/kind") == Some("Node") => object.str_at("/target/name"),
            true => None,
            false => object.str_at("/spec/nodeName"),
        };
        let Some(node) = node.filter(|n| !n.is_empty()).and_then(|name| store.get("nodes", "", name)) else { return Ok(()) };
        ensure(object, "metadata");
        for label in LABELS {
            if let Some(value) = node.label(label) {
                object.set_label(label, value);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Request, store};
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn a_binding_carries_the_zone() {
        let store = store(&[("nodes", json!({"metadata": {"name": "node", "labels": {LABELS[0]: "z", "other": "x"}}}))]);
        let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "node"}});
        let (binding, _) =
            Request::create("pods", "n", binding).part("binding").mutate(&PodTopologyLabels, &store).await.expect("accepted");
        assert_eq!(binding["metadata"]["labels"], json!({LABELS[0]: "z"}));
    }
}
