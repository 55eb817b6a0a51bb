//! Keeps the Secret of each pod that needs one: what a kubelet would ask the API server for, tokens,
//! trust bundles and certificates, comes from the tenant's.

use super::execute::{Round, SyncError};
use super::projected::Projected;
use super::syncer::Inner;
use super::{ItemKey, ownership};
use crate::resources::KindId;
use crate::resources::pod::token::{self, POD_TOKEN};
use crate::resources::pod::{is_terminal, wants_secret};
use crate::translate::{HostKey, TenantKey};
use base64::Engine as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::time::Duration;
use sublet_api::marks;
use sublet_machinery::ObjectExt;
use sublet_runtime::clock::format_seconds;
use sublet_runtime::resources::SERVICE_ACCOUNTS;

/// Timers and clocks differ a little: never look again sooner than this.
const REFRESH_PAUSE_MIN: Duration = Duration::from_secs(1);
/// A pod that is older goes to the host without waiting for its tokens.
pub(super) const ASKING_MAX: Duration = Duration::from_secs(60);

impl Inner {
    pub(super) async fn sync_tokens(&self, key: &ItemKey) -> Result<Round, SyncError> {
        if !self.caught_up(key) {
            return Ok(Round::After(Duration::from_millis(100)));
        }
        let pod = self.view.tenant.get(key.kind, &key.key);
        let secret = self.view.copy_of(key.kind, &key.key);
        let Some(pod) = pod.filter(|pod| wants_secret(pod) && !is_terminal(pod)) else {
            self.certificates.forget(&key.key);
            self.forget_asked(&key.key);
            if let Some(secret) = secret {
                self.drop_secret(&secret).await?;
            }
            return Ok(Round::Done);
        };
        match secret {
            Some(secret) if secret.annotation(marks::UID) != Some(pod.uid()) => {
                self.drop_secret(&secret).await?;
                Ok(Round::After(Duration::from_millis(100)))
            }
            Some(secret) if secret.is_deleting() => Ok(Round::Done),
            Some(secret) => {
                self.forget_asked(&key.key);
                self.refresh(&pod, &secret).await
            }
            None if pod.is_deleting() => Ok(Round::Done),
            None => {
                let issued = async { self.issue(&pod, &self.projected(&pod, None).await?).await }.await;
                // Also when there is none to be had: then the pod's own events say so, as everywhere.
                self.asked.lock().expect("no holder panics").insert(key.key.clone());
                self.queue.add(ItemKey::new(KindId::Pod, key.key.clone()));
                let (fresh, wait) = issued?;
                match self.writer.create(&POD_TOKEN.gvr(), &fresh).await {
                    Ok(_) | Err(super::WriteError::Exists) => Ok(Round::After(wait)),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// Whether a new pod waits until its tokens were asked for. A kubelet that has the pod and finds no Secret waits long before
    /// it looks again.
    pub(super) fn waits_for_tokens(&self, key: &TenantKey, pod: &Value) -> bool {
        let made = pod.str_at("/metadata/creationTimestamp").and_then(|at| at.parse::<Timestamp>().ok());
        wants_secret(pod)
            && !self.asked.lock().expect("no holder panics").contains(key)
            && self.view.copy_of(KindId::PodToken, key).is_none()
            && made.is_some_and(|made| self.clock.now().duration_since(made).unsigned_abs() < ASKING_MAX)
    }

    fn forget_asked(&self, key: &TenantKey) {
        self.asked.lock().expect("no holder panics").remove(key);
    }

    /// Writes the Secret anew when its tokens are due or something else has changed.
    async fn refresh(&self, pod: &Value, secret: &Value) -> Result<Round, SyncError> {
        if pod.is_deleting() {
            return Ok(Round::Done);
        }
        let projected = self.projected(pod, Some(secret)).await?;
        let due = secret.annotation(marks::REFRESH_AT).and_then(|at| at.parse::<Timestamp>().ok());
        let left = due.map(|due| due.duration_since(self.clock.now())).filter(|left| left.is_positive());
        match left {
            Some(left) if projected.is_that_of(secret) => Ok(Round::After(left.unsigned_abs().max(REFRESH_PAUSE_MIN).min(projected.pause))),
            _ => {
                let (fresh, wait) = self.issue(pod, &projected).await?;
                self.writer.apply(&POD_TOKEN, &fresh, secret.uid(), true).await?;
                Ok(Round::After(wait))
            }
        }
    }

    async fn drop_secret(&self, secret: &Value) -> Result<(), SyncError> {
        Ok(self.writer.delete(&POD_TOKEN.gvr(), &HostKey::of(secret), secret.uid(), None).await?)
    }

    /// Asks the tenant for every token of the pod; the Secret, and when to look again.
    async fn issue(&self, pod: &Value, projected: &Projected) -> Result<(Value, Duration), SyncError> {
        let account = pod.str_at("/spec/serviceAccountName").filter(|n| !n.is_empty()).unwrap_or("default");
        let now = self.clock.now();
        let mut data = projected.data.clone();
        // Looked at anew in any case: a Secret without tokens has no other time.
        let mut refresh = now + token::BETWEEN_MAX;
        for (index, one) in token::wanted(pod).iter().enumerate() {
            let request = token::request(pod, one);
            let reply = self.tenant_client.create_subresource(&SERVICE_ACCOUNTS, pod.namespace(), account, "token", &request).await?;
            self.stats.token_issued();
            data.insert(token::data_key(index), encoded(reply.str_at("/status/token").unwrap_or_default()));
            let expires = reply.str_at("/status/expirationTimestamp").and_then(|at| at.parse::<Timestamp>().ok()).unwrap_or(now);
            refresh = refresh.min(token::refresh_at(now, expires));
        }
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {
                "name": token::secret_name(&self.view.names, pod.namespace(), pod.name()),
                "namespace": self.view.names.host_namespace(pod.namespace()),
            },
            "data": data,
        });
        crate::translate::stamp(&mut secret, &self.view.names, POD_TOKEN.kind, pod);
        secret.set_annotation(marks::REFRESH_AT, &format_seconds(refresh));
        secret.set_annotation(marks::APPLIED, &ownership::digest(&secret["data"]));
        if let Some(digest) = projected.digest() {
            secret.set_annotation(marks::PROJECTED, &digest);
        }
        let wait = refresh.duration_since(now).unsigned_abs().max(REFRESH_PAUSE_MIN).min(projected.pause);
        Ok((secret, wait))
    }
}

pub(super) fn encoded(text: &str) -> Value {
    json!(base64::engine::general_purpose::STANDARD.encode(text))
}
