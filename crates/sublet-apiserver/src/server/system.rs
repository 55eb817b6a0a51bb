//! What the server does on its own: bootstrap objects, and reactions to writes.

use super::Server;
use crate::admission::UserInfo;
use crate::reader::{Reader, Writer};
use crate::registry::Resource;
use crate::rest::write::Written;
use serde_json::Value;
use sublet_machinery::{ApiError, ObjectExt, Reason};

/// The identity of loops that belong to the server.
pub fn system_user() -> UserInfo {
    UserInfo {
        name: "system:apiserver".into(),
        groups: vec!["system:masters".into(), "system:authenticated".into()],
        ..UserInfo::default()
    }
}

const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

impl Server {
    /// Creates the bootstrap objects that are missing, and brings default roles up to date.
    pub(crate) async fn bootstrap(&self, objects: Vec<(String, Value)>) -> Result<(), ApiError> {
        for (group_resource, object) in objects {
            let live = self.get(&group_resource, object.namespace(), object.name());
            let result = match live {
                None => Writer::create(self, &group_resource, object).await,
                Some(live) if live.annotation(AUTO_UPDATE) == Some("true") && lacks_rules(&live, &object) => {
                    let mut updated = Value::clone(&live);
                    for key in ["rules", "subjects", "aggregationRule"] {
                        if let Some(value) = object.get(key) {
                            updated[key] = union(&live[key], value);
                        }
                    }
                    Writer::update(self, &group_resource, updated).await
                }
                Some(_) => continue,
            };
            match result {
                Ok(_) => {}
                Err(error) if error.is(Reason::AlreadyExists) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Called after every write that happened.
    pub(crate) async fn after_write(&self, resource: &Resource, old: Option<&Value>, written: &Written, dry_run: bool) {
        if dry_run {
            return;
        }
        if let (Some(old), Written::Value(_)) = (old, written) {
            // An update that removed the last finalizer removed the object.
            return self.after_delete(resource, old).await;
        }
        if is_definition(resource) {
            self.definition_changed(&match written {
                Written::Entry(entry) => entry.value(),
                Written::Value(value) => value.clone(),
            })
            .await;
        }
    }

    /// Called after an object is gone for good.
    pub(crate) async fn after_delete(&self, resource: &Resource, old: &Value) {
        if resource.group.is_empty() && resource.plural == "services" {
            if let Some(allocator) = self.service_allocator() {
                allocator.release(old).await;
            }
        } else if is_definition(resource) {
            self.definition_gone(old);
        }
    }
}

fn is_definition(resource: &Resource) -> bool {
    resource.group == "apiextensions.k8s.io" && resource.plural == "customresourcedefinitions"
}

fn lacks_rules(live: &Value, wanted: &Value) -> bool {
    // Aggregated roles get their rules from the controller.
    if wanted["aggregationRule"].is_object() {
        return false;
    }
    ["rules", "subjects"]
        .iter()
        .any(|key| wanted.array_at(&format!("/{key}")).iter().any(|r| !live.array_at(&format!("/{key}")).contains(r)))
}

fn union(live: &Value, wanted: &Value) -> Value {
    let (Some(live), Some(wanted)) = (live.as_array(), wanted.as_array()) else { return wanted.clone() };
    let mut all = live.clone();
    all.extend(wanted.iter().filter(|w| !live.contains(w)).cloned());
    Value::Array(all)
}
