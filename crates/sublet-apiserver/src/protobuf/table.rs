//! The messages of the facts file as one table, built at the first use and shared by all servers of the process.

use crate::facts;
use crate::facts::parse::{Shape, shape};
use std::collections::HashMap;
use std::sync::OnceLock;

/// Index of a message in the table.
pub type MessageId = u16;

#[derive(Debug, Default)]
pub struct Table {
    messages: Vec<Message>,
    kinds: HashMap<&'static str, MessageId>,
    names: HashMap<Box<str>, Type>,
}

#[derive(Debug, Default)]
pub struct Message {
    /// By number.
    pub fields: Vec<Field>,
    /// The fields of this message and of those that JSON shows inside of it, by JSON name.
    pub keys: Vec<Key>,
    /// This message, then the ones that JSON shows inside of it, parents before children.
    pub slots: Vec<Slot>,
}

#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// In JSON.
    pub name: &'static str,
    pub number: u32,
    pub holds: Holds,
    pub of: Type,
    /// Absent and zero differ.
    pub pointer: bool,
    /// JSON shows the zero value too.
    pub keep: bool,
    /// JSON leaves a zero message out.
    pub omit_zero: bool,
    /// JSON shows the fields of this message in the outer object.
    pub inline: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    One,
    List,
    Map,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    String,
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
    Message(MessageId),
    /// A message with a list of strings, which JSON shows as the list.
    Strings,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// A message with the bytes of any JSON value.
    Json,
    SchemaOrArray,
    SchemaOrBool,
    SchemaOrStrings,
}

/// A JSON name of a message: the field, and the slot of the message that has it.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    pub slot: u8,
    pub field: Field,
}

#[derive(Debug, Clone, Copy)]
pub struct Slot {
    pub message: MessageId,
    /// The slot and field number that this message is in; for the first slot it says nothing.
    pub parent: u8,
    pub number: u32,
}

/// The messages of all built-in kinds.
pub fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| Table::build(facts::MESSAGES, facts::TYPES))
}

impl Table {
    pub fn message(&self, id: MessageId) -> &Message {
        &self.messages[usize::from(id)]
    }

    /// The message of a kind, by `group/version/kind`.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<MessageId> {
        let name = match (group, kind) {
            ("meta.k8s.io", "PartialObjectMetadata" | "PartialObjectMetadataList") => format!("{META_PACKAGE}.{kind}"),
            _ => return self.kinds.get(format!("{group}/{version}/{kind}").as_str()).copied(),
        };
        self.named(&name)
    }

    pub fn named(&self, name: &str) -> Option<MessageId> {
        match self.names.get(name) {
            Some(Type::Message(id)) => Some(*id),
            _ => None,
        }
    }

    /// The message inside of the JSON schema types of CRDs.
    pub fn json_schema(&self) -> MessageId {
        self.named(JSON_SCHEMA).expect("the facts have JSONSchemaProps")
    }

    fn build(messages: &'static str, types: &'static str) -> Self {
        let mut table = Self::default();
        table.name_all(messages);
        table.take_fields(messages);
        for id in 0..table.messages.len() {
            table.flatten(id);
        }
        table.take_kinds(types);
        table
    }

    fn name_all(&mut self, text: &'static str) {
        let mut package = "";
        for line in text.lines() {
            let mut words = line.split(' ');
            let (word, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let of = match word {
                "package" => {
                    package = name;
                    continue;
                }
                "message" => {
                    self.messages.push(Message::default());
                    Type::Message(MessageId::try_from(self.messages.len() - 1).expect("a thousand messages"))
                }
                "list" => Type::Strings,
                "custom" => custom(name),
                _ => continue,
            };
            self.names.insert(format!("{package}.{name}").into(), of);
        }
    }

    fn take_fields(&mut self, text: &'static str) {
        let (mut package, mut at) = ("", 0);
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("package ") {
                package = name;
            } else if line.starts_with("message ") {
                at += 1;
            } else if let Some(line) = line.strip_prefix(' ') {
                let field = self.field(package, line);
                self.messages[at - 1].fields.push(field);
            }
        }
        for message in &mut self.messages {
            message.fields.sort_by_key(|f| f.number);
        }
    }

    fn field(&self, package: &str, line: &'static str) -> Field {
        let mut words = line.split(' ');
        let mut word = || words.next().unwrap_or_default();
        let (name, number, text) = (word(), word(), word());
        let flags: Vec<&str> = words.collect();
        let (holds, text) = match shape(text) {
            Shape::List(of) => (Holds::List, of),
            Shape::Map(of) => (Holds::Map, of),
            _ => (Holds::One, text),
        };
        Field {
            name,
            number: number.parse().expect("the facts file has numbers"),
            holds,
            of: self.type_of(package, text),
            pointer: flags.contains(&"pointer"),
            keep: flags.contains(&"keep"),
            omit_zero: flags.contains(&"omitzero"),
            inline: name == "-",
        }
    }

    fn type_of(&self, package: &str, text: &str) -> Type {
        match text {
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "bool" => Type::Bool,
            "int32" => Type::Int32,
            "int64" => Type::Int64,
            "double" => Type::Double,
            name if name.contains('.') => self.names[name],
            name => self.names[format!("{package}.{name}").as_str()],
        }
    }

    fn flatten(&mut self, id: usize) {
        let mut slots = vec![Slot { message: MessageId::try_from(id).expect("ids fit"), parent: 0, number: 0 }];
        let mut keys = Vec::new();
        let mut at = 0;
        while let Some(slot) = slots.get(at).copied() {
            let this = u8::try_from(at).expect("few messages are shown inside of another");
            for field in &self.message(slot.message).fields {
                match field.of {
                    Type::Message(message) if field.inline => slots.push(Slot { message, parent: this, number: field.number }),
                    _ => keys.push(Key { slot: this, field: *field }),
                }
            }
            at += 1;
        }
        keys.sort_by_key(|k: &Key| k.field.name);
        assert!(keys.len() <= KEYS_MAX, "a message has more fields than the encoder has bits");
        (self.messages[id].slots, self.messages[id].keys) = (slots, keys);
    }

    fn take_kinds(&mut self, text: &'static str) {
        let mut package = "";
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("package ") {
                package = name;
            } else if let Some((line, kinds)) = line.strip_prefix("type ").and_then(|l| l.split_once(" kinds=")) {
                let name = line.split(' ').next().unwrap_or_default();
                if let Some(id) = self.named(&format!("{package}.{name}")) {
                    self.kinds.extend(kinds.split(' ').next().into_iter().flat_map(|k| k.split(',')).map(|kind| (kind, id)));
                }
            }
        }
    }
}

impl Message {
    /// Where in `fields` a number is.
    pub fn by_number(&self, number: u32) -> Option<usize> {
        self.fields.binary_search_by_key(&number, |f| f.number).ok()
    }

    /// Where in `keys` a JSON name is.
    pub fn by_name(&self, name: &str) -> Option<usize> {
        self.keys.binary_search_by(|k| k.field.name.cmp(name)).ok()
    }
}

fn custom(name: &str) -> Type {
    match name {
        "Time" => Type::Time,
        "MicroTime" => Type::MicroTime,
        "Quantity" => Type::Quantity,
        "IntOrString" => Type::IntOrString,
        "JSON" | "FieldsV1" | "RawExtension" => Type::Json,
        "JSONSchemaPropsOrArray" => Type::SchemaOrArray,
        "JSONSchemaPropsOrBool" => Type::SchemaOrBool,
        "JSONSchemaPropsOrStringArray" => Type::SchemaOrStrings,
        other => unreachable!("the facts have a custom type that the transcoder does not know: {other}"),
    }
}

pub const META_PACKAGE: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const JSON_SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
/// The encoder marks the fields that it met in one integer.
pub const KEYS_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_message() {
        let table = table();
        let pod = table.message(table.kind("", "v1", "Pod").unwrap());
        assert_eq!(pod.fields.iter().map(|f| f.name).collect::<Vec<_>>(), ["metadata", "spec", "status"]);
        assert!(table.kind("apps", "v1", "DeploymentList").is_some());
        assert!(table.kind("apps", "v1", "DeleteOptions").is_some());
        assert!(table.kind("meta.k8s.io", "v1", "PartialObjectMetadataList").is_some());
        assert!(table.kind("", "v1", "Table").is_none());
    }

    #[test]
    fn inline_messages_lend_their_names() {
        let table = table();
        let volume = table.message(table.named("io.k8s.api.core.v1.Volume").unwrap());
        let key = &volume.keys[volume.by_name("configMap").unwrap()];
        assert_eq!((key.slot, volume.slots[1].number), (1, 2));
        assert_eq!(volume.keys[volume.by_name("name").unwrap()].slot, 0);
    }
}
