//! What the server says and keeps of flow schemas and priority levels.

use super::Server;
use crate::auth::bootstrap;
use crate::reader::{Reader as _, Writer as _};
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

const SCHEMAS: &str = "flowschemas.flowcontrol.apiserver.k8s.io";
const LEVELS: &str = "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io";

impl Server {
    /// Tells each schema whether its level exists. Who changed one meanwhile causes the same to be done again.
    pub(super) async fn flow_changed(&self) {
        for schema in self.list(SCHEMAS, None) {
            let level = schema.str_at("/spec/priorityLevelConfiguration/name").unwrap_or_default();
            let exists = self.get(LEVELS, "", level).is_some();
            let Some(told) = with_condition(&schema, level, exists, &self.now()) else { continue };
            if let Err(error) = self.update(SCHEMAS, told).await {
                tracing::debug!(server = self.name(), schema = schema.name(), %error, "the condition of a flow schema was not written");
            }
        }
    }

    /// What the server needs and suggests comes back when it is deleted.
    pub(super) async fn restore_flow(&self) {
        for (resource, object) in bootstrap::flow_objects(self.clock_now()) {
            if self.get(&resource, "", object.name()).is_none()
                && let Err(error) = self.create(&resource, object).await
            {
                tracing::debug!(server = self.name(), resource, %error, "an object of priority and fairness was not restored");
            }
        }
    }
}

/// The schema with the condition that it should have; `None` when it has it.
fn with_condition(schema: &Value, level: &str, exists: bool, now: &str) -> Option<Value> {
    let (status, reason, rest) =
        if exists { ("False", "Found", "and it exists") } else { ("True", "NotFound", "but there is no such object") };
    let message = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {rest}");
    let condition = json!({"type": "Dangling", "status": status, "reason": reason, "message": message});
    let mut conditions = schema.array_at("/status/conditions").to_vec();
    let said = conditions.iter_mut().find(|c| c["type"] == "Dangling");
    if said.as_ref().is_some_and(|said| ["status", "reason", "message"].iter().all(|field| said[field] == condition[field])) {
        return None;
    }
    let mut dated = condition;
    dated["lastTransitionTime"] = json!(now);
    match said {
        Some(said) => *said = dated,
        None => conditions.push(dated),
    }
    let mut told = schema.clone();
    told.set_at("/status/conditions", Value::Array(conditions));
    Some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_told_once_whether_its_level_exists() {
        let schema = json!({"metadata": {"name": "s"}, "spec": {"priorityLevelConfiguration": {"name": "l"}}});
        let told = with_condition(&schema, "l", false, "T").unwrap();
        assert_eq!(
            told["status"]["conditions"],
            json!([{
                "type": "Dangling", "status": "True", "reason": "NotFound", "lastTransitionTime": "T",
                "message": "This FlowSchema references the PriorityLevelConfiguration object named \"l\" but there is no such object",
            }])
        );
        assert_eq!(with_condition(&told, "l", false, "U"), None);
        assert_eq!(with_condition(&told, "l", true, "U").unwrap()["status"]["conditions"][0]["status"], "False");
    }
}
