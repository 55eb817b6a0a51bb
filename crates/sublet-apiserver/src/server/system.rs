//! What the server does on its own: bootstrap objects, and reactions to writes.

use super::Server;
use crate::admission::UserInfo;
use crate::auth::tokens::LAST_USED;
use crate::auth::{AUTHENTICATED, MASTERS};
use crate::reader::{Reader, Writer};
use crate::registry::Resource;
use crate::rest::write::Written;
use serde_json::Value;
use sublet_machinery::ObjectExt;

/// The identity of loops that belong to the server.
pub fn system_user() -> UserInfo {
    UserInfo { name: "system:apiserver".into(), groups: vec![MASTERS.into(), AUTHENTICATED.into()], ..UserInfo::default() }
}

impl Server {
    /// Called after every write that happened.
    pub(crate) async fn after_write(&self, resource: &Resource, old: Option<&Value>, written: &Written, dry_run: bool) {
        if dry_run {
            return;
        }
        if let (Some(old), Written::Value(_)) = (old, written) {
            // An update that removed the last finalizer removed the object.
            return self.after_delete(resource, old).await;
        }
        if is_flow(resource) {
            self.flow_changed().await;
        } else if is_definition(resource) {
            self.definition_changed(&match written {
                Written::Entry(entry) => entry.value(),
                Written::Value(value) => value.clone(),
            })
            .await;
        }
    }

    /// Marks the Secrets whose tokens were used since the last time with the day, off the path of the request.
    pub(crate) fn mark_used_tokens(&self) {
        let used = self.security().tokens.take_used();
        if used.is_empty() {
            return;
        }
        let (server, today) = (self.clone(), self.clock_now().strftime("%Y-%m-%d").to_string());
        tokio::spawn(async move {
            for (namespace, name) in used {
                let Some(secret) = server.get("secrets", &namespace, &name) else { continue };
                let mut secret = (*secret).clone();
                secret.set_label(LAST_USED, &today);
                if let Err(error) = server.update("secrets", secret).await {
                    // The next use tries again.
                    tracing::debug!(namespace, name, %error, "the use of a token was not written down");
                }
            }
        });
    }

    /// Called after an object is gone for good.
    pub(crate) async fn after_delete(&self, resource: &Resource, old: &Value) {
        if resource.group.is_empty() && resource.plural == "services" {
            if let Some(allocator) = self.service_allocator() {
                allocator.release(old).await;
            }
        } else if is_definition(resource) {
            self.definition_gone(old);
        } else if is_flow(resource) {
            self.restore_flow().await;
            self.flow_changed().await;
        }
    }
}

fn is_flow(resource: &Resource) -> bool {
    resource.group == "flowcontrol.apiserver.k8s.io"
}

fn is_definition(resource: &Resource) -> bool {
    resource.group == "apiextensions.k8s.io" && resource.plural == "customresourcedefinitions"
}
