//! Servers of different versions: what one side does not keep is not asked of it for ever.
//!
//! A server drops fields that it does not know, without a word. Its answer to a write shows which; they
//! are remembered, and no longer a difference. The memory can be lost at any time: it costs a write.

use super::ItemKey;
use crate::resources::KindId;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use sublet_machinery::ObjectExt;

/// Fields of one kind that are remembered for tenants; beyond it, differences are written again.
const FIELDS_MAX: usize = 256;

/// Fields by path.
pub type Fields = Arc<BTreeSet<String>>;

#[derive(Default)]
pub(super) struct Skew {
    /// Guards what the host did not keep of our fields, for each object of which it did not keep all.
    host: Mutex<HashMap<ItemKey, Fields>>,
    /// Guards what the tenant's API server cannot keep, for each kind.
    tenant: Mutex<HashMap<KindId, Fields>>,
}

impl Skew {
    pub(super) fn dropped_by_host(&self, key: &ItemKey) -> Fields {
        self.host.lock().expect("no holder panics").get(key).cloned().unwrap_or_default()
    }

    /// The host's answer to a write was without these.
    pub(super) fn host_dropped(&self, key: &ItemKey, fields: Vec<String>) {
        let mut all = self.host.lock().expect("no holder panics");
        if fields.is_empty() {
            all.remove(key);
        } else {
            all.insert(key.clone(), Arc::new(fields.into_iter().collect()));
        }
    }

    pub(super) fn unknown_to_tenant(&self, kind: KindId) -> Fields {
        self.tenant.lock().expect("no holder panics").get(&kind).cloned().unwrap_or_default()
    }

    /// Compares what the tenant was asked to write with what it wrote.
    pub(super) fn tenant_wrote(&self, kind: KindId, asked: &Value, written: &Value) {
        let mut fields = Vec::new();
        unkept(asked, written, "", &mut fields);
        if fields.is_empty() {
            return;
        }
        let mut all = self.tenant.lock().expect("no holder panics");
        let known = Arc::make_mut(all.entry(kind).or_default());
        for field in fields {
            if known.len() < FIELDS_MAX && known.insert(field.clone()) {
                tracing::info!(?kind, field, "the tenant's API server does not know a field of the host");
            }
        }
    }
}

/// The fields of `asked` that are not there in `written`, whatever their value; `*` stands for the items of a list.
fn unkept(asked: &Value, written: &Value, at: &str, found: &mut Vec<String>) {
    match (asked, written) {
        (Value::Object(asked), Value::Object(written)) => {
            for (key, value) in asked.iter().filter(|(_, v)| !is_nothing(v)) {
                let at = format!("{at}/{key}");
                match written.get(key) {
                    None | Some(Value::Null) => found.push(at),
                    Some(kept) => unkept(value, kept, &at, found),
                }
            }
        }
        (Value::Array(asked), Value::Array(written)) if asked.len() == written.len() => {
            let at = format!("{at}/*");
            asked.iter().zip(written).for_each(|(a, w)| unkept(a, w, &at, found));
        }
        _ => {}
    }
}

/// What servers leave out though they know the field.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.values().all(is_nothing),
    }
}

/// The object without the fields.
pub(super) fn without(object: &mut Value, fields: &BTreeSet<String>) {
    for field in fields {
        remove(object, field);
    }
}

fn remove(object: &mut Value, path: &str) {
    match path.split_once("/*") {
        None => {
            object.remove_at(path);
        }
        Some((list, rest)) => {
            let items = if list.is_empty() { Some(object) } else { object.pointer_mut(list) };
            items.and_then(Value::as_array_mut).into_iter().flatten().for_each(|item| remove(item, rest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_kept_is_found_and_left_out() {
        let asked = json!({"phase": "Running", "new": 1, "gone": null, "none": {"a": null, "b": []}, "off": false, "list": [{"name": "a", "new": {"x": 1}}, {"name": "b"}]});
        let written = json!({"phase": "Other", "list": [{"name": "a"}, {"name": "b"}]});
        let mut fields = Vec::new();
        unkept(&asked, &written, "", &mut fields);
        assert_eq!(fields, ["/list/*/new", "/new"]);
        let mut wanted = asked;
        without(&mut wanted, &fields.into_iter().collect());
        assert_eq!(
            wanted,
            json!({"phase": "Running", "gone": null, "none": {"a": null, "b": []}, "off": false, "list": [{"name": "a"}, {"name": "b"}]})
        );
    }
}
