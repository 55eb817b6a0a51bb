//! Custom resources through plain HTTP.

use crate::harness::{Request, Transcript, eventually};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn definition(group: &str) -> Value {
    let spec = json!({"type": "object", "required": ["size"], "properties": {
        "size": {"type": "integer", "minimum": 1}, "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "replicas": {"type": "integer"}}});
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": {"type": "object", "properties": {
        "replicas": {"type": "integer"}, "selector": {"type": "string"}}}}});
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
            "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("widgets.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [version("v1beta1", false), version("v1", true)]},
    })
}

async fn served(t: &Transcript, path: &str) {
    eventually(path, async || t.client.send(&Request::get(path)).await.status.as_u16() == 200).await;
}

#[tokio::test]
async fn custom_resources() {
    let mut t = Transcript::start("custom_resources");
    t.namespace("custom").await;
    t.given(DEFINITIONS, definition("it.example.com")).await;
    let widgets = "/apis/it.example.com/v1/namespaces/custom/widgets";
    served(&t, widgets).await;
    let widget =
        |name: &str, spec: Value| json!({"apiVersion": "it.example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec});
    t.post(widgets, widget("a", json!({"size": 1}))).await;
    t.get("/apis/it.example.com/v1beta1/namespaces/custom/widgets/a").await;
    t.note("Validation, pruning, unknown fields");
    t.post(widgets, widget("bad", json!({"size": "big"}))).await;
    t.post(widgets, widget("bad", json!({"size": 1, "colour": "green"}))).await;
    t.post(widgets, widget("bad", json!({}))).await;
    t.post(widgets, widget("pruned", json!({"size": 2, "extra": true}))).await;
    t.post(&format!("{widgets}?fieldValidation=Strict"), widget("strict", json!({"size": 2, "extra": true}))).await;
    t.post(widgets, json!({"apiVersion": "it.example.com/v1", "kind": "Gadget", "metadata": {"name": "x"}})).await;
    t.note("Patches");
    let a = &format!("{widgets}/a");
    t.patch("merge", a, json!({"spec": {"size": 5, "replicas": 2}})).await;
    t.patch("json", a, json!([{"op": "replace", "path": "/spec/colour", "value": "blue"}])).await;
    t.patch("strategic", a, json!({"spec": {"size": 5}})).await;
    t.patch("apply", &format!("{a}?fieldManager=x&force=true"), widget("a", json!({"size": 7}))).await;
    t.note("Status and scale");
    t.patch("merge", &format!("{a}/status"), json!({"status": {"replicas": 2, "selector": "app=a"}, "spec": {"size": 99}})).await;
    t.get(&format!("{a}/scale")).await;
    t.patch("merge", &format!("{a}/scale"), json!({"spec": {"replicas": 4}})).await;
    t.note("Lists and tables");
    t.send(
        Request::get(format!("{widgets}?includeObject=None&fieldSelector=metadata.name=a"))
            .accept("application/json;as=Table;v=v1;g=meta.k8s.io"),
    )
    .await;
    t.get(&format!("{widgets}?fieldSelector=spec.size=1")).await;
    t.get(&format!("{widgets}/absent")).await;
    t.get("/apis/it.example.com/v1").await;
    t.get("/apis/it.example.com/v2/widgets").await;
    t.get("/apis/it.example.com/v1/gadgets").await;
    t.delete(a).await;
    t.delete(widgets).await;
    t.finish();
}
