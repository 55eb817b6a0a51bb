//! `POST .../serviceaccounts/NAME/token`

use super::{ServiceAccountTokens, rfc3339};
use crate::auth::service_account_user;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sublet_machinery::resource::split_api_version;
use sublet_machinery::{ApiError, FieldError, FieldPath, ObjectExt};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";

const EXPIRATION_SECONDS_DEFAULT: i64 = 3600;
const EXPIRATION_SECONDS_MIN: i64 = 600;
const EXPIRATION_SECONDS_MAX: i64 = 1 << 32;

/// Kubelets of old clients that never read a token again ask for exactly this. Theirs lives on for a year,
/// as `--service-account-extend-token-expiration` has it.
const EXTENDED_WHEN_SECONDS: i64 = 3607;
const EXTENDED_SECONDS: i64 = 365 * 24 * 3600;

/// What a token is bound to.
#[derive(Default)]
struct Binding {
    /// `pod`, `secret` or `node`, and the object.
    claims: Vec<(&'static str, Value)>,
    to_pod: bool,
}

impl ServiceAccountTokens {
    /// Checks the request (a `TokenRequest`) and answers it with a token.
    pub fn request(&self, namespace: &str, name: &str, mut request: Value, now: Timestamp) -> Result<Value, ApiError> {
        if !request.is_object() {
            return Err(ApiError::bad_request("the body is not a TokenRequest"));
        }
        check_metadata(namespace, name, &request)?;
        let account =
            self.reader.get("serviceaccounts", namespace, name).ok_or_else(|| ApiError::not_found("", "serviceaccounts", name))?;
        let asked_uid = request.uid();
        if !asked_uid.is_empty() && asked_uid != account.uid() {
            let why =
                format!("the UID in the token request ({asked_uid}) does not match the UID of the service account ({})", account.uid());
            return Err(ApiError::conflict(GROUP, KIND, name, why));
        }
        self.default(&mut request, &account, now);
        let expiration = request.i64_at("/spec/expirationSeconds").unwrap_or(EXPIRATION_SECONDS_DEFAULT);
        validate(&request, expiration)?;
        let binding = match &request["spec"]["boundObjectRef"] {
            Value::Null => Binding::default(),
            reference => self.bind(namespace, name, reference)?,
        };
        let audiences = request["spec"]["audiences"].clone();
        let mut kubernetes = json!({"namespace": namespace, "serviceaccount": {"name": name, "uid": account.uid()}});
        let extended = expiration == EXTENDED_WHEN_SECONDS && binding.to_pod && self.only_own(&audiences);
        let lives = if extended { EXTENDED_SECONDS } else { expiration };
        let seconds = now.as_second();
        if extended {
            kubernetes["warnafter"] = json!(seconds + expiration);
        }
        for (kind, reference) in binding.claims {
            kubernetes[kind] = reference;
        }
        let claims = json!({
            "iss": self.issuers.first(), "sub": service_account_user(namespace, name), "aud": audiences,
            "exp": seconds + lives, "iat": seconds, "nbf": seconds, "jti": uuid::Uuid::new_v4().to_string(),
            "kubernetes.io": kubernetes,
        });
        let token = self.signing.sign(&claims).map_err(|error| ApiError::internal(format!("failed to generate token: {error}")))?;
        request["status"] = json!({"token": token, "expirationTimestamp": rfc3339(now + SignedDuration::from_secs(expiration))});
        Ok(request)
    }

    fn default(&self, request: &mut Value, account: &Value, now: Timestamp) {
        request["apiVersion"] = json!("authentication.k8s.io/v1");
        request["kind"] = json!(KIND);
        for (key, value) in [("name", account.name()), ("namespace", account.namespace()), ("uid", account.uid())] {
            request.metadata_mut().insert(key.into(), json!(value));
        }
        request.metadata_mut().insert("creationTimestamp".into(), json!(rfc3339(now)));
        if request.array_at("/spec/audiences").is_empty() {
            request.set_at("/spec/audiences", json!(self.audiences));
        }
        if request.i64_at("/spec/expirationSeconds").is_none() {
            request.set_at("/spec/expirationSeconds", json!(EXPIRATION_SECONDS_DEFAULT));
        }
        if request.pointer("/spec/boundObjectRef").is_none() {
            request.set_at("/spec/boundObjectRef", Value::Null);
        }
    }

    fn only_own(&self, audiences: &Value) -> bool {
        audiences.as_array().is_some_and(|list| list.iter().all(|a| a.as_str().is_some_and(|a| self.audiences.iter().any(|own| own == a))))
    }

    /// Finds what `spec.boundObjectRef` means.
    fn bind(&self, namespace: &str, account: &str, reference: &Value) -> Result<Binding, ApiError> {
        let text = |key: &str| reference[key].as_str().unwrap_or_default();
        let (group, version) = split_api_version(text("apiVersion"));
        let kind = text("kind");
        let (resource, claim, namespace) = match (group, kind) {
            ("", "Pod") => ("pods", "pod", namespace),
            ("", "Secret") => ("secrets", "secret", namespace),
            ("", "Node") => ("nodes", "node", ""),
            _ => return Err(ApiError::bad_request(format!("cannot bind token to object of type {group}/{version}, Kind={kind}"))),
        };
        let name = text("name");
        if name.is_empty() {
            return Err(ApiError::bad_request("Name parameter required."));
        }
        let object = self.reader.get(resource, namespace, name).ok_or_else(|| ApiError::not_found("", resource, name))?;
        let mut claims = vec![(claim, json!({"name": name, "uid": object.uid()}))];
        if kind == "Pod" {
            if object.str_at("/spec/serviceAccountName") != Some(account) {
                return Err(ApiError::bad_request(format!(
                    "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
                )));
            }
            claims.extend(self.node_of(&object).map(|node| ("node", node)));
        }
        let asked_uid = text("uid");
        if !asked_uid.is_empty() && asked_uid != object.uid() {
            let why = format!(
                "the UID in the bound object reference ({asked_uid}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(ApiError::conflict(group, kind, name, why));
        }
        Ok(Binding { claims, to_pod: kind == "Pod" })
    }

    /// The node of a pod, for information; without a UID when the node is not known.
    fn node_of(&self, pod: &Value) -> Option<Value> {
        let name = pod.str_at("/spec/nodeName").filter(|name| !name.is_empty())?;
        Some(match self.reader.get("nodes", "", name) {
            Some(node) => json!({"name": name, "uid": node.uid()}),
            None => json!({"name": name}),
        })
    }
}

fn check_metadata(namespace: &str, name: &str, request: &Value) -> Result<(), ApiError> {
    let path = FieldPath::new("metadata");
    let wrong = |field: &str, value: &str, what: &str| {
        let error = FieldError::invalid(&path.child(field), value, format!("must match the service account {what} if specified"));
        ApiError::invalid(GROUP, KIND, name, &[error])
    };
    if !request.name().is_empty() && request.name() != name {
        return Err(wrong("name", request.name(), "name"));
    }
    if !request.namespace().is_empty() && request.namespace() != namespace {
        return Err(wrong("namespace", request.namespace(), "namespace"));
    }
    Ok(())
}

fn validate(request: &Value, expiration: i64) -> Result<(), ApiError> {
    let spec = FieldPath::new("spec");
    let mut errors = Vec::new();
    if expiration < EXPIRATION_SECONDS_MIN {
        errors.push(FieldError::invalid(&spec.child("expirationSeconds"), expiration, "may not specify a duration less than 10 minutes"));
    }
    if expiration > EXPIRATION_SECONDS_MAX {
        let detail = "may not specify a duration larger than 2^32 seconds";
        errors.push(FieldError::invalid(&spec.child("expirationSeconds"), expiration, detail));
    }
    if request.object_at("/spec/attestations").is_some_and(|map| !map.is_empty()) {
        let detail = "attestations may only be specified with a webhook bound object reference";
        errors.push(FieldError::invalid(&spec.child("attestations"), request["spec"]["attestations"].clone(), detail));
    }
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(GROUP, KIND, "", &errors)) }
}
