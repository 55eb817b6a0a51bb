//! A pod grows in place only as far as its node could ever hold it.

use super::{Attributes, Operation, Plugin};
use crate::reader::Writer;
use crate::strategy::quantities::{pod_sum, read_list};
use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::{ApiError, Cause, ObjectExt, Quantity};

pub(super) struct PodResizeValidator;

#[async_trait]
impl Plugin for PodResizeValidator {
    fn name(&self) -> &'static str {
        "PodResizeValidator"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Update && attributes.is("pods") && attributes.subresource == "resize"
    }

    async fn validate(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let (Some(pod), Some(old)) = (&attributes.object, &attributes.old) else { return Ok(()) };
        let name = pod.str_at("/spec/nodeName").unwrap_or_default();
        if name.is_empty() || old.generation() == pod.generation() {
            return Ok(());
        }
        let Some(node) = store.get("nodes", "", name) else {
            return Err(attributes.forbidden(format_args!("node {name:?} not found")));
        };
        let refusal = match node.label("kubernetes.io/os") {
            Some(os) if os != "linux" => {
                let why = format!("pod resize is only supported on linux nodes, node {name:?} is {os:?}");
                Some((why, "UnsupportedPlatform"))
            }
            _ => capacity_error(pod, &node).map(|why| (why, "NodeCapacity")),
        };
        refusal.map_or(Ok(()), |(why, reason)| {
            let mut error = attributes.forbidden(why);
            error.causes.push(Cause { reason: reason.into(), message: String::new(), field: String::new() });
            Err(error)
        })
    }
}

fn capacity_error(pod: &Value, node: &Value) -> Option<String> {
    let (requests, allocatable) = (pod_sum(&pod["spec"], "requests"), read_list(&node["status"]["allocatable"]));
    let units: [(&str, fn(&Quantity) -> i64); 2] = [("cpu", Quantity::milli_value), ("memory", Quantity::value)];
    let zero = Quantity::default();
    let over: Vec<String> = units
        .iter()
        .filter_map(|(name, unit)| {
            let (wanted, has) = (requests.get(*name).unwrap_or(&zero), allocatable.get(*name).unwrap_or(&zero));
            (wanted > has).then(|| format!("{name}, requested: {}, allocatable: {}", unit(wanted), unit(has)))
        })
        .collect();
    (!over.is_empty()).then(|| format!("node didn't have enough allocatable resources: {}", over.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Request, store};
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn a_pod_larger_than_its_node_is_refused() {
        let store = store(&[("nodes", json!({"metadata": {"name": "node"}, "status": {"allocatable": {"cpu": "2", "memory": "1Gi"}}}))]);
        let pod = |generation: i64, cpu: &str| json!({"metadata": {"name": "p", "generation": generation}, "spec": {"nodeName": "node", "containers": [{"resources": {"requests": {"cpu": cpu}}}]}});
        let resize = |cpu: &str| Request::update("pods", "n", pod(2, cpu), pod(1, "1")).part("resize");
        assert!(resize("2").validate(&PodResizeValidator, &store).await.is_ok());
        let error = resize("3").validate(&PodResizeValidator, &store).await.expect_err("too large");
        assert!(error.message.ends_with("node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000"));
    }
}
