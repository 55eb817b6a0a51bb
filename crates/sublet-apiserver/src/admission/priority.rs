//! Pods get the number behind their priority class.

use super::{Attributes, Operation, Plugin};
use crate::reader::Writer;
use crate::strategy::edit::{copy_or_remove, ensure, is_zero};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::{ApiError, ObjectExt};

pub(super) struct Priority;

const CLASSES: &str = "priorityclasses.scheduling.k8s.io";

#[async_trait]
impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        (attributes.is_main("pods") || attributes.is_main(CLASSES)) && matches!(attributes.operation, Operation::Create | Operation::Update)
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        if !attributes.is("pods") {
            return Ok(());
        }
        if let (Operation::Update, Some(old), Some(pod)) = (attributes.operation, attributes.old.clone(), attributes.object.as_mut()) {
            let spec = ensure(pod, "spec");
            for key in ["priority", "preemptionPolicy"] {
                if spec[key].is_null() {
                    copy_or_remove(spec, &old["spec"], key);
                }
            }
            return Ok(());
        }
        let Some(mut pod) = attributes.object.take() else { return Ok(()) };
        let result = set_priority(&mut pod, store);
        attributes.object = Some(pod);
        result.map_err(|why| attributes.forbidden(why))
    }

    async fn validate(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let Some(class) = attributes.object.as_ref().filter(|c| attributes.is(CLASSES) && c["globalDefault"] == true) else {
            return Ok(());
        };
        match default_class(store) {
            Some(other) if attributes.operation == Operation::Create || other.name() != class.name() => Err(attributes
                .forbidden(format_args!("PriorityClass {} is already marked as default. Only one default can exist", other.name()))),
            _ => Ok(()),
        }
    }
}

fn set_priority(pod: &mut Value, store: &Arc<dyn Writer>) -> Result<(), String> {
    let spec = ensure(pod, "spec");
    let name = spec["priorityClassName"].as_str().unwrap_or_default().to_string();
    let class = if name.is_empty() {
        default_class(store)
    } else {
        Some(store.get(CLASSES, "", &name).ok_or_else(|| format!("no PriorityClass with name {name} was found"))?)
    };
    let class = class.as_deref();
    let priority = class.and_then(|c| c["value"].as_i64()).unwrap_or(0);
    let policy = class.map_or(Some("PreemptLowerPriority"), |c| c["preemptionPolicy"].as_str());
    if let Some(given) = spec["priority"].as_i64().filter(|given| *given != priority) {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
        ));
    }
    if let (Some(given), Some(policy)) = (spec["preemptionPolicy"].as_str(), policy)
        && given != policy
    {
        return Err(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        ));
    }
    if let Some(class) = class.filter(|_| is_zero(&spec["priorityClassName"])) {
        spec["priorityClassName"] = json!(class.name());
    }
    spec["priority"] = json!(priority);
    if let Some(policy) = policy {
        spec["preemptionPolicy"] = json!(policy);
    }
    Ok(())
}

/// Of several global defaults (made at the same moment) the lowest counts.
fn default_class(store: &Arc<dyn Writer>) -> Option<Arc<Value>> {
    let classes = store.list(CLASSES, None);
    classes.into_iter().filter(|c| c["globalDefault"] == true).min_by_key(|c| c["value"].as_i64())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Request, store};
    use super::*;

    fn classes() -> Arc<dyn Writer> {
        store(&[
            (CLASSES, json!({"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"})),
            (
                CLASSES,
                json!({"metadata": {"name": "usual"}, "value": 5, "globalDefault": true, "preemptionPolicy": "PreemptLowerPriority"}),
            ),
        ])
    }

    async fn admitted(spec: Value, store: &Arc<dyn Writer>) -> Result<Value, ApiError> {
        let pod = json!({"metadata": {"name": "p"}, "spec": spec});
        Request::create("pods", "n", pod).mutate(&Priority, store).await.map(|(pod, _)| pod["spec"].clone())
    }

    #[tokio::test]
    async fn the_class_gives_number_and_policy() {
        let spec = admitted(json!({"priorityClassName": "high"}), &classes()).await.expect("accepted");
        assert_eq!(spec, json!({"priorityClassName": "high", "priority": 1000, "preemptionPolicy": "Never"}));
        let spec = admitted(json!({}), &classes()).await.expect("accepted");
        assert_eq!(spec, json!({"priorityClassName": "usual", "priority": 5, "preemptionPolicy": "PreemptLowerPriority"}));
        let spec = admitted(json!({}), &store(&[])).await.expect("accepted");
        assert_eq!(spec, json!({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}));
    }

    #[tokio::test]
    async fn unknown_classes_and_numbers_of_ones_own_are_refused() {
        let error = admitted(json!({"priorityClassName": "x"}), &classes()).await.expect_err("unknown");
        assert_eq!(error.message, "pods \"p\" is forbidden: no PriorityClass with name x was found");
        let error = admitted(json!({"priority": 7}), &classes()).await.expect_err("own number");
        assert!(error.message.contains("the integer value of priority (7) must not be provided in pod spec"), "{error}");
    }

    #[tokio::test]
    async fn there_is_one_global_default() {
        let class = json!({"metadata": {"name": "other"}, "value": 1, "globalDefault": true});
        let error = Request::create(CLASSES, "", class).validate(&Priority, &classes()).await.expect_err("second default");
        assert!(error.message.ends_with("PriorityClass usual is already marked as default. Only one default can exist"));
    }
}
