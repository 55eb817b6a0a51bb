//! Unknown and duplicate fields: refused, warned about, or ignored.

use super::{config_map, deployment};
use crate::harness::{Request, Transcript};
use serde_json::json;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/fields/deployments";

#[tokio::test]
async fn field_validation() {
    let mut t = Transcript::start("field_validation");
    t.namespace("fields").await;
    let mut unknown = deployment("web", 1);
    unknown["spec"]["replica"] = json!(2);
    unknown["spec"]["template"]["spec"]["containers"][0]["imagine"] = json!("x");
    unknown["metadata"]["lables"] = json!({"a": "b"});
    for mode in ["Strict", "Warn", "Ignore", "", "Loose"] {
        t.send_for(Request::post(format!("{DEPLOYMENTS}?dryRun=All&fieldValidation={mode}"), &unknown), &["/metadata/name"]).await;
    }
    t.send_for(Request::post(format!("{DEPLOYMENTS}?dryRun=All"), &unknown), &["/metadata/name"]).await;
    t.note("Duplicates");
    let twice =
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"twice","name":"again"},"data":{"a":"1","a":"2"},"data":{"b":"3"}}"#;
    for mode in ["Strict", "Warn", "Ignore"] {
        let request = Request::new(http::Method::POST, format!("/api/v1/namespaces/fields/configmaps?dryRun=All&fieldValidation={mode}"));
        t.send(request.body("application/json", twice)).await;
    }
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: twice\nunknown: 1\ndata:\n  a: '1'\n  a: '2'\n";
    for mode in ["Strict", "Warn"] {
        let request = Request::new(http::Method::POST, format!("/api/v1/namespaces/fields/configmaps?dryRun=All&fieldValidation={mode}"));
        t.send(request.body("application/yaml", yaml)).await;
    }
    t.note("Updates and patches");
    t.given("/api/v1/namespaces/fields/configmaps", config_map("a", json!({"k": "v"}))).await;
    let a = "/api/v1/namespaces/fields/configmaps/a?dryRun=All&fieldValidation";
    let mut wrong = config_map("a", json!({}));
    wrong["date"] = json!({});
    t.send_for(Request::put(format!("{a}=Strict"), &wrong), &[]).await;
    for kind in ["merge", "strategic"] {
        t.send_for(Request::patch(kind, format!("{a}=Strict"), &wrong), &[]).await;
        t.send_for(Request::patch(kind, format!("{a}=Warn"), &wrong), &["/metadata/name"]).await;
    }
    for mode in ["Strict", "Warn", "Ignore"] {
        t.refuse(Request::patch("apply", format!("{a}={mode}&fieldManager=x&force=true"), &wrong), ".date: field not declared in schema")
            .await;
    }
    let operations = json!([{"op": "add", "path": "/dada", "value": 1}]);
    t.send_for(Request::patch("json", format!("{a}=Strict"), &operations), &[]).await;
    t.send_for(Request::patch("json", format!("{a}=Warn"), &operations), &["/metadata/name"]).await;
    t.note("Wrong types are errors in every mode");
    for mode in ["Strict", "Ignore"] {
        let mut wrong = deployment("web", 1);
        wrong["spec"]["replicas"] = json!("two");
        t.send(Request::post(format!("{DEPLOYMENTS}?fieldValidation={mode}"), &wrong)).await;
    }
    t.finish();
}
