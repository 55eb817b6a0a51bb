//! Options of requests, checked as upstream checks them.

use crate::http::Query;
use crate::http::query::no_number;
use sublet_machinery::{ApiError, FieldError, FieldPath};

/// How a list or watch relates to a resourceVersion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// The newest state.
    Latest,
    /// The newest state, which must be at least this old number.
    NotOlderThan(u64),
    Exact(u64),
}

#[derive(Clone, Debug)]
pub struct ListOptions {
    pub label_selector: String,
    pub field_selector: String,
    pub limit: Option<usize>,
    pub continue_token: String,
    pub version: VersionMatch,
    /// The text as given: watches tell "" from "0".
    pub resource_version: String,
    pub timeout_seconds: Option<u64>,
    pub allow_bookmarks: bool,
    pub send_initial_events: Option<bool>,
}

impl ListOptions {
    pub fn parse(query: &Query, is_watch: bool) -> Result<Self, ApiError> {
        let resource_version = query.get("resourceVersion").to_string();
        let version_match = query.get("resourceVersionMatch");
        let continue_token = query.get("continue").to_string();
        let send_initial_events = query.has("sendInitialEvents").then(|| query.bool("sendInitialEvents"));
        let mut errors = Vec::new();
        let path = FieldPath::new("resourceVersionMatch");
        if let Some(send) = send_initial_events {
            if !is_watch {
                errors.push(FieldError::forbidden(&FieldPath::new("sendInitialEvents"), "sendInitialEvents is forbidden for list"));
            } else if version_match != "NotOlderThan" {
                errors.push(FieldError::forbidden(&path, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
                if !version_match.is_empty() {
                    errors.push(FieldError::not_supported(&path, version_match, &["NotOlderThan"]));
                }
            }
            let _ = send;
        } else if !version_match.is_empty() {
            if is_watch {
                errors
                    .push(FieldError::forbidden(&path, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"));
            } else {
                if resource_version.is_empty() {
                    errors.push(FieldError::forbidden(&path, "resourceVersionMatch is forbidden unless resourceVersion is provided"));
                }
                if !continue_token.is_empty() {
                    errors.push(FieldError::forbidden(&path, "resourceVersionMatch is forbidden when continue is provided"));
                }
                if !matches!(version_match, "Exact" | "NotOlderThan") {
                    errors.push(FieldError::not_supported_in_order(&path, version_match, &["Exact", "NotOlderThan", ""]));
                }
                if version_match == "Exact" && resource_version == "0" {
                    errors.push(FieldError::forbidden(&path, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
                }
            }
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors));
        }
        if !continue_token.is_empty() && !resource_version.is_empty() && resource_version != "0" {
            return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
        }
        let limit = query.number::<i64>("limit")?.filter(|l| *l > 0).map(|l| usize::try_from(l).unwrap_or(usize::MAX));
        let number = parse_version(&resource_version)?;
        let version = match (number, version_match) {
            (None | Some(0), _) => VersionMatch::Latest,
            (Some(n), "Exact") => VersionMatch::Exact(n),
            (Some(n), _) => VersionMatch::NotOlderThan(n),
        };
        Ok(Self {
            label_selector: query.get("labelSelector").to_string(),
            field_selector: query.get("fieldSelector").to_string(),
            limit,
            continue_token,
            version,
            resource_version,
            timeout_seconds: query.number::<u64>("timeoutSeconds")?.filter(|s| *s > 0),
            allow_bookmarks: query.bool("allowWatchBookmarks"),
            send_initial_events,
        })
    }
}

/// A resourceVersion as a number; `None` when it is not given.
pub fn parse_version(text: &str) -> Result<Option<u64>, ApiError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error| {
        let error = FieldError::invalid(&FieldPath::new("resourceVersion"), text, no_number("ParseUint", text, &error));
        ApiError::bad_request(format!("invalid resource version: {error}"))
    })
}

/// `dryRun`: only `All` is known.
pub fn dry_run(query: &Query, options_kind: &str) -> Result<bool, ApiError> {
    let mut dry = false;
    for value in query.all("dryRun") {
        if value != "All" {
            let error = FieldError::not_supported(&FieldPath::new("dryRun"), serde_json::json!([value]), &["All"]);
            return Err(ApiError::invalid("meta.k8s.io", options_kind, "", &[error]));
        }
        dry = true;
    }
    Ok(dry)
}

/// What to do about unknown and duplicate fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

pub fn field_validation(query: &Query, options_kind: &str) -> Result<FieldValidation, ApiError> {
    match query.get("fieldValidation") {
        "Ignore" => Ok(FieldValidation::Ignore),
        "" | "Warn" => Ok(FieldValidation::Warn),
        "Strict" => Ok(FieldValidation::Strict),
        other => {
            let error = FieldError::not_supported(&FieldPath::new("fieldValidation"), other, &["", "Ignore", "Strict", "Warn"]);
            Err(ApiError::invalid("meta.k8s.io", options_kind, "", &[error]))
        }
    }
}
