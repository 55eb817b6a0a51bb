//! What an API client gets when a request fails: the `Status` object and its causes.

use serde_json::{Value, json};
use std::fmt::{self, Write as _};

/// The machine-readable reason of a `Status`, with Kubernetes' words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Unknown,
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    AlreadyExists,
    Conflict,
    Gone,
    Invalid,
    ServerTimeout,
    Timeout,
    TooManyRequests,
    MethodNotAllowed,
    NotAcceptable,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    InternalError,
    Expired,
    ServiceUnavailable,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::BadRequest => "BadRequest",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Gone => "Gone",
            Self::Invalid => "Invalid",
            Self::ServerTimeout => "ServerTimeout",
            Self::Timeout => "Timeout",
            Self::TooManyRequests => "TooManyRequests",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::InternalError => "InternalError",
            Self::Expired => "Expired",
            Self::ServiceUnavailable => "ServiceUnavailable",
        }
    }

    pub fn parse(text: &str) -> Self {
        const ALL: [Reason; 18] = [
            Reason::BadRequest,
            Reason::Unauthorized,
            Reason::Forbidden,
            Reason::NotFound,
            Reason::AlreadyExists,
            Reason::Conflict,
            Reason::Gone,
            Reason::Invalid,
            Reason::ServerTimeout,
            Reason::Timeout,
            Reason::TooManyRequests,
            Reason::MethodNotAllowed,
            Reason::NotAcceptable,
            Reason::RequestEntityTooLarge,
            Reason::UnsupportedMediaType,
            Reason::InternalError,
            Reason::Expired,
            Reason::ServiceUnavailable,
        ];
        ALL.into_iter().find(|r| r.as_str() == text).unwrap_or(Self::Unknown)
    }
}

/// One entry of `details.causes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

/// A failed request, in the form in which the client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    pub code: u16,
    pub reason: Reason,
    pub message: String,
    /// `details`: the object and the causes. All empty means that the Status has no details, unless
    /// `is_generic` is set: then it has empty ones, as upstream's general answers have.
    pub name: String,
    pub group: String,
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: u32,
    /// `metadata.continue`: how to go on after an expired list, without consistency.
    pub continue_token: String,
    pub is_generic: bool,
}

impl ApiError {
    pub fn new(code: u16, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
            continue_token: String::new(),
            is_generic: false,
        }
    }

    /// An answer that upstream makes for requests of all kinds.
    fn generic(code: u16, reason: Reason, message: impl Into<String>) -> Self {
        Self { is_generic: true, ..Self::new(code, reason, message) }
    }

    /// Fills `details.group`, `details.kind` (for most errors the resource name) and `details.name`.
    pub fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        (self.group, self.kind, self.name) = (group.into(), kind.into(), name.into());
        self
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, Reason::BadRequest, message)
    }

    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(401, Reason::Unauthorized, message)
    }

    /// `pods "web" is forbidden: <why>`
    pub fn forbidden(group: &str, resource: &str, name: &str, why: impl fmt::Display) -> Self {
        let target = qualified(group, resource);
        let message =
            if name.is_empty() { format!("{target} is forbidden: {why}") } else { format!("{target} \"{name}\" is forbidden: {why}") };
        Self::new(403, Reason::Forbidden, message).about(group, resource, name)
    }

    /// `pods "web" not found`
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        Self::new(404, Reason::NotFound, format!("{} \"{name}\" not found", qualified(group, resource))).about(group, resource, name)
    }

    /// The answer for a path that leads nowhere.
    pub fn no_such_path() -> Self {
        Self::generic(404, Reason::NotFound, "the server could not find the requested resource")
    }

    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        Self::new(409, Reason::AlreadyExists, format!("{} \"{name}\" already exists", qualified(group, resource)))
            .about(group, resource, name)
    }

    /// `Operation cannot be fulfilled on pods "web": <why>`
    pub fn conflict(group: &str, resource: &str, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", qualified(group, resource));
        Self::new(409, Reason::Conflict, message).about(group, resource, name)
    }

    /// The conflict of an update that carries an old resourceVersion.
    pub fn modified(group: &str, resource: &str, name: &str) -> Self {
        Self::conflict(group, resource, name, "the object has been modified; please apply your changes to the latest version and try again")
    }

    /// Validation failed; `kind` is the kind, not the resource, as upstream has it.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let mut message = format!("{} \"{name}\" is invalid", qualified(group, kind));
        match errors {
            [] => {}
            [one] => write!(message, ": {one}").expect("writing to a String"),
            many => {
                // Go's aggregate error drops repeats and keeps the order.
                let mut texts: Vec<String> = Vec::new();
                for error in many {
                    let text = error.to_string();
                    if !texts.contains(&text) {
                        texts.push(text);
                    }
                }
                if texts.len() == 1 {
                    write!(message, ": {}", texts[0]).expect("writing to a String");
                } else {
                    write!(message, ": [{}]", texts.join(", ")).expect("writing to a String");
                }
            }
        }
        let mut error = Self::new(422, Reason::Invalid, message).about(group, kind, name);
        error.causes = errors.iter().map(FieldError::cause).collect();
        error
    }

    /// The answer for a path that leads somewhere, by another method.
    pub fn method_not_allowed() -> Self {
        Self::generic(405, Reason::MethodNotAllowed, "the server does not allow this method on the requested resource")
    }

    /// A path that is no resource's is not for this user.
    pub fn forbidden_path(message: impl Into<String>) -> Self {
        Self::generic(403, Reason::Forbidden, message)
    }

    /// A patch that is well-formed and does not fit the object.
    pub fn unprocessable() -> Self {
        Self::generic(422, Reason::Invalid, "the server rejected our request due to an error in our request")
    }

    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, Reason::Expired, message)
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let mut error = Self::new(429, Reason::TooManyRequests, message);
        error.retry_after_seconds = retry_after_seconds;
        error
    }

    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(413, Reason::RequestEntityTooLarge, message)
    }

    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, Reason::UnsupportedMediaType, message)
    }

    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::generic(406, Reason::NotAcceptable, message)
    }

    pub fn internal(message: impl fmt::Display) -> Self {
        let mut error = Self::new(500, Reason::InternalError, format!("Internal error occurred: {message}"));
        error.causes.push(Cause { reason: String::new(), message: message.to_string(), field: String::new() });
        error
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, Reason::ServiceUnavailable, message)
    }

    pub fn is(&self, reason: Reason) -> bool {
        self.reason == reason
    }

    /// The `Status` object that goes over the wire.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if self.reason != Reason::Unknown {
            status["reason"] = json!(self.reason.as_str());
        }
        if !self.continue_token.is_empty() {
            status["metadata"]["continue"] = json!(self.continue_token);
        }
        let mut details = serde_json::Map::new();
        for (key, text) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)] {
            if !text.is_empty() {
                details.insert(key.into(), json!(text));
            }
        }
        if !self.causes.is_empty() {
            let causes: Vec<Value> = self.causes.iter().map(Cause::to_json).collect();
            details.insert("causes".into(), Value::Array(causes));
        }
        if self.retry_after_seconds > 0 {
            details.insert("retryAfterSeconds".into(), json!(self.retry_after_seconds));
        }
        if !details.is_empty() || self.is_generic {
            status["details"] = Value::Object(details);
        }
        status
    }

    /// Reads a `Status` that another API server sent.
    pub fn from_status(status: &Value) -> Self {
        let text = |pointer: &str| status.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_string();
        let causes = status.pointer("/details/causes").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        Self {
            code: status["code"].as_u64().and_then(|c| u16::try_from(c).ok()).unwrap_or(500),
            reason: Reason::parse(&text("/reason")),
            message: text("/message"),
            name: text("/details/name"),
            group: text("/details/group"),
            kind: text("/details/kind"),
            uid: text("/details/uid"),
            causes: causes
                .iter()
                .map(|c| Cause {
                    reason: c["reason"].as_str().unwrap_or_default().into(),
                    message: c["message"].as_str().unwrap_or_default().into(),
                    field: c["field"].as_str().unwrap_or_default().into(),
                })
                .collect(),
            retry_after_seconds: status
                .pointer("/details/retryAfterSeconds")
                .and_then(Value::as_u64)
                .map_or(0, |s| s.min(u64::from(u32::MAX)) as u32),
            continue_token: text("/metadata/continue"),
            is_generic: status["details"].as_object().is_some_and(serde_json::Map::is_empty),
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

impl Cause {
    fn to_json(&self) -> Value {
        let mut cause = serde_json::Map::new();
        for (key, text) in [("reason", &self.reason), ("message", &self.message), ("field", &self.field)] {
            if !text.is_empty() {
                cause.insert(key.into(), json!(text));
            }
        }
        Value::Object(cause)
    }
}

/// `deployments.apps`, or `pods` for the core group.
fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_string() } else { format!("{resource}.{group}") }
}

/// A path to a field, written as upstream writes it: `spec.containers[0].env[A].name`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FieldPath(String);

impl FieldPath {
    pub fn new(path: impl Into<String>) -> Self {
        Self(path.into())
    }

    pub fn root() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { Self(name.to_string()) } else { Self(format!("{}.{name}", self.0)) }
    }

    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    pub fn as_str(&self) -> &str {
        if self.0.is_empty() { "<nil>" } else { &self.0 }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    Internal,
    TypeInvalid,
    TooShort,
}

impl FieldErrorKind {
    /// (the reason of the cause, the words of the message), as in field.Error of apimachinery.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::NotFound => ("FieldValueNotFound", "Not found"),
            Self::Required => ("FieldValueRequired", "Required value"),
            Self::Duplicate => ("FieldValueDuplicate", "Duplicate value"),
            Self::Invalid => ("FieldValueInvalid", "Invalid value"),
            Self::NotSupported => ("FieldValueNotSupported", "Unsupported value"),
            Self::Forbidden => ("FieldValueForbidden", "Forbidden"),
            Self::TooLong => ("FieldValueTooLong", "Too long"),
            Self::TooMany => ("FieldValueTooMany", "Too many"),
            Self::Internal => ("InternalError", "Internal error"),
            Self::TypeInvalid => ("FieldValueTypeInvalid", "Invalid value"),
            Self::TooShort => ("FieldValueTooShort", "Too short"),
        }
    }
}

/// One failed rule of validation.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub kind: FieldErrorKind,
    pub path: FieldPath,
    /// Shown by the kinds that show a value; `None` where upstream prints no value.
    pub value: Option<Value>,
    pub detail: String,
}

impl FieldError {
    pub fn new(kind: FieldErrorKind, path: &FieldPath, value: Option<Value>, detail: impl Into<String>) -> Self {
        Self { kind, path: path.clone(), value, detail: detail.into() }
    }

    pub fn required(path: &FieldPath, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, path, None, detail)
    }

    pub fn invalid(path: &FieldPath, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, path, Some(value.into()), detail)
    }

    pub fn type_invalid(path: &FieldPath, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::TypeInvalid, path, Some(value.into()), detail)
    }

    pub fn forbidden(path: &FieldPath, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, path, None, detail)
    }

    pub fn duplicate(path: &FieldPath, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::Duplicate, path, Some(value.into()), "")
    }

    pub fn not_found(path: &FieldPath, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::NotFound, path, Some(value.into()), "")
    }

    /// `supported` is listed sorted and quoted, as upstream lists it.
    pub fn not_supported(path: &FieldPath, value: impl Into<Value>, supported: &[&str]) -> Self {
        let mut sorted = supported.to_vec();
        sorted.sort_unstable();
        Self::not_supported_in_order(path, value, &sorted)
    }

    /// As `not_supported`, for the few places where upstream lists values in an order of its own.
    pub fn not_supported_in_order(path: &FieldPath, value: impl Into<Value>, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|s| format!("\"{s}\"")).collect();
        let detail = if quoted.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
        Self::new(FieldErrorKind::NotSupported, path, Some(value.into()), detail)
    }

    pub fn too_long(path: &FieldPath, bytes_max: usize) -> Self {
        let detail = if bytes_max == 1 { "may not be more than 1 byte".into() } else { format!("may not be more than {bytes_max} bytes") };
        Self::new(FieldErrorKind::TooLong, path, None, detail)
    }

    pub fn too_many(path: &FieldPath, actual: usize, items_max: usize) -> Self {
        let detail = if items_max == 1 { "must have at most 1 item".into() } else { format!("must have at most {items_max} items") };
        Self::new(FieldErrorKind::TooMany, path, Some(Value::from(actual)), detail)
    }

    fn body(&self) -> String {
        let (_, words) = self.kind.words();
        let mut text = words.to_string();
        let shows_value =
            !matches!(self.kind, FieldErrorKind::Required | FieldErrorKind::Forbidden | FieldErrorKind::TooLong | FieldErrorKind::Internal);
        if shows_value && let Some(value) = &self.value {
            write!(text, ": {}", shown(value)).expect("writing to a String");
        }
        if !self.detail.is_empty() {
            write!(text, ": {}", self.detail).expect("writing to a String");
        }
        text
    }

    fn cause(&self) -> Cause {
        Cause { reason: self.kind.words().0.into(), message: self.body(), field: self.path.as_str().into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.body())
    }
}

/// Strings are quoted, other values shown as JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_lists_every_cause_with_its_path() {
        let spec = FieldPath::new("spec");
        let errors = [
            FieldError::required(&spec.child("containers"), ""),
            FieldError::not_supported(&spec.child("dnsPolicy"), "x", &["Default", "ClusterFirst"]),
        ];
        let status = ApiError::invalid("", "Pod", "web", &errors).to_status();
        assert_eq!(
            status["message"],
            "Pod \"web\" is invalid: [spec.containers: Required value, spec.dnsPolicy: Unsupported value: \"x\": supported values: \"ClusterFirst\", \"Default\"]"
        );
        assert_eq!(
            status["details"]["causes"][0],
            json!({"reason": "FieldValueRequired", "message": "Required value", "field": "spec.containers"})
        );
    }

    #[test]
    fn a_status_reads_back_as_the_same_error() {
        let error = ApiError::not_found("apps", "deployments", "web");
        assert_eq!(error.message, "deployments.apps \"web\" not found");
        assert_eq!(ApiError::from_status(&error.to_status()), error);
    }
}
