//! Whole objects through the calls that a server makes.

use super::*;
use crate::schema::{ListType, Node, Schema, Table, ValueType};
use serde_json::json;

/// A kind with replicas, a list by name, and a status.
fn widget() -> Schema {
    let mut table = Table::new();
    let text = table.push(Node { value_type: ValueType::String, ..Node::default() });
    let int = table.push(Node { value_type: ValueType::Integer, ..Node::default() });
    let texts = table.push(Node { value_type: ValueType::Object, additional: Some(text), ..Node::default() });
    let mut object = |fields: &[(&str, crate::schema::NodeId)]| {
        let properties = fields.iter().map(|(name, id)| ((*name).into(), *id)).collect();
        table.push(Node { value_type: ValueType::Object, properties, ..Node::default() })
    };
    let item = object(&[("name", text), ("image", text)]);
    let metadata = object(&[("name", text), ("namespace", text), ("uid", text), ("labels", texts), ("annotations", texts)]);
    let status = object(&[("phase", text)]);
    let items = table.push(Node {
        value_type: ValueType::Array,
        items: Some(item),
        list_type: ListType::Map,
        list_map_keys: vec!["name".into()],
        ..Node::default()
    });
    let mut object = |fields: &[(&str, crate::schema::NodeId)]| {
        let properties = fields.iter().map(|(name, id)| ((*name).into(), *id)).collect();
        table.push(Node { value_type: ValueType::Object, properties, ..Node::default() })
    };
    let spec = object(&[("replicas", int), ("items", items)]);
    let root = object(&[("apiVersion", text), ("kind", text), ("metadata", metadata), ("spec", spec), ("status", status)]);
    Schema { table: table.into(), root }
}

fn config(spec: Value) -> Value {
    json!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})
}

fn live(spec: Value, managed_fields: Value) -> Value {
    let mut object = config(spec);
    object["metadata"]["uid"] = json!("1");
    object["metadata"]["managedFields"] = managed_fields;
    object
}

fn entry(manager: &str, operation: &str, time: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": "x.io/v1", "time": time, "fieldsType": "FieldsV1", "fieldsV1": fields})
}

fn run(live: Option<&Value>, config: &Value, manager: &str, force: bool) -> Result<Applied, ApiError> {
    let reset_fields = FieldSet::of_fields(&["status"]);
    let writer = Writer { manager, subresource: "", api_version: "x.io/v1", now: "T9", reset_fields: &reset_fields };
    apply(live, config, widget().node(), &ApplyOptions { writer, kind: "Widget", force })
}

fn update(live: Option<&Value>, mut new: Value, manager: &str) -> Value {
    let writer = Writer { manager, subresource: "", api_version: "x.io/v1", now: "T9", reset_fields: &FieldSet::new() };
    track_update(live, &mut new, widget().node(), &writer);
    new
}

#[test]
fn the_first_apply_makes_the_object_and_owns_what_it_states() {
    let config = config(json!({"replicas": 1, "items": [{"name": "a", "image": "i"}]}));
    let applied = run(None, &config, "me", false).unwrap();
    assert!(applied.changed);
    let fields = json!({"f:spec": {"f:items": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}, "f:name": {}}}, "f:replicas": {}}});
    assert_eq!(applied.object["metadata"]["managedFields"], json!([entry("me", "Apply", "T9", fields)]));
    let again = run(Some(&applied.object), &config, "me", false).unwrap();
    assert_eq!((again.changed, again.object), (false, applied.object));
}

#[test]
fn what_is_no_longer_applied_goes_unless_another_has_it() {
    let a = json!({"f:spec": {"f:items": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}}, "k:{\"name\":\"b\"}": {".": {}, "f:name": {}}}}});
    let b = json!({"f:spec": {"f:items": {"k:{\"name\":\"b\"}": {".": {}, "f:name": {}}}}});
    let object =
        live(json!({"items": [{"name": "a"}, {"name": "b"}]}), json!([entry("me", "Apply", "T1", a), entry("other", "Apply", "T1", b)]));
    let applied = run(Some(&object), &config(json!({"replicas": 2})), "me", false).unwrap();
    assert_eq!(applied.object["spec"], json!({"replicas": 2, "items": [{"name": "b"}]}));
}

#[test]
fn a_value_of_another_manager_is_a_conflict_until_forced() {
    let replicas = json!({"f:spec": {"f:replicas": {}}});
    let object = live(json!({"replicas": 1}), json!([entry("hpa", "Update", "T1", replicas.clone())]));
    let config = config(json!({"replicas": 5}));
    let error = run(Some(&object), &config, "me", false).unwrap_err();
    assert_eq!(error.message, "Apply failed with 1 conflict: conflict with \"hpa\" using x.io/v1: .spec.replicas");
    assert_eq!(
        error.to_status()["details"]["causes"],
        json!([{"reason": "FieldManagerConflict", "message": "conflict with \"hpa\" using x.io/v1", "field": ".spec.replicas"}])
    );
    let applied = run(Some(&object), &config, "me", true).unwrap();
    assert_eq!(applied.object["metadata"]["managedFields"], json!([entry("me", "Apply", "T9", replicas)]));
}

#[test]
fn kubectl_takes_over_what_it_applied_from_the_client() {
    let last = json!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "w", "annotations": {}}, "spec": {"replicas": 1}});
    let mut object =
        live(json!({"replicas": 1}), json!([entry("kubectl-client-side-apply", "Update", "T1", json!({"f:spec": {"f:replicas": {}}}))]));
    object["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": last.to_string()});
    let config = config(json!({"replicas": 3}));
    assert_eq!(run(Some(&object), &config, "me", false).unwrap_err().code, 409);
    let applied = run(Some(&object), &config, "kubectl", false).unwrap().object;
    assert_eq!(applied["spec"]["replicas"], 3);
    let annotation = applied["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"].as_str().unwrap();
    assert_eq!(annotation, format!("{config}\n"));
}

#[test]
fn faults_of_a_configuration_are_named() {
    let wrong = |object: Value| run(None, &object, "me", false).unwrap_err();
    let unknown = wrong(config(json!({"size": 1})));
    assert_eq!(
        (unknown.code, unknown.message.as_str()),
        (500, "failed to create typed patch object (/w; x.io/v1, Kind=Widget): .spec.size: field not declared in schema")
    );
    assert!(wrong(config(json!({"items": [{"name": "a"}, {"name": "a"}]}))).message.contains("duplicate entries for key [name=\"a\"]"));
    assert!(wrong(config(json!({"replicas": "x"}))).message.ends_with(".spec.replicas: expected numeric (int or float), got string"));
    let mut managed = config(json!({}));
    managed["metadata"]["managedFields"] = json!([]);
    assert_eq!(wrong(managed).message, "metadata.managedFields must be nil");
    let mut other = config(json!({}));
    other["kind"] = json!("Gadget");
    assert_eq!(wrong(other).message, "invalid object type: x.io/v1, Kind=Gadget");
}

#[test]
fn an_update_owns_what_it_changes() {
    let created = update(None, live(json!({"replicas": 1}), Value::Null), "me");
    assert_eq!(created["metadata"]["managedFields"], json!([entry("me", "Update", "T9", json!({"f:spec": {".": {}, "f:replicas": {}}}))]));
    let mut new = created.clone();
    new["spec"]["replicas"] = json!(2);
    let scaled = update(Some(&created), new, "hpa");
    let entries = scaled["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries[0], entry("hpa", "Update", "T9", json!({"f:spec": {"f:replicas": {}}})));
    assert_eq!(entries[1]["fieldsV1"], json!({"f:spec": {}}));
}

#[test]
fn a_write_without_change_keeps_the_times() {
    let object = live(json!({"replicas": 1}), json!([entry("me", "Update", "T1", json!({"f:spec": {"f:replicas": {}}}))]));
    assert_eq!(update(Some(&object), object.clone(), "other"), object);
    let mut later = object.clone();
    later["metadata"]["managedFields"][0]["time"] = json!("T2");
    keep_times(&mut later, &object);
    assert_eq!(later, object);
    let mut different = object.clone();
    (different["metadata"]["managedFields"][0]["time"], different["spec"]["replicas"]) = (json!("T2"), json!(7));
    keep_times(&mut different, &object);
    assert_eq!(different["metadata"]["managedFields"][0]["time"], "T2");
}

#[test]
fn clients_can_clear_the_entries_but_not_forget_them() {
    let object = live(json!({"replicas": 1}), json!([entry("me", "Update", "T1", json!({"f:spec": {"f:replicas": {}}}))]));
    let sent = |entries: Value| {
        let mut new = object.clone();
        new["metadata"]["managedFields"] = entries;
        update(Some(&object), new, "me")["metadata"].get("managedFields").cloned()
    };
    assert_eq!(sent(json!([{}])), None);
    assert_eq!(sent(json!([])), None);
    for kept in [json!(null), json!([{"manager": "x"}]), json!([{"operation": "Apply", "apiVersion": "v1"}])] {
        assert_eq!(sent(kept).as_ref(), object["metadata"].get("managedFields"));
    }
    assert_eq!(
        check_managed_fields(&json!([{"operation": "Apply", "apiVersion": "v1"}])).unwrap_err(),
        "missing fieldsType in managed fields entry 0"
    );
}

#[test]
fn of_elements_without_a_name_nobody_is_the_owner() {
    let spec = json!({"items": [{"name": "a"}, {"image": "x"}]});
    assert_eq!(update(None, config(spec.clone()), "kubectl")["metadata"].get("managedFields"), None);
    let before = json!([entry("kubectl", "Update", "T1", json!({"f:spec": {"f:replicas": {}}}))]);
    let updated = update(Some(&live(json!({"replicas": 1}), before.clone())), live(spec, before.clone()), "other");
    assert_eq!(updated["metadata"]["managedFields"], before);
}

#[test]
fn old_updaters_share_an_entry() {
    let mut object = update(None, live(json!({"replicas": 0}), Value::Null), "m");
    for i in 1..30 {
        let mut new = object.clone();
        new["metadata"]["labels"][format!("l{i}")] = json!("x");
        object = update(Some(&object), new, &format!("m{i}"));
    }
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), UPDATE_MANAGERS_MAX);
    assert!(entries.iter().any(|e| e["manager"] == "ancient-changes"));
}
