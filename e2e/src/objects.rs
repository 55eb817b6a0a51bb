//! The objects of the story.

use serde_json::{Value, json};
use sublet_machinery::Gvr;

/// An image that the real host of the tests has; the embedded host runs any.
pub const IMAGE: &str = "registry.k8s.io/e2e-test-images/busybox:1.37.0-2";
pub const IMAGE_NEXT: &str = "registry.k8s.io/e2e-test-images/agnhost:2.66.1";

pub const WIDGETS_V1: Gvr = Gvr::new("example.com", "v1", "widgets");
pub const WIDGETS_BETA: Gvr = Gvr::new("example.com", "v1beta1", "widgets");

pub fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// The label of the story's own virtual clusters.
pub const STORY_LABEL: (&str, &str) = ("app.kubernetes.io/part-of", "sublet-story");

pub fn virtual_cluster(namespace: &str, name: &str) -> Value {
    let labels = json!({STORY_LABEL.0: STORY_LABEL.1});
    json!({
        "apiVersion": "sublet.dev/v1alpha1", "kind": "VirtualCluster",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
    })
}

/// `widgets.example.com` as alpha has it: one version, an integer size.
pub fn widgets_alpha() -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}});
    widgets(json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]))
}

/// The same name as beta has it: two versions, a size in words, and a colour that must be given.
pub fn widgets_beta() -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {
        "type": "object", "required": ["colour"], "properties": {"size": {"type": "string"}, "colour": {"type": "string"}},
    }}});
    widgets(json!([
        {"name": "v1beta1", "served": true, "storage": false, "schema": {"openAPIV3Schema": schema}},
        {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}},
    ]))
}

fn widgets(versions: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"}, "versions": versions},
    })
}

pub fn widget(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Widget", "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

fn container(image: &str) -> Value {
    json!({"name": "main", "image": image, "imagePullPolicy": "IfNotPresent", "command": ["sleep", "100000"]})
}

fn template(app: &str, containers: Value) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": containers},
    })
}

pub fn config_map(namespace: &str, name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": {"greeting": value}})
}

pub fn secret(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "stringData": {"password": "hush"}})
}

pub fn deployment(namespace: &str, replicas: i64) -> Value {
    let mut main = container(IMAGE);
    main["envFrom"] = json!([{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "credentials"}}]);
    main["env"] = json!([{"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}]);
    main["volumeMounts"] = json!([{"name": "settings", "mountPath": "/settings"}]);
    let mut template = template("web", json!([main]));
    template["spec"]["volumes"] = json!([{"name": "settings", "configMap": {"name": "settings"}}]);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    })
}

pub fn stateful_set(namespace: &str, with_claims: bool) -> Value {
    let mut main = container(IMAGE);
    let mut spec = json!({"serviceName": "db", "replicas": 2, "selector": {"matchLabels": {"app": "db"}}});
    if with_claims {
        main["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        spec["volumeClaimTemplates"] = json!([{
            "metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }]);
    }
    spec["template"] = template("db", json!([main]));
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": namespace}, "spec": spec})
}

/// With volumes, it is the first user of claim `files`: many storage classes wait for one.
pub fn job(namespace: &str, with_claim: bool) -> Value {
    let mut main = container(IMAGE);
    main["command"] = json!(["true"]);
    let mut template = template("once", json!([main]));
    template["spec"]["restartPolicy"] = json!("Never");
    if with_claim {
        template["spec"]["volumes"] = json!([{"name": "files", "persistentVolumeClaim": {"claimName": "files"}}]);
        template["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "files", "mountPath": "/files"}]);
    }
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once", "namespace": namespace}, "spec": {"template": template}})
}

pub fn service(namespace: &str, name: &str, app: &str, headless: bool) -> Value {
    let mut spec = json!({"selector": {"app": app}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
    if headless {
        spec["clusterIP"] = json!("None");
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}, "spec": spec})
}

pub fn claim(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    })
}

pub fn pod(namespace: &str, name: &str) -> Value {
    let mut pod = template(name.get(..name.len().min(63)).unwrap_or_default(), json!([container(IMAGE)]));
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["namespace"] = json!(namespace);
    pod
}

/// A pod that looks at itself: `main` counts and has a shell, `web` answers on port 8080, `echo` gives
/// back what it is told.
pub fn inside(namespace: &str, name: &str) -> Value {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let item = |path: &str, field: &str| json!({"path": path, "fieldRef": {"fieldPath": field}});
    let mut main = container(IMAGE_NEXT);
    main["command"] = json!(["sh", "-c", "n=0; while true; do n=$((n+1)); echo line $n; sleep 0.2; done"]);
    main["envFrom"] = json!([{"configMapRef": {"name": "settings"}}]);
    main["env"] = json!([
        field("POD_NAME", "metadata.name"),
        field("POD_NAMESPACE", "metadata.namespace"),
        field("POD_UID", "metadata.uid"),
        field("POD_ACCOUNT", "spec.serviceAccountName"),
    ]);
    main["volumeMounts"] = json!([
        {"name": "settings", "mountPath": "/settings"},
        {"name": "credentials", "mountPath": "/credentials"},
        {"name": "info", "mountPath": "/info"},
    ]);
    let web = json!({"name": "web", "image": IMAGE_NEXT, "imagePullPolicy": "IfNotPresent", "args": ["netexec", "--http-port=8080", "--udp-port=-1"]});
    let echo = json!({"name": "echo", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "stdin": true, "command": ["cat"]});
    let mut pod = pod(namespace, name);
    pod["metadata"]["labels"] = json!({"app": name});
    pod["spec"]["containers"] = json!([main, web, echo]);
    pod["spec"]["volumes"] = json!([
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "credentials", "secret": {"secretName": "credentials"}},
        {"name": "info", "downwardAPI": {"items": [
            item("name", "metadata.name"), item("namespace", "metadata.namespace"), item("labels", "metadata.labels"),
        ]}},
    ]);
    pod
}

/// A pod that answers on port 8080.
pub fn reached(namespace: &str, name: &str) -> Value {
    let mut pod = pod(namespace, name);
    let mut main = container(IMAGE_NEXT);
    main.as_object_mut().map(|main| main.remove("command"));
    main["args"] = json!(["netexec", "--http-port=8080", "--udp-port=-1"]);
    main["ports"] = json!([{"name": "http", "containerPort": 8080}]);
    pod["spec"]["containers"] = json!([main]);
    pod
}

/// A pod with the tools that ask for names.
pub fn asker(namespace: &str, name: &str) -> Value {
    let mut pod = pod(namespace, name);
    pod["spec"]["containers"][0]["image"] = json!(IMAGE_NEXT);
    pod
}

/// A pod whose image is nowhere: its container waits.
pub fn waiting(namespace: &str, name: &str) -> Value {
    let mut pod = pod(namespace, name);
    pod["spec"]["containers"] = json!([{"name": "main", "image": "image.invalid/nothing:1"}]);
    pod
}
