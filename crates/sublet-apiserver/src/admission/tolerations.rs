//! Pods stay for five minutes on a node that is not ready or cannot be reached.

use super::util::list_mut;
use super::{Attributes, Operation, Plugin};
use crate::reader::Writer;
use crate::strategy::edit::{ensure, is_zero};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::ApiError;

pub(super) struct DefaultTolerationSeconds;

const STAY_SECONDS: i64 = 300;

#[async_trait]
impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is_main("pods") && matches!(attributes.operation, Operation::Create | Operation::Update)
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>, _: &Arc<dyn Writer>) -> Result<(), ApiError> {
        if let Some(pod) = attributes.object.as_mut() {
            let tolerations = list_mut(ensure(pod, "spec"), "tolerations");
            for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
                if !tolerations.iter().any(|t| tolerates_eviction(t, key)) {
                    tolerations.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": STAY_SECONDS}));
                }
            }
        }
        Ok(())
    }
}

fn tolerates_eviction(toleration: &Value, key: &str) -> bool {
    (is_zero(&toleration["key"]) || toleration["key"] == key) && (is_zero(&toleration["effect"]) || toleration["effect"] == "NoExecute")
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Request, store};
    use super::*;

    #[tokio::test]
    async fn only_what_is_missing_is_added() {
        let pod =
            json!({"metadata": {"name": "p"}, "spec": {"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]}});
        let (pod, _) = Request::create("pods", "n", pod).mutate(&DefaultTolerationSeconds, &store(&[])).await.expect("accepted");
        assert_eq!(pod["spec"]["tolerations"].as_array().map(Vec::len), Some(2));
        assert_eq!(pod["spec"]["tolerations"][1]["key"], "node.kubernetes.io/unreachable");
    }
}
