//! Published documents, made when somebody asks and kept compressed for the next who asks.
//!
//! A server remembers only the ETags of its documents. Their bytes are in one cache of the process, by ETag: servers
//! with the same resources share them, and those nobody reads make room for others.

use super::cache::cache;
use super::order::Ordered;
use super::{Root, aggregated, legacy};
use crate::facts::{GROUPS, RESOURCES, TYPES};
use crate::openapi;
use crate::registry::{Resource, Snapshot};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// Which document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DocumentId {
    /// A discovery path but `/api`, without a slash at its end: `/api/v1`, `/apis`, `/apis/apps`, `/apis/apps/v1`.
    Legacy(String),
    Aggregated(Root),
    OpenApiV2,
    /// Version 2 as `application/com.github.proto-openapi.spec.v2@v1.0+protobuf`.
    OpenApiV2Protobuf,
    /// `/openapi/v3`
    OpenApiV3Index,
    /// By its name in the index: `apis/apps/v1`.
    OpenApiV3(String),
}

/// A document as it is sent.
#[derive(Debug)]
pub struct Document {
    /// Names these bytes; without quotes. The `hash` of OpenAPI version 3 is the same.
    pub etag: Arc<str>,
    /// Compressed with gzip.
    pub gzip: Bytes,
}

impl Document {
    /// For clients that do not take gzip.
    pub fn plain(&self) -> Bytes {
        let mut out = Vec::new();
        GzDecoder::new(&self.gzip[..]).read_to_end(&mut out).expect("these bytes were compressed here");
        out.into()
    }
}

/// The documents of one server.
#[derive(Debug, Default)]
pub struct Documents {
    /// ETags of documents that were made, for one generation of the rows.
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    generation: u64,
    etags: BTreeMap<DocumentId, Arc<str>>,
}

impl Documents {
    /// The document for these rows; `None` when there is no such group or version. Making one takes some
    /// milliseconds of computing.
    pub fn get(&self, id: &DocumentId, snapshot: &Snapshot) -> Option<Arc<Document>> {
        let etag = self.cheap_etag(id, snapshot);
        if let Some(found) = etag.as_ref().and_then(|etag| cache().get(etag)) {
            return Some(found);
        }
        if !exists(id, snapshot) {
            return None;
        }
        // Asked before the lock is taken, because it may make documents itself.
        let index = (*id == DocumentId::OpenApiV3Index).then(|| self.index(snapshot));
        // One at a time, so that the memory this takes has a bound; whoever waited may find it made.
        let _making = lock(&MAKING);
        if let Some(found) = etag.as_ref().and_then(|etag| cache().get(etag)) {
            return Some(found);
        }
        let document = Arc::new(make(id, snapshot, index, etag));
        self.remember(id, snapshot, &document.etag);
        cache().insert(document.clone());
        Some(document)
    }

    /// The ETag alone: without making the document when it is about one group.
    pub fn etag(&self, id: &DocumentId, snapshot: &Snapshot) -> Option<Arc<str>> {
        if !exists(id, snapshot) {
            return None;
        }
        self.cheap_etag(id, snapshot).or_else(|| self.get(id, snapshot).map(|d| d.etag.clone()))
    }

    fn index(&self, snapshot: &Snapshot) -> serde_json::Value {
        let entry = |name: String| {
            let etag = self.etag(&DocumentId::OpenApiV3(name.clone()), snapshot)?;
            let url = format!("/openapi/v3/{name}?hash={etag}");
            Some((name, json!({ "serverRelativeURL": url })))
        };
        let mut paths: serde_json::Map<_, _> = openapi::v3_document_names(snapshot).into_iter().filter_map(entry).collect();
        // Other servers are asked for theirs when somebody wants them.
        for external in snapshot.external.iter().filter(|e| e.current && !e.own) {
            let name = format!("apis/{}/{}", external.group, external.version);
            let url = format!("/openapi/v3/{name}");
            paths.entry(name).or_insert_with(|| json!({ "serverRelativeURL": url }));
        }
        json!({ "paths": paths })
    }

    /// The ETag as far as it is known without making the document.
    fn cheap_etag(&self, id: &DocumentId, snapshot: &Snapshot) -> Option<Arc<str>> {
        let known = {
            let known = lock(&self.known);
            if known.generation == snapshot.generation { known.etags.get(id).cloned() } else { None }
        };
        known.or_else(|| {
            let etag = etag_of_rows(id, snapshot)?;
            self.remember(id, snapshot, &etag);
            Some(etag)
        })
    }

    fn remember(&self, id: &DocumentId, snapshot: &Snapshot, etag: &Arc<str>) {
        let mut known = lock(&self.known);
        if known.generation < snapshot.generation {
            *known = Known { generation: snapshot.generation, etags: BTreeMap::new() };
        }
        if known.generation == snapshot.generation {
            known.etags.insert(id.clone(), etag.clone());
        }
    }
}

fn exists(id: &DocumentId, snapshot: &Snapshot) -> bool {
    match id {
        DocumentId::Legacy(path) => legacy(path, snapshot, "").is_some(),
        DocumentId::OpenApiV3(name) => openapi::has_v3_document(name, snapshot),
        DocumentId::Aggregated(_) | DocumentId::OpenApiV2 | DocumentId::OpenApiV2Protobuf | DocumentId::OpenApiV3Index => true,
    }
}

fn make(id: &DocumentId, snapshot: &Snapshot, index: Option<serde_json::Value>, etag: Option<Arc<str>>) -> Document {
    let mut out = Hashing { hash: Sha256::new(), inner: GzEncoder::new(Vec::new(), Compression::default()) };
    let written = match id {
        DocumentId::Legacy(path) => write_json(&mut out, &legacy(path, snapshot, "").as_ref().map(Ordered)),
        DocumentId::Aggregated(root) => write_json(&mut out, &Ordered(&aggregated(snapshot, *root))),
        DocumentId::OpenApiV2 => openapi::write_v2_document(snapshot, &mut out),
        DocumentId::OpenApiV2Protobuf => openapi::write_v2_protobuf_document(snapshot, &mut out),
        DocumentId::OpenApiV3Index => write_json(&mut out, &index),
        DocumentId::OpenApiV3(name) => openapi::write_v3_document(name, snapshot, &mut out).map(drop),
    };
    let gzip = written.and_then(|()| out.inner.finish()).expect("memory can be written");
    Document { etag: etag.unwrap_or_else(|| hex(out.hash)), gzip: gzip.into() }
}

fn write_json(out: &mut impl Write, value: &impl serde::Serialize) -> io::Result<()> {
    Ok(serde_json::to_writer(out, value)?)
}

/// The hash of what goes through.
struct Hashing<W> {
    hash: Sha256,
    inner: W,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buf)?;
        self.hash.update(&buf[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// The ETag of a document about one group, or about built-in resources alone: from what it is made of, without making
/// it. So the index of a thousand groups is made without a thousand documents, and after a change of one definition
/// the documents of all other groups are what they were.
fn etag_of_rows(id: &DocumentId, snapshot: &Snapshot) -> Option<Arc<str>> {
    let group = match id {
        DocumentId::Legacy(path) => group_of(path.trim_start_matches('/')),
        DocumentId::OpenApiV3(name) => group_of(name),
        DocumentId::Aggregated(Root::Api) => Some(""),
        _ => None,
    };
    if !exists(id, snapshot) || snapshot.external.iter().any(|e| group.is_none_or(|g| g == e.group)) {
        return None;
    }
    let mut hash = Sha256::new();
    hash.update(facts_hash());
    hash.update(format!("{id:?}"));
    match group {
        Some(group) => snapshot.in_group(group).for_each(|row| hash.update(row_text(row))),
        None if snapshot.resources.values().any(|r| r.custom.is_some()) => return None,
        None => snapshot.resources.values().for_each(|row| hash.update(row_text(row))),
    }
    Some(hex(hash))
}

/// The group that a document is about; `None` when it is about more than one.
fn group_of(path: &str) -> Option<&str> {
    let mut parts = path.split('/');
    match (parts.next(), parts.next()) {
        (Some("api"), _) => Some(""),
        (Some("apis"), group) => group,
        _ => Some("no group"),
    }
}

fn row_text(row: &Resource) -> String {
    let subresources: Vec<&str> = row.subresources.iter().map(|s| s.name.as_str()).collect();
    // All that a definition says is in its revision, of which no other cluster has one of the same UID.
    let custom = row.custom.as_ref().map(|c| (&row.kind, &c.crd, &c.crd_uid, c.crd_revision));
    format!("\n{}/{}/{} {:?} {subresources:?} {custom:?}", row.group, row.version, row.plural, row.verbs)
}

fn facts_hash() -> &'static [u8] {
    static HASH: OnceLock<Vec<u8>> = OnceLock::new();
    HASH.get_or_init(|| {
        let mut hash = Sha256::new();
        for text in [FORM, env!("CARGO_PKG_VERSION"), TYPES, RESOURCES, GROUPS] {
            hash.update(text);
        }
        hash.update(openapi::descriptions_bytes());
        hash.finalize().to_vec()
    })
}

fn hex(hash: Sha256) -> Arc<str> {
    hash.finalize().iter().map(|b| format!("{b:02X}")).collect::<String>().into()
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked left a whole value behind: every change here is one step.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

static MAKING: Mutex<()> = Mutex::new(());

/// Changes whenever documents change for another reason than the facts.
const FORM: &str = "1";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Custom, Registry, builtin_rows};
    use serde_json::Value;

    fn with_custom(name: &str) -> Arc<Snapshot> {
        let template = builtin_rows().into_iter().find(|r| r.plural == "leases").expect("leases");
        let row = Resource {
            group: "documents.example.com".into(),
            kind: name.into(),
            plural: name.to_lowercase(),
            custom: Some(Custom { crd: name.into(), ..Custom::default() }),
            ..Resource::clone(&template)
        };
        Registry::new(builtin_rows().into_iter().chain([Arc::new(row)])).snapshot()
    }

    fn json_of(document: &Document) -> Value {
        serde_json::from_slice(&document.plain()).expect("JSON")
    }

    #[test]
    fn servers_share_the_documents_of_builtin_resources() {
        let snapshot = Registry::new(builtin_rows()).snapshot();
        let id = DocumentId::OpenApiV3("apis/apps/v1".into());
        let one = Documents::default().get(&id, &snapshot).expect("apps");
        let two = Documents::default().get(&id, &with_custom("Shared")).expect("apps");
        assert!(Arc::ptr_eq(&one, &two));
        assert_eq!(json_of(&one)["openapi"], "3.0.0");
    }

    #[test]
    fn custom_resources_change_the_documents_that_show_them() {
        let (a, b) = (with_custom("Apple"), with_custom("Berry"));
        for id in [
            DocumentId::Legacy("/apis".into()),
            DocumentId::Aggregated(Root::Apis),
            DocumentId::OpenApiV2,
            DocumentId::OpenApiV2Protobuf,
            DocumentId::OpenApiV3Index,
            DocumentId::OpenApiV3("apis/documents.example.com/v1".into()),
        ] {
            let documents = Documents::default();
            let (one, two) = (documents.get(&id, &a).expect("there"), Documents::default().get(&id, &b).expect("there"));
            let same = id == DocumentId::Legacy("/apis".into());
            assert_eq!(one.etag == two.etag, same, "{id:?}");
            assert_eq!(documents.etag(&id, &a), Some(one.etag.clone()), "{id:?}");
        }
    }

    #[test]
    fn the_index_names_the_hashes_of_the_documents() {
        let snapshot = with_custom("Indexed");
        let documents = Documents::default();
        let index = json_of(&documents.get(&DocumentId::OpenApiV3Index, &snapshot).expect("the index"));
        for name in ["api/v1", "apis/documents.example.com/v1"] {
            let document = documents.get(&DocumentId::OpenApiV3(name.into()), &snapshot).expect(name);
            assert_eq!(index["paths"][name]["serverRelativeURL"], format!("/openapi/v3/{name}?hash={}", document.etag));
        }
    }

    #[test]
    fn a_new_generation_forgets_the_old_etags() {
        let registry = Registry::new(builtin_rows());
        let custom = with_custom("Late");
        let row = custom.resources.values().find(|r| r.custom.is_some()).expect("a custom row").clone();
        let documents = Documents::default();
        let before = documents.get(&DocumentId::Legacy("/apis".into()), &registry.snapshot()).expect("/apis");
        registry.set_custom("Late", vec![row]);
        let after = documents.get(&DocumentId::Legacy("/apis".into()), &registry.snapshot()).expect("/apis");
        assert_ne!(before.etag, after.etag);
        let groups = json_of(&after)["groups"].as_array().map(Vec::len);
        assert_eq!(groups, Some(22));
    }

    #[test]
    fn a_definition_changes_the_documents_of_its_group_alone() {
        let registry = Registry::new(builtin_rows());
        let define = |group: &str, revision: u64| {
            let template = with_custom("Own").resources.values().find(|r| r.custom.is_some()).expect("a custom row").clone();
            let custom = Custom { crd: group.into(), crd_revision: revision, ..Custom::default() };
            let row = Resource { group: group.into(), custom: Some(custom), ..Resource::clone(&template) };
            registry.set_custom(group, vec![Arc::new(row)]);
        };
        define("a.example.com", 1);
        define("b.example.com", 2);
        let documents = Documents::default();
        let etag = |group: &str| documents.etag(&DocumentId::OpenApiV3(format!("apis/{group}/v1")), &registry.snapshot());
        let before = [etag("a.example.com"), etag("b.example.com")];
        define("a.example.com", 3);
        assert_ne!(etag("a.example.com"), before[0]);
        assert_eq!(etag("b.example.com"), before[1]);
    }

    #[test]
    fn what_is_not_there_is_not_made() {
        let snapshot = Registry::new(builtin_rows()).snapshot();
        for id in [DocumentId::OpenApiV3("apis/nope/v1".into()), DocumentId::Legacy("/apis/nope".into())] {
            assert!(Documents::default().get(&id, &snapshot).is_none(), "{id:?}");
        }
    }
}
