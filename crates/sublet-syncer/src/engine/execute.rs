//! Takes one key through the plan: the only place of the engine that sends requests.

use super::plan::{Action, Observed, Plan, plan};
use super::settled::{Fingerprint, Versions};
use super::syncer::{EXPECTED_MAX, Expected, Inner};
use super::tokens::ASKING_MAX;
use super::{ItemKey, WriteError, ownership};
use crate::resources::shown::shown_kind;
use crate::resources::{KindId, Refusal, SyncedKind, Translation, manifest, pod, to_host_kind};
use crate::translate::{HostKey, to_tenant_text};
use serde_json::{Value, json};
use std::time::Duration;
use sublet_api::condition::SYNCED;
use sublet_api::marks;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::client::PatchOptions;
use sublet_runtime::resources::PODS;
use sublet_runtime::{ClientError, DeleteOptions, EventKind, Patch};
use tokio::time::Instant;

/// A look again when a local copy is behind.
const LAG_PAUSE: Duration = Duration::from_millis(100);

/// How a round with a key ended, when nothing failed.
pub(super) enum Round {
    Done,
    /// Look again after this time.
    After(Duration),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SyncError {
    /// Told to the owner, tried again at a slow pace.
    #[error("refused: {0}")]
    Refused(String),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("tenant: {0}")]
    Tenant(#[from] ClientError),
}

impl From<Refusal> for SyncError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.to_string())
    }
}

impl Inner {
    /// One round with a key, with everything that follows from its outcome.
    pub(super) async fn work_on(&self, key: &ItemKey) {
        if !self.view.is_up(key.kind) {
            // All of its keys come again when it is.
            return;
        }
        let refused_for = self.queue.refused_for(key);
        let was_refused = refused_for.is_some();
        let outcome = match key.kind {
            KindId::PodToken => self.sync_tokens(key).await,
            _ => match (to_host_kind(key.kind), shown_kind(key.kind)) {
                (Some(kind), _) => self.sync(kind, key, refused_for).await,
                (None, Some(kind)) => self.show(kind, key).await,
                (None, None) => Ok(Round::Done),
            },
        };
        match outcome {
            Ok(Round::Done) => {
                self.queue.forget(key);
                if was_refused {
                    // Once more, to take the complaint off the object.
                    self.queue.add(key.clone());
                }
            }
            Ok(Round::After(delay)) => self.queue.add_after(key.clone(), delay),
            Err(SyncError::Refused(why)) => {
                self.tell_refusal(key, &why).await;
                self.queue.refused(key.clone());
            }
            Err(SyncError::Write(WriteError::Refused(api))) => {
                self.tell_refusal(key, &api.message).await;
                self.queue.refused(key.clone());
            }
            Err(SyncError::Write(WriteError::Changed(_))) => self.queue.retry(key.clone()),
            Err(SyncError::Tenant(error)) if error.is_not_found() || error.is_conflict() => self.queue.retry(key.clone()),
            Err(error) => {
                self.stats.failure();
                let tenant = &self.view.names.tenant().name;
                tracing::warn!(%tenant, %key, %error, "sync failed, will retry");
                self.queue.retry(key.clone());
            }
        }
    }

    async fn sync(&self, kind: &SyncedKind, key: &ItemKey, refused_for: Option<Duration>) -> Result<Round, SyncError> {
        let refused = refused_for.is_some();
        if !self.caught_up(key) {
            return Ok(Round::After(LAG_PAUSE));
        }
        let tenant = self.view.tenant.get(kind.id, &key.key);
        let host = self.view.copy_of(kind.id, &key.key);
        if kind.id == KindId::Service && self.pending.is_ahead_of(&key.key, tenant.as_deref()) {
            return Ok(Round::After(LAG_PAUSE));
        }
        let print = Fingerprint::of(kind.id, tenant.as_deref(), host.as_deref());
        let settled = self.settled.contains(key, print);
        let mut plan = self.plan(key, tenant.as_deref(), host.as_deref(), refused, settled);
        if kind.id == KindId::Pod {
            if !settled {
                let quiet = plan.refusal.is_none() && !plan.actions.iter().any(Action::goes_down);
                self.settled.set(key, print.filter(|_| quiet));
            }
            if plan.is_empty() && !refused {
                let of = |object: Option<&Value>| object.map_or(0, revision);
                self.settled.set_quiet(key, Versions { tenant: of(tenant.as_deref()), host: of(host.as_deref()) });
            }
            let makes_copy = plan.actions.iter().any(|action| matches!(action, Action::CreateHost { .. }));
            if makes_copy && tenant.as_deref().is_some_and(|pod| self.waits_for_tokens(&key.key, pod)) {
                return Ok(Round::After(ASKING_MAX));
            }
        }
        let mut full = None;
        if kind.slim && plan.actions.iter().any(Action::writes_fields) {
            // Local copies hold no values. The live object decides anew.
            full = self.tenant_client.get_opt(&kind.gvr(), &key.key.namespace, &key.key.name).await?;
            plan = self.plan(key, full.as_ref(), host.as_deref(), refused, false);
        }
        let tenant = full.as_ref().or(tenant.as_deref());
        // Both directions get their turn: a refusal on the way down must not hold back the status.
        let mut failed = plan.refusal.map(SyncError::from);
        let mut round = Round::Done;
        for action in plan.actions {
            if let Some(wait) = refused_for.filter(|wait| !wait.is_zero() && action.writes_fields()) {
                round = Round::After(wait);
                continue;
            }
            tracing::debug!(%key, action = action.name(), "sync");
            self.stats.count(&action);
            match self.execute(kind, key, tenant, action).await {
                Ok(Round::Done) => {}
                Ok(after) => round = after,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(round), Err)
    }

    pub(super) fn plan(&self, key: &ItemKey, tenant: Option<&Value>, host: Option<&Value>, refused: bool, settled: bool) -> Plan {
        let Some(kind) = to_host_kind(key.kind) else { return Plan::default() };
        let on = tenant.is_none_or(|tenant| self.rules.goes_down(kind.resource, tenant));
        let (dropped, unknown) = (self.skew.dropped_by_host(key), self.skew.unknown_to_tenant(key.kind));
        plan(&Observed { kind, on, tenant, host, refused, settled, dropped, unknown, translation: self.translation() })
    }

    pub(super) fn translation(&self) -> Translation<'_> {
        Translation { names: &self.view.names, config: &self.pods, rules: &self.rules, view: &self.view }
    }

    async fn execute(&self, kind: &SyncedKind, key: &ItemKey, tenant: Option<&Value>, action: Action) -> Result<Round, SyncError> {
        let host_key = self.view.names.host_key(&key.key, kind.name_bytes_max);
        match action {
            Action::CreateHost { desired } => return self.create(kind, key, &desired).await,
            Action::ApplyHost { desired, uid, adopt } => {
                let desired = self.with_what_stays(kind, desired).await?;
                let written = self.writer.apply(kind, &desired, &uid, adopt).await?;
                self.expect_host(key, &written);
                let ours = manifest::without_allocated(kind.fields, desired);
                self.skew.host_dropped(key, ownership::unowned(&written, &ours));
            }
            Action::DeleteHost { uid, grace_seconds, confirmed } => {
                if !confirmed && !self.tenant_is_gone(kind, key).await? {
                    return Ok(Round::After(LAG_PAUSE));
                }
                self.writer.delete(&kind.gvr(), &host_key, &uid, grace_seconds).await?;
            }
            Action::PatchHost { subresource, patch, uid } => {
                let written = self.writer.patch(&kind.gvr(), &host_key, subresource, &patch, &uid).await?;
                self.expect_host(key, &written);
            }
            Action::ApplyHostStatus { status, uid } => {
                let written = self.writer.apply_status(kind, &host_key, &status, &uid).await?;
                self.expect_host(key, &written);
            }
            Action::BindTenant { node } => self.bind(key, tenant, &node).await?,
            Action::PatchTenant { patch } => {
                let written = self.tenant_client.merge_patch(&kind.gvr(), &key.key.namespace, &key.key.name, patch).await?;
                self.expect_tenant(key, &written);
            }
            Action::PatchTenantStatus { patch } => {
                let asked = patch["status"].clone();
                let written = self.tenant_client.patch_status(&kind.gvr(), &key.key.namespace, &key.key.name, patch).await?;
                self.expect_tenant(key, &written);
                self.skew.tenant_wrote(key.kind, &asked, &written["status"]);
            }
            Action::DeleteTenant { uid, grace_seconds, vanished } => {
                if vanished && !self.copy_is_gone(kind, &host_key, tenant, &uid).await? {
                    return Ok(Round::After(LAG_PAUSE));
                }
                let options = DeleteOptions { grace_period_seconds: grace_seconds, ..DeleteOptions::background() }.uid(&uid);
                self.tenant_client.delete_if_exists(&kind.gvr(), &key.key.namespace, &key.key.name, &options).await?;
            }
        }
        Ok(Round::Done)
    }

    /// A running pod's tolerations can be added to and never taken away, those of others neither: a host
    /// that added some would refuse every change of a pod without them.
    async fn with_what_stays(&self, kind: &SyncedKind, mut desired: Value) -> Result<Value, WriteError> {
        if kind.id == KindId::Pod && desired["spec"]["tolerations"].is_array() {
            let live = self.writer.client().get(&kind.gvr(), desired.namespace(), desired.name()).await?;
            pod::keep_tolerations(&mut desired, &live);
        }
        Ok(desired)
    }

    /// Something may stand under the name: a copy that we do not see yet, one of ours whose marks
    /// somebody took off, or a stranger, which stays as it is.
    async fn create(&self, kind: &SyncedKind, key: &ItemKey, desired: &Value) -> Result<Round, SyncError> {
        match self.writer.create(&kind.gvr(), desired).await {
            Ok(written) => {
                self.expect_host(key, &written);
                let ours = manifest::without_allocated(kind.fields, (kind.update_view)(desired.clone()));
                self.skew.host_dropped(key, ownership::unowned(&written, &ours));
                Ok(Round::Done)
            }
            // What is there already may be refused for what it has itself: its address is taken, its quota is used up.
            Err(error @ (WriteError::Exists | WriteError::Refused(_))) => {
                let host_key = HostKey::of(desired);
                let live =
                    self.writer.client().get_opt(&kind.gvr(), &host_key.namespace, &host_key.name).await.map_err(WriteError::from)?;
                let is_ours = |live: &Value| self.view.key_of(kind.id, live).is_some_and(|k| k == key.key);
                let live = match (error, live) {
                    (_, Some(live)) if is_ours(&live) => return Ok(Round::After(LAG_PAUSE)),
                    (WriteError::Exists, None) => return Ok(Round::After(LAG_PAUSE)),
                    (WriteError::Exists, Some(live)) => live,
                    (refused, _) => return Err(refused.into()),
                };
                if live.annotation(marks::UID) == desired.annotation(marks::UID) && live.annotation(marks::NAME) == Some(&key.key.name) {
                    let view = self.with_what_stays(kind, (kind.update_view)(desired.clone())).await?;
                    self.writer.apply(kind, &view, live.uid(), true).await?;
                    return Ok(Round::Done);
                }
                Err(SyncError::Refused(format!(
                    "the host has a {} of its own where the copy of this one belongs; use another name, or ask the host's operator to remove it",
                    kind.kind
                )))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a live read agrees that the tenant object of a copy is gone.
    async fn tenant_is_gone(&self, kind: &SyncedKind, key: &ItemKey) -> Result<bool, SyncError> {
        if kind.id == KindId::Service && self.pending.contains(&key.key) {
            return Ok(false);
        }
        let Some(copy) = self.view.copy_of(kind.id, &key.key) else { return Ok(true) };
        let live = self.tenant_client.get_opt(&kind.gvr(), &key.key.namespace, &key.key.name).await?;
        Ok(live.is_none_or(|live| copy.annotation(marks::UID) != Some(live.uid())))
    }

    /// Whether a live read agrees that the copy of the tenant object with this UID is gone.
    async fn copy_is_gone(&self, kind: &SyncedKind, host_key: &HostKey, tenant: Option<&Value>, uid: &str) -> Result<bool, SyncError> {
        let client = self.writer.client();
        let live = client.get_opt(&kind.gvr(), &host_key.namespace, &host_key.name).await.map_err(WriteError::from)?;
        let Some(live) = live else { return Ok(true) };
        if live.annotation(marks::UID) != Some(uid) {
            return Ok(true);
        }
        // It is there, but somebody took its marks off, or our copy is behind.
        if let Some(tenant) = tenant {
            let desired = super::plan::finished(kind, tenant, &self.translation())?;
            let view = self.with_what_stays(kind, (kind.update_view)(desired)).await?;
            self.writer.apply(kind, &view, live.uid(), true).await?;
        }
        Ok(false)
    }

    /// The host's scheduler decided: the tenant hears it the way it would from its own.
    async fn bind(&self, key: &ItemKey, tenant: Option<&Value>, node: &str) -> Result<(), SyncError> {
        // Controllers of the tenant take a pod on an unknown node for lost.
        self.ensure_node(node).await?;
        let uid = tenant.map(ObjectExt::uid).unwrap_or_default();
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": key.key.name, "namespace": key.key.namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        match self.tenant_client.create_subresource(&PODS, &key.key.namespace, &key.key.name, "binding", &binding).await {
            Ok(_) => Ok(()),
            // Bound before, by a round whose end we do not remember.
            Err(error) if error.is_conflict() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// An Event and, where the kind has conditions, a condition on the tenant's object.
    async fn tell_refusal(&self, key: &ItemKey, why: &str) {
        let id = if key.kind == KindId::PodToken { KindId::Pod } else { key.kind };
        self.stats.refusal();
        let Some(tenant) = self.view.tenant.get(id, &key.key) else { return };
        let host_namespace = self.view.names.host_namespace(&key.key.namespace);
        let own_name = to_host_kind(id).map(|k| self.view.names.host_key(&key.key, k.name_bytes_max).name).unwrap_or_default();
        let message = to_tenant_text(why, host_namespace, |name| {
            if name == own_name {
                return Some(key.key.clone());
            }
            to_host_kind(id).and_then(|k| crate::resources::TenantView::tenant_key(&self.view, k.id, name))
        });
        self.events.record(&tenant, EventKind::Warning, "HostRefused", &message).await;
        let Some(gvr) = with_conditions(id) else { return };
        let known = tenant.condition(SYNCED);
        if known.is_some_and(|c| c["message"] == *message) {
            return;
        }
        let now = self.clock.rfc3339();
        let condition = json!({"type": SYNCED, "status": "False", "reason": "HostRefused", "message": message, "lastTransitionTime": now});
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        let (namespace, name) = (&key.key.namespace, &key.key.name);
        if let Err(error) = self.tenant_client.patch(&gvr, namespace, name, "status", &patch, &PatchOptions::default()).await {
            tracing::debug!(%key, %error, "the refusal is told by its event alone");
        }
    }

    pub(super) fn expect_host(&self, key: &ItemKey, written: &Value) {
        self.expect(key, revision(written), 0);
    }

    pub(super) fn expect_tenant(&self, key: &ItemKey, written: &Value) {
        self.expect(key, 0, revision(written));
    }

    fn expect(&self, key: &ItemKey, host: u64, tenant: u64) {
        let mut all = self.expected.lock().expect("no holder panics");
        let entry = all.entry(key.clone()).or_insert(Expected { host: 0, tenant: 0, since: Instant::now() });
        *entry = Expected { host: entry.host.max(host), tenant: entry.tenant.max(tenant), since: Instant::now() };
    }

    /// Whether the local copies show our last writes of the key. They are trusted again after a while
    /// in any case: a server that went back in time would hold us up for ever.
    pub(super) fn caught_up(&self, key: &ItemKey) -> bool {
        let Some(expected) = self.expected.lock().expect("no holder panics").get(key).copied() else { return true };
        let (tenant, host) = self.informers(key.kind);
        let seen = |informer: &sublet_runtime::Informer, object: Option<std::sync::Arc<Value>>, at: u64| {
            at == 0 || object.is_some_and(|o| revision(&o) >= at) || informer.resource_version().parse::<u64>().is_ok_and(|v| v >= at)
        };
        let caught_up = seen(tenant, tenant.get(&key.key.namespace, &key.key.name), expected.tenant)
            && seen(host, self.view.packed_copy_of(key.kind, &key.key), expected.host)
            || expected.since.elapsed() > EXPECTED_MAX;
        if caught_up {
            self.expected.lock().expect("no holder panics").remove(key);
        }
        caught_up
    }
}

/// The revision of an object, where it is a number; 0 otherwise, which expects nothing.
pub(super) fn revision(object: &Value) -> u64 {
    object.resource_version().parse().unwrap_or_default()
}

fn with_conditions(id: KindId) -> Option<Gvr> {
    matches!(id, KindId::Pod | KindId::Service | KindId::PersistentVolumeClaim).then(|| to_host_kind(id).map(SyncedKind::gvr))?
}
