//! The stored form of an object, and the form in which it is kept in memory and sent.
//!
//! A stored value is a header and the object's JSON without its resourceVersion, which only the
//! commit knows. In memory the revision is spliced in once; every reader after that shares the bytes.
//! The header carries what selectors look at, so that neither a list with a selector nor the start of
//! the server parses JSON.

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Map, Value};
use std::sync::Arc;

/// The first byte of a header; a store with another one is from another release.
const HEADER_VERSION: u8 = 1;
const FLAG_DELETING: u8 = 1;

/// An object before its revision is known.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// Header and JSON, as the backend keeps them.
    pub stored: Bytes,
}

/// An object at a revision.
#[derive(Debug)]
pub struct Entry {
    pub key: Arc<str>,
    pub revision: u64,
    header: Bytes,
    /// The whole object as JSON, resourceVersion included. `apiVersion` and `kind` come first.
    pub json: Bytes,
}

#[derive(Debug, thiserror::Error)]
#[error("stored object {key} is unreadable: {why}; restore the store from a snapshot")]
pub struct CorruptEntry {
    pub key: String,
    pub why: &'static str,
}

impl Encoded {
    /// `fields` are the values for field selectors beside name and namespace.
    pub fn new(object: &Value, fields: &[(String, String)]) -> Self {
        let mut json = Vec::with_capacity(512);
        let (body_at, version_at) = write_object(object, &mut json);
        let mut header = BytesMut::with_capacity(64);
        header.put_u8(HEADER_VERSION);
        header.put_u8(if object["metadata"]["deletionTimestamp"].is_string() { FLAG_DELETING } else { 0 });
        header.put_u32_le(body_at);
        header.put_u32_le(version_at);
        let labels = object["metadata"]["labels"].as_object();
        header.put_u16_le(labels.map_or(0, |l| u16::try_from(l.len()).unwrap_or(u16::MAX)));
        for (key, value) in labels.into_iter().flatten().take(usize::from(u16::MAX)) {
            put_text(&mut header, key);
            put_text(&mut header, value.as_str().unwrap_or_default());
        }
        header.put_u16_le(u16::try_from(fields.len()).unwrap_or(u16::MAX));
        for (key, value) in fields {
            put_text(&mut header, key);
            put_text(&mut header, value);
        }
        let mut stored = BytesMut::with_capacity(4 + header.len() + json.len());
        stored.put_u32_le(u32::try_from(header.len()).expect("headers are bounded by the body limit"));
        stored.put_slice(&header);
        stored.put_slice(&json);
        Self { stored: stored.freeze() }
    }

    pub fn size_bytes(&self) -> usize {
        self.stored.len()
    }
}

impl Entry {
    /// Composes the object of a stored value at its revision.
    pub fn compose(key: Arc<str>, revision: u64, stored: &Bytes) -> Result<Self, CorruptEntry> {
        let corrupt = |why| CorruptEntry { key: key.to_string(), why };
        let length = stored.get(..4).ok_or_else(|| corrupt("too short"))?;
        let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
        if stored.len() < 4 + length || length < 10 {
            return Err(corrupt("header too short"));
        }
        let header = Bytes::copy_from_slice(&stored[4..4 + length]);
        if header[0] != HEADER_VERSION {
            return Err(corrupt("unknown format version"));
        }
        let json = &stored[4 + length..];
        let version_at = read_u32(&header, 6) as usize;
        if version_at > json.len() {
            return Err(corrupt("offset out of range"));
        }
        let json = splice(json, version_at, 0, revision);
        Ok(Self { key, revision, header, json })
    }

    /// The same object under another revision, as a DELETED event shows it.
    pub fn at_revision(&self, revision: u64) -> Self {
        let at = self.version_at();
        let json = splice(&self.json, at, decimal_length(self.revision), revision);
        Self { key: self.key.clone(), revision, header: self.header.clone(), json }
    }

    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json).expect("the store only takes objects that this server encoded")
    }

    /// The object without `apiVersion` and `kind`, but for the opening brace: items of typed lists.
    pub fn body_without_type(&self) -> &[u8] {
        &self.json[read_u32(&self.header, 2) as usize..]
    }

    pub fn is_deleting(&self) -> bool {
        self.header[1] & FLAG_DELETING != 0
    }

    /// `namespace` and `name`, from the key.
    pub fn namespace_and_name(&self) -> (&str, &str) {
        let mut parts = self.key.splitn(3, '/').skip(1);
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
    }

    pub fn labels(&self) -> Pairs<'_> {
        Pairs::read(&self.header, 10).0
    }

    /// Values for field selectors, beside name and namespace.
    pub fn fields(&self) -> Pairs<'_> {
        let (_, end) = Pairs::read(&self.header, 10);
        Pairs::read(&self.header, end).0
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels().find(|(k, _)| *k == key).map(|(_, v)| v)
    }

    fn version_at(&self) -> usize {
        read_u32(&self.header, 6) as usize
    }
}

/// Iterates over the pairs of a header section.
#[derive(Clone)]
pub struct Pairs<'a> {
    bytes: &'a [u8],
    at: usize,
    left: u16,
}

impl<'a> Pairs<'a> {
    /// The pairs that start at `at`, and where the section ends.
    fn read(bytes: &'a [u8], at: usize) -> (Self, usize) {
        let pairs = Self { bytes, at: at + 2, left: read_u16(bytes, at) };
        let mut walk = pairs.clone();
        while walk.next().is_some() {}
        (pairs, walk.at)
    }

    fn text(&mut self) -> &'a str {
        let length = read_u32(self.bytes, self.at) as usize;
        let start = self.at + 4;
        self.at = start + length;
        std::str::from_utf8(&self.bytes[start..start + length]).expect("headers are written from strings")
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some((self.text(), self.text()))
    }
}

fn put_text(out: &mut BytesMut, text: &str) {
    out.put_u32_le(u32::try_from(text.len()).expect("texts are bounded by the body limit"));
    out.put_slice(text.as_bytes());
}

fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn decimal_length(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

fn splice(json: &[u8], at: usize, replaced: usize, revision: u64) -> Bytes {
    let digits = revision.to_string();
    // Without room to spare: these bytes live as long as the object.
    let mut out = Vec::with_capacity(json.len() - replaced + digits.len());
    out.extend_from_slice(&json[..at]);
    out.extend_from_slice(digits.as_bytes());
    out.extend_from_slice(&json[at + replaced..]);
    out.into()
}

/// Writes the object with its type first and an empty resourceVersion; returns the offset of the rest
/// of the body after the type, and of the place for the revision.
fn write_object(object: &Value, out: &mut Vec<u8>) -> (u32, u32) {
    let empty = Map::new();
    let map = object.as_object().unwrap_or(&empty);
    let mut version_at = 0;
    out.push(b'{');
    for key in ["apiVersion", "kind"] {
        if let Some(value) = map.get(key) {
            write_key(out, key);
            write_value(out, value);
            out.push(b',');
        }
    }
    let body_at = out.len();
    write_key(out, "metadata");
    out.push(b'{');
    for (key, value) in map.get("metadata").and_then(Value::as_object).unwrap_or(&empty) {
        if key != "resourceVersion" {
            write_key(out, key);
            write_value(out, value);
            out.push(b',');
        }
    }
    write_key(out, "resourceVersion");
    out.push(b'"');
    version_at += out.len();
    out.extend_from_slice(b"\"}");
    for (key, value) in map {
        if !matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
            out.push(b',');
            write_key(out, key);
            write_value(out, value);
        }
    }
    out.push(b'}');
    let offset = |at: usize| u32::try_from(at).expect("objects are bounded by the body limit");
    (offset(body_at), offset(version_at))
}

fn write_key(out: &mut Vec<u8>, key: &str) {
    serde_json::to_writer(&mut *out, key).expect("writing to memory");
    out.push(b':');
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    serde_json::to_writer(&mut *out, value).expect("writing to memory");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(object: &Value, revision: u64) -> Entry {
        let encoded = Encoded::new(object, &[("spec.nodeName".into(), "n1".into())]);
        Entry::compose("configmaps/ns/a".into(), revision, &encoded.stored).unwrap()
    }

    #[test]
    fn the_revision_is_spliced_in_whatever_the_object_holds() {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "binaryData": {"resourceVersion": ""}, "data": {"resourceVersion": ""},
            "metadata": {"name": "a", "namespace": "ns", "labels": {"a": "1", "b": ""}, "resourceVersion": "7"}
        });
        let entry = entry(&object, 99);
        let mut expected = object.clone();
        expected["metadata"]["resourceVersion"] = json!("99");
        assert_eq!(entry.value(), expected);
        expected["metadata"]["resourceVersion"] = json!("1234567");
        assert_eq!(entry.at_revision(1_234_567).value(), expected);
        assert_eq!(entry.at_revision(1_234_567).at_revision(5).value()["metadata"]["resourceVersion"], "5");
    }

    #[test]
    fn the_header_answers_selectors() {
        let entry = entry(&json!({"metadata": {"labels": {"a": "1", "b": ""}, "deletionTimestamp": "2026-01-01T00:00:00Z"}}), 1);
        assert_eq!(entry.labels().collect::<Vec<_>>(), [("a", "1"), ("b", "")]);
        assert_eq!(entry.fields().collect::<Vec<_>>(), [("spec.nodeName", "n1")]);
        assert!(entry.is_deleting());
        assert_eq!(entry.namespace_and_name(), ("ns", "a"));
    }

    #[test]
    fn typed_list_items_leave_the_type_out() {
        let entry = entry(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {}}), 3);
        let item = format!("{{{}", String::from_utf8_lossy(entry.body_without_type()));
        let item: Value = serde_json::from_str(&item).unwrap();
        assert_eq!(item, json!({"metadata": {"name": "a", "resourceVersion": "3"}, "data": {}}));
    }
}
