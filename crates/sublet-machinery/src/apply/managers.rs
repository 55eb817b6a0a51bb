//! `metadata.managedFields` as a map from managers to what they own.

use super::set::FieldSet;
use crate::error::{ApiError, Reason};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Entries of updates that are kept apart; older ones share an entry.
pub const UPDATE_MANAGERS_MAX: usize = 10;

const SHARED_MANAGER: &str = "ancient-changes";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    Apply,
    Update,
}

/// What tells entries apart. Appliers keep their entry when the version changes, so they have none here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ManagerId {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) subresource: String,
}

impl ManagerId {
    pub(super) fn new(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        Self {
            manager: if manager.is_empty() { "unknown".into() } else { manager.into() },
            operation,
            api_version: if operation == Operation::Apply { String::new() } else { api_version.into() },
            subresource: subresource.into(),
        }
    }

    /// `"kubectl" using apps/v1`, as conflicts name it.
    pub(super) fn describe(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }
}

#[derive(Clone, Debug)]
pub(super) struct Owned<'a> {
    pub(super) api_version: String,
    pub(super) set: FieldSet,
    /// RFC 3339, as it came.
    pub(super) time: Option<String>,
    /// What `set` was read from, as long as it is unchanged.
    source: Option<&'a Value>,
}

impl<'a> Owned<'a> {
    pub(super) fn new(api_version: &str, set: FieldSet, time: Option<String>) -> Self {
        Self { api_version: api_version.into(), set, time, source: None }
    }

    pub(super) fn replace_set(&mut self, set: FieldSet) {
        self.set = set;
        self.source = None;
    }

    pub(super) fn change_set(&mut self, change: impl FnOnce(FieldSet) -> FieldSet) {
        let set = std::mem::take(&mut self.set);
        self.replace_set(change(set));
    }
}

/// Who owns what.
#[derive(Clone, Debug, Default)]
pub(super) struct Managers<'a>(pub(super) BTreeMap<ManagerId, Owned<'a>>);

impl<'a> Managers<'a> {
    pub(super) fn decode(entries: Option<&'a Value>) -> Result<Self, String> {
        let mut managers = BTreeMap::new();
        for (i, entry) in entries.and_then(Value::as_array).into_iter().flatten().enumerate() {
            let text = |field: &str| entry[field].as_str().unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err("operation must be `Apply` or `Update`".into()),
            };
            if text("apiVersion").is_empty() {
                return Err("apiVersion must not be empty".into());
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {i}")),
                other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {i}")),
            }
            let source = &entry["fieldsV1"];
            let set = FieldSet::from_json(source).map_err(|e| format!("error decoding versioned set: error decoding set: {e}"))?;
            let mut id = ManagerId::new(text("manager"), operation, text("apiVersion"), text("subresource"));
            id.manager = text("manager").into();
            let time = entry["time"].as_str().map(Into::into);
            managers.insert(id, Owned { api_version: text("apiVersion").into(), set, time, source: Some(source) });
        }
        Ok(Self(managers))
    }

    /// The list of entries, in upstream's order; `None` when nobody owns anything.
    pub(super) fn encode(self) -> Option<Value> {
        if self.0.is_empty() {
            return None;
        }
        let mut entries: Vec<(ManagerId, Owned<'_>)> = self.0.into_iter().collect();
        entries.sort_by(|(a, x), (b, y)| {
            let left = (a.operation, &x.time, &a.manager, &x.api_version, &a.subresource);
            left.cmp(&(b.operation, &y.time, &b.manager, &y.api_version, &b.subresource))
        });
        Some(Value::Array(entries.into_iter().map(|(id, owned)| encode_entry(&id, owned)).collect()))
    }

    /// Gives the oldest entries of updates to shared entries, one for a version, until there are few enough.
    pub(super) fn cap(&mut self) {
        let mut updaters: Vec<ManagerId> = self.0.keys().filter(|id| id.operation == Operation::Update).cloned().collect();
        let mut count = updaters.len();
        if count <= UPDATE_MANAGERS_MAX {
            return;
        }
        updaters.sort_by(|a, b| (&self.0[a].time, a).cmp(&(&self.0[b].time, b)));
        let mut first_of_version: BTreeMap<String, ManagerId> = BTreeMap::new();
        for id in updaters {
            if count <= UPDATE_MANAGERS_MAX {
                return;
            }
            let version = self.0[&id].api_version.clone();
            let Some(first) = first_of_version.get(&version) else {
                first_of_version.insert(version, id);
                continue;
            };
            let bucket = ManagerId::new(SHARED_MANAGER, Operation::Update, &version, "");
            if !self.0.contains_key(&bucket)
                && let Some(owned) = self.0.remove(first)
            {
                self.0.insert(bucket.clone(), owned);
            }
            let Some(merged) = self.0.remove(&id) else { continue };
            if let Some(owned) = self.0.get_mut(&bucket) {
                owned.change_set(|set| merged.set.union(set));
                owned.time = merged.time;
            } else {
                self.0.insert(bucket, merged);
            }
            count -= 1;
        }
    }
}

fn encode_entry(id: &ManagerId, owned: Owned<'_>) -> Value {
    let mut entry = Map::new();
    if !id.manager.is_empty() {
        entry.insert("manager".into(), json!(id.manager));
    }
    entry.insert("operation".into(), json!(if id.operation == Operation::Apply { "Apply" } else { "Update" }));
    entry.insert("apiVersion".into(), json!(owned.api_version));
    if let Some(time) = owned.time {
        entry.insert("time".into(), json!(time));
    }
    entry.insert("fieldsType".into(), json!("FieldsV1"));
    let fields = owned.source.filter(|s| s.is_object()).map_or_else(|| Cow::Owned(owned.set.to_json()), Cow::Borrowed);
    entry.insert("fieldsV1".into(), fields.into_owned());
    if !id.subresource.is_empty() {
        entry.insert("subresource".into(), json!(id.subresource));
    }
    Value::Object(entry)
}

/// Fields in an update that are owned by somebody else, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) manager: ManagerId,
    pub(super) set: FieldSet,
}

/// The answer to an apply without force over fields that others own.
pub(super) fn conflict_error(conflicts: &[Conflict]) -> ApiError {
    let mut causes = Vec::new();
    let mut lines = Vec::new();
    for conflict in conflicts {
        let manager = conflict.manager.describe();
        lines.push(format!("conflicts with {manager}:"));
        conflict.set.each(&mut |path| {
            let field = super::set::path_text(path);
            lines.push(format!("- {field}"));
            causes.push(crate::error::Cause { reason: "FieldManagerConflict".into(), message: format!("conflict with {manager}"), field });
        });
    }
    let message = match causes.as_slice() {
        [one] => format!("Apply failed with 1 conflict: {}: {}", one.message, one.field),
        many => format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n")),
    };
    let mut error = ApiError::new(409, Reason::Conflict, message);
    error.causes = causes;
    error
}
