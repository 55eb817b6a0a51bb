//! From wire bytes to the JSON that Go's encoder shows for the same message.

use super::ProtobufError;
use super::envelope;
use super::special;
use super::table::{Field, Holds, MessageId, Table, Type};
use super::wire::{BYTES, FIXED64, Reader, VARINT};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

/// Messages inside messages. The deepest built-in type without recursion has a dozen.
const DEPTH_MAX: usize = 100;
/// Values in one body: two bytes on the wire can become an object with ten fields.
const VALUES_MAX: usize = 500_000;

pub struct Decoder<'t> {
    table: &'t Table,
    depth: usize,
    values: usize,
}

impl<'t> Decoder<'t> {
    pub fn new(table: &'t Table) -> Self {
        Self { table, depth: 0, values: 0 }
    }

    pub fn message(&mut self, id: MessageId, bytes: &[u8]) -> Result<Map<String, Value>, ProtobufError> {
        let mut map = Map::new();
        self.fill(id, bytes, &mut map)?;
        Ok(map)
    }

    /// Reads the fields of a message into an object.
    fn fill(&mut self, id: MessageId, bytes: &[u8], map: &mut Map<String, Value>) -> Result<(), ProtobufError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(ProtobufError::new("the message is nested too deeply"));
        }
        let message = self.table.message(id);
        let mut seen = 0_u128;
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let (number, wire_type) = reader.tag()?;
            match message.by_number(number) {
                Some(at) => {
                    seen |= 1 << at;
                    self.field(&message.fields[at], wire_type, &mut reader, map)?;
                }
                None => reader.skip(wire_type)?,
            }
        }
        for (at, field) in message.fields.iter().enumerate() {
            if seen & (1 << at) == 0 {
                self.absent(field, map)?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn field(&mut self, field: &Field, wire_type: u8, reader: &mut Reader<'_>, map: &mut Map<String, Value>) -> Result<(), ProtobufError> {
        self.count()?;
        match (field.holds, field.of) {
            (Holds::One, Type::Message(id)) if field.inline => {
                let bytes = length_delimited(field, wire_type, reader)?;
                self.fill(id, bytes, map)
            }
            (Holds::One, _) => {
                let value = self.value(field, wire_type, reader)?;
                if !is_shown(field, &value) {
                    map.remove(field.name);
                } else {
                    map.insert(field.name.into(), value);
                }
                Ok(())
            }
            (Holds::List, _) => {
                let Value::Array(list) = slot(map, field, || Value::Array(Vec::new())) else { return Ok(()) };
                // Numbers may come packed.
                if wire_type == BYTES && matches!(field.of, Type::Bool | Type::Int32 | Type::Int64) {
                    let mut packed = Reader::new(reader.bytes()?);
                    while !packed.is_empty() {
                        self.count()?;
                        list.push(self.value(field, VARINT, &mut packed)?);
                    }
                    return Ok(());
                }
                list.push(self.value(field, wire_type, reader)?);
                Ok(())
            }
            (Holds::Map, _) => {
                let (key, value) = self.map_entry(field, length_delimited(field, wire_type, reader)?)?;
                if let Value::Object(values) = slot(map, field, || Value::Object(Map::new())) {
                    values.insert(key, value);
                }
                Ok(())
            }
        }
    }

    fn map_entry(&mut self, field: &Field, bytes: &[u8]) -> Result<(String, Value), ProtobufError> {
        let (mut key, mut value) = (String::new(), None);
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            match reader.tag()? {
                (1, wire_type) => key = text(length_delimited(field, wire_type, &mut reader)?),
                (2, wire_type) => value = Some(self.value(field, wire_type, &mut reader)?),
                (_, wire_type) => reader.skip(wire_type)?,
            }
        }
        let value = match value {
            // Go makes an empty list for the value of a map, where it leaves a field nil.
            Some(Value::Null) | None if field.of == Type::Strings => Value::Array(Vec::new()),
            Some(value) => value,
            None if field.of == Type::Bytes => Value::String(String::new()),
            None => self.zero(field.of)?,
        };
        Ok((key, value))
    }

    fn value(&mut self, field: &Field, wire_type: u8, reader: &mut Reader<'_>) -> Result<Value, ProtobufError> {
        match field.of {
            Type::Bool => Ok(Value::Bool(varint(field, wire_type, reader)? != 0)),
            Type::Int32 => Ok((varint(field, wire_type, reader)? as i32).into()),
            Type::Int64 => Ok((varint(field, wire_type, reader)? as i64).into()),
            Type::Double if wire_type == FIXED64 => {
                let number = f64::from_bits(reader.fixed64()?);
                let number = Number::from_f64(number).ok_or_else(|| ProtobufError::new(format!("unsupported value: {number}")))?;
                Ok(Value::Number(number))
            }
            Type::Double => Err(wrong_type(field, wire_type)),
            of => self.delimited(of, length_delimited(field, wire_type, reader)?),
        }
    }

    fn delimited(&mut self, of: Type, bytes: &[u8]) -> Result<Value, ProtobufError> {
        match of {
            Type::Message(id) => self.message(id, bytes).map(Value::Object),
            Type::Strings => {
                let mut list = Vec::new();
                self.each(bytes, |this, number, bytes| {
                    if number == 1 {
                        this.count()?;
                        list.push(Value::String(text(bytes)));
                    }
                    Ok(())
                })?;
                Ok(if list.is_empty() { Value::Null } else { Value::Array(list) })
            }
            Type::Bytes => Ok(Value::String(STANDARD.encode(bytes))),
            Type::Time => special::read_time(bytes, false),
            Type::MicroTime => special::read_time(bytes, true),
            Type::Quantity => special::read_quantity(bytes),
            Type::IntOrString => special::read_int_or_string(bytes),
            Type::Json => {
                let mut raw: &[u8] = &[];
                self.each(bytes, |_, number, bytes| {
                    if number == 1 {
                        raw = bytes;
                    }
                    Ok(())
                })?;
                self.raw(raw)
            }
            Type::SchemaOrArray | Type::SchemaOrBool | Type::SchemaOrStrings => self.schema_or(of, bytes),
            Type::String | Type::Bool | Type::Int32 | Type::Int64 | Type::Double => Ok(Value::String(text(bytes))),
        }
    }

    /// The bytes of a RawExtension: JSON, or an object in an envelope of its own.
    fn raw(&mut self, bytes: &[u8]) -> Result<Value, ProtobufError> {
        if bytes.is_empty() {
            return Ok(Value::Null);
        }
        if bytes.starts_with(envelope::PREFIX) {
            self.depth += 1;
            let value = envelope::open(self, bytes, None);
            self.depth -= 1;
            return value;
        }
        serde_json::from_slice(bytes).map_err(|e| ProtobufError::new(format!("raw JSON: {e}")))
    }

    fn schema_or(&mut self, of: Type, bytes: &[u8]) -> Result<Value, ProtobufError> {
        let (mut schema, mut list, mut allows) = (None, Vec::new(), false);
        let id = self.table.json_schema();
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            self.count()?;
            match (of, reader.tag()?) {
                (Type::SchemaOrBool, (1, VARINT)) => allows = reader.varint()? != 0,
                (Type::SchemaOrBool, (2, BYTES)) | (Type::SchemaOrArray | Type::SchemaOrStrings, (1, BYTES)) => {
                    schema = Some(Value::Object(self.message(id, reader.bytes()?)?));
                }
                (Type::SchemaOrArray, (2, BYTES)) => list.push(Value::Object(self.message(id, reader.bytes()?)?)),
                (Type::SchemaOrStrings, (2, BYTES)) => list.push(Value::String(text(reader.bytes()?))),
                (_, (_, wire_type)) => reader.skip(wire_type)?,
            }
        }
        Ok(match (list.is_empty(), schema) {
            (false, _) => Value::Array(list),
            (true, Some(schema)) => schema,
            (true, None) if of == Type::SchemaOrBool => Value::Bool(allows),
            (true, None) => Value::Null,
        })
    }

    /// The length-delimited fields of a small message.
    fn each<'a>(
        &mut self,
        bytes: &'a [u8],
        mut take: impl FnMut(&mut Self, u32, &'a [u8]) -> Result<(), ProtobufError>,
    ) -> Result<(), ProtobufError> {
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            match reader.tag()? {
                (number, BYTES) => take(self, number, reader.bytes()?)?,
                (_, wire_type) => reader.skip(wire_type)?,
            }
        }
        Ok(())
    }

    /// What JSON shows of a field that is not in the message.
    fn absent(&mut self, field: &Field, map: &mut Map<String, Value>) -> Result<(), ProtobufError> {
        match field.of {
            Type::Message(id) if field.inline => return self.fill(id, &[], map),
            _ if field.pointer || field.holds != Holds::One => {
                if field.keep {
                    map.insert(field.name.into(), Value::Null);
                }
                return Ok(());
            }
            _ => {}
        }
        // A struct is never empty for `omitempty`.
        if field.keep || !field.omit_zero && is_struct(field.of) {
            self.count()?;
            let zero = self.zero(field.of)?;
            map.insert(field.name.into(), zero);
        }
        Ok(())
    }

    fn zero(&mut self, of: Type) -> Result<Value, ProtobufError> {
        Ok(match of {
            Type::String => Value::String(String::new()),
            Type::Bool => Value::Bool(false),
            Type::Int32 | Type::Int64 | Type::Double => 0.into(),
            Type::Message(_) | Type::Quantity | Type::IntOrString | Type::SchemaOrBool => self.delimited(of, &[])?,
            _ => Value::Null,
        })
    }

    fn count(&mut self) -> Result<(), ProtobufError> {
        self.values += 1;
        if self.values > VALUES_MAX {
            return Err(ProtobufError::new(format!("the message has more than {VALUES_MAX} values")));
        }
        Ok(())
    }
}

/// Types that are a struct in Go, which `omitempty` never leaves out.
fn is_struct(of: Type) -> bool {
    !matches!(of, Type::String | Type::Bytes | Type::Bool | Type::Int32 | Type::Int64 | Type::Double | Type::Strings)
}

/// Whether JSON shows a value that was in the message.
fn is_shown(field: &Field, value: &Value) -> bool {
    if field.pointer || field.keep {
        return true;
    }
    if is_struct(field.of) {
        return !(field.omit_zero && value.is_null());
    }
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Bool(set) => *set,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::Null => false,
        _ => true,
    }
}

fn slot<'m>(map: &'m mut Map<String, Value>, field: &Field, empty: impl FnOnce() -> Value) -> &'m mut Value {
    // Looked up first, so that only the first element pays for the name.
    if !map.contains_key(field.name) {
        map.insert(field.name.into(), empty());
    }
    &mut map[field.name]
}

fn varint(field: &Field, wire_type: u8, reader: &mut Reader<'_>) -> Result<u64, ProtobufError> {
    if wire_type == VARINT { reader.varint() } else { Err(wrong_type(field, wire_type)) }
}

fn length_delimited<'a>(field: &Field, wire_type: u8, reader: &mut Reader<'a>) -> Result<&'a [u8], ProtobufError> {
    if wire_type == BYTES { reader.bytes() } else { Err(wrong_type(field, wire_type)) }
}

fn wrong_type(field: &Field, wire_type: u8) -> ProtobufError {
    let mut name = field.name.to_string();
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    ProtobufError::new(format!("proto: wrong wireType = {wire_type} for field {name}"))
}

/// As Go shows bytes that are not UTF-8.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
