//! Which representation a client wants, and which one a request body has.

use http::HeaderMap;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use sublet_machinery::{ApiError, Reason};

pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// How the bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Encoding {
    #[default]
    Json,
    Yaml,
    Protobuf,
}

/// In which form the object is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Form {
    #[default]
    Whole,
    Table,
    /// `PartialObjectMetadata` or its list.
    Metadata,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Accepted {
    pub encoding: Encoding,
    pub form: Form,
    /// The form was asked for a list.
    pub of_list: bool,
    pub pretty: bool,
}

/// The first acceptable entry of the Accept header. Where lists are, streams can be had as well.
pub fn accept(headers: &HeaderMap, is_list: bool) -> Result<Accepted, ApiError> {
    let streams = if is_list { ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch" } else { "" };
    first(headers, |_| true, "application/json, application/yaml, application/vnd.kubernetes.protobuf", streams)
}

/// The same for a kind that is answered and never kept: it has no columns.
pub fn accept_answer(headers: &HeaderMap) -> Result<Accepted, ApiError> {
    first(headers, |accepted| accepted.form != Form::Table, "application/json, application/yaml, application/vnd.kubernetes.protobuf", "")
}

/// The same for a custom resource, which has no protobuf; its metadata has.
pub fn accept_custom(headers: &HeaderMap) -> Result<Accepted, ApiError> {
    let speaks = |accepted: &Accepted| accepted.encoding != Encoding::Protobuf || accepted.form == Form::Metadata;
    first(headers, speaks, "application/json, application/yaml", "")
}

fn first(headers: &HeaderMap, speaks: impl Fn(&Accepted) -> bool, known: &str, streams: &str) -> Result<Accepted, ApiError> {
    let (mut seen, mut seen_known) = (false, false);
    for value in headers.get_all(ACCEPT) {
        let Ok(value) = value.to_str() else { continue };
        for entry in value.split(',').map(str::trim).filter(|e| !e.is_empty()) {
            seen = true;
            seen_known |= encoding_of(entry.split(';').next().unwrap_or_default().trim()).is_some();
            if let Some(accepted) = accept_entry(entry).filter(&speaks) {
                return Ok(accepted);
            }
        }
    }
    if seen_known {
        // The media type is one of ours, the form is not.
        let why = format!("only the following media types are accepted: {known}");
        return Err(ApiError::new(406, Reason::NotAcceptable, why));
    }
    if seen {
        return Err(ApiError::not_acceptable(format!("406: Not Acceptable\n\nAvailable representations: {known}{streams}")));
    }
    Ok(Accepted::default())
}

fn accept_entry(entry: &str) -> Option<Accepted> {
    let mut parts = entry.split(';').map(str::trim);
    let encoding = encoding_of(parts.next()?)?;
    let (mut as_kind, mut group, mut version, mut pretty) = ("", "", "", false);
    for parameter in parts {
        match parameter.split_once('=') {
            Some(("as", value)) => as_kind = value,
            Some(("g", value)) => group = value,
            Some(("v", value)) => version = value,
            Some(("pretty", value)) => pretty = value == "1",
            _ => {}
        }
    }
    let form = match (as_kind, group, version) {
        ("", _, _) => Form::Whole,
        // A cell of a table can be any JSON, for which there is no message.
        ("Table", "meta.k8s.io", "v1" | "v1beta1") if encoding != Encoding::Protobuf => Form::Table,
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1" | "v1beta1") => Form::Metadata,
        _ => return None,
    };
    Some(Accepted { encoding, form, of_list: as_kind == "PartialObjectMetadataList", pretty })
}

fn encoding_of(media_type: &str) -> Option<Encoding> {
    match media_type {
        "application/json" | "*/*" | "application/*" => Some(Encoding::Json),
        "application/yaml" => Some(Encoding::Yaml),
        PROTOBUF => Some(Encoding::Protobuf),
        _ => None,
    }
}

/// Whether people read the answer: they ask for it, or use a program that shows it as it comes.
pub fn is_pretty(asked: Option<bool>, headers: &HeaderMap) -> bool {
    let agent = headers.get(USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    asked.unwrap_or_else(|| ["curl", "Wget", "Mozilla/5.0"].iter().any(|program| agent.starts_with(program)))
}

pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT_ENCODING).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(',')).any(|e| {
        let mut parts = e.trim().split(';');
        parts.next() == Some("gzip") && !parts.any(|p| p.trim() == "q=0")
    })
}

/// The media type of the body without parameters; JSON when none is given.
pub fn content_type(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).and_then(|v| v.split(';').next()).map_or("application/json", str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(header: &str) -> Option<(Encoding, Form)> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, header.parse().unwrap());
        accept(&headers, false).ok().map(|a| (a.encoding, a.form))
    }

    #[test]
    fn the_first_form_we_speak_wins() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(check(table), Some((Encoding::Json, Form::Table)));
        assert_eq!(check("application/vnd.kubernetes.protobuf,application/json"), Some((Encoding::Protobuf, Form::Whole)));
        let table = "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io";
        assert_eq!(check(&format!("{table},application/json")), Some((Encoding::Json, Form::Whole)));
        assert_eq!(check(table), None);
        assert_eq!(check("application/yaml"), Some((Encoding::Yaml, Form::Whole)));
        assert_eq!(check("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"), Some((Encoding::Json, Form::Metadata)));
    }

    #[test]
    fn what_is_never_kept_has_no_table() {
        let check = |header: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, header.parse().unwrap());
            accept_answer(&headers).map(|a| (a.encoding, a.form)).map_err(|e| e.code)
        };
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        assert_eq!(check(table), Err(406));
        assert_eq!(check(&format!("{table}, application/json")), Ok((Encoding::Json, Form::Whole)));
    }

    #[test]
    fn custom_resources_have_protobuf_for_their_metadata_alone() {
        let check = |header: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, header.parse().unwrap());
            accept_custom(&headers).ok().map(|a| (a.encoding, a.form))
        };
        assert_eq!(check("application/vnd.kubernetes.protobuf,application/json"), Some((Encoding::Json, Form::Whole)));
        assert_eq!(check("application/vnd.kubernetes.protobuf"), None);
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(check(metadata), Some((Encoding::Protobuf, Form::Metadata)));
    }
}
