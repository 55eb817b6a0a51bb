//! Policies that change objects.

use crate::support::{Cluster, Reply};
use serde_json::{Value, json};

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

async fn policy(cluster: &Cluster, name: &str, rule: (&str, &str), mutations: Value) -> Reply {
    let rules = json!([{"operations": ["CREATE"], "apiGroups": [rule.0], "apiVersions": ["v1"], "resources": [rule.1]}]);
    let spec = json!({
        "matchConstraints": {"resourceRules": rules}, "mutations": mutations, "reinvocationPolicy": "IfNeeded", "failurePolicy": "Fail",
    });
    let made =
        cluster.create(&format!("{REGISTRATION}/mutatingadmissionpolicies"), json!({"metadata": {"name": name}, "spec": spec})).await;
    if made.code.is_success() {
        let binding = json!({"metadata": {"name": format!("{name}-binding")}, "spec": {"policyName": name}});
        cluster.create(&format!("{REGISTRATION}/mutatingadmissionpolicybindings"), binding).await.ok();
    }
    made
}

fn apply(expression: &str) -> Value {
    json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}])
}

fn patch(expression: &str) -> Value {
    json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}])
}

#[tokio::test]
async fn objects_are_applied_and_patched() {
    let cluster = Cluster::start().await;
    let expression = "Object{metadata: Object.metadata{labels: {'made-by': request.userInfo.username}}}";
    policy(&cluster, "label", ("", "configmaps"), apply(expression)).await.ok();
    let expression = "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {}}, \
                      JSONPatch{op: 'add', path: '/metadata/annotations/' + jsonpatch.escapeKey('example.com/a'), value: 'b'}]";
    policy(&cluster, "note", ("", "configmaps"), patch(expression)).await.ok();
    let made = cluster.config_map("x", json!({"a": "b"})).await.ok();
    assert_eq!(made["metadata"]["labels"], json!({"made-by": "admin"}));
    assert_eq!(made["metadata"]["annotations"], json!({"example.com/a": "b"}));
}

#[tokio::test]
async fn lists_with_keys_are_merged_and_others_are_left_alone() {
    let cluster = Cluster::start().await;
    cluster.create("/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "default"}})).await.ok();
    let expression =
        "Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: 'mesh', image: 'mesh', restartPolicy: 'Always'}]}}";
    policy(&cluster, "mesh", ("", "pods"), apply(expression)).await.ok();
    let pod = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "initContainers": [{"name": "own", "image": "own"}], "containers": [{"name": "c", "image": "i", "args": ["a"]}],
        }})
    };
    let made = cluster.create("/api/v1/namespaces/default/pods", pod("a")).await.ok();
    let names: Vec<&Value> = made["spec"]["initContainers"].as_array().expect("containers").iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["own", "mesh"]);
    assert_eq!(made["spec"]["initContainers"][1]["terminationMessagePath"], "/dev/termination-log");
    let expression = "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c', args: ['b']}]}}";
    policy(&cluster, "args", ("", "pods"), apply(expression)).await.ok();
    let refused = cluster.create("/api/v1/namespaces/default/pods", pod("b")).await;
    assert_eq!(
        refused.message(),
        "policy 'args' with binding 'args-binding' denied request: error applying patch: invalid ApplyConfiguration: \
         may not mutate atomic arrays, maps or structs: .spec.containers[0].args"
    );
}

#[tokio::test]
async fn mutations_are_checked_when_they_are_written() {
    let cluster = Cluster::start().await;
    for (mutations, expected) in [
        (apply("{'a': 1}"), "applyConfiguration.expression: Invalid value: \"{'a': 1}\": must evaluate to Object but got map(string, int)"),
        (patch("Object{}"), "jsonPatch.expression: Invalid value: \"Object{}\": must evaluate to list(JSONPatch) but got Object"),
    ] {
        let refused = policy(&cluster, "p", ("", "configmaps"), mutations).await;
        let path = "MutatingAdmissionPolicy.admissionregistration.k8s.io \"p\" is invalid: spec.mutations[0]";
        refused.refused(422, &format!("{path}.{expected}"));
    }
    let expression = "Object{metadata: Object.spec{labels: {'a': 'b'}}}";
    policy(&cluster, "wrong", ("", "configmaps"), apply(expression)).await.ok();
    let refused = cluster.config_map("x", json!({})).await;
    assert!(
        refused.message().contains("type mismatch: unexpected type name \"Object.spec\", expected \"Object.metadata\""),
        "{}",
        refused.message()
    );
}

#[tokio::test]
async fn what_mutations_make_must_fit_the_kind() {
    for (mutations, code, expected) in [
        (
            apply("Object{nothing: 1}"),
            403,
            "policy 'p' with binding 'p-binding' denied request: error applying patch: failed to convert patch object to typed object: \
             .nothing: field not declared in schema",
        ),
        (
            patch("[JSONPatch{op: 'add', path: '/unknown', value: 'x'}]"),
            500,
            "Internal error occurred: strict decoding error: unknown field \"unknown\"",
        ),
        (
            patch("[JSONPatch{op: 'replace', path: '/data/a', value: 1}]"),
            500,
            "Internal error occurred: json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
    ] {
        let cluster = Cluster::start().await;
        policy(&cluster, "p", ("", "configmaps"), mutations).await.ok();
        cluster.config_map("x", json!({"a": "b"})).await.refused(code, expected);
    }
    // A test that fails says that there is nothing to do.
    let cluster = Cluster::start().await;
    let expression = "[JSONPatch{op: 'test', path: '/data/a', value: 'x'}, JSONPatch{op: 'remove', path: '/data/a'}]";
    policy(&cluster, "p", ("", "configmaps"), patch(expression)).await.ok();
    assert_eq!(cluster.config_map("x", json!({"a": "b"})).await.ok()["data"], json!({"a": "b"}));
}
