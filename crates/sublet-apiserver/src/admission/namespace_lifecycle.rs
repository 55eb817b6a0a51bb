//! Nothing is made in namespaces that do not exist or are going away, and some namespaces stay for ever.

use super::{Attributes, Operation, Plugin};
use crate::reader::Writer;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::{ApiError, Cause, ObjectExt};

pub(super) struct NamespaceLifecycle;

const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// How long a create waits for its namespace to show up, in two steps.
const MISSING_WAIT: Duration = Duration::from_millis(25);

#[async_trait]
impl Plugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        let is_namespace = attributes.is("namespaces");
        let review = matches!(attributes.resource.group.as_str(), "authorization.k8s.io" | "authentication.k8s.io");
        match attributes.operation {
            Operation::Delete => is_namespace && attributes.subresource.is_empty(),
            Operation::Create => !is_namespace && !review && !attributes.namespace.is_empty(),
            Operation::Update | Operation::Connect => false,
        }
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        if attributes.operation == Operation::Delete {
            if IMMORTAL.contains(&attributes.name) {
                return Err(ApiError::forbidden("", "namespaces", attributes.name, "this namespace may not be deleted"));
            }
            return Ok(());
        }
        let name = attributes.namespace;
        let mut namespace = store.get("namespaces", "", name);
        if namespace.is_none() {
            tokio::time::sleep(MISSING_WAIT).await;
            namespace = store.get("namespaces", "", name);
        }
        let Some(namespace) = namespace else { return Err(ApiError::not_found("", "namespaces", name)) };
        if namespace.str_at("/status/phase") != Some("Terminating") && !namespace.is_deleting() {
            return Ok(());
        }
        let mut error =
            attributes.forbidden(format_args!("unable to create new content in namespace {name} because it is being terminated"));
        error.causes.push(Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {name} is being terminated"),
            field: "metadata.namespace".into(),
        });
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Request, store};
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn creates_need_a_living_namespace() {
        let store = store(&[
            ("namespaces", json!({"metadata": {"name": "a"}, "status": {"phase": "Active"}})),
            ("namespaces", json!({"metadata": {"name": "b"}, "status": {"phase": "Terminating"}})),
        ]);
        let create = |namespace: &'static str| Request::create("pods", namespace, json!({"metadata": {"name": "p"}}));
        assert_eq!(create("a").mutate(&NamespaceLifecycle, &store).await.map(|_| ()), Ok(()));
        let missing = create("x").mutate(&NamespaceLifecycle, &store).await.expect_err("no namespace");
        assert_eq!(missing.message, "namespaces \"x\" not found");
        let ending = create("b").mutate(&NamespaceLifecycle, &store).await.expect_err("terminating");
        assert_eq!(ending.message, "pods \"p\" is forbidden: unable to create new content in namespace b because it is being terminated");
        assert_eq!(ending.causes[0].reason, "NamespaceTerminating");
    }

    #[tokio::test]
    async fn the_default_namespace_stays() {
        let store = store(&[]);
        let error = Request::delete("namespaces", "", "default").mutate(&NamespaceLifecycle, &store).await.expect_err("immortal");
        assert_eq!(error.message, "namespaces \"default\" is forbidden: this namespace may not be deleted");
    }
}
