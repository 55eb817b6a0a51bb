//! The parts of the algorithm against what structured-merge-diff (6.4) answers on its own test tables.

use super::compare::compare;
use super::fields::{fields_of, validate};
use super::managers::{ManagerId, Managers, Operation, Owned};
use super::merge::merge;
use super::reconcile::reconcile;
use super::remove::remove;
use super::set::FieldSet;
use super::types::Type;
use super::update;
use crate::schema::{ListType, MapType, Node, NodeId, Schema, Table, ValueType};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Builds our schema from the types of a case: named types, or parts inlined in others.
struct Builder<'a> {
    table: Table,
    types: &'a Value,
    named: BTreeMap<(String, String), NodeId>,
}

impl Builder<'_> {
    fn reference(&mut self, reference: &Value) -> NodeId {
        let relationship = reference["rel"].as_str().unwrap_or_default();
        let Some(name) = reference["name"].as_str() else {
            let node = self.atom(&reference["atom"], relationship);
            return self.table.push(node);
        };
        let key = (name.to_string(), relationship.to_string());
        if let Some(id) = self.named.get(&key) {
            return *id;
        }
        let id = self.table.push(Node::default());
        self.named.insert(key, id);
        let node = match name {
            "__untyped_deduced_" => Node::default(),
            "__untyped_atomic_" => Node { type_name: Some("io.k8s.apimachinery.pkg.runtime.RawExtension".into()), ..Node::default() },
            _ => self.atom(&self.types[name].clone(), relationship),
        };
        self.table.set(id, node);
        id
    }

    fn atom(&mut self, atom: &Value, relationship: &str) -> Node {
        let mut node = Node::default();
        let kinds = ["map", "list", "scalar"].map(|kind| !atom[kind].is_null());
        node.value_type = match kinds {
            [true, false, false] => ValueType::Object,
            [false, true, false] => ValueType::Array,
            [false, false, true] => match atom["scalar"].as_str().unwrap() {
                "numeric" => ValueType::Number,
                "string" => ValueType::String,
                "boolean" => ValueType::Boolean,
                _ => {
                    node.format = Some("any".into());
                    ValueType::String
                }
            },
            _ => ValueType::Any,
        };
        let stated = |part: &Value| if relationship.is_empty() { part["rel"].clone() } else { json!(relationship) };
        if let Some(list) = atom["list"].as_object() {
            node.items = Some(self.reference(&list["item"]));
            let keys = list.get("keys").and_then(Value::as_array).cloned().unwrap_or_default();
            node.list_map_keys = keys.iter().map(|k| k.as_str().unwrap().into()).collect();
            node.list_type = match (stated(&atom["list"]) == "associative", keys.is_empty()) {
                (false, _) => ListType::Atomic,
                (true, true) => ListType::Set,
                (true, false) => ListType::Map,
            };
        }
        if let Some(map) = atom["map"].as_object() {
            if stated(&atom["map"]) == "atomic" {
                node.map_type = MapType::Atomic;
            }
            for field in map.get("fields").and_then(Value::as_array).into_iter().flatten() {
                let id = self.reference(&field["type"]);
                let id = match field.get("default") {
                    Some(default) => {
                        let with_default = Node { default: Some(default.clone()), ..self.table.node(id).clone() };
                        self.table.push(with_default)
                    }
                    None => id,
                };
                node.properties.insert(field["name"].as_str().unwrap().into(), id);
            }
            match map.get("item") {
                Some(item) if item["name"] == "__untyped_deduced_" => node.preserve_unknown = !node.properties.is_empty(),
                Some(item) => node.additional = Some(self.reference(item)),
                None => {}
            }
        }
        node
    }
}

fn schema(types: &Value, root: &Value) -> Schema {
    let mut builder = Builder { table: Table::new(), types, named: BTreeMap::new() };
    let root = builder.reference(root);
    Schema { table: builder.table.into(), root }
}

fn set(fields: &Value) -> FieldSet {
    FieldSet::from_json(fields).unwrap()
}

fn managers(of: &Value) -> Managers<'static> {
    let mut managers = Managers::default();
    for (name, entry) in of.as_object().into_iter().flatten() {
        let owned = Owned::new(entry["version"].as_str().unwrap(), set(&entry["set"]), None);
        managers.0.insert(id(name), owned);
    }
    managers
}

fn id(name: &str) -> ManagerId {
    ManagerId { manager: name.into(), operation: Operation::Apply, api_version: String::new(), subresource: String::new() }
}

fn shown(managers: &Managers<'_>) -> Value {
    let entries = managers.0.iter().map(|(id, o)| (id.manager.clone(), json!({"version": o.api_version, "set": o.set.to_json()})));
    Value::Object(entries.collect::<Map<_, _>>())
}

/// What upstream says of the case, and what we say.
fn run(case: &Value, of: Type<'_>) -> (Value, Value) {
    let sets = |names: &[&str]| -> Value { names.iter().map(|n| set(&case[n]).to_json()).collect() };
    let reset = case.get("ignored").map(set).unwrap_or_default();
    match case["op"].as_str().unwrap() {
        "fields" => (sets(&["set"]), json!([fields_of(&case["value"], of).to_json()])),
        "compare" => {
            let c = compare(&case["old"], &case["new"], of);
            (sets(&["added", "modified", "removed"]), json!([c.added.to_json(), c.modified.to_json(), c.removed.to_json()]))
        }
        "merge" => (case["result"].clone(), merge(&case["live"], &case["config"], of).unwrap_or_default()),
        "remove" => (case["result"].clone(), remove(&case["value"], &set(&case["set"]), of).unwrap_or_default()),
        "reconcile" => (case["result"].clone(), reconcile(&set(&case["set"]), of).map_or(Value::Null, |s| s.to_json())),
        "validate" => {
            let result = validate(&case["value"], of);
            let allowed = case["duplicates"] == true && result.as_ref().is_err_and(|e| e.contains("duplicate entries"));
            (case.get("error").is_some().into(), (result.is_err() && !allowed).into())
        }
        "update" => {
            let mut owners = managers(&case["before"]);
            let manager = id(case["manager"].as_str().unwrap());
            let version = case["version"].as_str().unwrap();
            let taken = update::update(&mut owners, &case["live"], &case["object"], of, &reset);
            if !taken.is_empty() {
                let own = owners.0.entry(manager).or_insert_with(|| Owned::new(version, FieldSet::new(), None));
                own.change_set(|set| set.union(taken));
                own.api_version = version.into();
            }
            (shown(&managers(&case["after"])), shown(&owners))
        }
        "apply" => {
            let mut owners = managers(&case["before"]);
            let manager = id(case["manager"].as_str().unwrap());
            let (version, force) = (case["version"].as_str().unwrap(), case["force"] == true);
            let result = update::apply(&mut owners, &case["live"], &case["object"], of, &manager, version, &reset, force);
            match result {
                Ok(object) => {
                    let expected = json!([case["result"], shown(&managers(&case["after"]))]);
                    let expected = if case.get("conflicts").is_some() { case["conflicts"].clone() } else { expected };
                    (expected, json!([object, shown(&owners)]))
                }
                Err(conflicts) => {
                    let conflicts = conflicts.iter().map(|c| (c.manager.manager.clone(), c.set.to_json()));
                    (case["conflicts"].clone(), Value::Object(conflicts.collect()))
                }
            }
        }
        other => panic!("{other}"),
    }
}

#[test]
fn answers_equal_those_of_upstream() {
    let file: Value = serde_json::from_str(include_str!("../../tests/cases/apply.json")).unwrap();
    let cases = file["cases"].as_array().unwrap();
    assert!(cases.len() > 1000);
    let mut wrong = Vec::new();
    for case in cases {
        let schema = schema(&file["types"][case["types"].as_u64().unwrap() as usize], &case["type"]);
        // Values that do not fit their type are refused before the algorithm sees them.
        if case.get("error").is_some() && case.get("conflicts").is_none() && case["op"] != "validate" {
            continue;
        }
        let (expected, actual) = run(case, Type::of(schema.node()));
        if expected != actual {
            wrong.push(format!("{case}\n  want {expected}\n  got  {actual}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
