//! What a check found, before it becomes field errors.

use crate::error::{FieldError, FieldErrorKind, FieldPath};
use serde_json::Value;

/// One broken validation, in the words of kube-openapi.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    kind: FieldErrorKind,
    /// `None` for problems that kube-openapi reports without a place.
    path: Option<String>,
    message: String,
    value: Option<Value>,
    limit: u64,
    allowed: Vec<Value>,
}

/// The problems of a value and the number of checks that could be made.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) problems: Vec<Problem>,
    pub(super) matches: u32,
}

impl Problem {
    pub(super) fn new(kind: FieldErrorKind, path: &str, message: String) -> Self {
        Self { kind, path: Some(path.into()), message, value: None, limit: 0, allowed: Vec::new() }
    }

    pub(super) fn invalid(path: &str, value: impl Into<Value>, message: String) -> Self {
        Self::new(FieldErrorKind::Invalid, path, message).value(value)
    }

    pub(super) fn wrong_type(path: &str, value: impl Into<Value>, message: String) -> Self {
        Self::new(FieldErrorKind::TypeInvalid, path, message).value(value)
    }

    /// A problem that is told at the root.
    pub(super) fn without_place(message: String) -> Self {
        Self { path: None, ..Self::new(FieldErrorKind::Invalid, "", message) }
    }

    pub(super) fn value(self, value: impl Into<Value>) -> Self {
        Self { value: Some(value.into()), ..self }
    }

    pub(super) fn limit(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    pub(super) fn allowed(self, allowed: Vec<Value>) -> Self {
        Self { allowed, ..self }
    }

    fn into_error(self, root: &FieldPath) -> FieldError {
        let path = match self.path.as_deref().map(|p| p.strip_prefix('.').unwrap_or(p)) {
            None | Some("") => root.clone(),
            // An index of the root value itself still comes after a dot.
            Some(path) => root.child(path),
        };
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        match self.kind {
            FieldErrorKind::Required => FieldError::required(&path, ""),
            FieldErrorKind::TooLong => FieldError::too_long(&path, limit),
            FieldErrorKind::TooMany => {
                let actual = self.value.and_then(|v| v.as_u64()).unwrap_or_default();
                FieldError::too_many(&path, usize::try_from(actual).unwrap_or(usize::MAX), limit)
            }
            FieldErrorKind::NotSupported => {
                let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
                let listed: Vec<String> = self.allowed.iter().map(|v| format!("{:?}", text(v))).collect();
                FieldError::new(self.kind, &path, self.value, format!("supported values: {}", listed.join(", ")))
            }
            kind => FieldError::new(kind, &path, Some(self.value.unwrap_or_else(|| Value::from(""))), self.message),
        }
    }
}

impl Outcome {
    /// Adds the problems that are not yet there, and the matches.
    pub(super) fn merge(&mut self, other: impl Into<Self>) {
        let other = other.into();
        self.matches += other.matches;
        for problem in other.problems {
            if !self.problems.iter().any(|p| p.message == problem.message) {
                self.problems.push(problem);
            }
        }
    }

    /// A check that applied to the value.
    pub(super) fn count(&mut self, other: impl Into<Self>) {
        self.merge(other);
        self.matches += 1;
    }

    pub(super) fn is_valid(&self) -> bool {
        self.problems.is_empty()
    }

    pub(super) fn into_errors(self, root: &FieldPath) -> Vec<FieldError> {
        self.problems.into_iter().map(|p| p.into_error(root)).collect()
    }
}

impl From<Problem> for Outcome {
    fn from(problem: Problem) -> Self {
        Self { problems: vec![problem], matches: 0 }
    }
}

/// Equality as Go's conversions see it: 1 and 1.0 are the same.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}
