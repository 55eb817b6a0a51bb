//! Shows host objects to the tenant, and takes them away again.

use super::execute::{Round, SyncError};
use super::syncer::Inner;
use super::{ItemKey, WriteError, skew};
use crate::resources::KindId;
use crate::resources::shown::{ShownKind, is_shown_by_us, shown, shown_kind};
use crate::translate::TenantKey;
use serde_json::{Value, json};
use std::time::Duration;
use sublet_api::{ShowNodes, marks};
use sublet_machinery::ObjectExt;
use sublet_runtime::{ClientError, DeleteOptions};
use tokio::time::Instant;

const NO_EDITS: &str =
    "changes of volumes do not reach this host: its admin has to let Sublet patch PersistentVolumes, with the component `volume-edits`";

/// What is to be done about one shown object.
#[derive(Clone, Debug, PartialEq)]
pub enum ShowAction {
    Create {
        object: Value,
    },
    /// Merge patches of what differs, of the object and of its status.
    Update {
        main: Option<Value>,
        status: Option<Value>,
    },
    /// The tenant's copy stands for an object that is no longer there or no longer wanted.
    Remove {
        uid: String,
    },
}

/// The step for one object: what the host has, if it is wanted, against what the tenant sees.
pub fn plan_shown(wanted: Option<&Value>, tenant: Option<&Value>) -> Option<ShowAction> {
    match (wanted, tenant) {
        (None, None) => None,
        (Some(object), None) => Some(ShowAction::Create { object: object.clone() }),
        // Made by the tenant itself: it is not ours to change, even where the host has its namesake.
        (_, Some(tenant)) if !is_shown_by_us(tenant) => None,
        (None, Some(tenant)) => (!tenant.is_deleting()).then(|| ShowAction::Remove { uid: tenant.uid().into() }),
        (Some(wanted), Some(tenant)) => {
            if wanted.annotation(marks::UID) != tenant.annotation(marks::UID) {
                return Some(ShowAction::Remove { uid: tenant.uid().into() });
            }
            let (main, status) = (difference(wanted, tenant), status_difference(wanted, tenant));
            (main.is_some() || status.is_some()).then_some(ShowAction::Update { main, status })
        }
    }
}

/// Our fields alone: what the tenant's controllers add to the object is theirs.
fn difference(wanted: &Value, tenant: &Value) -> Option<Value> {
    let mut patch = json!({});
    for (field, value) in wanted.as_object().into_iter().flatten() {
        match field.as_str() {
            "apiVersion" | "kind" | "status" => {}
            "metadata" => {
                for part in ["labels", "annotations"] {
                    if let Some(change) = merge_of_ours(&tenant["metadata"][part], &value[part]) {
                        patch["metadata"][part] = change;
                    }
                }
                let before = tenant.annotation(marks::APPLIED).unwrap_or_default();
                for key in before.split(',').filter(|k| tenant.label(k).is_some() && value["labels"][*k].is_null()) {
                    patch["metadata"]["labels"][key] = Value::Null;
                }
            }
            _ => {
                if let Some(change) = merge_of_ours(&tenant[field.as_str()], value) {
                    patch[field.as_str()] = change;
                }
            }
        }
    }
    patch.as_object().is_some_and(|p| !p.is_empty()).then_some(patch)
}

/// As a merge patch, without taking away what we do not name. Nothing, and an empty list, are the same.
fn merge_of_ours(before: &Value, wanted: &Value) -> Option<Value> {
    let (Some(_), Some(map)) = (before.as_object(), wanted.as_object()) else {
        let is_nothing = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        return (before != wanted && !(is_nothing(before) && is_nothing(wanted))).then(|| wanted.clone());
    };
    let changes: serde_json::Map<String, Value> =
        map.iter().filter_map(|(key, value)| Some((key.clone(), merge_of_ours(&before[key.as_str()], value)?))).collect();
    (!changes.is_empty()).then_some(Value::Object(changes))
}

/// The object as it is created: without the nulls that say what must not be there.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(map.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), without_nulls(v))).collect()),
        other => other.clone(),
    }
}

fn status_difference(wanted: &Value, tenant: &Value) -> Option<Value> {
    let wanted = wanted.get("status").filter(|s| s.is_object())?;
    // What servers add to a status by default is not ours to take away.
    let before = if tenant["status"].is_null() { json!({}) } else { tenant["status"].clone() };
    merge_of_ours(&before, wanted)
}

impl Inner {
    pub(super) async fn show(&self, kind: &ShownKind, key: &ItemKey) -> Result<Round, SyncError> {
        let informer = self.view.host.informer(kind.host);
        if !informer.is_synced() || self.rules.is_off_to_tenant(&kind.gvr.resource) {
            // A host that does not let us look is no host without objects. What is switched off stays as it is.
            return Ok(Round::Done);
        }
        if !self.caught_up(key) {
            return Ok(Round::After(Duration::from_millis(100)));
        }
        let name = &key.key.name;
        let tenant = self.view.tenant.get(kind.id, &key.key);
        let translation = self.translation();
        let host = informer.get(kind.namespace, name).filter(|host| self.is_wanted(kind, host, tenant.as_deref()));
        let mut refused = None;
        if let (Some(host), Some(tenant)) = (host.as_deref(), tenant.as_deref().filter(|t| is_shown_by_us(t)))
            && let Some(changes) = (kind.edits)(host, tenant, &translation)
        {
            match self.writer.patch_volume(&kind.gvr, host.name(), host.uid(), changes).await {
                Ok(written) => {
                    self.expect_host(key, &written);
                    return Ok(Round::After(Duration::from_millis(100)));
                }
                // What the host does not take is undone in the tenant, and told.
                Err(WriteError::Refused(api)) if api.code == 403 => refused = Some(SyncError::Refused(NO_EDITS.into())),
                Err(WriteError::Refused(api)) => refused = Some(SyncError::Write(WriteError::Refused(api))),
                Err(error) => return Err(error.into()),
            }
        }
        let wanted = host.as_deref().map(|host| self.shown(kind, host, tenant.as_deref()));
        if wanted.is_some() {
            self.lingering().remove(key);
        }
        match plan_shown(wanted.as_ref(), tenant.as_deref()) {
            None => {}
            Some(ShowAction::Create { object }) => self.create_shown(kind, key, &object).await?,
            Some(ShowAction::Update { main, status }) => {
                let round = self.update_shown(kind, key, tenant.as_deref(), main, status).await?;
                return refused.map_or(Ok(round), Err);
            }
            Some(ShowAction::Remove { uid }) => {
                if let Some(wait) = self.linger(kind, key) {
                    return Ok(Round::After(wait));
                }
                self.remove_shown(kind, name, &uid).await?;
            }
        }
        refused.map_or(Ok(Round::Done), Err)
    }

    /// Whether the tenant is to see a host object; `tenant` is what it sees already.
    pub(super) fn is_wanted(&self, kind: &ShownKind, host: &Value, tenant: Option<&Value>) -> bool {
        self.rules.may_show(&kind.gvr.resource, host) && (kind.select)(host, tenant, &self.translation())
    }

    /// The object for the tenant, as far as its API server can keep it.
    pub(super) fn shown(&self, kind: &ShownKind, host: &Value, tenant: Option<&Value>) -> Value {
        let mut object = shown(kind, host, tenant, &self.translation());
        skew::without(&mut object, &self.skew.unknown_to_tenant(kind.id));
        object
    }

    async fn create_shown(&self, kind: &ShownKind, key: &ItemKey, object: &Value) -> Result<(), ClientError> {
        let created = match self.tenant_client.create(&kind.gvr, &without_nulls(object)).await {
            // By another worker, or by the tenant: the local copy will tell.
            Err(error) if error.is_already_exists() => return Ok(()),
            other => other?,
        };
        self.expect_tenant(key, &created);
        let mut asked = object.clone();
        asked.remove_at("/status");
        self.skew.tenant_wrote(kind.id, &asked, &created);
        // API servers taint new nodes until they hear better, and take no status at creation.
        if let Some(patch) = difference(object, &created) {
            self.tenant_client.merge_patch(&kind.gvr, kind.namespace, &key.key.name, patch).await?;
        }
        if let Some(status) = status_difference(object, &created) {
            self.patch_shown_status(kind, key, status).await?;
        }
        Ok(())
    }

    /// Shows a node before the first pod is said to run there.
    pub(super) async fn ensure_node(&self, node: &str) -> Result<(), ClientError> {
        let key = ItemKey::new(KindId::Node, TenantKey::new("", node));
        let (Some(kind), None) = (shown_kind(KindId::Node), self.view.tenant.get(KindId::Node, &key.key)) else { return Ok(()) };
        let Some(host) = self.view.host.informer(kind.host).get("", node) else { return Ok(()) };
        if self.rules.nodes.show == ShowNodes::None || self.rules.is_off_to_tenant(&kind.gvr.resource) {
            return Ok(());
        }
        self.create_shown(kind, &key, &self.shown(kind, &host, None)).await
    }

    async fn update_shown(
        &self,
        kind: &ShownKind,
        key: &ItemKey,
        tenant: Option<&Value>,
        main: Option<Value>,
        status: Option<Value>,
    ) -> Result<Round, SyncError> {
        let name = &key.key.name;
        if let Some(patch) = main {
            match self.tenant_client.merge_patch(&kind.gvr, kind.namespace, name, patch.clone()).await {
                Ok(written) => {
                    self.expect_tenant(key, &written);
                    self.skew.tenant_wrote(kind.id, &patch, &written);
                }
                // The host's object was replaced by one with other fixed fields: show it anew.
                Err(error) if error.api().is_some_and(|e| e.code == 422) => {
                    self.remove_shown(kind, name, tenant.map(ObjectExt::uid).unwrap_or_default()).await?;
                    return Ok(Round::After(Duration::from_millis(100)));
                }
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(patch) = status {
            self.patch_shown_status(kind, key, patch).await?;
        }
        Ok(Round::Done)
    }

    async fn patch_shown_status(&self, kind: &ShownKind, key: &ItemKey, status: Value) -> Result<(), ClientError> {
        let patch = json!({"status": status});
        let written = self.tenant_client.patch_status(&kind.gvr, kind.namespace, &key.key.name, patch.clone()).await?;
        self.expect_tenant(key, &written);
        self.skew.tenant_wrote(kind.id, &patch, &written);
        Ok(())
    }

    async fn remove_shown(&self, kind: &ShownKind, name: &str, uid: &str) -> Result<(), ClientError> {
        let options = DeleteOptions::background().uid(uid);
        match self.tenant_client.delete_if_exists(&kind.gvr, kind.namespace, name, &options).await {
            Err(error) if error.is_conflict() => Ok(()),
            other => other,
        }
    }

    /// How much longer an unwanted object stays, if any.
    fn linger(&self, kind: &ShownKind, key: &ItemKey) -> Option<Duration> {
        let whole = Duration::from_secs(kind.linger_seconds);
        let mut lingering = self.lingering();
        let since = *lingering.entry(key.clone()).or_insert_with(Instant::now);
        let left = whole.saturating_sub(since.elapsed());
        if left.is_zero() {
            lingering.remove(key);
            return None;
        }
        Some(left)
    }

    fn lingering(&self) -> std::sync::MutexGuard<'_, std::collections::HashMap<ItemKey, Instant>> {
        self.lingering.lock().expect("no holder panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "node-1", "labels": {marks::MANAGED_BY: marks::MANAGER, "zone": "a"}, "annotations": {marks::UID: "host-uid"}},
            "spec": {"taints": null, "unschedulable": null}, "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        })
    }

    fn seen() -> Value {
        let mut seen = wanted();
        seen["metadata"]["uid"] = json!("tenant-uid");
        seen["spec"] = json!({});
        seen
    }

    #[test]
    fn agreement_costs_nothing_and_additions_of_the_tenant_stay() {
        assert_eq!(plan_shown(Some(&wanted()), Some(&seen())), None);
        let mut labelled = seen();
        labelled.set_label("mine", "x");
        labelled["spec"]["podCIDR"] = json!("10.0.0.0/24");
        assert_eq!(plan_shown(Some(&wanted()), Some(&labelled)), None);
    }

    #[test]
    fn news_of_the_host_are_patched_in() {
        let mut cordoned = seen();
        cordoned["spec"]["unschedulable"] = json!(true);
        cordoned.set_label("gone", "x");
        cordoned.set_annotation(marks::APPLIED, "gone,zone");
        let Some(ShowAction::Update { main, .. }) = plan_shown(Some(&wanted()), Some(&cordoned)) else { panic!("an update") };
        assert_eq!(main, Some(json!({"metadata": {"labels": {"gone": null}}, "spec": {"unschedulable": null}})));
        let mut sick = wanted();
        sick["status"]["conditions"][0]["status"] = json!("False");
        sick["spec"]["taints"] = json!([{"key": "k", "effect": "NoSchedule"}]);
        let Some(ShowAction::Update { main, status }) = plan_shown(Some(&sick), Some(&seen())) else { panic!("an update") };
        assert_eq!(main, Some(json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})));
        assert_eq!(status, Some(json!({"conditions": [{"type": "Ready", "status": "False"}]})));
    }

    /// A tenant's own StorageClass vanished after a minute, taken for an orphan.
    #[test]
    fn what_the_tenant_made_is_left_alone() {
        let own = json!({"metadata": {"name": "node-1", "uid": "u"}});
        assert_eq!(plan_shown(None, Some(&own)), None);
        assert_eq!(plan_shown(Some(&wanted()), Some(&own)), None);
    }

    #[test]
    fn an_object_goes_with_its_original_or_when_another_took_its_name() {
        let remove = Some(ShowAction::Remove { uid: "tenant-uid".into() });
        assert_eq!(plan_shown(None, Some(&seen())), remove);
        let mut other = wanted();
        other.set_annotation(marks::UID, "another");
        assert_eq!(plan_shown(Some(&other), Some(&seen())), remove);
    }
}
