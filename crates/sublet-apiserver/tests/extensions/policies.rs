//! Admission policies.

use crate::support::{Cluster, Reply};
use serde_json::{Value, json};

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

async fn policy(cluster: &Cluster, name: &str, extra: Value) -> Reply {
    let rules = json!([{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
    let mut spec = json!({"matchConstraints": {"resourceRules": rules}});
    spec.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
    cluster.create(&format!("{REGISTRATION}/validatingadmissionpolicies"), json!({"metadata": {"name": name}, "spec": spec})).await
}

async fn bind(cluster: &Cluster, policy: &str, extra: Value) {
    let mut spec = json!({"policyName": policy, "validationActions": ["Deny"]});
    spec.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
    let binding = json!({"metadata": {"name": format!("{policy}-binding")}, "spec": spec});
    cluster.create(&format!("{REGISTRATION}/validatingadmissionpolicybindings"), binding).await.ok();
}

fn denied(name: &str, policy: &str, why: &str) -> String {
    format!("configmaps {name:?} is forbidden: ValidatingAdmissionPolicy '{policy}' with binding '{policy}-binding' denied request: {why}")
}

#[tokio::test]
async fn policies_refuse_with_their_own_words() {
    let cluster = Cluster::start().await;
    let validations = json!([
        {"expression": "!has(object.data) || size(object.data) < 3", "message": "too much"},
        {"expression": "!object.metadata.name.startsWith('x')", "messageExpression": "'not ' + object.metadata.name", "reason": "Forbidden"},
        {"expression": "variables.color != 'red' || namespaceObject.metadata.name != 'default'"},
        {"expression": "authorizer.group('').resource('secrets').namespace('default').check('get').allowed()"},
    ]);
    let variables = json!([
        {"name": "data", "expression": "has(object.data) ? object.data : {}"},
        {"name": "color", "expression": "variables.data[?'color'].orValue('none')"},
    ]);
    let conditions = json!([{"name": "free", "expression": "!('free' in object.metadata.?labels.orValue({}))"}]);
    policy(&cluster, "p", json!({"validations": validations, "variables": variables, "matchConditions": conditions})).await.ok();
    cluster.config_map("unbound", json!({"a": "", "b": "", "c": ""})).await.ok();
    bind(&cluster, "p", json!({})).await;
    let refused = cluster.config_map("big", json!({"a": "", "b": "", "c": ""})).await;
    assert_eq!(refused.body["reason"], "Invalid");
    let cause = "ValidatingAdmissionPolicy 'p' with binding 'p-binding' denied request: too much";
    assert_eq!(refused.body["details"]["causes"][0]["message"], cause);
    refused.refused(422, &denied("big", "p", "too much"));
    cluster.config_map("x1", json!({})).await.refused(403, &denied("x1", "p", "not x1"));
    let why = "failed expression: variables.color != 'red' || namespaceObject.metadata.name != 'default'";
    cluster.config_map("red", json!({"color": "red"})).await.refused(422, &denied("red", "p", why));
    let free = json!({"metadata": {"name": "x2", "labels": {"free": ""}}});
    cluster.create("/api/v1/namespaces/default/configmaps", free).await.ok();
    cluster.config_map("fine", json!({"color": "blue"})).await.ok();
}

#[tokio::test]
async fn what_a_binding_does_about_failures() {
    let cluster = Cluster::start().await;
    policy(&cluster, "p", json!({"validations": [{"expression": "object.data.size() == 7"}]})).await.ok();
    bind(&cluster, "p", json!({"validationActions": ["Warn", "Audit"]})).await;
    let made = cluster.config_map("a", json!({"k": "v"})).await;
    assert_eq!(
        made.warnings,
        ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p-binding': failed expression: object.data.size() == 7"]
    );
    made.ok();
    // Nothing is there to be looked at: an error is a refusal, unless the policy does not mind.
    let failing = json!([{"expression": "object.data.missing == 'x'"}]);
    policy(&cluster, "open", json!({"validations": failing, "failurePolicy": "Ignore"})).await.ok();
    bind(&cluster, "open", json!({})).await;
    cluster.config_map("b", json!({"k": "v"})).await.ok();
    policy(&cluster, "closed", json!({"validations": failing})).await.ok();
    bind(&cluster, "closed", json!({})).await;
    let why = "expression 'object.data.missing == 'x'' resulted in error: no such key: missing";
    cluster.config_map("c", json!({"k": "v"})).await.refused(422, &denied("c", "closed", why));
}

#[tokio::test]
async fn parameters_come_by_name_and_by_label() {
    let cluster = Cluster::start().await;
    let stated = json!({
        "paramKind": {"apiVersion": "v1", "kind": "Secret"},
        "validations": [{
            "expression": "object.data.size() <= int(params.metadata.annotations.max)",
            "messageExpression": "'at most ' + params.metadata.annotations.max",
        }],
    });
    policy(&cluster, "p", stated).await.ok();
    let secret = |name: &str, max: &str| json!({"metadata": {"name": name, "labels": {"limit": "yes"}, "annotations": {"max": max}}});
    cluster.create("/api/v1/namespaces/default/secrets", secret("one", "1")).await.ok();
    bind(&cluster, "p", json!({"paramRef": {"name": "one", "parameterNotFoundAction": "Deny"}})).await;
    cluster.config_map("b", json!({"k": "v", "l": "w"})).await.refused(422, &denied("b", "p", "at most 1"));
    let path = format!("{REGISTRATION}/validatingadmissionpolicybindings/p-binding");
    let by_label = json!({"spec": {"paramRef": {"name": null, "selector": {"matchLabels": {"limit": "yes"}}}}});
    cluster.send("PATCH", &path, Some(by_label)).await.ok();
    cluster.config_map("c", json!({"k": "v"})).await.ok();
    cluster.create("/api/v1/namespaces/default/secrets", secret("two", "0")).await.ok();
    cluster.config_map("d", json!({"k": "v"})).await.refused(422, &denied("d", "p", "at most 0"));
    for name in ["one", "two"] {
        cluster.send("DELETE", &format!("/api/v1/namespaces/default/secrets/{name}"), None).await.ok();
    }
    let why = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    cluster.config_map("e", json!({"k": "v"})).await.refused(422, &denied("e", "p", why));
}

#[tokio::test]
async fn expressions_are_checked_when_a_policy_is_written() {
    let cluster = Cluster::start().await;
    for (extra, expected) in [
        (
            json!({"validations": [{"expression": "object.x"}]}),
            "spec.validations[0].expression: Invalid value: \"object.x\": must evaluate to bool but got dyn",
        ),
        (
            json!({"validations": [{"expression": "params.x == 1"}]}),
            "spec.validations[0].expression: Invalid value: \"params.x == 1\": compilation failed: ERROR: <input>:1:1: \
             undeclared reference to 'params' (in container '')\n | params.x == 1\n | ^",
        ),
        (
            json!({"validations": [{"expression": "true", "messageExpression": "1"}]}),
            "spec.validations[0].messageExpression: Invalid value: \"1\": must evaluate to string but got int",
        ),
        (
            json!({"validations": [{"expression": "variables.b"}], "variables": [{"name": "a", "expression": "1"}]}),
            "spec.validations[0].expression: Invalid value: \"variables.b\": compilation failed: ERROR: <input>:1:10: \
             undefined field 'b'\n | variables.b\n | .........^",
        ),
        (
            json!({"auditAnnotations": [{"key": "a", "valueExpression": "1"}]}),
            "spec.auditAnnotations[0].valueExpression: Invalid value: \"1\": must evaluate to one of [string null_type] but got int",
        ),
    ] {
        let refused = policy(&cluster, "p", extra).await;
        refused.refused(422, &format!("ValidatingAdmissionPolicy.admissionregistration.k8s.io \"p\" is invalid: {expected}"));
    }
}
