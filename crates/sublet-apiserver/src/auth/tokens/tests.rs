//! Tokens as clients ask for them and come with them.

use super::*;
use crate::admission::UserInfo;
use crate::auth::authn::TokenAuthenticator as _;
use crate::auth::testing::FakeReader;
use base64::Engine as _;
use jiff::SignedDuration;
use sublet_machinery::ApiError;

const API: &str = "https://kubernetes.default.svc";

fn now() -> Timestamp {
    "2026-05-01T10:00:00Z".parse().unwrap()
}

fn config(signing_key_pem: String) -> TokenConfig {
    TokenConfig {
        issuers: vec![API.into()],
        audiences: vec![API.into()],
        signing_key_pem,
        verifying_keys_pem: Vec::new(),
        jwks_uri: "https://127.0.0.1:6443/openid/v1/jwks".into(),
    }
}

fn new_key() -> String {
    rcgen::KeyPair::generate().unwrap().serialize_pem()
}

struct Cluster {
    reader: Arc<FakeReader>,
    tokens: ServiceAccountTokens,
}

impl Cluster {
    fn new() -> Self {
        let reader = Arc::new(FakeReader::default());
        reader.put("serviceaccounts", json!({"metadata": {"namespace": "y", "name": "builder", "uid": "sa-uid"}}));
        reader.put("nodes", json!({"metadata": {"name": "n1", "uid": "node-uid"}}));
        let pod = json!({"metadata": {"namespace": "y", "name": "web", "uid": "pod-uid"}, "spec": {"serviceAccountName": "builder", "nodeName": "n1"}});
        reader.put("pods", pod);
        let tokens = ServiceAccountTokens::new(config(new_key()), reader.clone()).unwrap();
        Self { reader, tokens }
    }

    fn request(&self, spec: Value) -> Result<Value, ApiError> {
        self.tokens.request("y", "builder", json!({"spec": spec}), now())
    }

    fn token(&self, spec: Value) -> String {
        self.request(spec).unwrap().str_at("/status/token").unwrap().to_string()
    }

    fn user(&self, token: &str, time: Timestamp) -> Result<UserInfo, String> {
        let found = self.tokens.authenticate_token(token, &[API.to_string()], time)?;
        found.map(|found| found.user).ok_or_else(|| "not ours".into())
    }
}

#[test]
fn a_plain_token_speaks_for_its_account_until_it_expires() {
    let cluster = Cluster::new();
    let answer = cluster.request(json!({})).unwrap();
    assert_eq!(answer["spec"], json!({"audiences": [API], "expirationSeconds": 3600, "boundObjectRef": null}));
    assert_eq!(answer.str_at("/status/expirationTimestamp"), Some("2026-05-01T11:00:00Z"));
    assert_eq!((answer.name(), answer.namespace(), answer.uid(), answer.kind()), ("builder", "y", "sa-uid", "TokenRequest"));
    let token = answer.str_at("/status/token").unwrap();
    let user = cluster.user(token, now()).unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("system:serviceaccount:y:builder", "sa-uid"));
    assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:y"]);
    assert!(user.extra["authentication.kubernetes.io/credential-id"][0].starts_with("JTI="));
    let later = now() + SignedDuration::from_secs(3600 + 61);
    assert_eq!(cluster.user(token, later).unwrap_err(), "service account token has expired");
    assert_eq!(cluster.user(token, now() - SignedDuration::from_mins(2)).unwrap_err(), "service account token is not valid yet");
}

#[test]
fn a_changed_or_foreign_token_is_refused() {
    let cluster = Cluster::new();
    let token = cluster.token(json!({}));
    let (message, signature) = token.rsplit_once('.').unwrap();
    let (header, _) = message.split_once('.').unwrap();
    let stolen = base64::prelude::BASE64_URL_SAFE_NO_PAD
        .encode(json!({"iss": API, "aud": [API], "sub": "system:serviceaccount:y:admin"}).to_string());
    assert!(cluster.user(&format!("{header}.{stolen}.{signature}"), now()).unwrap_err().contains("not valid"));
    let none = base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    assert!(cluster.user(&format!("{none}.{stolen}."), now()).is_err());
    let other = ServiceAccountTokens::new(config(new_key()), cluster.reader.clone()).unwrap();
    let foreign = other.request("y", "builder", json!({}), now()).unwrap();
    assert_eq!(cluster.user(foreign.str_at("/status/token").unwrap(), now()).unwrap_err(), "invalid signature, no keys found");
    assert_eq!(cluster.user("not.a.token", now()).unwrap_err(), "not ours");
}

#[test]
fn audiences_keep_tokens_where_they_belong() {
    let cluster = Cluster::new();
    let token = cluster.token(json!({"audiences": ["vault", "other"]}));
    assert!(cluster.user(&token, now()).unwrap_err().contains("is invalid for the target audiences"));
    let found = cluster.tokens.authenticate_token(&token, &["x".into(), "vault".into()], now()).unwrap().unwrap();
    assert_eq!(found.audiences, ["vault"]);
}

#[test]
fn a_token_goes_with_what_it_is_bound_to() {
    let cluster = Cluster::new();
    let token = cluster.token(json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "web"}}));
    let extra = cluster.user(&token, now()).unwrap().extra;
    let told = |key: &str| extra[&format!("authentication.kubernetes.io/{key}")][0].as_str();
    assert_eq!((told("pod-name"), told("pod-uid"), told("node-name"), told("node-uid")), ("web", "pod-uid", "n1", "node-uid"));
    // A pod being deleted keeps its token until its grace period is over.
    let mut pod = json!({"metadata": {"namespace": "y", "name": "web", "uid": "pod-uid", "deletionTimestamp": "2026-05-01T10:00:30Z"}});
    cluster.reader.put("pods", pod.clone());
    assert!(cluster.user(&token, now()).is_ok());
    assert_eq!(cluster.user(&token, now() + SignedDuration::from_secs(91)).unwrap_err(), "service account token has been invalidated");
    pod["metadata"] = json!({"namespace": "y", "name": "web", "uid": "another"});
    cluster.reader.put("pods", pod);
    assert!(cluster.user(&token, now()).unwrap_err().contains("does not match service account pod ref claim"));
    cluster.reader.remove("pods", "y", "web");
    assert_eq!(cluster.user(&token, now()).unwrap_err(), "service account token has been invalidated");
    let plain = cluster.token(json!({}));
    cluster.reader.put("serviceaccounts", json!({"metadata": {"namespace": "y", "name": "builder", "uid": "new-uid"}}));
    assert_eq!(cluster.user(&plain, now()).unwrap_err(), "service account UID (new-uid) does not match claim (sa-uid)");
}

/// A syncer asks for tokens before the host has chosen a node.
#[test]
fn a_node_that_was_chosen_later_is_told() {
    let cluster = Cluster::new();
    let mut pod = json!({"metadata": {"namespace": "y", "name": "web", "uid": "pod-uid"}, "spec": {"serviceAccountName": "builder"}});
    cluster.reader.put("pods", pod.clone());
    let token = cluster.token(json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "web"}}));
    let node = || {
        let extra = cluster.user(&token, now()).unwrap().extra;
        ["node-name", "node-uid"].map(|key| extra.get(&format!("authentication.kubernetes.io/{key}")).map(|values| values[0].clone()))
    };
    assert_eq!(node(), [None, None]);
    pod["spec"]["nodeName"] = json!("n1");
    cluster.reader.put("pods", pod);
    assert_eq!(node(), [Some("n1".to_string()), Some("node-uid".to_string())]);
}

#[test]
fn requests_are_checked_as_upstream_checks_them() {
    let cluster = Cluster::new();
    let check = |spec: Value, expected: &str| assert_eq!(cluster.request(spec).unwrap_err().message, expected);
    check(
        json!({"expirationSeconds": 5}),
        "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes",
    );
    check(
        json!({"expirationSeconds": 4294967297_i64}),
        "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
    );
    let bound = |kind: &str, name: &str, uid: &str| json!({"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name, "uid": uid}});
    check(bound("Pod", "nope", ""), "pods \"nope\" not found");
    check(bound("Foo", "nope", ""), "cannot bind token to object of type /v1, Kind=Foo");
    check(bound("Node", "", ""), "Name parameter required.");
    check(
        bound("Node", "n1", "old"),
        "Operation cannot be fulfilled on Node \"n1\": the UID in the bound object reference (old) does not match the UID in record. The object might have been deleted and then recreated",
    );
    let named = cluster.tokens.request("y", "builder", json!({"metadata": {"name": "z"}}), now()).unwrap_err();
    assert_eq!(
        named.message,
        "TokenRequest.authentication.k8s.io \"builder\" is invalid: metadata.name: Invalid value: \"z\": must match the service account name if specified"
    );
    let uid = cluster.tokens.request("y", "builder", json!({"metadata": {"uid": "z"}}), now()).unwrap_err();
    assert_eq!((uid.code, uid.message.contains("the UID in the token request (z) does not match")), (409, true));
    assert_eq!(cluster.tokens.request("y", "nobody", json!({}), now()).unwrap_err().message, "serviceaccounts \"nobody\" not found");
}

#[test]
fn old_clients_get_a_year() {
    let cluster = Cluster::new();
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "name": "web"});
    let token = cluster.token(json!({"boundObjectRef": pod, "expirationSeconds": 3607}));
    assert!(cluster.user(&token, now() + SignedDuration::from_hours(300 * 24)).is_ok());
    let elsewhere = cluster.request(json!({"boundObjectRef": pod, "expirationSeconds": 3607, "audiences": ["x"]})).unwrap();
    let claims = keys::unverified(elsewhere.str_at("/status/token").unwrap()).unwrap();
    assert_eq!(claims.exp, Some((now().as_second() + 3607) as f64));
}

#[test]
fn a_token_in_a_secret_is_good_while_it_is_there() {
    let cluster = Cluster::new();
    let mut secret = json!({"metadata": {"namespace": "y", "name": "builder-token", "uid": "s"}});
    let account = cluster.reader.get("serviceaccounts", "y", "builder").unwrap();
    let token = cluster.tokens.secret_token(&account, &secret).unwrap();
    assert_eq!(cluster.user(&token, now()).unwrap_err(), "Token has been invalidated");
    secret["data"] = json!({"token": base64::prelude::BASE64_STANDARD.encode(&token)});
    cluster.reader.put("secrets", secret.clone());
    assert_eq!(cluster.user(&token, now()).unwrap().name, "system:serviceaccount:y:builder");
    let remark = || cluster.tokens.authenticate_token(&token, &[API.into()], now()).unwrap().unwrap().remark.unwrap();
    assert_eq!((remark().annotation.0, remark().warning), ("authentication.k8s.io/legacy-token-manual-secret", None));
    let mut named = (*account).clone();
    named["secrets"] = json!([{"name": "builder-token"}]);
    cluster.reader.put("serviceaccounts", named);
    assert_eq!(remark().annotation.0, "authentication.k8s.io/legacy-token-autogenerated-secret");
    assert!(remark().warning.unwrap().starts_with("Use tokens from the TokenRequest API"));
    let used = [("y".to_string(), "builder-token".to_string())].into();
    assert_eq!(cluster.tokens.take_used(), used);
    for day in ["2026-05-01", "2026-05-02"] {
        secret["metadata"]["labels"] = json!({LAST_USED: day});
        cluster.reader.put("secrets", secret.clone());
        cluster.user(&token, now()).unwrap();
        assert!(cluster.tokens.take_used().is_empty(), "it says so already");
    }
    secret["metadata"]["labels"] = json!({LAST_USED: "2026-04-30", "kubernetes.io/legacy-token-invalid-since": "2026-04-30"});
    cluster.reader.put("secrets", secret.clone());
    assert!(cluster.user(&token, now()).unwrap_err().contains("has been marked invalid"));
    assert_eq!(cluster.tokens.take_used(), used);
    secret["data"] = json!({"token": "eA=="});
    cluster.reader.put("secrets", secret);
    assert_eq!(cluster.user(&token, now()).unwrap_err(), "Token does not match server's copy");
}

#[test]
fn keys_are_published_and_old_ones_still_count() {
    let cluster = Cluster::new();
    let jwks = cluster.tokens.jwks();
    assert_eq!((&jwks["keys"][0]["kty"], &jwks["keys"][0]["alg"]), (&json!("EC"), &json!("ES256")));
    let document = cluster.tokens.openid_configuration();
    assert_eq!((&document["issuer"], &document["id_token_signing_alg_values_supported"]), (&json!(API), &json!(["ES256"])));
    let old = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap();
    let before = ServiceAccountTokens::new(config(old.serialize_pem()), cluster.reader.clone()).unwrap();
    assert_eq!(before.jwks()["keys"][0]["e"], "AQAB");
    let token = before.request("y", "builder", json!({}), now()).unwrap();
    let mut rotated = config(new_key());
    rotated.verifying_keys_pem = vec![old.public_key_pem()];
    let after = ServiceAccountTokens::new(rotated, cluster.reader.clone()).unwrap();
    assert_eq!(after.jwks()["keys"].as_array().unwrap().len(), 2);
    assert!(after.authenticate_token(token.str_at("/status/token").unwrap(), &[API.into()], now()).unwrap().is_some());
}
