//! What a token says.

use crate::auth::service_account_user;
use serde::Deserialize;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

/// A claim that is one text or a list of them.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub fn list(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Reference {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub uid: String,
}

/// The claim `kubernetes.io`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Bound {
    #[serde(default)]
    pub namespace: String,
    #[serde(default)]
    pub serviceaccount: Reference,
    pub pod: Option<Reference>,
    pub secret: Option<Reference>,
    pub node: Option<Reference>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Claims {
    #[serde(default)]
    pub iss: String,
    #[serde(default)]
    pub sub: String,
    pub aud: Option<OneOrMany>,
    pub exp: Option<f64>,
    pub nbf: Option<f64>,
    pub iat: Option<f64>,
    pub jti: Option<String>,
    #[serde(rename = "kubernetes.io")]
    pub bound: Option<Bound>,
    // Tokens in Secrets.
    #[serde(default, rename = "kubernetes.io/serviceaccount/namespace")]
    pub legacy_namespace: String,
    #[serde(default, rename = "kubernetes.io/serviceaccount/secret.name")]
    pub legacy_secret: String,
    #[serde(default, rename = "kubernetes.io/serviceaccount/service-account.name")]
    pub legacy_name: String,
    #[serde(default, rename = "kubernetes.io/serviceaccount/service-account.uid")]
    pub legacy_uid: String,
}

/// The claims of a token in a Secret.
pub(super) fn of_secret(service_account: &Value, secret: &Value) -> Value {
    json!({
        "iss": super::LEGACY_ISSUER,
        "sub": service_account_user(service_account.namespace(), service_account.name()),
        "kubernetes.io/serviceaccount/namespace": service_account.namespace(),
        "kubernetes.io/serviceaccount/secret.name": secret.name(),
        "kubernetes.io/serviceaccount/service-account.name": service_account.name(),
        "kubernetes.io/serviceaccount/service-account.uid": service_account.uid(),
    })
}
