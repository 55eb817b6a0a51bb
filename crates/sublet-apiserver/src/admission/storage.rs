//! Claims: the default class, protection while in use, and growth only where the class allows it.

use super::util::{list_mut, newest_marked};
use super::{Attributes, Operation, Plugin};
use crate::reader::Writer;
use crate::strategy::edit::{ensure, is_zero};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::{ApiError, ObjectExt, Quantity};

pub(super) struct DefaultStorageClass;
pub(super) struct StorageObjectInUseProtection;
pub(super) struct PersistentVolumeClaimResize;

const CLAIMS: &str = "persistentvolumeclaims";
const CLASSES: &str = "storageclasses.storage.k8s.io";
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const DEFAULT_ANNOTATIONS: [&str; 2] = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

#[async_trait]
impl Plugin for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is_main(CLAIMS)
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let Some(claim) = attributes.object.as_mut() else { return Ok(()) };
        let has_class = claim.annotation(CLASS_ANNOTATION).is_some() || !claim["spec"]["storageClassName"].is_null();
        if !has_class && let Some(class) = newest_marked(store.list(CLASSES, None), &DEFAULT_ANNOTATIONS) {
            ensure(claim, "spec")["storageClassName"] = json!(class.name());
        }
        Ok(())
    }
}

#[async_trait]
impl Plugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && finalizer(attributes).is_some()
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>, _: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let finalizer = finalizer(attributes);
        if let (Some(object), Some(finalizer)) = (attributes.object.as_mut(), finalizer)
            && !object.has_finalizer(finalizer)
        {
            list_mut(ensure(object, "metadata"), "finalizers").push(json!(finalizer));
        }
        Ok(())
    }
}

fn finalizer(attributes: &Attributes<'_>) -> Option<&'static str> {
    const FINALIZERS: [(&str, &str); 3] = [
        ("persistentvolumes", "kubernetes.io/pv-protection"),
        (CLAIMS, "kubernetes.io/pvc-protection"),
        ("volumeattributesclasses.storage.k8s.io", "kubernetes.io/vac-protection"),
    ];
    FINALIZERS.iter().find(|(resource, _)| attributes.is_main(resource)).map(|(_, finalizer)| *finalizer)
}

#[async_trait]
impl Plugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Update && attributes.is_main(CLAIMS)
    }

    async fn validate(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let (Some(claim), Some(old)) = (&attributes.object, &attributes.old) else { return Ok(()) };
        let size = |claim: &Value| Quantity::from_json(&claim["spec"]["resources"]["requests"]["storage"]).unwrap_or_default();
        if size(claim) <= size(old) {
            return Ok(());
        }
        if old.str_at("/status/phase") != Some("Bound") {
            return Err(attributes.forbidden("Only bound persistent volume claims can be expanded"));
        }
        let class = class_of(claim);
        let allowed = !class.is_empty()
            && class == class_of(old)
            && store.get(CLASSES, "", class).is_some_and(|class| class["allowVolumeExpansion"] == true);
        if allowed {
            return Ok(());
        }
        Err(attributes
            .forbidden("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"))
    }
}

/// The name of the class, by annotation or field.
pub(super) fn class_of(claim: &Value) -> &str {
    let annotated = claim.annotation(CLASS_ANNOTATION).filter(|a| !is_zero(&json!(a)));
    annotated.or(claim.str_at("/spec/storageClassName")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Request, store};
    use super::*;

    fn class(name: &str, created: &str, default: &str) -> (&'static str, Value) {
        let metadata = json!({"name": name, "creationTimestamp": created, "annotations": {DEFAULT_ANNOTATIONS[0]: default}});
        (CLASSES, json!({"metadata": metadata, "allowVolumeExpansion": name == "grows"}))
    }

    #[tokio::test]
    async fn the_newest_default_class_is_taken() {
        let store = store(&[
            class("a", "2020-01-01T00:00:00Z", "true"),
            class("b", "2021-01-01T00:00:00Z", "true"),
            class("c", "2022-01-01T00:00:00Z", "false"),
        ]);
        let claim = json!({"metadata": {"name": "c"}, "spec": {}});
        let (claim, _) = Request::create(CLAIMS, "n", claim).mutate(&DefaultStorageClass, &store).await.expect("accepted");
        assert_eq!(claim["spec"]["storageClassName"], "b");
        let (claim, _) = Request::create(CLAIMS, "n", json!({"metadata": {}, "spec": {"storageClassName": ""}}))
            .mutate(&DefaultStorageClass, &store)
            .await
            .expect("accepted");
        assert_eq!(claim["spec"]["storageClassName"], "");
    }

    #[tokio::test]
    async fn claims_are_protected() {
        let claim = json!({"metadata": {"name": "c"}});
        let (claim, _) = Request::create(CLAIMS, "n", claim).mutate(&StorageObjectInUseProtection, &store(&[])).await.expect("accepted");
        assert_eq!(claim["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    }

    #[tokio::test]
    async fn claims_grow_only_when_bound_and_allowed() {
        let store = store(&[class("grows", "", ""), class("fixed", "", "")]);
        let claim = |class: &str, size: &str, phase: &str| json!({"metadata": {"name": "c"}, "spec": {"storageClassName": class, "resources": {"requests": {"storage": size}}}, "status": {"phase": phase}});
        let update = |class: &str, phase: &str| Request::update(CLAIMS, "n", claim(class, "2Gi", phase), claim(class, "1Gi", phase));
        assert!(update("grows", "Bound").validate(&PersistentVolumeClaimResize, &store).await.is_ok());
        for (class, phase, expected) in [
            ("grows", "Pending", "Only bound persistent volume claims can be expanded"),
            ("fixed", "Bound", "only dynamically provisioned pvc can be resized"),
        ] {
            let error = update(class, phase).validate(&PersistentVolumeClaimResize, &store).await.expect_err(expected);
            assert!(error.message.contains(expected), "{error}");
        }
    }
}
