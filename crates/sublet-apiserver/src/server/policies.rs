//! Types of admission policies, told in their status.

use super::Server;
use crate::admission::type_warnings;
use crate::reader::{Reader, Writer};
use serde_json::{Value, json};
use sublet_machinery::{ObjectExt, Reason};

const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";

impl Server {
    /// Checks policies that were written, until the server stops.
    pub(crate) async fn check_policies(self) {
        let mut changes = self.store().changes(POLICIES);
        loop {
            for policy in self.list(POLICIES, None) {
                if policy.i64_at("/status/observedGeneration") != Some(policy.generation()) || policy["status"]["typeChecking"].is_null() {
                    self.check_policy(&policy).await;
                }
            }
            tokio::select! {
                // The sender lives as long as the store, which this server holds.
                _ = changes.changed() => {}
                () = self.stop_token().cancelled() => return,
            }
        }
    }

    async fn check_policy(&self, policy: &Value) {
        let warnings = type_warnings(policy, &self.registry().snapshot());
        let mut checked = policy.clone();
        checked["status"]["observedGeneration"] = json!(policy.generation());
        checked["status"]["typeChecking"] = if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) };
        match Writer::update(self, POLICIES, checked).await {
            Ok(_) => {}
            // Somebody was faster, and the change leads back here.
            Err(error) if error.is(Reason::Conflict) || error.is(Reason::NotFound) => {}
            Err(error) => tracing::warn!(server = self.name(), policy = policy.name(), %error, "the types of a policy were not told"),
        }
    }
}
