use super::*;
use crate::registry::{Custom, External, Registry, builtin_rows};
use std::sync::Arc;

fn widget(group: &str, version: &str, plural: &str) -> Arc<Resource> {
    let template = builtin_rows().into_iter().find(|r| r.plural == "deployments").expect("deployments");
    Arc::new(Resource {
        group: group.into(),
        version: version.into(),
        kind: "Widget".into(),
        plural: plural.into(),
        singular: "widget".into(),
        storage_version: "v1".into(),
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources: vec![Subresource {
            name: "status".into(),
            kind: Gvk::owned(group, version, "Widget"),
            verbs: vec!["get".into()],
            scale: None,
        }],
        custom: Some(Custom { crd: format!("{plural}.{group}"), ..Custom::default() }),
        ..Resource::clone(&template)
    })
}

fn snapshot(custom: Vec<Arc<Resource>>) -> Arc<Snapshot> {
    Registry::new(builtin_rows().into_iter().chain(custom)).snapshot()
}

#[test]
fn groups_stand_in_upstreams_order() {
    let list = legacy("/apis", &snapshot(vec![]), "").expect("/apis");
    let names: Vec<&str> = list["groups"].as_array().expect("groups").iter().filter_map(|g| g["name"].as_str()).collect();
    assert_eq!(
        names[..6],
        ["apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "autoscaling"]
    );
    assert_eq!(names.len(), 21);
    let autoscaling = legacy("/apis/autoscaling", &snapshot(vec![]), "").expect("autoscaling");
    assert_eq!(autoscaling["preferredVersion"]["version"], "v2");
    assert_eq!(autoscaling["kind"], "APIGroup");
}

#[test]
fn custom_groups_come_last() {
    let custom = vec![widget("a.io", "v1alpha1", "widgets"), widget("b.io", "v1", "widgets"), widget("b.io", "v1beta1", "widgets")];
    let snapshot = snapshot(custom);
    let last = |value: &Value, pointer: &str| -> Vec<String> {
        let items = value[if pointer == "/name" { "groups" } else { "items" }].as_array().expect("items").clone();
        items.iter().rev().take(2).rev().filter_map(|g| g.pointer(pointer)?.as_str().map(str::to_string)).collect()
    };
    // Upstream sorts the names of APIServices, so a group with a v1 goes before one with a v1alpha1.
    assert_eq!(last(&legacy("/apis", &snapshot, "").expect("/apis"), "/name"), ["b.io", "a.io"]);
    assert_eq!(last(&aggregated(&snapshot, Root::Apis), "/metadata/name"), ["a.io", "b.io"]);
}

#[test]
fn hashes_name_the_stored_version() {
    let list = legacy("/api/v1", &snapshot(vec![]), "").expect("/api/v1");
    let hash = |name: &str| {
        list["resources"].as_array().expect("resources").iter().find(|r| r["name"] == name).expect(name)["storageVersionHash"].clone()
    };
    assert_eq!(hash("configmaps"), "qFsyl6wFWjQ=");
    assert_eq!(hash("bindings"), Value::Null);
    assert_eq!(list.get("apiVersion"), None);
}

#[test]
fn kinds_of_other_groups_are_written_out() {
    let apps = legacy("/apis/apps/v1", &snapshot(vec![]), "").expect("apps");
    let scale = apps["resources"].as_array().expect("resources").iter().find(|r| r["name"] == "deployments/scale").expect("scale");
    assert_eq!((&scale["group"], &scale["version"], &scale["kind"]), (&json!("autoscaling"), &json!("v1"), &json!("Scale")));
    let status = apps["resources"].as_array().expect("resources").iter().find(|r| r["name"] == "deployments/status").expect("status");
    assert_eq!(status.get("group"), None);
    let all = aggregated(&snapshot(vec![widget("b.io", "v1", "widgets")]), Root::Apis);
    let last = all["items"].as_array().expect("items").last().expect("b.io").clone();
    let widgets = &last["versions"][0]["resources"][0];
    assert_eq!(widgets["responseKind"], json!({"group": "b.io", "version": "v1", "kind": "Widget"}));
    assert_eq!(widgets["subresources"][0]["responseKind"]["group"], "b.io");
    assert_eq!(all["items"][0]["versions"][0]["resources"][0]["responseKind"], json!({"group": "", "version": "", "kind": "APIService"}));
}

#[test]
fn what_is_not_there_has_no_document() {
    for path in ["/api/v2", "/apis/nope", "/apis/apps/v2", "/", "/apis/apps/v1/x"] {
        assert_eq!(legacy(path, &snapshot(vec![]), ""), None, "{path}");
    }
}

#[test]
fn versions_of_other_servers_are_listed() {
    let registry = Registry::new(builtin_rows());
    let resources = vec![json!({"resource": "nodes", "verbs": ["get"]})];
    let metrics = External {
        group: "metrics.k8s.io".into(),
        version: "v1beta1".into(),
        group_priority: 100,
        version_priority: 100,
        resources: resources.clone(),
        current: false,
        own: false,
    };
    registry.set_external(vec![metrics.clone()]);
    let snapshot = registry.snapshot();
    let list = legacy("/apis", &snapshot, "").expect("/apis");
    assert_eq!(list["groups"].as_array().expect("groups").last().expect("a group")["name"], "metrics.k8s.io");
    assert_eq!(legacy("/apis/metrics.k8s.io/v1beta1", &snapshot, ""), None);
    let all = aggregated(&snapshot, Root::Apis);
    let last = all["items"].as_array().expect("items").last().expect("a group").clone();
    assert_eq!(last["versions"], json!([{"version": "v1beta1", "resources": resources, "freshness": "Stale"}]));
    // What is answered here is listed here.
    registry.set_external(vec![External { own: true, current: true, ..metrics }]);
    let list = legacy("/apis/metrics.k8s.io/v1beta1", &registry.snapshot(), "").expect("the group version");
    assert_eq!((&list["groupVersion"], &list["resources"][0]["name"]), (&json!("metrics.k8s.io/v1beta1"), &json!("nodes")));
}
