//! Ingresses that name no class get the default one.

use super::util::newest_marked;
use super::{Attributes, Operation, Plugin};
use crate::reader::Writer;
use crate::strategy::edit::ensure;
use async_trait::async_trait;
use serde_json::json;
use std::sync::Arc;
use sublet_machinery::{ApiError, ObjectExt};

pub(super) struct DefaultIngressClass;

#[async_trait]
impl Plugin for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is_main("ingresses.networking.k8s.io")
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let Some(ingress) = attributes.object.as_mut() else { return Ok(()) };
        if !ingress["spec"]["ingressClassName"].is_null() || ingress.annotation("kubernetes.io/ingress.class").is_some() {
            return Ok(());
        }
        let classes = store.list("ingressclasses.networking.k8s.io", None);
        if let Some(class) = newest_marked(classes, &["ingressclass.kubernetes.io/is-default-class"]) {
            ensure(ingress, "spec")["ingressClassName"] = json!(class.name());
        }
        Ok(())
    }
}
