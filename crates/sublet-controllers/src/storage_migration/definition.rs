//! What the definition of a custom resource says about the migration of its objects.

use crate::kit::conditions;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::CUSTOM_RESOURCE_DEFINITIONS;
use sublet_runtime::{ClientError, Ctx, Patch, PatchOptions};

/// Owns the words, whoever has them written.
const MANAGER: &str = "migration-runner-controller";
const CONDITION: &str = "StorageMigrating";
/// Somebody else may write to the definition between reading and writing.
const TRIES_MAX: usize = 5;

pub(super) async fn begins(ctx: &Ctx, resource: (&str, &str), migration: &str) -> Result<(), ClientError> {
    let now = ctx.clock.rfc3339();
    write(ctx, resource, |definition| {
        json!({"conditions": [condition(definition, true, "MigrationRunning", &format!("Migration {migration} is running"), &now)]})
    })
    .await
}

pub(super) async fn ends(ctx: &Ctx, resource: (&str, &str), succeeded: bool) -> Result<(), ClientError> {
    let now = ctx.clock.rfc3339();
    write(ctx, resource, |definition| ended(definition, succeeded, &now)).await
}

/// Versions that no object is stored in any longer are forgotten, unless the definition changed while objects were written.
fn ended(definition: &Value, succeeded: bool, now: &str) -> Value {
    let began = conditions::find(&definition["status"], CONDITION);
    let is_unchanged = began.is_some_and(|c| c["observedGeneration"].as_i64() == Some(definition.generation()));
    let (reason, message) = match (succeeded, is_unchanged) {
        (false, _) => ("MigrationFailed", "The migration has failed"),
        (true, true) => ("MigrationSucceeded", "The migration has succeeded and the stored versions have been updated"),
        (true, false) => {
            ("MigrationSucceeded", "The migration has succeeded but the stored versions have not been updated due to a generation mismatch")
        }
    };
    let mut status = json!({"conditions": [condition(definition, false, reason, message, now)]});
    let stored = definition.array_at("/spec/versions").iter().find(|version| version["storage"] == true);
    if let Some(stored) = stored.filter(|_| succeeded && is_unchanged) {
        status["storedVersions"] = json!([stored["name"]]);
    }
    status
}

fn condition(definition: &Value, is_true: bool, reason: &str, message: &str, now: &str) -> Value {
    let mut condition = conditions::new(CONDITION, is_true, reason, message, now);
    condition["observedGeneration"] = json!(definition.generation());
    condition
}

/// Applies a status to the definition, when the resource has one.
async fn write(ctx: &Ctx, resource: (&str, &str), status: impl Fn(&Value) -> Value) -> Result<(), ClientError> {
    let (group, plural) = resource;
    let name = format!("{plural}.{group}");
    let mut tries = 0;
    loop {
        let Some(definition) = ctx.client.get_opt(&CUSTOM_RESOURCE_DEFINITIONS, "", &name).await? else { return Ok(()) };
        let applied = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name, "resourceVersion": definition.resource_version()},
            "status": status(&definition),
        });
        let options = PatchOptions { field_manager: MANAGER.into(), force: true, ..PatchOptions::default() };
        tries += 1;
        match ctx.client.patch(&CUSTOM_RESOURCE_DEFINITIONS, "", &name, "status", &Patch::Apply(applied), &options).await {
            Err(error) if error.is_conflict() && tries < TRIES_MAX => {}
            result => return result.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(generation: i64, succeeded: bool, reason: &str, stored: &Value) {
        let definition = json!({
            "metadata": {"generation": generation},
            "spec": {"versions": [{"name": "v1"}, {"name": "v2", "storage": true}]},
            "status": {"conditions": [{"type": CONDITION, "status": "True", "observedGeneration": 1}], "storedVersions": ["v1", "v2"]},
        });
        let status = ended(&definition, succeeded, "now");
        assert_eq!((&status["conditions"][0]["reason"], &status["storedVersions"]), (&json!(reason), stored), "{generation} {succeeded}");
    }

    #[test]
    fn old_versions_are_forgotten_when_nothing_else_happened() {
        check(1, true, "MigrationSucceeded", &json!(["v2"]));
        check(2, true, "MigrationSucceeded", &Value::Null);
        check(1, false, "MigrationFailed", &Value::Null);
    }
}
