//! From JSON to wire bytes in one pass: a parsed value or the bytes of a stored object, whichever is at hand.

use super::special;
use super::table::{Field, Holds, Message, MessageId, Table, Type};
use super::wire::{FIXED64, close, open, put_bytes, put_int, put_tag};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Writes the fields of a message, without a tag or length.
pub struct MessageSeed<'a> {
    pub table: &'a Table,
    pub id: MessageId,
    pub out: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for MessageSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MessageSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        fields(self.table, self.id, map, self.out)
    }
}

/// Writes the fields that the object has, then those that Go writes whatever they are.
fn fields<'de, A: MapAccess<'de>>(table: &Table, id: MessageId, mut map: A, out: &mut Vec<u8>) -> Result<(), A::Error> {
    let message = table.message(id);
    // Messages that JSON shows inside of this one are gathered beside it.
    let mut inner = vec![Vec::new(); message.slots.len() - 1];
    let mut seen = 0_u128;
    while let Some(at) = map.next_key_seed(KeySeed(message))? {
        let Some(at) = at else {
            map.next_value::<IgnoredAny>()?;
            continue;
        };
        let key = &message.keys[at];
        let out = match key.slot {
            0 => &mut *out,
            slot => &mut inner[usize::from(slot) - 1],
        };
        if map.next_value_seed(FieldSeed { table, field: &key.field, out })? {
            seen |= 1 << at;
        }
    }
    for (at, key) in message.keys.iter().enumerate() {
        if seen & (1 << at) == 0 {
            let out = match key.slot {
                0 => &mut *out,
                slot => &mut inner[usize::from(slot) - 1],
            };
            absent(table, &key.field, out);
        }
    }
    // Children come after their parents, so that from the end each is complete when it is put in place.
    for at in (1..message.slots.len()).rev() {
        let slot = message.slots[at];
        let bytes = std::mem::take(&mut inner[at - 1]);
        match slot.parent {
            0 => put_bytes(out, slot.number, &bytes),
            parent => put_bytes(&mut inner[usize::from(parent) - 1], slot.number, &bytes),
        }
    }
    Ok(())
}

/// Fields that are no pointer are always written.
fn absent(table: &Table, field: &Field, out: &mut Vec<u8>) {
    if !field.pointer && field.holds == Holds::One {
        zero(table, field.of, field.number, out);
    }
}

fn zero(table: &Table, of: Type, number: u32, out: &mut Vec<u8>) {
    match of {
        Type::String => put_bytes(out, number, &[]),
        Type::Bool | Type::Int32 | Type::Int64 => put_int(out, number, 0),
        Type::Double => put_double(out, number, 0.0),
        // Nil is not written.
        Type::Bytes | Type::Strings => {}
        other => {
            let nested = open(out, number);
            match other {
                Type::Message(id) => {
                    for field in &table.message(id).fields {
                        absent(table, field, out);
                    }
                }
                Type::Quantity => put_bytes(out, 1, b"0"),
                Type::IntOrString => special::write_int_or_string(out, 0, None),
                Type::SchemaOrBool => put_int(out, 1, 0),
                _ => {}
            }
            close(out, nested);
        }
    }
}

fn put_double(out: &mut Vec<u8>, number: u32, value: f64) {
    put_tag(out, number, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Finds the field of a JSON name; `Some(None)` for one that the message does not have.
struct KeySeed<'a>(&'a Message);

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Option<usize>, E> {
        Ok(self.0.by_name(name))
    }
}

/// Writes a field and says whether there was one: null is none.
struct FieldSeed<'a> {
    table: &'a Table,
    field: &'a Field,
    out: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for FieldSeed<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for FieldSeed<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of {}", self.field.name)
    }

    fn visit_none<E: Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        let Self { table, field, out } = self;
        let seed = ValueSeed { table, of: field.of, number: field.number, out };
        match field.holds {
            Holds::One => seed.deserialize(deserializer)?,
            Holds::List => deserializer.deserialize_seq(ElementsVisitor(seed))?,
            Holds::Map => deserializer.deserialize_map(ElementsVisitor(seed))?,
        }
        Ok(true)
    }
}

/// The elements of a list or map.
struct ElementsVisitor<'a>(ValueSeed<'a>);

impl<'de> Visitor<'de> for ElementsVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list or map")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(ElementSeed(self.0.again()))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let ValueSeed { table, of, number, out } = self.0;
        loop {
            let start = out.len();
            let entry = open(out, number);
            if map.next_key_seed(ValueSeed { table, of: Type::String, number: 1, out })?.is_none() {
                out.truncate(start);
                return Ok(());
            }
            map.next_value_seed(ElementSeed(ValueSeed { table, of, number: 2, out }))?;
            close(out, entry);
        }
    }
}

/// Writes an element; null is Go's zero value there.
struct ElementSeed<'a>(ValueSeed<'a>);

impl<'de> DeserializeSeed<'de> for ElementSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for ElementSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        zero(self.0.table, self.0.of, self.0.number, self.0.out);
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.0.deserialize(deserializer)
    }
}

/// Writes one value with its tag.
struct ValueSeed<'a> {
    table: &'a Table,
    of: Type,
    number: u32,
    out: &'a mut Vec<u8>,
}

impl ValueSeed<'_> {
    fn again(&mut self) -> ValueSeed<'_> {
        ValueSeed { table: self.table, of: self.of, number: self.number, out: self.out }
    }

    fn wrong<E: Error>(&self, found: &str) -> E {
        E::custom(format_args!("{found} where {:?} belongs", self.of))
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.of {
            Type::Json => {
                let raw = Box::<RawValue>::deserialize(deserializer)?;
                let nested = open(self.out, self.number);
                put_bytes(self.out, 1, raw.get().as_bytes());
                close(self.out, nested);
                Ok(())
            }
            Type::String => deserializer.deserialize_str(self),
            Type::Message(_) => deserializer.deserialize_map(self),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.of)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match self.of {
            Type::String => put_bytes(self.out, self.number, text.as_bytes()),
            Type::Bytes => {
                let bytes = STANDARD.decode(text).map_err(E::custom)?;
                put_bytes(self.out, self.number, &bytes);
            }
            Type::Time | Type::MicroTime | Type::Quantity | Type::IntOrString => {
                let nested = open(self.out, self.number);
                match self.of {
                    Type::Quantity => put_bytes(self.out, 1, text.as_bytes()),
                    Type::IntOrString => special::write_int_or_string(self.out, 0, Some(text)),
                    of => special::write_time(self.out, text, of == Type::MicroTime),
                }
                close(self.out, nested);
            }
            _ => return Err(self.wrong("a string")),
        }
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        match self.of {
            Type::Bool => put_int(self.out, self.number, i64::from(value)),
            Type::SchemaOrBool => {
                let nested = open(self.out, self.number);
                put_int(self.out, 1, i64::from(value));
                close(self.out, nested);
            }
            _ => return Err(self.wrong("a boolean")),
        }
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        match self.of {
            Type::Int32 | Type::Int64 => put_int(self.out, self.number, value),
            Type::Double => put_double(self.out, self.number, value as f64),
            Type::IntOrString | Type::Quantity => {
                let nested = open(self.out, self.number);
                match self.of {
                    Type::Quantity => put_bytes(self.out, 1, value.to_string().as_bytes()),
                    _ => special::write_int_or_string(self.out, value, None),
                }
                close(self.out, nested);
            }
            _ => return Err(self.wrong("a number")),
        }
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => self.visit_f64(value as f64),
        }
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        match self.of {
            Type::Double => put_double(self.out, self.number, value),
            Type::Quantity => {
                let nested = open(self.out, self.number);
                put_bytes(self.out, 1, value.to_string().as_bytes());
                close(self.out, nested);
            }
            _ => return Err(self.wrong("a number with a fraction")),
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let nested = open(self.out, self.number);
        match self.of {
            Type::Message(id) => fields(self.table, id, map, self.out)?,
            Type::SchemaOrArray | Type::SchemaOrBool | Type::SchemaOrStrings => {
                // A schema in place of a boolean allows what it describes.
                let number = if self.of == Type::SchemaOrBool { 2 } else { 1 };
                if number == 2 {
                    put_int(self.out, 1, 1);
                }
                let schema = open(self.out, number);
                fields(self.table, self.table.json_schema(), map, self.out)?;
                close(self.out, schema);
            }
            _ => return Err(self.wrong("an object")),
        }
        close(self.out, nested);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let (of, number) = match self.of {
            Type::Strings => (Type::String, 1),
            Type::SchemaOrStrings => (Type::String, 2),
            Type::SchemaOrArray => (Type::Message(self.table.json_schema()), 2),
            _ => return Err(self.wrong("a list")),
        };
        let nested = open(self.out, self.number);
        while list.next_element_seed(ValueSeed { table: self.table, of, number, out: self.out })?.is_some() {}
        close(self.out, nested);
        Ok(())
    }
}
