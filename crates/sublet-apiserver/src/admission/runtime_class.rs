//! Runtime classes add their overhead and their node selection to pods.

use super::{Attributes, Operation, Plugin};
use crate::reader::Writer;
use crate::strategy::edit::{ensure, is_zero};
use crate::strategy::quantities::read_list;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::{ApiError, ObjectExt};

pub(super) struct RuntimeClass;

const CLASSES: &str = "runtimeclasses.node.k8s.io";

#[async_trait]
impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is_main("pods")
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let Some(mut pod) = attributes.object.take() else { return Ok(()) };
        let result = find(&pod, store).and_then(|class| class.map_or(Ok(()), |class| apply(&mut pod, &class)));
        attributes.object = Some(pod);
        result.map_err(|why| attributes.forbidden(why))
    }

    async fn validate(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let Some(pod) = &attributes.object else { return Ok(()) };
        let overhead = &pod["spec"]["overhead"];
        let check = |class: Option<Arc<Value>>| match class.map(|c| c["overhead"].clone()).filter(Value::is_object) {
            Some(expected) if read_list(&expected["podFixed"]) != read_list(overhead) => Err(MISMATCH.to_string()),
            None if !overhead.is_null() => Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".into()),
            _ => Ok(()),
        };
        find(pod, store).and_then(check).map_err(|why| attributes.forbidden(why))
    }
}

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

fn find(pod: &Value, store: &Arc<dyn Writer>) -> Result<Option<Arc<Value>>, String> {
    let Some(name) = pod.str_at("/spec/runtimeClassName") else { return Ok(None) };
    let class = store.get(CLASSES, "", name).ok_or_else(|| format!("pod rejected: RuntimeClass {name:?} not found"))?;
    Ok(Some(class))
}

fn apply(pod: &mut Value, class: &Value) -> Result<(), String> {
    let spec = ensure(pod, "spec");
    if class["overhead"].is_object() {
        let fixed = &class["overhead"]["podFixed"];
        if !is_zero(&spec["overhead"]) && read_list(fixed) != read_list(&spec["overhead"]) {
            return Err(MISMATCH.into());
        }
        if !is_zero(fixed) {
            spec["overhead"] = fixed.clone();
        }
    }
    let scheduling = &class["scheduling"];
    for (key, value) in scheduling["nodeSelector"].as_object().into_iter().flatten() {
        let selector = ensure(spec, "nodeSelector");
        if let Some(other) = selector[key.as_str()].as_str().filter(|other| value != other) {
            let text = value.as_str().unwrap_or_default();
            return Err(format!("conflict: runtimeClass.scheduling.nodeSelector[{key}] = {text}; pod.spec.nodeSelector[{key}] = {other}"));
        }
        selector[key.as_str()] = value.clone();
    }
    if !is_zero(&scheduling["tolerations"]) {
        spec["tolerations"] = json!(merged(spec.array_at("/tolerations"), scheduling.array_at("/tolerations")));
    }
    Ok(())
}

/// All tolerations without those that another one covers.
fn merged(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut merged: Vec<Value> = Vec::new();
    for (index, toleration) in all.iter().enumerate() {
        let earlier = merged.iter().any(|other| covers(other, toleration));
        let later = all[index + 1..].iter().any(|other| other != toleration && covers(other, toleration));
        if !earlier && !later {
            merged.push((*toleration).clone());
        }
    }
    merged
}

fn covers(wide: &Value, narrow: &Value) -> bool {
    let text = |t: &Value, key: &str| t[key].as_str().unwrap_or_default().to_string();
    if wide == narrow {
        return true;
    }
    let everything = text(wide, "key").is_empty() && text(wide, "operator") == "Exists";
    if text(narrow, "key") != text(wide, "key") && !everything {
        return false;
    }
    if text(narrow, "effect") != text(wide, "effect") && !text(wide, "effect").is_empty() {
        return false;
    }
    if text(wide, "effect") == "NoExecute"
        && let Some(limit) = wide["tolerationSeconds"].as_i64()
        && narrow["tolerationSeconds"].as_i64().is_none_or(|seconds| seconds > limit)
    {
        return false;
    }
    match text(wide, "operator").as_str() {
        "" | "Equal" => text(narrow, "operator") == "Equal" && text(narrow, "value") == text(wide, "value"),
        operator => operator == "Exists",
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Request, store};
    use super::*;

    #[tokio::test]
    async fn overhead_and_scheduling_come_from_the_class() {
        let class = json!({"metadata": {"name": "k"}, "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]}});
        let store = store(&[(CLASSES, class)]);
        let pod = |spec: Value| Request::create("pods", "n", json!({"metadata": {"name": "p"}, "spec": spec}));
        let (object, _) = pod(json!({"runtimeClassName": "k", "tolerations": [{"key": "k", "operator": "Equal", "value": "v"}]}))
            .mutate(&RuntimeClass, &store)
            .await
            .expect("accepted");
        assert_eq!(
            object["spec"],
            json!({"runtimeClassName": "k", "overhead": {"cpu": "250m"}, "nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]})
        );
        for (spec, expected) in [
            (json!({"runtimeClassName": "x"}), "pod rejected: RuntimeClass \"x\" not found"),
            (
                json!({"runtimeClassName": "k", "nodeSelector": {"a": "c"}}),
                "conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = c",
            ),
            (json!({"runtimeClassName": "k", "overhead": {"cpu": "1"}}), MISMATCH),
        ] {
            let error = pod(spec).mutate(&RuntimeClass, &store).await.expect_err(expected);
            assert_eq!(error.message, format!("pods \"p\" is forbidden: {expected}"));
        }
        let error = pod(json!({"overhead": {"cpu": "1"}})).validate(&RuntimeClass, &store).await.expect_err("no class");
        assert!(error.message.ends_with("Pod Overhead set without corresponding RuntimeClass defined Overhead"));
    }
}
