//! Server-side apply and the tracking of who owns which field.
//!
//! The algorithm is that of structured-merge-diff v6, the bookkeeping in `metadata.managedFields` that of
//! apimachinery's `managedfields` (1.37).
//!
//! A server calls [`apply_over`] for an apply patch, and defaults the result. For any other write it works out
//! the new object, defaults it (defaults belong to who creates), and calls [`track`]. Then it admits and
//! validates the object, calls [`keep_times`] and commits. What admission adds is owned by nobody, as upstream
//! has it. [`apply()`] and [`track_update`] are the short forms for kinds whose new objects are empty.

mod compare;
mod fields;
mod last_applied;
mod managers;
mod merge;
mod path;
mod reconcile;
mod remove;
mod scale;
mod set;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod tests;
mod types;
mod update;

pub use managers::{Operation, UPDATE_MANAGERS_MAX};
pub use path::PathElement;
pub use scale::{ScaleFields, managed_fields_from_scale, managed_fields_to_scale};
pub use set::FieldSet;

use crate::error::{ApiError, Reason};
use crate::object::ObjectExt;
use crate::resource::split_api_version;
use crate::schema::SchemaNode;
use managers::{Conflict, ManagerId, Managers, Owned, conflict_error};
use serde_json::{Map, Value};
use std::sync::LazyLock;
use types::Type;

/// The live value with everything that a configuration states, without a word about owners.
pub fn merge_into(live: &Value, config: &Value, schema: SchemaNode<'_>) -> Value {
    merge::merge(live, config, Type::of(schema)).unwrap_or_default()
}

/// The paths of values that can only be stated as a whole: whoever states some of their fields would drop the others.
pub fn atomics(config: &Value, schema: SchemaNode<'_>) -> Vec<String> {
    let mut found = Vec::new();
    collect_atomics(config, Type::of(schema), String::new(), &mut found);
    found
}

fn collect_atomics(value: &Value, of: Type<'_>, path: String, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            if of.is_atomic_map() {
                found.push(path.clone());
            }
            for (key, value) in map {
                if let Some(field) = of.declared(key) {
                    collect_atomics(value, field, format!("{path}.{key}"), found);
                }
            }
        }
        Value::Array(items) => {
            if of.elements() == types::Elements::Atomic {
                found.push(path.clone());
            }
            for (index, item) in items.iter().enumerate() {
                collect_atomics(item, of.item(), format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

/// Who writes, through what, and when.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// The field manager; empty is `unknown`.
    pub manager: &'a str,
    /// Empty for the main resource.
    pub subresource: &'a str,
    /// The version of the request, in which `live` and the new object are.
    pub api_version: &'a str,
    /// The time of the request in RFC 3339, to the second.
    pub now: &'a str,
    /// Fields that writes through this path have no say in: `status` for the main resource.
    pub reset_fields: &'a FieldSet,
}

#[derive(Clone, Copy, Debug)]
pub struct ApplyOptions<'a> {
    pub writer: Writer<'a>,
    /// The kind that the configuration must be of.
    pub kind: &'a str,
    /// Take fields from other managers.
    pub force: bool,
}

/// What a write starts from.
#[derive(Clone, Copy, Debug)]
pub enum Base<'a> {
    /// The object as it is.
    Live(&'a Value),
    /// There is none yet: what a new object of the kind has before anybody sets a field. Custom kinds have
    /// nothing; built-in kinds have the structs that upstream writes always, and nobody owns those.
    Empty(&'a Value),
}

/// The outcome of an apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    pub object: Value,
    /// Whether anything but times differs from the live object.
    pub changed: bool,
}

/// The manager of what was there before anybody applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// What nobody owns: it belongs to the server.
static SERVER_FIELDS: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::of_fields(&[
        "apiVersion",
        "kind",
        "metadata",
        "metadata.name",
        "metadata.namespace",
        "metadata.creationTimestamp",
        "metadata.selfLink",
        "metadata.uid",
        "metadata.clusterName",
        "metadata.generation",
        "metadata.managedFields",
        "metadata.resourceVersion",
    ])
});

/// Merges an applied configuration into the live object; without one, the configuration becomes the object.
pub fn apply(live: Option<&Value>, config: &Value, schema: SchemaNode<'_>, options: &ApplyOptions<'_>) -> Result<Applied, ApiError> {
    apply_over(live, &Value::Null, config, schema, options)
}

/// As [`apply()`], for a kind whose new objects are not empty: see [`Base::Empty`].
pub fn apply_over(
    live: Option<&Value>,
    empty: &Value,
    config: &Value,
    schema: SchemaNode<'_>,
    options: &ApplyOptions<'_>,
) -> Result<Applied, ApiError> {
    check_config(config, schema, options)?;
    let nothing = Value::Object(Map::new());
    let empty = if empty.is_object() { empty } else { &nothing };
    let case = Case { live: live.unwrap_or(&nothing), empty, config, of: Type::of(schema), options };
    let outcome = match case.attempt(options.force)? {
        Err(conflicts) if options.writer.manager == last_applied::MANAGER => {
            let conflicts = last_applied::without_allowed(conflicts, case.live, case.of, options.writer.api_version);
            if conflicts.is_empty() { case.attempt(true)? } else { Err(conflicts) }
        }
        outcome => outcome,
    };
    let (new, managers) = outcome.map_err(|conflicts| conflict_error(&conflicts))?;
    let mut changed = new.is_some() || live.is_none();
    let mut object = new.unwrap_or_else(|| case.live.clone());
    if options.writer.manager == last_applied::MANAGER {
        changed |= last_applied::refresh(&mut object, config);
    }
    let entries = managers.encode();
    changed |= !equal_but_for_times(entries.as_ref(), case.live["metadata"].get("managedFields"));
    set_managed_fields(&mut object, entries);
    Ok(Applied { object, changed })
}

/// One apply, as often as it is tried.
struct Case<'a> {
    live: &'a Value,
    empty: &'a Value,
    config: &'a Value,
    of: Type<'a>,
    options: &'a ApplyOptions<'a>,
}

impl<'a> Case<'a> {
    fn attempt(&self, force: bool) -> Result<Result<(Option<Value>, Managers<'a>), Vec<Conflict>>, ApiError> {
        let writer = &self.options.writer;
        let mut managers = Managers::decode(self.live["metadata"].get("managedFields"))
            .map_err(|e| failed(format!("failed to decode managed fields: {e}")))?;
        if managers.0.is_empty() && self.live.as_object().is_some_and(|live| !live.is_empty()) {
            record(&mut managers, self.empty, self.live, self.of, writer, BEFORE_FIRST_APPLY);
        }
        let id = ManagerId::new(writer.manager, Operation::Apply, writer.api_version, writer.subresource);
        let merged = update::apply(&mut managers, self.live, self.config, self.of, &id, writer.api_version, writer.reset_fields, force);
        let new = match merged {
            Ok(new) => new,
            Err(conflicts) => return Ok(Err(conflicts)),
        };
        if let Some(owned) = managers.0.get_mut(&id) {
            owned.change_set(|set| set.difference(&SERVER_FIELDS));
            if new.is_some() {
                owned.time = Some(writer.now.into());
            }
            if owned.set.is_empty() {
                managers.0.remove(&id);
            }
        }
        Ok(Ok((new, managers)))
    }
}

/// Sets `metadata.managedFields` of an object that is about to replace `live`, or to be created.
pub fn track_update(live: Option<&Value>, new: &mut Value, schema: SchemaNode<'_>, writer: &Writer<'_>) {
    track(live.map_or(Base::Empty(&Value::Null), Base::Live), new, schema, writer);
}

/// As [`track_update`], with all that upstream takes into account.
///
/// Clients may send `managedFields`, and clear it with `[]` or `[{}]`; what they send wrongly does not count.
pub fn track(base: Base<'_>, new: &mut Value, schema: SchemaNode<'_>, writer: &Writer<'_>) {
    let sent = new.get_mut("metadata").and_then(Value::as_object_mut).and_then(|m| m.remove("managedFields"));
    let nothing = Value::Object(Map::new());
    let (before, exists) = match base {
        Base::Live(live) => (live, !live.uid().is_empty()),
        Base::Empty(empty) if empty.is_object() => (empty, false),
        Base::Empty(_) => (&nothing, false),
    };
    // Through a subresource nobody changes the entries by hand.
    let sent = sent.as_ref().filter(|_| writer.subresource.is_empty());
    let of_sent = sent.and_then(|s| Managers::decode(Some(s)).ok()).filter(|m| !m.0.is_empty());
    let mut managers = match of_sent {
        _ if sent.is_some_and(is_reset) => Managers::default(),
        Some(managers) => managers,
        None => Managers::decode(before["metadata"].get("managedFields")).unwrap_or_default(),
    };
    // An object that was not tracked so far stays so until somebody applies.
    if managers.0.is_empty() && exists {
        return;
    }
    // Nobody can say who owns what has no name: then nothing is recorded, and what was said before stays.
    if !fields::has_steps(new, Type::of(schema)) {
        let told = before["metadata"].get("managedFields").filter(|_| exists).cloned();
        return set_managed_fields(new, told);
    }
    record(&mut managers, before, new, Type::of(schema), writer, writer.manager);
    set_managed_fields(new, managers.encode());
}

/// Gives the manager of an update what the update changed.
fn record(managers: &mut Managers<'_>, before: &Value, new: &Value, of: Type<'_>, writer: &Writer<'_>, manager: &str) {
    let set = update::update(managers, before, new, of, writer.reset_fields).difference(&SERVER_FIELDS);
    if !set.is_empty() {
        let id = ManagerId::new(manager, Operation::Update, writer.api_version, writer.subresource);
        let owned = managers.0.entry(id).or_insert_with(|| Owned::new(writer.api_version, FieldSet::new(), None));
        owned.change_set(|owned| owned.union(set));
        owned.time = Some(writer.now.into());
    }
    managers.cap();
}

/// Puts back the times of an object that differs from the old one in nothing else, so that it need not be written.
pub fn keep_times(new: &mut Value, old: &Value) {
    let (Some(ours), Some(theirs)) = (new["metadata"]["managedFields"].as_array(), old["metadata"]["managedFields"].as_array()) else {
        return;
    };
    let same_times = ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| a["time"] == b["time"]);
    if same_times || !equal_but_for_times(new["metadata"].get("managedFields"), old["metadata"].get("managedFields")) {
        return;
    }
    if equal_without(new, old, &["metadata", "managedFields"]) {
        new["metadata"]["managedFields"] = old["metadata"]["managedFields"].clone();
    }
}

/// What is wrong with the entries, if anything: for those that admission changed.
pub fn check_managed_fields(entries: &Value) -> Result<(), String> {
    Managers::decode(Some(entries)).map(|_| ())
}

fn check_config(config: &Value, schema: SchemaNode<'_>, options: &ApplyOptions<'_>) -> Result<(), ApiError> {
    let gvk = {
        let (group, version) = split_api_version(config.api_version());
        format!("{group}/{version}, Kind={}", config.kind())
    };
    if config.api_version() != options.writer.api_version || config.kind() != options.kind {
        return Err(ApiError::bad_request(format!("invalid object type: {gvk}")));
    }
    if config["metadata"].get("managedFields").is_some_and(|m| !m.is_null()) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    check_types(config, schema).map_err(|errors| {
        failed(format!("failed to create typed patch object ({}/{}; {gvk}): {errors}", config.namespace(), config.name()))
    })
}

/// What of a configuration does not fit its schema: unknown fields, other types, keys that occur twice.
pub fn check_types(config: &Value, schema: SchemaNode<'_>) -> Result<(), String> {
    fields::validate(config, Type::of(schema))
}

fn is_reset(entries: &Value) -> bool {
    match entries.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

fn equal_but_for_times(a: Option<&Value>, b: Option<&Value>) -> bool {
    fn list(entries: Option<&Value>) -> &[Value] {
        entries.and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
    let (a, b) = (list(a), list(b));
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal_without(a, b, &["time"]))
}

/// Equality of two maps but for what stands at a path.
pub fn equal_without(a: &Value, b: &Value, path: &[&str]) -> bool {
    let (Some((ignored, rest)), Value::Object(a), Value::Object(b)) = (path.split_first(), a, b) else {
        return path.is_empty() || a == b;
    };
    let others = |map: &'_ Map<String, Value>| map.len() - usize::from(map.contains_key(*ignored));
    if others(a) != others(b) || a.iter().any(|(k, v)| k != ignored && b.get(k) != Some(v)) {
        return false;
    }
    match (a.get(*ignored), b.get(*ignored)) {
        (Some(a), Some(b)) => equal_without(a, b, rest),
        _ => true,
    }
}

fn set_managed_fields(object: &mut Value, entries: Option<Value>) {
    match entries {
        Some(entries) => {
            object.metadata_mut().insert("managedFields".into(), entries);
        }
        None => {
            object.get_mut("metadata").and_then(Value::as_object_mut).map(|m| m.remove("managedFields"));
        }
    }
}

/// Faults for which upstream has no status.
fn failed(message: String) -> ApiError {
    ApiError::new(500, Reason::Unknown, message)
}
