use super::*;
use crate::registry::{Registry, builtin_rows};

const NOW: &str = "2026-01-01T01:00:00Z";

fn options() -> TableOptions {
    TableOptions { include_object: IncludeObject::Metadata, no_headers: false, list: true, now: NOW.parse().expect("time") }
}

fn cells(group: &str, plural: &str, object: &Value) -> Value {
    let version = if plural == "horizontalpodautoscalers" { "v2" } else { "v1" };
    let snapshot = Registry::new(builtin_rows()).snapshot();
    let resource = snapshot.find(group, version, plural).expect("a row");
    render(resource, &[object], &options(), json!({}))["rows"][0]["cells"].clone()
}

fn meta(name: &str) -> Value {
    json!({ "name": name, "creationTimestamp": "2026-01-01T00:55:00Z" })
}

#[test]
fn every_listed_kind_has_columns_with_a_name() {
    for resource in builtin_rows().iter().filter(|r| r.has_verb("list")) {
        assert!(resource.columns.iter().any(|c| c.name == "Name"), "{}", resource.plural);
    }
}

#[test]
fn a_table_has_upstreams_shape() {
    let snapshot = Registry::new(builtin_rows()).snapshot();
    let resource = snapshot.find("", "v1", "serviceaccounts").expect("a row");
    let object = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("a")});
    let table = render(resource, &[&object], &options(), json!({"resourceVersion": "7"}));
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["apiVersion"], "meta.k8s.io/v1");
    assert_eq!(table["metadata"], json!({"resourceVersion": "7"}));
    assert_eq!(table["columnDefinitions"][0]["format"], "name");
    assert_eq!(table["rows"][0]["cells"], json!(["a", "5m"]));
    assert_eq!(table["rows"][0]["object"], json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta("a")}));
    let bare = TableOptions { include_object: IncludeObject::None, no_headers: true, ..options() };
    let table = render(resource, &[object], &bare, json!({}));
    assert_eq!(table["columnDefinitions"], Value::Null);
    assert_eq!(table["rows"][0]["object"], Value::Null);
}

#[test]
fn services_show_addresses_and_ports() {
    let service = json!({"metadata": meta("s"), "spec": {"type": "LoadBalancer", "clusterIPs": ["10.0.0.1"],
        "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"}], "selector": {"b": "2", "a": "1"}}});
    assert_eq!(
        cells("", "services", &service),
        json!(["s", "LoadBalancer", "10.0.0.1", "<pending>", "80:30080/TCP,53/UDP", "5m", "a=1,b=2"])
    );
}

#[test]
fn endpoints_show_the_first_three() {
    let addresses: Vec<Value> = (1..=3).map(|i| json!({"ip": format!("10.0.0.{i}")})).collect();
    let endpoints = json!({"metadata": meta("e"), "subsets": [{"addresses": addresses, "ports": [{"port": 80}, {"port": 443}]}]});
    assert_eq!(cells("", "endpoints", &endpoints), json!(["e", "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 3 more...", "5m"]));
}

#[test]
fn selectors_print_as_text() {
    let selector = json!({"matchLabels": {"z": "1"}, "matchExpressions": [
        {"key": "a", "operator": "In", "values": ["y", "x"]}, {"key": "b", "operator": "DoesNotExist"}]});
    assert_eq!(columns::selector(&selector), "a in (x,y),!b,z=1");
}

#[test]
fn jobs_show_status_and_duration() {
    let job = json!({"metadata": meta("j"), "spec": {"completions": 3, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
        "status": {"succeeded": 1, "startTime": "2026-01-01T00:55:00Z"}});
    assert_eq!(cells("batch", "jobs", &job), json!(["j", "Running", "1/3", "5m", "5m", "c", "i", "<none>"]));
}

#[test]
fn both_event_groups_print_alike() {
    let core = json!({"metadata": {"name": "e"}, "type": "Normal", "reason": "R", "involvedObject": {"kind": "Pod", "name": "p"},
        "message": " m ", "firstTimestamp": "2026-01-01T00:50:00Z", "lastTimestamp": "2026-01-01T00:55:00Z", "count": 2,
        "source": {"component": "kubelet", "host": "n"}});
    let expected = json!(["5m", "Normal", "R", "pod/p", "", "kubelet, n", "m", "10m", 2, "e"]);
    assert_eq!(cells("", "events", &core), expected);
    let new = json!({"metadata": {"name": "e"}, "type": "Normal", "reason": "R", "regarding": {"kind": "Pod", "name": "p"},
        "note": " m ", "deprecatedFirstTimestamp": "2026-01-01T00:50:00Z", "deprecatedLastTimestamp": "2026-01-01T00:55:00Z",
        "deprecatedCount": 2, "deprecatedSource": {"component": "kubelet", "host": "n"}});
    assert_eq!(cells("events.k8s.io", "events", &new), expected);
}

#[test]
fn autoscalers_show_metrics() {
    let autoscaler = json!({"metadata": meta("h"), "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 5,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}},
            {"type": "Pods", "pods": {"target": {"averageValue": "10"}}}, {"type": "Other"}]},
        "status": {"currentReplicas": 2, "currentMetrics": [{"type": "Resource", "resource": {"current": {"averageUtilization": 40}}}]}});
    assert_eq!(
        cells("autoscaling", "horizontalpodautoscalers", &autoscaler),
        json!(["h", "Deployment/d", "cpu: 40%/80%, <unknown>/10 + 1 more...", "<unset>", 5, 2, "5m"])
    );
}

#[test]
fn the_default_class_is_marked_in_lists() {
    let class = |name: &str, created: &str| {
        let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true"});
        json!({"metadata": {"name": name, "creationTimestamp": created, "annotations": annotations}, "provisioner": "p"})
    };
    let snapshot = Registry::new(builtin_rows()).snapshot();
    let resource = snapshot.find("storage.k8s.io", "v1", "storageclasses").expect("a row");
    let classes = [class("a", "2026-01-01T00:00:00Z"), class("c", "2026-01-01T00:30:00Z"), class("b", "2026-01-01T00:30:00Z")];
    let table = render(resource, &classes, &options(), json!({}));
    let names: Vec<&Value> = table["rows"].as_array().expect("rows").iter().map(|r| &r["cells"][0]).collect();
    assert_eq!(names, ["a", "c", "b (default)"]);
}

#[test]
fn custom_columns_follow_the_definition() {
    let columns = custom_columns(&[json!({"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1})]);
    assert_eq!(columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["Name", "Size"]);
    assert_eq!(columns[1].description, "Custom resource definition column (in JSONPath format): .spec.size");
    let printing = Printing { now: NOW.parse().expect("time"), default_class: None };
    assert_eq!(cell(&columns[1], &json!({"spec": {"size": 3}}), &printing), json!(3));
    let default = custom_columns(&[]);
    assert_eq!((default[1].name.as_str(), default[1].value_type.as_str()), ("Age", "date"));
    assert_eq!(cell(&default[1], &json!({"metadata": meta("x")}), &printing), json!("5m"));
}
