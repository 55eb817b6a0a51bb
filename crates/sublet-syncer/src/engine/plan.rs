//! The step of the engine: looks at both sides of one key and says what to do. No IO.

use super::skew::{self, Fields};
use super::{diff, ownership};
use crate::resources::{KindId, Refusal, SyncedKind, Translation, manifest, pod};
use serde_json::{Value, json};
use sublet_api::condition::SYNCED;
use sublet_api::marks;
use sublet_machinery::ObjectExt;

/// What is known about one key, from the local copies.
pub struct Observed<'a> {
    pub kind: &'a SyncedKind,
    /// Whether the tenant's kind is synced at all.
    pub on: bool,
    pub tenant: Option<&'a Value>,
    pub host: Option<&'a Value>,
    /// The host's last answer about this key was no.
    pub refused: bool,
    /// The same tenant spec and host marks were compared before, and nothing had to go down.
    pub settled: bool,
    /// What the host did not keep of our fields.
    pub dropped: Fields,
    /// What the tenant's API server cannot keep of a status.
    pub unknown: Fields,
    pub translation: Translation<'a>,
}

/// One thing to do. Each is safe to repeat; the first that fails ends the round.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// POST; fails on anything that stands in the way.
    CreateHost {
        desired: Value,
    },
    /// Server-side apply on the object with this UID. `adopt`: the fields of its creation are not yet
    /// ours to remove.
    ApplyHost {
        desired: Value,
        uid: String,
        adopt: bool,
    },
    /// After the tenant object was seen to be gone, by a live read, unless `confirmed`.
    DeleteHost {
        uid: String,
        grace_seconds: Option<i64>,
        confirmed: bool,
    },
    /// A strategic merge patch of a subresource of the host object.
    PatchHost {
        subresource: &'static str,
        patch: Value,
        uid: String,
    },
    /// Server-side apply of conditions that only the tenant can set.
    ApplyHostStatus {
        status: Value,
        uid: String,
    },
    BindTenant {
        node: String,
    },
    /// A merge patch of the tenant object.
    PatchTenant {
        patch: Value,
    },
    PatchTenantStatus {
        patch: Value,
    },
    /// The tenant object follows its host copy. `vanished`: only after a live read found no copy.
    DeleteTenant {
        uid: String,
        grace_seconds: Option<i64>,
        vanished: bool,
    },
}

impl Action {
    /// A word for logs and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::CreateHost { .. } => "create_host",
            Self::ApplyHost { .. } => "apply_host",
            Self::DeleteHost { .. } => "delete_host",
            Self::PatchHost { .. } => "patch_host",
            Self::ApplyHostStatus { .. } => "apply_host_status",
            Self::BindTenant { .. } => "bind_tenant",
            Self::PatchTenant { .. } => "patch_tenant",
            Self::PatchTenantStatus { .. } => "patch_tenant_status",
            Self::DeleteTenant { .. } => "delete_tenant",
        }
    }

    /// Whether the action changes the host copy of a living object.
    pub fn goes_down(&self) -> bool {
        self.writes_fields() || matches!(self, Self::PatchHost { .. } | Self::ApplyHostStatus { .. })
    }

    /// Whether the action carries fields of the tenant object.
    pub fn writes_fields(&self) -> bool {
        matches!(self, Self::CreateHost { .. } | Self::ApplyHost { .. })
    }
}

/// What to do about one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub actions: Vec<Action>,
    /// What cannot go to the host, whatever else can be done.
    pub refusal: Option<Refusal>,
}

impl From<Vec<Action>> for Plan {
    fn from(actions: Vec<Action>) -> Self {
        Self { actions, refusal: None }
    }
}

impl From<Option<Action>> for Plan {
    fn from(action: Option<Action>) -> Self {
        Self { actions: action.into_iter().collect(), refusal: None }
    }
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty() && self.refusal.is_none()
    }
}

/// The one question: is the object wanted on the host, and is it there?
pub fn plan(observed: &Observed<'_>) -> Plan {
    let kind = observed.kind;
    let wanted = observed.tenant.filter(|tenant| observed.on && (kind.select)(tenant, observed.translation.view));
    match (wanted, observed.host) {
        (None, None) => Plan::default(),
        // An object that is there but not wanted needs no live read: a copy of it can be made again.
        (None, Some(host)) => delete_host(host, None, observed.tenant.is_some()).into(),
        (Some(tenant), None) => only_tenant(observed, tenant),
        (Some(tenant), Some(host)) => both(observed, tenant, host),
    }
}

fn only_tenant(observed: &Observed<'_>, tenant: &Value) -> Plan {
    if observed.kind.id == KindId::Pod {
        if tenant.is_deleting() {
            // Nothing runs any more: the pod's deletion is complete. Its finalizers may still hold it.
            let pending = tenant.i64_at("/metadata/deletionGracePeriodSeconds") != Some(0);
            if pending {
                return Some(delete_tenant(tenant, Some(0), false)).into();
            }
            return pod::gone(tenant).map(|status| patch_status(tenant, status)).into();
        }
        if pod::is_terminal(tenant) {
            return Plan::default();
        }
        if pod::has_run(tenant) {
            return Some(delete_tenant(tenant, Some(0), true)).into();
        }
    } else if tenant.is_deleting() {
        return Plan::default();
    }
    match finished(observed.kind, tenant, &observed.translation) {
        Ok(desired) => Some(Action::CreateHost { desired }).into(),
        Err(refusal) => Plan { actions: Vec::new(), refusal: Some(refusal) },
    }
}

fn both(observed: &Observed<'_>, tenant: &Value, host: &Value) -> Plan {
    let kind = observed.kind;
    if host.annotation(marks::UID) != Some(tenant.uid()) {
        // The copy of an earlier object of the same name: it has to go first.
        return delete_host(host, None, true).into();
    }
    if kind.id == KindId::Pod && !tenant.is_deleting() && pod::is_terminal(tenant) && !pod::is_terminal(host) {
        // What the tenant calls over is over, as for a kubelet: nothing of it runs on, and its record stays.
        return delete_host(host, None, true).into();
    }
    let mut actions = Vec::new();
    if host.is_deleting() {
        if kind.id == KindId::Pod {
            actions.extend(up(observed, tenant, host));
            actions.extend(follow_deletion(tenant, host));
        }
        // Any other copy is made again once it is gone.
        return actions.into();
    }
    if kind.id == KindId::Pod && tenant.is_deleting() {
        actions.extend(delete_host(host, tenant.i64_at("/metadata/deletionGracePeriodSeconds"), true));
        actions.extend(up(observed, tenant, host));
        return actions.into();
    }
    let mut refusal = None;
    if !observed.settled {
        match down(observed, tenant, host) {
            Ok(down) => actions.extend(down),
            Err(why) => refusal = Some(why),
        }
    }
    // What the host has to say comes up, whatever became of the way down.
    actions.extend(up(observed, tenant, host));
    Plan { actions, refusal }
}

/// Deletions meet in the middle: each side hears of the other's, and the shorter grace wins.
fn follow_deletion(tenant: &Value, host: &Value) -> Option<Action> {
    let grace = |object: &Value| object.i64_at("/metadata/deletionGracePeriodSeconds");
    if !tenant.is_deleting() {
        return (!pod::is_terminal(tenant)).then(|| delete_tenant(tenant, grace(host), false));
    }
    let shorter = matches!((grace(tenant), grace(host)), (Some(tenant), Some(host)) if tenant < host);
    shorter.then(|| Action::DeleteHost { uid: host.uid().into(), grace_seconds: grace(tenant), confirmed: true })
}

fn down(observed: &Observed<'_>, tenant: &Value, host: &Value) -> Result<Vec<Action>, Refusal> {
    let kind = observed.kind;
    let full = finished(kind, tenant, &observed.translation)?;
    let applied = full.annotation(marks::APPLIED).unwrap_or_default().to_string();
    let uid = host.uid().to_string();
    let mut actions = Vec::new();
    if kind.id == KindId::Pod {
        actions.extend(pod_subresources(&full, tenant, host));
    }
    let desired = (kind.update_view)(full);
    let unchanged = host.annotation(marks::APPLIED) == Some(&applied);
    let ours = manifest::without_allocated(kind.fields, desired.clone());
    let owns_all = ownership::unowned(host, &ours).iter().all(|field| observed.dropped.contains(field));
    if !unchanged || !owns_all || !manifest::has_allocated(kind.fields, &desired, host) {
        let adopt = ownership::needs_adoption(host, kind.id == KindId::Pod);
        let mut desired = desired;
        if kind.id == KindId::Service {
            // The allocator writes them as well: what was planned before it did is planned again.
            desired.metadata_mut().insert("resourceVersion".into(), host["metadata"]["resourceVersion"].clone());
        }
        actions.push(Action::ApplyHost { desired, uid, adopt });
    }
    Ok(actions)
}

/// What of a pod changes by requests of its own.
fn pod_subresources(desired: &Value, tenant: &Value, host: &Value) -> Vec<Action> {
    let uid = host.uid().to_string();
    let mut actions = Vec::new();
    if resources_digest(host.annotation(marks::APPLIED)) != resources_digest(desired.annotation(marks::APPLIED)) {
        let patch = json!({"spec": pod::resources(desired)});
        actions.push(Action::PatchHost { subresource: "resize", patch, uid: uid.clone() });
    }
    let missing = pod::missing_ephemeral(desired, host);
    if !missing.is_empty() {
        // Otherwise new items go to the front.
        let order: Vec<Value> = desired.array_at("/spec/ephemeralContainers").iter().map(|c| json!({"name": c["name"]})).collect();
        let patch = json!({"spec": {"ephemeralContainers": missing, "$setElementOrder/ephemeralContainers": order}});
        actions.push(Action::PatchHost { subresource: "ephemeralcontainers", patch, uid: uid.clone() });
    }
    if let Some(status) = pod::gate_conditions(tenant, host) {
        actions.push(Action::ApplyHostStatus { status, uid });
    }
    actions
}

/// A pod's mark is `DIGEST.RESOURCES`.
fn resources_digest(applied: Option<&str>) -> Option<&str> {
    applied?.split_once('.').map(|(_, resources)| resources)
}

/// The host object with the digest of what an apply would write.
pub fn finished(kind: &SyncedKind, tenant: &Value, translation: &Translation<'_>) -> Result<Value, Refusal> {
    let mut desired = kind.to_host(tenant, translation)?;
    let mut view = manifest::without_allocated(kind.fields, (kind.update_view)(desired.clone()));
    slim_data(&mut view);
    let mut digest = ownership::digest(&view);
    if kind.id == KindId::Pod {
        digest = format!("{digest}.{}", &ownership::digest(&pod::resources(&desired))[..8]);
    }
    desired.set_annotation(marks::APPLIED, &digest);
    Ok(desired)
}

/// Replaces the values under `data` and `binaryData` by one digest; keys stay. Local copies are kept
/// in this form, and give the same digest of the whole as the live object.
pub fn slim_data(object: &mut Value) {
    let mut all = json!({});
    for field in ["data", "binaryData"] {
        if let Some(values) = object[field].as_object_mut() {
            all[field] = Value::Object(values.clone());
            for value in values.values_mut() {
                *value = Value::Null;
            }
        } else if let Some(map) = object.as_object_mut() {
            map.remove(field);
        }
    }
    // Done once is done for good: a slim object is its own slim form.
    if object["dataDigest"].is_null() {
        object["dataDigest"] = json!(ownership::digest(&all));
    }
}

fn up(observed: &Observed<'_>, tenant: &Value, host: &Value) -> Vec<Action> {
    let mut actions = Vec::new();
    if observed.kind.id == KindId::Pod
        && let Some(node) = host.str_at("/spec/nodeName")
        && tenant.str_at("/spec/nodeName").unwrap_or_default().is_empty()
        && !tenant.is_deleting()
    {
        actions.push(Action::BindTenant { node: node.to_string() });
    }
    let upward = (observed.kind.to_tenant)(tenant, host, &observed.translation);
    if let Some(patch) = upward.main {
        actions.push(Action::PatchTenant { patch });
    }
    if let Some(mut status) = upward.status {
        with_complaint(tenant, &mut status, observed.refused);
        skew::without(&mut status, &observed.unknown);
        let patch = diff::merge_patch(&tenant["status"], &status);
        actions.extend(patch.map(|patch| patch_status(tenant, patch)));
    }
    actions
}

fn patch_status(tenant: &Value, status: Value) -> Action {
    Action::PatchTenantStatus { patch: json!({"metadata": {"uid": tenant.uid()}, "status": status}) }
}

fn delete_host(host: &Value, grace_seconds: Option<i64>, confirmed: bool) -> Option<Action> {
    (!host.is_deleting()).then(|| Action::DeleteHost { uid: host.uid().into(), grace_seconds, confirmed })
}

fn delete_tenant(tenant: &Value, grace_seconds: Option<i64>, vanished: bool) -> Action {
    Action::DeleteTenant { uid: tenant.uid().into(), grace_seconds, vanished }
}

/// Keeps or drops the complaint in a status that is about to be written.
fn with_complaint(tenant: &Value, status: &mut Value, refused: bool) {
    let complaint = tenant.condition(SYNCED).filter(|_| refused);
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.retain(|c| c["type"] != SYNCED);
    }
    match (complaint, status.get_mut("conditions").and_then(Value::as_array_mut)) {
        (Some(complaint), Some(conditions)) => conditions.push(complaint.clone()),
        (Some(complaint), None) => status["conditions"] = json!([complaint]),
        (None, Some(conditions)) if conditions.is_empty() => {
            status.remove_at("/conditions");
        }
        _ => {}
    }
}
