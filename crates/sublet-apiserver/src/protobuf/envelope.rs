//! The envelope of an object: a prefix and a message that names version and kind beside the object's bytes.

use super::ProtobufError;
use super::decode::Decoder;
use super::encode::MessageSeed;
use super::table::{MessageId, Type, table};
use super::wire::{BYTES, Open, Reader, close, open as open_nested, put_bytes, put_tag, put_varint};
use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer};
use serde_json::{Value, json};

/// Every protobuf body of Kubernetes begins so.
pub const PREFIX: &[u8] = b"k8s\0";
/// Events of a watch have their length in front, big-endian.
const FRAME_LENGTH_BYTES: usize = 4;

/// What the envelope says about the bytes in it.
#[derive(Default)]
struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
    content_type: String,
}

/// Whether a kind has a message.
pub fn knows(api_version: &str, kind: &str) -> bool {
    message_of(api_version, kind).is_some()
}

/// The object in a body. `expected` is the version and kind of a body that names none.
pub fn decode(body: &[u8], expected: Option<(&str, &str)>) -> Result<Value, ProtobufError> {
    open(&mut Decoder::new(table()), body, expected)
}

/// The body of an object that has `apiVersion` and `kind`.
pub fn encode(object: &Value) -> Result<Bytes, ProtobufError> {
    let mut out = Vec::with_capacity(512);
    write_value(&mut out, object)?;
    Ok(out.into())
}

/// As [`encode`], from the JSON of an object whose version and kind are known.
pub fn encode_json(api_version: &str, kind: &str, json: &[u8]) -> Result<Bytes, ProtobufError> {
    let mut out = Vec::with_capacity(json.len());
    write_json(&mut out, api_version, kind, json)?;
    Ok(out.into())
}

/// One event of a watch, with its length in front.
pub fn watch_event(event_type: &str, object: &Value) -> Result<Bytes, ProtobufError> {
    framed(event_type, 512, |out| write_value(out, object))
}

/// As [`watch_event`], from the JSON of an object whose version and kind are known.
pub fn watch_event_json(event_type: &str, api_version: &str, kind: &str, json: &[u8]) -> Result<Bytes, ProtobufError> {
    framed(event_type, json.len() + 32, |out| write_json(out, api_version, kind, json))
}

/// Writes the parts of a list: its items, and what stands around them.
pub struct ListEncoder {
    api_version: String,
    list_kind: String,
    list: MessageId,
    item: MessageId,
    items_number: u32,
}

impl ListEncoder {
    pub fn new(api_version: &str, list_kind: &str) -> Result<Self, ProtobufError> {
        let list = message_of(api_version, list_kind).ok_or_else(|| no_message(api_version, list_kind))?;
        let items = table().message(list).fields.iter().find_map(|field| match (field.name, field.of) {
            ("items", Type::Message(item)) => Some((item, field.number)),
            _ => None,
        });
        let (item, items_number) = items.ok_or_else(|| ProtobufError::new(format!("{list_kind} is no list")))?;
        Ok(Self { api_version: api_version.into(), list_kind: list_kind.into(), list, item, items_number })
    }

    pub fn item(&self, out: &mut Vec<u8>, json: &[u8]) -> Result<(), ProtobufError> {
        let item = open_nested(out, self.items_number);
        write_message(out, self.item, &mut serde_json::Deserializer::from_slice(json))?;
        close(out, item);
        Ok(())
    }

    /// What stands before and behind the items, which take so many bytes.
    pub fn around(&self, metadata: &Value, items_bytes: usize) -> Result<(Vec<u8>, Vec<u8>), ProtobufError> {
        let mut start = Vec::with_capacity(128);
        write_message(&mut start, self.list, json!({"metadata": metadata}))?;
        let mut head = Vec::with_capacity(128);
        put_type(&mut head, &self.api_version, &self.list_kind);
        put_tag(&mut head, 2, BYTES);
        put_varint(&mut head, (start.len() + items_bytes) as u64);
        head.append(&mut start);
        let mut tail = Vec::new();
        put_encoding(&mut tail);
        Ok((head, tail))
    }
}

fn framed(event_type: &str, bytes: usize, write: impl FnOnce(&mut Vec<u8>) -> Result<(), ProtobufError>) -> Result<Bytes, ProtobufError> {
    let mut out = Vec::with_capacity(bytes + 32);
    out.extend_from_slice(&[0; FRAME_LENGTH_BYTES]);
    put_bytes(&mut out, 1, event_type.as_bytes());
    let object = open_nested(&mut out, 2);
    let raw = open_nested(&mut out, 1);
    write(&mut out)?;
    close(&mut out, raw);
    close(&mut out, object);
    let length = u32::try_from(out.len() - FRAME_LENGTH_BYTES).map_err(|_| ProtobufError::new("the event is too large"))?;
    out[..FRAME_LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok(out.into())
}

fn write_value(out: &mut Vec<u8>, object: &Value) -> Result<(), ProtobufError> {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    write(out, text("apiVersion"), text("kind"), object)
}

fn write_json(out: &mut Vec<u8>, api_version: &str, kind: &str, json: &[u8]) -> Result<(), ProtobufError> {
    write(out, api_version, kind, &mut serde_json::Deserializer::from_slice(json))
}

fn write<'de, D>(out: &mut Vec<u8>, api_version: &str, kind: &str, object: D) -> Result<(), ProtobufError>
where
    D: Deserializer<'de, Error = serde_json::Error>,
{
    let id = message_of(api_version, kind).ok_or_else(|| no_message(api_version, kind))?;
    let raw = begin(out, api_version, kind);
    write_message(out, id, object)?;
    finish(out, raw);
    Ok(())
}

fn write_message<'de, D>(out: &mut Vec<u8>, id: MessageId, object: D) -> Result<(), ProtobufError>
where
    D: Deserializer<'de, Error = serde_json::Error>,
{
    MessageSeed { table: table(), id, out }.deserialize(object).map_err(|e| ProtobufError::new(e.to_string()))
}

fn begin(out: &mut Vec<u8>, api_version: &str, kind: &str) -> Open {
    put_type(out, api_version, kind);
    open_nested(out, 2)
}

fn finish(out: &mut Vec<u8>, raw: Open) {
    close(out, raw);
    put_encoding(out);
}

fn put_type(out: &mut Vec<u8>, api_version: &str, kind: &str) {
    out.extend_from_slice(PREFIX);
    let type_meta = open_nested(out, 1);
    put_bytes(out, 1, api_version.as_bytes());
    put_bytes(out, 2, kind.as_bytes());
    close(out, type_meta);
}

fn put_encoding(out: &mut Vec<u8>) {
    // contentEncoding and contentType
    put_bytes(out, 3, &[]);
    put_bytes(out, 4, &[]);
}

/// As [`decode`], for an object inside of another, which shares the bounds of the outer one.
pub(super) fn open(decoder: &mut Decoder<'_>, body: &[u8], expected: Option<(&str, &str)>) -> Result<Value, ProtobufError> {
    let envelope = read(body)?;
    let expected = expected.unwrap_or_default();
    let or = |given: String, expected: &str| if given.is_empty() { expected.to_string() } else { given };
    let (api_version, kind) = (or(envelope.api_version, expected.0), or(envelope.kind, expected.1));
    if kind.is_empty() {
        return Err(ProtobufError::new("Object 'Kind' is missing in the protobuf envelope"));
    }
    let of = Some((api_version.clone(), kind.clone()));
    let value = match envelope.content_type.as_str() {
        "application/json" => serde_json::from_slice(envelope.raw).map_err(|e| ProtobufError::new(e.to_string())),
        _ => match message_of(&api_version, &kind) {
            Some(id) => decoder.message(id, envelope.raw).map(Value::Object),
            None => Err(no_message(&api_version, &kind)),
        },
    };
    let mut value = value.map_err(|error| ProtobufError { of, ..error })?;
    if !value.is_object() {
        return Err(ProtobufError::new("the object in the envelope is no object"));
    }
    value["apiVersion"] = json!(api_version);
    value["kind"] = json!(kind);
    Ok(value)
}

fn read(body: &[u8]) -> Result<Envelope<'_>, ProtobufError> {
    if body.is_empty() {
        return Err(ProtobufError::new("empty data"));
    }
    let Some(body) = body.strip_prefix(PREFIX) else {
        return Err(ProtobufError::new(format!(
            "provided data does not appear to be a protobuf message, expected prefix {}",
            "[107 56 115 0]"
        )));
    };
    if body.is_empty() {
        return Err(ProtobufError::new("empty body"));
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut envelope = Envelope::default();
    let mut reader = Reader::new(body);
    while !reader.is_empty() {
        match reader.tag()? {
            (1, BYTES) => {
                let mut type_meta = Reader::new(reader.bytes()?);
                while !type_meta.is_empty() {
                    match type_meta.tag()? {
                        (1, BYTES) => envelope.api_version = text(type_meta.bytes()?),
                        (2, BYTES) => envelope.kind = text(type_meta.bytes()?),
                        (_, wire_type) => type_meta.skip(wire_type)?,
                    }
                }
            }
            (2, BYTES) => envelope.raw = reader.bytes()?,
            (4, BYTES) => envelope.content_type = text(reader.bytes()?),
            (_, wire_type) => reader.skip(wire_type)?,
        }
    }
    Ok(envelope)
}

fn message_of(api_version: &str, kind: &str) -> Option<MessageId> {
    // The documents of discovery have no version.
    let (group, version) = api_version.split_once('/').unwrap_or(("", if api_version.is_empty() { "v1" } else { api_version }));
    table().kind(group, version, kind)
}

fn no_message(api_version: &str, kind: &str) -> ProtobufError {
    ProtobufError::new(format!("no kind {kind:?} is registered for version {api_version:?}"))
}
