//! Tokens of an issuer that this server finds by itself.

use crate::support::{Cluster, Webhooks};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD as BASE64};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::{KeyPair, PublicKeyData as _};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, OnceLock};
use sublet_apiserver::auth::jwt::AuthenticationConfiguration;

/// An issuer on this machine, whose keys can change.
struct Issuer {
    server: Webhooks,
    keys: Arc<Mutex<Vec<Value>>>,
}

impl Issuer {
    async fn start() -> Self {
        let keys: Arc<Mutex<Vec<Value>>> = Arc::default();
        let port: Arc<OnceLock<u16>> = Arc::default();
        let (served, at) = (keys.clone(), port.clone());
        let server = Webhooks::start(move |path, _| {
            let url = format!("https://127.0.0.1:{}", at.get().copied().unwrap_or_default());
            match path {
                "/.well-known/openid-configuration" => (200, json!({"issuer": url, "jwks_uri": format!("{url}/keys")})),
                "/keys" => (200, json!({"keys": *served.lock().expect("no panic under the lock")})),
                _ => (404, json!({})),
            }
        })
        .await;
        port.set(server.port).expect("set once");
        Self { server, keys }
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.server.port)
    }

    /// A new key that clients can find from now on.
    fn key(&self, kid: &str) -> Key {
        let pair = KeyPair::generate().expect("a key");
        let (x, y) = pair.der_bytes()[1..].split_at(32);
        let jwk =
            json!({"kty": "EC", "crv": "P-256", "kid": kid, "use": "sig", "alg": "ES256", "x": BASE64.encode(x), "y": BASE64.encode(y)});
        self.keys.lock().expect("no panic under the lock").push(jwk);
        Key { kid: kid.into(), encoding: EncodingKey::from_ec_der(&pair.serialize_der()) }
    }

    fn claims(&self, more: Value) -> Value {
        let mut claims = json!({"iss": self.url(), "aud": ["sublet", "other"], "sub": "eve", "groups": ["dev"], "exp": 4_000_000_000_u64});
        claims.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        claims
    }

    fn asked(&self, path: &str) -> usize {
        self.server.asked().iter().filter(|(p, _)| p == path).count()
    }
}

struct Key {
    kid: String,
    encoding: EncodingKey,
}

impl Key {
    fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some(self.kid.clone()), ..Header::new(Algorithm::ES256) };
        jsonwebtoken::encode(&header, claims, &self.encoding).expect("a token")
    }
}

fn configure(cluster: &Cluster, issuer: &Issuer, more: &Value) {
    let authority = String::from_utf8(BASE64_STANDARD.decode(&issuer.server.ca_bundle).expect("base64")).expect("PEM");
    let mut config = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {"url": issuer.url(), "audiences": ["sublet"], "certificateAuthority": authority},
            "claimMappings": {"username": {"claim": "sub", "prefix": "oidc:"}, "groups": {"expression": "claims.groups"}},
        }],
    });
    config.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let config = AuthenticationConfiguration::parse(&config.to_string()).expect("a configuration");
    cluster.server.set_authentication(&config).expect("it is right");
}

/// The code and the user that the server sees.
async fn who(cluster: &Cluster, token: &str) -> (u16, Value) {
    let request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from("{}")))
        .expect("a request");
    let response = cluster.server.handle(request).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    (code, body["status"]["userInfo"].clone())
}

#[tokio::test]
async fn tokens_of_an_issuer_are_believed_by_its_keys() {
    let (cluster, issuer) = (Cluster::start().await, Issuer::start().await);
    let key = issuer.key("one");
    let good = key.sign(&issuer.claims(json!({})));
    assert_eq!(who(&cluster, &good).await.0, 401);
    configure(&cluster, &issuer, &json!({}));
    let (code, user) = who(&cluster, &good).await;
    assert_eq!((code, user), (201, json!({"username": "oidc:eve", "groups": ["dev", "system:authenticated"]})));
    for wrong in
        [json!({"aud": "other"}), json!({"exp": 1}), json!({"nbf": 3_999_999_999_u64}), json!({"sub": 7}), json!({"iss": "https://other"})]
    {
        assert_eq!(who(&cluster, &key.sign(&issuer.claims(wrong.clone()))).await.0, 401, "{wrong}");
    }
    let (message, _) = good.rsplit_once('.').expect("a token");
    assert_eq!(who(&cluster, &format!("{message}.AAAA")).await.0, 401);
    assert_eq!((issuer.asked("/keys"), issuer.asked("/.well-known/openid-configuration")), (1, 1));
}

#[tokio::test]
async fn unknown_keys_are_asked_for_and_not_too_often() {
    let (cluster, issuer) = (Cluster::start().await, Issuer::start().await);
    configure(&cluster, &issuer, &json!({}));
    let first = issuer.key("one");
    assert_eq!(who(&cluster, &first.sign(&issuer.claims(json!({})))).await.0, 201);
    // It comes too soon after the issuer was asked, and others who invent keys do not make it be asked either.
    let second = issuer.key("two");
    for _ in 0..3 {
        assert_eq!(who(&cluster, &second.sign(&issuer.claims(json!({})))).await.0, 401);
    }
    assert_eq!(issuer.asked("/keys"), 1);
}

#[tokio::test]
async fn token_reviews_and_anonymous_requests_follow_the_configuration() {
    let (cluster, issuer) = (Cluster::start().await, Issuer::start().await);
    let key = issuer.key("one");
    configure(&cluster, &issuer, &json!({"anonymous": {"enabled": true, "conditions": [{"path": "/livez"}]}}));
    let review = json!({"spec": {"token": key.sign(&issuer.claims(json!({"groups": "ops"})))}});
    let review = cluster.create("/apis/authentication.k8s.io/v1/tokenreviews", review).await.ok();
    assert_eq!(
        (&review["status"]["authenticated"], &review["status"]["user"]["groups"]),
        (&json!(true), &json!(["ops", "system:authenticated"]))
    );
    for (path, code) in [("/livez", 200), ("/readyz", 401)] {
        let request = Request::get(path).body(Full::new(Bytes::new())).expect("a request");
        assert_eq!(cluster.server.handle(request).await.status().as_u16(), code, "{path}");
    }
}
