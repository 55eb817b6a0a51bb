//! A new node takes no pods until it is known to be ready.

use super::util::list_mut;
use super::{Attributes, Operation, Plugin};
use crate::reader::Writer;
use crate::strategy::edit::ensure;
use async_trait::async_trait;
use serde_json::json;
use std::sync::Arc;
use sublet_machinery::ApiError;

pub(super) struct TaintNodesByCondition;

const NOT_READY: &str = "node.kubernetes.io/not-ready";

#[async_trait]
impl Plugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is_main("nodes")
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>, _: &Arc<dyn Writer>) -> Result<(), ApiError> {
        if let Some(node) = attributes.object.as_mut() {
            let taints = list_mut(ensure(node, "spec"), "taints");
            if !taints.iter().any(|t| t["key"] == NOT_READY && t["effect"] == "NoSchedule") {
                taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
            }
        }
        Ok(())
    }
}
