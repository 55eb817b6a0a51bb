//! The only way to write to a host. Knows no kinds and no plans; guards what every write must keep.

use super::ownership;
use crate::resources::SyncedKind;
use crate::translate::{HostKey, Names};
use serde_json::{Value, json};
use sublet_api::marks;
use sublet_machinery::{Gvr, ObjectExt, Reason};
use sublet_runtime::client::PatchOptions;
use sublet_runtime::{Client, ClientError, DeleteOptions, Patch};

/// Writes host objects of one tenant.
///
/// - An object is created by POST and so never adopted; it is changed or deleted only by its UID.
/// - Nothing is written outside the tenant's host namespace, or without the tenant's marks.
/// - Fields are ours by server-side apply; what others add is left alone.
#[derive(Clone)]
pub struct HostWriter {
    client: Client,
    names: Names,
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The host's answer is no, for a reason that its owner can do something about.
    #[error("{0}")]
    Refused(sublet_machinery::ApiError),
    /// Something stands under the name.
    #[error("an object of this name exists already")]
    Exists,
    /// The object changed or went away under our hands: look again.
    #[error("the object changed: {0}")]
    Changed(ClientError),
    #[error(transparent)]
    Failed(ClientError),
    /// A mistake in a translation; nothing was sent.
    #[error("not written: {0}")]
    Guard(&'static str),
}

impl From<ClientError> for WriteError {
    fn from(error: ClientError) -> Self {
        match error.api() {
            Some(api) if api.code == 404 || api.reason == Reason::Conflict => Self::Changed(error),
            Some(api) if api.reason == Reason::AlreadyExists => Self::Exists,
            Some(api) if matches!(api.code, 400 | 403 | 413 | 422) => Self::Refused(api.clone()),
            _ => Self::Failed(error),
        }
    }
}

impl HostWriter {
    pub fn new(client: &Client, names: Names) -> Self {
        Self { client: client.with_field_manager(marks::MANAGER), names }
    }

    /// For reads; writes go through the methods.
    pub fn client(&self) -> &Client {
        &self.client
    }

    pub async fn create(&self, gvr: &Gvr, desired: &Value) -> Result<Value, WriteError> {
        self.check(desired)?;
        Ok(self.client.create(gvr, desired).await?)
    }

    /// Applies our fields to the object with this UID. `adopt` unless its creation is known to be adopted.
    pub async fn apply(&self, kind: &SyncedKind, desired: &Value, uid: &str, adopt: bool) -> Result<Value, WriteError> {
        self.check(desired)?;
        if adopt {
            self.adopt_fields(kind, &HostKey::of(desired), uid).await?;
        }
        let mut desired = desired.clone();
        desired.metadata_mut().insert("uid".into(), json!(uid));
        Ok(self.client.apply(&kind.gvr(), &desired).await?)
    }

    /// As [`Self::create`], without a commit.
    pub async fn create_dry_run(&self, gvr: &Gvr, desired: &Value) -> Result<Value, WriteError> {
        self.check(desired)?;
        Ok(self.client.create_dry_run(gvr, desired).await?)
    }

    /// As [`Self::apply`], without a commit.
    pub async fn apply_dry_run(&self, kind: &SyncedKind, desired: &Value, uid: &str) -> Result<Value, WriteError> {
        self.check(desired)?;
        let mut desired = desired.clone();
        desired.metadata_mut().insert("uid".into(), json!(uid));
        let options = PatchOptions { force: true, dry_run: true, ..PatchOptions::default() };
        let key = HostKey::of(&desired);
        Ok(self.client.patch(&kind.gvr(), &key.namespace, &key.name, "", &Patch::Apply(desired), &options).await?)
    }

    /// Makes the fields of the creating POST those of an apply, once in the life of an object.
    async fn adopt_fields(&self, kind: &SyncedKind, key: &HostKey, uid: &str) -> Result<(), WriteError> {
        let live = self.client.get(&kind.gvr(), &key.namespace, &key.name).await?;
        if live.uid() != uid {
            return Err(WriteError::Guard("the object is another one by now"));
        }
        let Some(managed_fields) = ownership::adopt_created_fields(&live, kind.kind == "Pod") else { return Ok(()) };
        // Who wrote since it was read makes this a conflict.
        let metadata = json!({"resourceVersion": live.resource_version(), "managedFields": managed_fields});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        self.client.patch(&kind.gvr(), &key.namespace, &key.name, "", &patch, &PatchOptions::default()).await?;
        Ok(())
    }

    /// A strategic merge patch of a subresource.
    pub async fn patch(&self, gvr: &Gvr, key: &HostKey, subresource: &str, patch: &Value, uid: &str) -> Result<Value, WriteError> {
        self.check_namespace(&key.namespace)?;
        let mut patch = patch.clone();
        patch.metadata_mut().insert("uid".into(), json!(uid));
        let options = PatchOptions::default();
        Ok(self.client.patch(gvr, &key.namespace, &key.name, subresource, &Patch::Strategic(patch), &options).await?)
    }

    /// Applies to the status subresource.
    pub async fn apply_status(&self, kind: &SyncedKind, key: &HostKey, status: &Value, uid: &str) -> Result<Value, WriteError> {
        self.check_namespace(&key.namespace)?;
        let object = json!({
            "apiVersion": kind.gvr().api_version(), "kind": kind.kind,
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid}, "status": status,
        });
        let options = PatchOptions { force: true, ..PatchOptions::default() };
        Ok(self.client.patch(&kind.gvr(), &key.namespace, &key.name, "status", &Patch::Apply(object), &options).await?)
    }

    /// Changes a volume that is kept for the tenant's namespace, and no other.
    pub async fn patch_volume(&self, gvr: &Gvr, name: &str, uid: &str, changes: Vec<Value>) -> Result<Value, WriteError> {
        let mut patch = vec![
            json!({"op": "test", "path": "/metadata/uid", "value": uid}),
            json!({"op": "test", "path": "/spec/claimRef/namespace", "value": self.names.host_namespace("")}),
        ];
        patch.extend(changes);
        let patch = Patch::Json(Value::Array(patch));
        Ok(self.client.patch(gvr, "", name, "", &patch, &PatchOptions::default()).await?)
    }

    /// Deletes the object with this UID. Gone already is success.
    pub async fn delete(&self, gvr: &Gvr, key: &HostKey, uid: &str, grace_seconds: Option<i64>) -> Result<(), WriteError> {
        self.check_namespace(&key.namespace)?;
        let options = DeleteOptions { grace_period_seconds: grace_seconds, ..DeleteOptions::background() }.uid(uid);
        match self.client.delete_if_exists(gvr, &key.namespace, &key.name, &options).await {
            // Another object stands there now; ours is gone.
            Err(error) if error.is_conflict() => Ok(()),
            other => Ok(other?),
        }
    }

    fn check(&self, object: &Value) -> Result<(), WriteError> {
        self.check_namespace(object.namespace())?;
        let marked = object.label(marks::MANAGED_BY) == Some(marks::MANAGER)
            && object.label(marks::VIRTUAL_CLUSTER_UID) == Some(&self.names.tenant().uid);
        if marked { Ok(()) } else { Err(WriteError::Guard("the object lacks the tenant's marks")) }
    }

    fn check_namespace(&self, namespace: &str) -> Result<(), WriteError> {
        let allowed = namespace == self.names.host_namespace("");
        if allowed { Ok(()) } else { Err(WriteError::Guard("the namespace is none of the tenant's")) }
    }
}
