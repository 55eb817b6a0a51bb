//! Types of expressions; those of objects are read from their schema.

use std::fmt;
use std::sync::Arc;
use sublet_machinery::{SchemaNode, ValueType};

#[derive(Clone, Debug, PartialEq)]
pub enum Type<'s> {
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Box<Type<'s>>),
    Map(Box<Type<'s>>, Box<Type<'s>>),
    Object(ObjectType<'s>),
    /// An object that is declared by its fields, without a schema.
    Fields(Arc<Fields>),
    Optional(Box<Type<'s>>),
    /// What an expression makes of its own: `Object.spec`, `JSONPatch`.
    Message(Arc<str>),
    /// The type of a type.
    Type,
    /// Values of the Kubernetes libraries: `kubernetes.Quantity`, `net.IP`, ...
    Opaque(&'static str),
    /// A placeholder in the declaration of a function.
    Param(char),
}

pub(super) const QUANTITY: &str = "kubernetes.Quantity";
pub(super) const URL: &str = "kubernetes.URL";
pub(super) const IP: &str = "net.IP";
pub(super) const CIDR: &str = "net.CIDR";
pub(super) const SEMVER: &str = "kubernetes.Semver";
pub(super) const FORMAT: &str = "kubernetes.NamedFormat";
pub const AUTHORIZER: &str = "kubernetes.authorization.Authorizer";
pub const PATH_CHECK: &str = "kubernetes.authorization.PathCheck";
pub const GROUP_CHECK: &str = "kubernetes.authorization.GroupCheck";
pub const RESOURCE_CHECK: &str = "kubernetes.authorization.ResourceCheck";
pub const DECISION: &str = "kubernetes.authorization.Decision";

/// Fields under the names that expressions use.
#[derive(Clone, Debug, PartialEq)]
pub struct Fields {
    pub name: &'static str,
    pub fields: Vec<(String, Type<'static>)>,
}

/// An object with known fields.
#[derive(Clone, Copy, Debug)]
pub struct ObjectType<'s> {
    pub(super) node: SchemaNode<'s>,
    /// The root of a resource: of its metadata only the names can be seen.
    pub(super) is_resource: bool,
    /// The metadata of a resource.
    pub(super) is_metadata: bool,
}

impl PartialEq for ObjectType<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.node.table(), other.node.table()) && self.node.id() == other.node.id()
    }
}

/// The type of values of a schema; `None` when rules cannot see them.
pub fn declare(node: SchemaNode<'_>) -> Option<Type<'_>> {
    declare_at(node, node.embedded_resource)
}

/// [`declare`]; `is_resource` tells the root of a resource, which is not marked as an embedded one.
pub fn declare_at(node: SchemaNode<'_>, is_resource: bool) -> Option<Type<'_>> {
    if node.int_or_string {
        return Some(Type::Dyn);
    }
    match node.value_type {
        ValueType::Any => None,
        ValueType::Boolean => Some(Type::Bool),
        ValueType::Integer => Some(Type::Int),
        ValueType::Number => Some(Type::Double),
        ValueType::String => Some(match node.format.as_deref() {
            Some("byte") => Type::Bytes,
            Some("duration") => Type::Duration,
            Some("date" | "date-time") => Type::Timestamp,
            _ => Type::String,
        }),
        ValueType::Array => Some(Type::List(Box::new(declare(node.items()?)?))),
        ValueType::Object => match node.additional() {
            Some(values) if node.properties.is_empty() => {
                // `additionalProperties: true` tells nothing; such a map is an object without fields.
                let unknown = values.value_type == ValueType::Any && !values.int_or_string && !values.preserve_unknown;
                if unknown { Some(object(node, is_resource)) } else { Some(Type::Map(Box::new(Type::String), Box::new(declare(values)?))) }
            }
            _ => Some(object(node, is_resource)),
        },
    }
}

fn object(node: SchemaNode<'_>, is_resource: bool) -> Type<'_> {
    Type::Object(ObjectType { node, is_resource, is_metadata: false })
}

impl<'s> ObjectType<'s> {
    /// The type of a field, by its name in expressions.
    pub(super) fn field(self, escaped: &str) -> Option<Type<'s>> {
        let name = unescape(escaped)?;
        if self.is_metadata && !matches!(name.as_str(), "name" | "generateName") {
            return None;
        }
        let node = self.node.property(&name)?;
        if self.is_resource && name == "metadata" {
            return Some(Type::Object(ObjectType { node, is_resource: false, is_metadata: true }));
        }
        declare(node)
    }
}

impl Type<'_> {
    pub(super) fn list(of: Self) -> Self {
        Self::List(Box::new(of))
    }

    pub(super) fn optional(of: Self) -> Self {
        Self::Optional(Box::new(of))
    }

    /// Whether something inside of it is not known.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::List(of) | Self::Optional(of) => **of == Self::Dyn || of.is_open(),
            Self::Map(key, value) => [key, value].iter().any(|of| ***of == Self::Dyn || of.is_open()),
            _ => false,
        }
    }
}

impl fmt::Display for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("google.protobuf.Duration"),
            Self::Timestamp => f.write_str("google.protobuf.Timestamp"),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Object(_) => f.write_str("object"),
            Self::Fields(fields) => f.write_str(fields.name),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::Message(name) => f.write_str(name),
            Self::Type => f.write_str("type"),
            Self::Opaque(name) => f.write_str(name),
            Self::Param(name) => write!(f, "{name}"),
        }
    }
}

/// Words that name nothing in expressions.
pub(crate) const KEYWORDS: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The name of a property in expressions; `None` when it cannot be written there.
pub(super) fn escape(name: &str) -> Option<String> {
    let first = name.chars().next()?;
    if first.is_ascii_digit() {
        return None;
    }
    if KEYWORDS.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("__") {
            out.push_str("__underscores__");
            rest = after;
            continue;
        }
        match c {
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            '_' => out.push('_'),
            c if c.is_ascii_alphanumeric() => out.push(c),
            _ => return None,
        }
        rest = &rest[c.len_utf8()..];
    }
    Some(out)
}

/// The property that a name in an expression means.
pub(super) fn unescape(escaped: &str) -> Option<String> {
    if !escaped.contains("__") {
        // Other keywords are names after a dot.
        return if matches!(escaped, "true" | "false" | "null" | "in") { None } else { Some(escaped.into()) };
    }
    let mut out = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some(open) = rest.find("__") {
        out.push_str(&rest[..open]);
        let inner = &rest[open + 2..];
        let Some(close) = inner.find("__").filter(|close| *close > 0 && !inner[..*close].contains('_')) else {
            out.push_str("__");
            rest = inner;
            continue;
        };
        match &inner[..close] {
            "underscores" => out.push_str("__"),
            "dot" => out.push('.'),
            "dash" => out.push('-'),
            "slash" => out.push('/'),
            word if KEYWORDS.contains(&word) && escaped.len() == word.len() + 4 => out.push_str(word),
            _ => return None,
        }
        rest = &inner[close + 2..];
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn property_names_are_escaped_and_back() {
        for (name, escaped) in [
            ("a", "a"),
            ("a-b", "a__dash__b"),
            ("a.b/c", "a__dot__b__slash__c"),
            ("a__b", "a__underscores__b"),
            ("namespace", "__namespace__"),
            ("a_b", "a_b"),
        ] {
            assert_eq!(escape(name).as_deref(), Some(escaped));
            assert_eq!(unescape(escaped).as_deref(), Some(name));
        }
        assert_eq!((escape("1a"), escape("a b"), unescape("__if__x"), unescape("in")), (None, None, None, None));
    }
}
