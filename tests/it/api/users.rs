//! Who may do what: denials, impersonation, tokens, reviews.

use super::config_map;
use crate::harness::{Credential, Request, Transcript, eventually};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};

#[tokio::test]
async fn denials() {
    let mut t = Transcript::start("denials");
    t.namespace("denials").await;
    let maps = "/api/v1/namespaces/denials/configmaps";
    let alice = |request: Request| request.token("alice-token");
    t.send(alice(Request::get(maps))).await;
    t.send(alice(Request::get(format!("{maps}/a")))).await;
    t.send(alice(Request::get("/api/v1/configmaps"))).await;
    t.send(alice(Request::post(maps, &config_map("a", json!({}))))).await;
    t.send(alice(Request::put(format!("{maps}/a"), &config_map("a", json!({}))))).await;
    t.send(alice(Request::patch("merge", format!("{maps}/a"), &json!({})))).await;
    t.send(alice(Request::delete(format!("{maps}/a")))).await;
    t.send(alice(Request::delete(maps))).await;
    t.send(alice(Request::get(format!("{maps}?watch=true")))).await;
    t.send(alice(Request::get("/apis/apps/v1/namespaces/denials/deployments/web/scale"))).await;
    t.send(alice(Request::get("/api/v1/nodes/n"))).await;
    t.send(alice(Request::get("/apis/nothing.example.com/v1/things"))).await;
    t.send(alice(Request::get("/metrics"))).await;
    t.send(alice(Request::get("/nothing"))).await;
    t.send_for(alice(Request::get("/api")), &["/kind"]).await;
    t.send(Request::get(maps).with(Credential::Nobody)).await;
    t.send(Request::post(maps, &config_map("a", json!({}))).with(Credential::Nobody)).await;
    t.note("Bad tokens");
    t.send(Request::get(maps).token("unknown")).await;
    t.send(Request::get(maps).token("a.b.c")).await;
    t.send(Request::get(maps).with(Credential::Nobody).header("authorization", "Basic YTpi")).await;
    t.note("A role for one name");
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/denials";
    t.given(
        &format!("{roles}/roles"),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "one"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"], "resourceNames": ["mine"]}]}),
    )
    .await;
    t.given(&format!("{roles}/rolebindings"), json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "one"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "one"}, "subjects": [{"kind": "Group", "name": "devs", "apiGroup": "rbac.authorization.k8s.io"}]})).await;
    t.send_for(alice(Request::get(format!("{maps}/mine"))), &[]).await;
    t.send_for(alice(Request::get(format!("{maps}/other"))), &[]).await;
    t.send_for(alice(Request::get(format!("{maps}?fieldSelector=metadata.name=mine"))), &["/items"]).await;
    t.send_for(alice(Request::get(maps)), &[]).await;
    t.note("Escalation");
    t.given(
        &format!("{roles}/roles"),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "rbac"},
        "rules": [{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["*"]}]}),
    )
    .await;
    t.given(&format!("{roles}/rolebindings"), json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "rbac"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "rbac"}, "subjects": [{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}]})).await;
    let more = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "more"},
        "rules": [{"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["get", "delete"]}]});
    t.send(alice(Request::post(format!("{roles}/roles"), &more))).await;
    let bind = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "more"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:heapster"}, "subjects": []});
    t.send(alice(Request::post(format!("{roles}/rolebindings"), &bind))).await;
    t.note("A role reference is for ever");
    t.patch("merge", &format!("{roles}/rolebindings/one"), json!({"roleRef": {"name": "two"}})).await;
    t.finish();
}

#[tokio::test]
async fn impersonation() {
    let mut t = Transcript::start("impersonation");
    let whoami = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let ask = || Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &whoami);
    let shown = ["/status/userInfo"];
    t.send_for(ask(), &shown).await;
    t.send_for(ask().token("alice-token"), &shown).await;
    t.send_for(ask().header("impersonate-user", "bob"), &shown).await;
    t.send_for(ask().header("impersonate-user", "bob").header("impersonate-group", "a").header("impersonate-group", "b"), &shown).await;
    t.send_for(
        ask().header("impersonate-user", "bob").header("impersonate-uid", "7").header("impersonate-extra-example.com%2fscope", "x"),
        &shown,
    )
    .await;
    t.send_for(ask().header("impersonate-user", "system:serviceaccount:default:robot"), &shown).await;
    t.send_for(ask().header("impersonate-user", "system:anonymous"), &shown).await;
    t.note("Refused");
    t.send(ask().header("impersonate-group", "a")).await;
    t.send(ask().header("impersonate-uid", "7")).await;
    t.send(ask().token("alice-token").header("impersonate-user", "bob")).await;
    t.send(ask().token("alice-token").header("impersonate-user", "system:serviceaccount:default:robot")).await;
    t.send(Request::get("/api/v1/secrets").header("impersonate-user", "bob")).await;
    t.send(ask().with(Credential::Nobody).header("impersonate-user", "bob")).await;
    t.send(ask().with(Credential::Nobody)).await;
    t.finish();
}

#[tokio::test]
async fn tokens() {
    let mut t = Transcript::start("tokens");
    t.namespace_for_pods("tokens").await;
    let accounts = "/api/v1/namespaces/tokens/serviceaccounts";
    let ask = |spec: Value| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let issued = t.client.send(&Request::post(format!("{accounts}/default/token"), &ask(json!({})))).await;
    assert_eq!(issued.status.as_u16(), 201, "{}", issued.text());
    let token = issued.str("/status/token");
    t.note("What the token says");
    let mut claims: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap()).unwrap();
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 3600);
    for key in ["exp", "iat", "nbf", "jti"] {
        claims[key] = json!("<>");
    }
    let claims = t.mask.text(&claims.to_string());
    t.note(&claims);
    t.note("Who it is");
    let whoami = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let review = t.client.send(&Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &whoami).token(&token)).await.json();
    assert_eq!(review["status"]["userInfo"]["username"], "system:serviceaccount:tokens:default");
    t.note(&review["status"]["userInfo"]["groups"].to_string());
    t.send(Request::get("/api/v1/namespaces/tokens/secrets").token(&token)).await;
    t.note("Reviewed");
    let review = |token: &str, audiences: Value| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token, "audiences": audiences}});
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    t.send_for(
        Request::post(reviews, &review(&token, json!([]))),
        &["/status/authenticated", "/status/user/username", "/status/audiences", "/status/error"],
    )
    .await;
    t.send_for(Request::post(reviews, &review("alice-token", Value::Null)), &["/status"]).await;
    t.send_for(Request::post(reviews, &review("rubbish", Value::Null)), &["/status"]).await;
    t.send(Request::post(reviews, &review("", Value::Null))).await;
    t.note("Audiences");
    let other = t
        .client
        .send(&Request::post(format!("{accounts}/default/token"), &ask(json!({"audiences": ["vault"], "expirationSeconds": 600}))))
        .await;
    let other = other.str("/status/token");
    t.send(Request::get("/api/v1/namespaces/tokens").token(&other)).await;
    t.send_for(Request::post(reviews, &review(&other, json!(["vault"]))), &["/status/authenticated", "/status/audiences"]).await;
    t.note("A token that somebody changed");
    let mut parts: Vec<String> = token.split('.').map(str::to_string).collect();
    parts[1] = BASE64_URL_SAFE_NO_PAD
        .encode(String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(&parts[1]).unwrap()).unwrap().replace("tokens", "kube-system"));
    t.send(Request::get("/api/v1/namespaces/tokens").token(&parts.join("."))).await;
    t.note("Refused");
    t.post(&format!("{accounts}/default/token"), ask(json!({"expirationSeconds": 5}))).await;
    t.post(&format!("{accounts}/default/token"), ask(json!({"expirationSeconds": 1_i64 << 40}))).await;
    t.post(&format!("{accounts}/absent/token"), ask(json!({}))).await;
    t.post(&format!("{accounts}/default/token"), ask(json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "absent"}})))
        .await;
    t.post(
        &format!("{accounts}/default/token"),
        ask(json!({"boundObjectRef": {"kind": "Deployment", "apiVersion": "apps/v1", "name": "x"}})),
    )
    .await;
    t.send(Request::post(format!("{accounts}/default/token"), &ask(json!({}))).token("alice-token")).await;
    // Upstream learns of the end of an account by a watch.
    t.client.send(&Request::delete(format!("{accounts}/default"))).await;
    let get = Request::get("/api/v1/namespaces/tokens").token(&token);
    eventually("the token ends with its account", async || t.client.send(&get).await.status.as_u16() == 401).await;
    t.finish();
}

#[tokio::test]
async fn reviews() {
    let mut t = Transcript::start("reviews");
    t.namespace("reviews").await;
    let own = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = |kind: &str, spec: Value| json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
    let can = |verb: &str, resource: &str| {
        review("SelfSubjectAccessReview", json!({"resourceAttributes": {"namespace": "reviews", "verb": verb, "resource": resource}}))
    };
    t.post(own, can("list", "pods")).await;
    t.send(Request::post(own, &can("list", "pods")).token("alice-token")).await;
    // Several roles allow it, and any may be told.
    let version = review("SelfSubjectAccessReview", json!({"nonResourceAttributes": {"path": "/version", "verb": "get"}}));
    t.send_for(Request::post(own, &version).token("alice-token"), &["/status/allowed"]).await;
    t.note("Of others");
    let others = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let attributes = json!({"namespace": "kube-system", "verb": "get", "resource": "secrets"});
    t.post(others, review("SubjectAccessReview", json!({"user": "bob", "resourceAttributes": attributes}))).await;
    t.post(others, review("SubjectAccessReview", json!({"user": "bob", "groups": ["system:masters"], "resourceAttributes": attributes})))
        .await;
    let local = "/apis/authorization.k8s.io/v1/namespaces/reviews/localsubjectaccessreviews";
    t.post(local, review("LocalSubjectAccessReview", json!({"user": "bob", "resourceAttributes": attributes}))).await;
    t.note("Refused");
    t.post(own, review("SelfSubjectAccessReview", json!({}))).await;
    t.post(own, review("SelfSubjectAccessReview", json!({"resourceAttributes": attributes, "nonResourceAttributes": {"path": "/"}}))).await;
    t.post(others, review("SubjectAccessReview", json!({"resourceAttributes": attributes}))).await;
    t.send(
        Request::post(others, &review("SubjectAccessReview", json!({"user": "bob", "resourceAttributes": attributes})))
            .token("alice-token"),
    )
    .await;
    t.get(own).await;
    t.note("Rules");
    let rules = review("SelfSubjectRulesReview", json!({"namespace": "reviews"}));
    let answer =
        t.client.send(&Request::post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &rules).token("alice-token")).await.json();
    t.note(&answer["status"]["resourceRules"].to_string());
    t.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review("SelfSubjectRulesReview", json!({}))).await;
    t.finish();
}
