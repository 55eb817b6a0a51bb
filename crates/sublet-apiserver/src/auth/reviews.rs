//! Answers to questions about users and rights: the review kinds of `authentication.k8s.io` and
//! `authorization.k8s.io`. They are created, answered and forgotten.

use super::selectors;
use crate::admission::UserInfo;
use crate::auth::authn::{Authenticator, Remark};
use crate::auth::authz::{Authorization, Authorizer, AuthzAttributes, Decision};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use sublet_machinery::{ApiError, FieldError, FieldPath, ObjectExt};

const AUTHORIZATION: &str = "authorization.k8s.io";

/// A review with its answer.
pub struct Reviewed {
    pub answer: Value,
    /// What is to be said about the token that was reviewed, to whoever asked.
    pub remark: Option<Remark>,
}

impl From<Value> for Reviewed {
    fn from(answer: Value) -> Self {
        Self { answer, remark: None }
    }
}

/// Answers reviews with what the server itself goes by.
pub struct Reviews {
    authenticator: Arc<Authenticator>,
    authorization: Arc<Authorization>,
}

impl Reviews {
    pub fn new(authenticator: Arc<Authenticator>, authorization: Arc<Authorization>) -> Self {
        Self { authenticator, authorization }
    }

    /// Answers the body of a create request of the kind; `namespace` is the request's, empty for all kinds
    /// but LocalSubjectAccessReview.
    pub fn review(&self, kind: &str, namespace: &str, mut body: Value, user: &UserInfo, now: Timestamp) -> Result<Reviewed, ApiError> {
        if !body.is_object() {
            return Err(ApiError::bad_request(format!("the body is not a {kind}")));
        }
        body.metadata_mut();
        let answer = match kind {
            "SubjectAccessReview" => self.subject_access(body)?,
            "LocalSubjectAccessReview" => self.local_subject_access(body, namespace)?,
            "SelfSubjectAccessReview" => self.self_subject_access(body, user)?,
            "SelfSubjectRulesReview" => self.self_subject_rules(&body, user)?,
            "SelfSubjectReview" => self_subject(user, now),
            "TokenReview" => return self.token(body, now),
            _ => return Err(ApiError::no_such_path()),
        };
        Ok(answer.into())
    }

    fn subject_access(&self, body: Value) -> Result<Value, ApiError> {
        let mut errors = access_errors(&body["spec"]);
        errors.extend(subject_error(&body["spec"]));
        errors.extend(metadata_error(&body, &[], "must be empty"));
        refuse(errors)?;
        let user = subject(&body["spec"]);
        Ok(self.answer_access(body, &user))
    }

    fn self_subject_access(&self, body: Value, user: &UserInfo) -> Result<Value, ApiError> {
        let mut errors = access_errors(&body["spec"]);
        errors.extend(metadata_error(&body, &[], "must be empty"));
        refuse(errors)?;
        Ok(self.answer_access(body, user))
    }

    fn local_subject_access(&self, body: Value, namespace: &str) -> Result<Value, ApiError> {
        let spec = &body["spec"];
        let mut errors = access_errors(spec);
        errors.extend(subject_error(spec));
        errors.extend(metadata_error(&body, &["namespace"], "must be empty except for namespace"));
        let asked = spec["resourceAttributes"]["namespace"].as_str().unwrap_or_default();
        if spec["resourceAttributes"].is_object() && asked != body.namespace() {
            errors.push(FieldError::invalid(&FieldPath::new("spec.resourceAttributes.namespace"), asked, "must match metadata.namespace"));
        }
        if spec["nonResourceAttributes"].is_object() {
            let path = FieldPath::new("spec.nonResourceAttributes");
            errors.push(FieldError::invalid(&path, shown_non_resource(spec), "disallowed on this kind of request"));
        }
        refuse(errors)?;
        if namespace != body.namespace() {
            return Err(ApiError::bad_request(format!("spec.resourceAttributes.namespace must match namespace: {namespace}")));
        }
        let user = subject(spec);
        Ok(self.answer_access(body, &user))
    }

    fn answer_access(&self, mut body: Value, user: &UserInfo) -> Value {
        let decision = {
            let spec = &body["spec"];
            let text = |attributes: &str, key: &str| spec[attributes][key].as_str().unwrap_or_default();
            if spec["resourceAttributes"].is_object() {
                let text = |key| text("resourceAttributes", key);
                let attributes = AuthzAttributes {
                    user,
                    verb: text("verb"),
                    group: text("group"),
                    resource: text("resource"),
                    subresource: text("subresource"),
                    namespace: text("namespace"),
                    name: text("name"),
                    path: None,
                };
                self.authorization.authorize(&attributes)
            } else {
                let text = |key| text("nonResourceAttributes", key);
                self.authorization.authorize(&AuthzAttributes::path(user, text("verb"), text("path")))
            }
        };
        let mut status = json!({"allowed": decision.allowed()});
        if matches!(decision, Decision::Deny(_)) {
            status["denied"] = json!(true);
        }
        let reason = decision.reason();
        if !reason.is_empty() {
            status["reason"] = json!(reason);
        }
        let ignored = selectors::ignored(&body["spec"]["resourceAttributes"]);
        if !ignored.is_empty() {
            status["evaluationError"] = json!(ignored.join("; "));
        }
        body["status"] = status;
        body
    }

    fn self_subject_rules(&self, body: &Value, user: &UserInfo) -> Result<Value, ApiError> {
        let namespace = body.str_at("/spec/namespace").unwrap_or_default();
        if namespace.is_empty() {
            return Err(ApiError::bad_request("no namespace on request"));
        }
        let resolved = self.authorization.rules_for(user, namespace);
        let rules = || resolved.rules.iter().flat_map(|rules| rules.iter());
        let mut status = json!({
            "resourceRules": rules().filter(|rule| !rule.resources.is_empty()).map(|rule| rule.resource_rule()).collect::<Vec<_>>(),
            "nonResourceRules": rules().filter(|rule| !rule.urls.is_empty()).map(|rule| rule.non_resource_rule()).collect::<Vec<_>>(),
            "incomplete": false,
        });
        if let Some(error) = resolved.error() {
            status["evaluationError"] = json!(error);
        }
        Ok(json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "metadata": {}, "spec": {}, "status": status,
        }))
    }

    fn token(&self, mut body: Value, now: Timestamp) -> Result<Reviewed, ApiError> {
        let token = body.str_at("/spec/token").unwrap_or_default();
        if token.is_empty() {
            return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
        }
        let audiences: Vec<String> = body.array_at("/spec/audiences").iter().filter_map(Value::as_str).map(Into::into).collect();
        let (status, remark) = match self.authenticator.token(token, &audiences, now) {
            Ok(found) => (json!({"authenticated": true, "user": user_json(&found.user), "audiences": found.audiences}), found.remark),
            Err(error) => (json!({"user": {}, "error": error}), None),
        };
        body["status"] = status;
        Ok(Reviewed { answer: body, remark })
    }
}

fn self_subject(user: &UserInfo, now: Timestamp) -> Value {
    json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
        "metadata": {"creationTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()},
        "status": {"userInfo": user_json(user)},
    })
}

/// A user as `authentication.k8s.io/v1` and admission reviews write it.
pub fn user_json(user: &UserInfo) -> Value {
    let mut object = Map::new();
    let mut set = |key: &str, present: bool, value: Value| {
        if present {
            object.insert(key.into(), value);
        }
    };
    set("username", !user.name.is_empty(), json!(user.name));
    set("uid", !user.uid.is_empty(), json!(user.uid));
    set("groups", !user.groups.is_empty(), json!(user.groups));
    set("extra", !user.extra.is_empty(), json!(user.extra));
    Value::Object(object)
}

/// The user that a review asks about.
fn subject(spec: &Value) -> UserInfo {
    let texts = |value: &Value| value.as_array().map_or(Vec::new(), |a| a.iter().filter_map(Value::as_str).map(Into::into).collect());
    let text = |key: &str| spec[key].as_str().unwrap_or_default().to_string();
    let extra = spec["extra"].as_object().into_iter().flatten();
    UserInfo {
        name: text("user"),
        uid: text("uid"),
        groups: texts(&spec["groups"]),
        // Keys are folded, as those of certificates and headers are.
        extra: extra.map(|(key, values)| (key.to_lowercase(), texts(values))).collect(),
    }
}

fn refuse(errors: Vec<FieldError>) -> Result<(), ApiError> {
    // Upstream leaves the kind out of these messages.
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(AUTHORIZATION, "", "", &errors)) }
}

fn access_errors(spec: &Value) -> Vec<FieldError> {
    let resource = &spec["resourceAttributes"];
    let mut errors = Vec::new();
    if resource.is_object() == spec["nonResourceAttributes"].is_object() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(FieldError::invalid(&FieldPath::new("spec"), shown_non_resource(spec), detail));
    }
    errors.extend(selectors::errors(resource));
    errors
}

fn subject_error(spec: &Value) -> Option<FieldError> {
    let nobody = spec["user"].as_str().unwrap_or_default().is_empty() && spec.array_at("/groups").is_empty();
    nobody.then(|| FieldError::invalid(&FieldPath::new("spec.user"), "", "at least one of user or group must be specified"))
}

/// Reviews are not stored, so they have no name or labels.
fn metadata_error(body: &Value, allowed: &[&str], detail: &str) -> Option<FieldError> {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    let set = body["metadata"]
        .as_object()?
        .iter()
        .any(|(key, value)| key != "managedFields" && !allowed.contains(&key.as_str()) && !empty(value));
    set.then(|| FieldError::invalid(&FieldPath::new("metadata"), body["metadata"].clone(), detail))
}

/// As upstream's internal type reads in messages.
fn shown_non_resource(spec: &Value) -> Value {
    let attributes = &spec["nonResourceAttributes"];
    if !attributes.is_object() {
        return Value::Null;
    }
    let text = |key: &str| attributes[key].as_str().unwrap_or_default();
    json!({"Path": text("path"), "Verb": text("verb")})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::authn::{Authenticated, StaticTokens, TokenAuthenticator};
    use crate::auth::authz::Mode;
    use crate::auth::testing::{FakeReader, user};

    fn reviews() -> Reviews {
        let reader = Arc::new(FakeReader::default());
        let rules = json!([{"verbs": ["create"], "apiGroups": [AUTHORIZATION], "resources": ["selfsubjectaccessreviews"]}, {"verbs": ["get"], "nonResourceURLs": ["/api"]}]);
        reader.put("clusterroles.rbac.authorization.k8s.io", json!({"metadata": {"name": "basic"}, "rules": rules}));
        for (name, role, who) in [("v", "basic", "carol"), ("x", "missing", "bob")] {
            reader.put(
                "clusterrolebindings.rbac.authorization.k8s.io",
                json!({"metadata": {"name": name}, "roleRef": {"kind": "ClusterRole", "name": role}, "subjects": [{"kind": "User", "name": who}]}),
            );
        }
        let tokens = StaticTokens::parse("t,alice,1,dev", vec!["api".into()]).unwrap();
        Reviews::new(
            Arc::new(Authenticator::new(vec![Arc::new(tokens)], vec!["api".into()], true)),
            Arc::new(Authorization::new(vec![Mode::Rbac], reader)),
        )
    }

    fn review(kind: &str, namespace: &str, body: Value, who: &str) -> Result<Value, String> {
        reviews()
            .review(kind, namespace, body, &user(who, &[]), Timestamp::UNIX_EPOCH)
            .map(|reviewed| reviewed.answer)
            .map_err(|error| error.message)
    }

    #[test]
    fn access_is_told_with_its_reason() {
        let body = json!({"spec": {"user": "bob", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "y"}}});
        assert_eq!(
            review("SubjectAccessReview", "", body, "admin").unwrap()["status"],
            json!({"allowed": false, "reason": "rbac: RBAC: clusterrole.rbac.authorization.k8s.io \"missing\" not found"})
        );
        let body =
            json!({"spec": {"resourceAttributes": {"verb": "create", "group": AUTHORIZATION, "resource": "selfsubjectaccessreviews"}}});
        assert_eq!(
            review("SelfSubjectAccessReview", "", body, "carol").unwrap()["status"],
            json!({"allowed": true, "reason": "RBAC: allowed by ClusterRoleBinding \"v\" of ClusterRole \"basic\" to User \"carol\""})
        );
        let body = json!({"spec": {"user": "carol", "nonResourceAttributes": {"verb": "get", "path": "/metrics"}}});
        assert_eq!(review("SubjectAccessReview", "", body, "admin").unwrap()["status"], json!({"allowed": false}));
    }

    #[test]
    fn wrong_questions_are_refused_in_upstreams_words() {
        assert_eq!(
            review("SubjectAccessReview", "", json!({"spec": {}}), "admin").unwrap_err(),
            ".authorization.k8s.io \"\" is invalid: [spec: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified, spec.user: Invalid value: \"\": at least one of user or group must be specified]"
        );
        let both = json!({"spec": {"user": "x", "resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"verb": "get", "path": "/metrics"}}});
        assert_eq!(
            review("SubjectAccessReview", "", both, "admin").unwrap_err(),
            ".authorization.k8s.io \"\" is invalid: spec: Invalid value: {\"Path\":\"/metrics\",\"Verb\":\"get\"}: exactly one of nonResourceAttributes or resourceAttributes must be specified"
        );
        let named = json!({"metadata": {"name": "q", "creationTimestamp": null}, "spec": {"resourceAttributes": {"verb": "get"}}});
        assert!(review("SelfSubjectAccessReview", "", named, "admin").unwrap_err().ends_with(": must be empty"));
        let elsewhere =
            json!({"metadata": {"namespace": "y"}, "spec": {"user": "bob", "resourceAttributes": {"verb": "get", "namespace": "z"}}});
        assert_eq!(
            review("LocalSubjectAccessReview", "y", elsewhere, "admin").unwrap_err(),
            ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes.namespace: Invalid value: \"z\": must match metadata.namespace"
        );
    }

    #[test]
    fn rules_are_listed() {
        let body = json!({"spec": {"namespace": "default"}});
        assert_eq!(
            review("SelfSubjectRulesReview", "", body.clone(), "carol").unwrap()["status"],
            json!({
                "resourceRules": [{"verbs": ["create"], "apiGroups": [AUTHORIZATION], "resources": ["selfsubjectaccessreviews"]}],
                "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/api"]}],
                "incomplete": false,
            })
        );
        let bob = review("SelfSubjectRulesReview", "", body, "bob").unwrap();
        assert_eq!(bob["status"]["evaluationError"], "clusterrole.rbac.authorization.k8s.io \"missing\" not found");
        assert_eq!(review("SelfSubjectRulesReview", "", json!({"spec": {}}), "bob").unwrap_err(), "no namespace on request");
    }

    #[test]
    fn tokens_are_reviewed_for_the_audiences_asked() {
        let review = |spec: Value| review("TokenReview", "", json!({"spec": spec}), "admin");
        assert_eq!(
            review(json!({"token": "t", "audiences": ["x", "api"]})).unwrap()["status"],
            json!({"authenticated": true, "audiences": ["api"], "user": {"username": "alice", "uid": "1", "groups": ["dev", "system:authenticated"]}})
        );
        let refused = json!({"user": {}, "error": "invalid bearer token"});
        assert_eq!(review(json!({"token": "t", "audiences": ["x"]})).unwrap()["status"], refused);
        assert_eq!(review(json!({"token": "bad"})).unwrap()["status"], refused);
        assert_eq!(review(json!({})).unwrap_err(), "token is required for TokenReview in authentication");
    }

    /// Knows every token, and has something to say about it.
    struct Remarking;

    impl TokenAuthenticator for Remarking {
        fn authenticate_token(&self, _: &str, _: &[String], _: Timestamp) -> Result<Option<Authenticated>, String> {
            let remark = Remark { annotation: ("a", "b".into()), warning: Some("old") };
            Ok(Some(Authenticated { remark: Some(remark), ..Authenticated::new(user("carol", &[])) }))
        }
    }

    #[test]
    fn what_there_is_to_say_about_a_token_is_said_to_who_asks() {
        let authenticator = Authenticator::new(vec![Arc::new(Remarking)], vec!["api".into()], true);
        let reviews = Reviews::new(Arc::new(authenticator), reviews().authorization);
        let body = json!({"spec": {"token": "t"}});
        let reviewed = reviews.review("TokenReview", "", body, &user("admin", &[]), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(reviewed.remark.and_then(|remark| remark.warning), Some("old"));
    }

    #[test]
    fn users_can_ask_who_they_are() {
        let answer = review("SelfSubjectReview", "", json!({}), "carol").unwrap();
        assert_eq!(answer["metadata"], json!({"creationTimestamp": "1970-01-01T00:00:00Z"}));
        assert_eq!(answer["status"], json!({"userInfo": {"username": "carol"}}));
    }
}
