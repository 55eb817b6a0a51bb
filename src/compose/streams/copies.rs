//! Which pod on the host is the tenant's, and what of its names the tenant is told.

use bytes::Bytes;
use serde_json::Value;
use std::sync::Arc;
use sublet_api::marks;
use sublet_machinery::{ApiError, ObjectExt};
use sublet_runtime::resources::PODS;
use sublet_syncer::HostCache;
use sublet_syncer::engine::host::HostKind;
use sublet_syncer::translate::{HostKey, NAME_BYTES_MAX_POD, Names, TenantKey, to_tenant_text};

#[derive(Clone)]
/// Finds the copies of a tenant's pods.
pub struct Copies {
    names: Names,
    host: Arc<HostCache>,
}

impl Copies {
    pub fn new(names: Names, host: Arc<HostCache>) -> Self {
        Self { names, host }
    }

    /// The key that the copy of a pod has, whether or not there is one.
    pub fn key(&self, pod: &Value) -> HostKey {
        self.names.host_key(&TenantKey::of(pod), NAME_BYTES_MAX_POD)
    }

    /// The pod on the host, once it is known to be this very pod's. A name alone proves nothing: the pod of that name
    /// may be somebody else's, or the one that this pod replaces.
    pub async fn find(&self, pod: &Value) -> Result<Copy, ApiError> {
        let key = self.key(pod).namespaced();
        let cached = self.host.informer(HostKind::Pods).get(&key.namespace, &key.name);
        if !cached.is_some_and(|copy| self.is_copy(&copy, pod)) {
            // What is watched lags behind, most of all after a start.
            let live = self.host.client().get_opt(&PODS, &key.namespace, &key.name).await.map_err(|error| {
                tracing::warn!(%error, "the host did not tell of a pod");
                ApiError::unavailable("the host cluster did not answer; try again")
            })?;
            if !live.is_some_and(|copy| self.is_copy(&copy, pod)) {
                return Err(ApiError::bad_request(format!("pod {} does not have a host assigned", pod.name())));
            }
        }
        Ok(Copy { namespace: key.namespace, name: key.name, tenant: TenantKey::of(pod) })
    }

    fn is_copy(&self, copy: &Value, pod: &Value) -> bool {
        self.names.tenant_key(copy, NAME_BYTES_MAX_POD).is_some_and(|key| key == TenantKey::of(pod))
            && copy.annotation(marks::UID).is_none_or(|uid| uid == pod.uid())
    }
}

/// A pod on the host, and what the tenant calls it.
#[derive(Clone, Debug)]
pub struct Copy {
    pub namespace: String,
    pub name: String,
    pub tenant: TenantKey,
}

impl Copy {
    /// A text of the host's in the tenant's names.
    pub fn told(&self, text: &str) -> String {
        to_tenant_text(text, &self.namespace, |name| (name == self.name).then(|| self.tenant.clone()))
    }

    /// What the host's API says no to, as its `Status` has it; `None` for other texts.
    pub fn told_status(&self, body: &Bytes) -> Option<ApiError> {
        let status: Value = serde_json::from_slice(body).ok()?;
        if status.kind() != "Status" || status.api_version() != "v1" {
            return None;
        }
        let mut error = ApiError::from_status(&status);
        if error.code == 403 && error.message.contains(" cannot ") && error.message.contains(" resource \"") {
            // It is not the tenant who lacks this right.
            tracing::warn!(message = %error.message, "the host refuses a stream");
            return Some(ApiError::unavailable("the host cluster does not allow Sublet to do this; ask whoever runs it"));
        }
        error.message = self.told(&error.message);
        error.name = self.told(&error.name);
        Some(error)
    }
}
