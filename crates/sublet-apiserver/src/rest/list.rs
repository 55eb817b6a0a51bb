//! Get and list.

use super::ResourceRequest;
use super::convert::storage_resource;
use super::options::{ListOptions, VersionMatch, parse_version};
use super::selection::Selection;
use crate::http::HttpResponse;
use crate::registry::Resource;
use crate::server::Server;
use crate::store::Snapshot;
use crate::store::entry::Entry;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, URL_SAFE_NO_PAD};
use base64::{DecodeError, Engine as _};
use serde_json::json;
use std::sync::Arc;
use sublet_machinery::{ApiError, structural};

/// As Go decodes: bits that are left over at the end do not matter.
const LENIENT: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));
const TOKEN_VERSION: &str = "meta.k8s.io/v1";

/// A page of a list.
pub struct Page {
    pub entries: Vec<Arc<Entry>>,
    pub revision: u64,
    pub continue_token: String,
    pub remaining: Option<usize>,
}

impl Server {
    pub(crate) async fn handle_get(&self, request: &ResourceRequest<'_>) -> Result<HttpResponse, ApiError> {
        if let Some(version) = parse_version(request.query.get("resourceVersion"))? {
            self.wait_for(version).await?;
        }
        let name = &request.info.name;
        let entry =
            self.store().get(&storage_resource(&request.resource), request.namespace(), name).ok_or_else(|| request.not_found(name))?;
        self.present_entry(request, http::StatusCode::OK, &entry).await
    }

    pub(crate) async fn handle_list(&self, request: &ResourceRequest<'_>) -> Result<HttpResponse, ApiError> {
        let options = ListOptions::parse(request.query, false)?;
        let selection = Selection::parse(&request.resource, &options.label_selector, &options.field_selector)?;
        let namespace = (request.resource.namespaced && !request.info.namespace.is_empty()).then_some(request.info.namespace.as_str());
        let page = self.page(&request.resource, namespace, &options, &selection).await?;
        let bytes = page.entries.iter().map(|e| e.json.len()).sum();
        let spent = self.allow_answer(bytes).await?;
        let mut response = self.present_list(request, page)?;
        if let Some(spent) = spent {
            // Until the client has it.
            response.extensions_mut().insert(spent);
        }
        Ok(response)
    }

    /// The entries that a list asks for.
    pub(crate) async fn page(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        options: &ListOptions,
        selection: &Selection,
    ) -> Result<Page, ApiError> {
        let group_resource = &*storage_resource(resource);
        let prefix = format!("{group_resource}/");
        let limit = options.limit.unwrap_or(usize::MAX);
        let (revision, start) = self.beginning(options).await?;
        let present = if options.limit.is_some() && selection.is_everything() {
            // What is before and behind such a page is not looked at.
            let no_namespace = if resource.namespaced { "" } else { "/" };
            let after = if start.is_empty() { String::new() } else { format!("{prefix}{no_namespace}{start}") };
            self.store().page(group_resource, namespace, &after, limit, revision)
        } else {
            None
        };
        let (entries, revision, rest) = match present {
            Some((snapshot, rest)) => (snapshot.entries, snapshot.revision, rest),
            None => {
                let mut snapshot = self.snapshot(group_resource, namespace, options, revision, &start)?;
                // Selectors are about objects in the version that was asked for.
                if !selection.is_everything() {
                    snapshot.entries = self.entries_at(snapshot.entries, resource).await?;
                }
                let behind = snapshot.entries.into_iter().filter(|e| start.is_empty() || place(e, &prefix) > &*start);
                let mut matching = behind.filter(|e| selection.matches(e));
                (matching.by_ref().take(limit).collect(), snapshot.revision, matching.count())
            }
        };
        let continue_token = match entries.last() {
            Some(last) if rest > 0 => encode_token(revision, place(last, &prefix)),
            _ => String::new(),
        };
        // As upstream: the number that remains is only told when no selector made it a guess.
        let remaining = (rest > 0 && selection.is_everything()).then_some(rest);
        let entries = self.entries_at(entries, resource).await?;
        Ok(Page { entries, revision, continue_token, remaining })
    }

    /// The revision of a list, when it is not the present, and where it goes on.
    async fn beginning(&self, options: &ListOptions) -> Result<(Option<u64>, String), ApiError> {
        if !options.continue_token.is_empty() {
            return decode_token(&options.continue_token);
        }
        if let VersionMatch::NotOlderThan(version) | VersionMatch::Exact(version) = options.version {
            self.wait_for(version).await?;
        }
        let revision = if let VersionMatch::Exact(version) = options.version { Some(version) } else { None };
        Ok((revision, String::new()))
    }

    /// All entries at a revision, or now.
    fn snapshot(
        &self,
        group_resource: &str,
        namespace: Option<&str>,
        options: &ListOptions,
        revision: Option<u64>,
        start: &str,
    ) -> Result<Snapshot, ApiError> {
        let Some(revision) = revision else { return Ok(self.store().list(group_resource, namespace)) };
        self.store().list_at(group_resource, namespace, revision).map_err(|_| {
            if options.continue_token.is_empty() {
                return ApiError::expired(format!("The resourceVersion for the provided list is too old: {revision}"));
            }
            let mut error = ApiError::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without \
                 the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
                 Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted \
                 between the time the first chunk was returned and now may show up in the list.",
            );
            error.continue_token = encode_inconsistent(start);
            error
        })
    }

    pub(crate) async fn wait_for(&self, version: u64) -> Result<(), ApiError> {
        if self.store().wait_for(version).await {
            return Ok(());
        }
        let current = self.store().revision();
        let message = format!("Timeout: Too large resource version: {version}, current: {current}");
        let mut error = ApiError::new(504, sublet_machinery::Reason::Timeout, message);
        error.causes.push(sublet_machinery::Cause {
            reason: "ResourceVersionTooLarge".into(),
            message: "Too large resource version".into(),
            field: String::new(),
        });
        error.retry_after_seconds = 1;
        Err(error)
    }
}

/// Where an object stands in its list: `NAMESPACE/NAME`, or `NAME` when it has no namespace.
fn place<'a>(entry: &'a Entry, prefix: &str) -> &'a str {
    let key = &entry.key[prefix.len()..];
    key.strip_prefix('/').unwrap_or(key)
}

/// Upstream's form: base64 of JSON with version, revision and start key.
fn encode_token(revision: u64, last_key: &str) -> String {
    URL_SAFE_NO_PAD.encode(json!({"v": TOKEN_VERSION, "rv": revision, "start": format!("{last_key}\u{0}")}).to_string())
}

fn encode_inconsistent(start: &str) -> String {
    URL_SAFE_NO_PAD.encode(json!({"v": TOKEN_VERSION, "rv": -1, "start": format!("{start}\u{0}")}).to_string())
}

/// The revision (`None`: the newest) and the key after which to go on.
fn decode_token(token: &str) -> Result<(Option<u64>, String), ApiError> {
    let bad = |why: String| ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let bytes = LENIENT.decode(token).map_err(|e| {
        let at = match e {
            DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => at,
            DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => token.len(),
        };
        bad(format!("illegal base64 data at input byte {at}"))
    })?;
    let value = structural::decode(&bytes).map_err(|e| bad(e.to_string()))?.value;
    let version = value["v"].as_str().unwrap_or_default();
    if version != TOKEN_VERSION {
        return Err(bad(format!("server does not recognize this encoded version {version}")));
    }
    let revision = match value["rv"].as_i64().unwrap_or(0) {
        0 => return Err(bad(format!("incorrect encoded start resourceVersion (version {TOKEN_VERSION})"))),
        revision => u64::try_from(revision).ok(),
    };
    let start = value["start"].as_str().unwrap_or_default();
    if start.is_empty() {
        return Err(bad(format!("encoded start key empty (version {TOKEN_VERSION})")));
    }
    let key = start.trim_end_matches('\0');
    // A key that leaves its place, as `../secrets` would.
    if key.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(bad(start.to_string()));
    }
    Ok((revision, key.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists of namespaces could not be continued: their keys begin with an empty namespace, which a token must not have.
    #[test]
    fn lists_without_namespaces_can_be_continued() {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}});
        let stored = crate::store::entry::Encoded::new(&object, &[]).stored;
        for (key, expected) in [("namespaces//a", "a"), ("namespaces/ns/a", "ns/a")] {
            let entry = Entry::compose(key.into(), 5, &stored).unwrap();
            let token = encode_token(5, place(&entry, "namespaces/"));
            assert_eq!(decode_token(&token).unwrap(), (Some(5), expected.into()));
        }
    }

    #[test]
    fn tokens_read_back_and_rubbish_is_refused() {
        assert_eq!(decode_token(&encode_token(7, "ns/a")).unwrap(), (Some(7), "ns/a".into()));
        assert_eq!(decode_token(&encode_inconsistent("ns/a")).unwrap(), (None, "ns/a".into()));
        for bad in ["x", "e30", "!!!", &URL_SAFE_NO_PAD.encode(r#"{"v":"meta.k8s.io/v1","rv":5,"start":"../../x"}"#)] {
            assert_eq!(decode_token(bad).unwrap_err().code, 400, "{bad}");
        }
    }
}
