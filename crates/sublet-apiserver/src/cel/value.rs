//! Values of expressions. JSON is looked at in place, through its schema.

use super::moment::Moment;
use super::types::{CIDR, FORMAT, IP, QUANTITY, SEMVER, URL, escape, unescape};
use base64::Engine as _;
use serde_json::Value;
use std::cmp::Ordering;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use sublet_machinery::structural::url::Url;
use sublet_machinery::{ListType, SchemaNode, ValueType, structural};

/// A value; `'v` is the lifetime of the objects that an expression looks at.
#[derive(Clone, Debug)]
pub enum Val<'v> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'v>),
    Bytes(Rc<[u8]>),
    /// Nanoseconds.
    Duration(i64),
    Timestamp(Moment),
    List(List<'v>),
    Map(Map<'v>),
    Optional(Option<Rc<Val<'v>>>),
    Type(Rc<str>),
    Opaque(Opaque),
}

#[derive(Clone, Debug)]
pub enum Text<'v> {
    Borrowed(&'v str),
    Shared(Arc<str>),
}

#[derive(Clone, Debug)]
pub enum List<'v> {
    Json(&'v [Value], Option<SchemaNode<'v>>),
    Items(Rc<Vec<Val<'v>>>),
}

#[derive(Clone, Debug)]
pub enum Map<'v> {
    Json(Object<'v>),
    Entries(Rc<Vec<(Val<'v>, Val<'v>)>>),
}

/// A JSON object and what its schema lets expressions see of it.
#[derive(Clone, Copy, Debug)]
pub struct Object<'v> {
    pub(super) map: &'v serde_json::Map<String, Value>,
    pub(super) node: Option<SchemaNode<'v>>,
    pub(super) is_resource: bool,
    pub(super) is_metadata: bool,
}

/// Values of the Kubernetes libraries.
#[derive(Clone, Debug, PartialEq)]
pub enum Opaque {
    /// Billionths.
    Quantity(i128),
    Url(Rc<Url>),
    Ip(IpAddr),
    Cidr(IpAddr, u8),
    Semver(Rc<Semver>),
    Format(&'static str),
    Extension(Rc<dyn Extension>),
}

/// A value that somebody outside of the language brings along, such as the authorizer of admission.
pub trait Extension: std::fmt::Debug {
    /// The name of one of the opaque types that functions are declared for.
    fn type_name(&self) -> &'static str;

    /// A value selected from this one, such as `authorizer.requestResource`.
    fn field<'v>(&self, _name: &str) -> Option<Val<'v>> {
        None
    }

    /// A call with this value as target; `None` when there is no such function.
    fn call<'v>(&self, function: &str, args: &[Val<'v>]) -> Option<Result<Val<'v>, String>>;
}

impl PartialEq for dyn Extension {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self, other)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Semver {
    pub(super) numbers: [u64; 3],
    pub(super) pre: String,
}

impl Text<'_> {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

/// Why a JSON value cannot be seen as its schema wants it.
pub type Unfit = String;

/// A JSON value as an expression sees it.
pub fn of_json<'v>(json: &'v Value, node: Option<SchemaNode<'v>>, is_resource: bool) -> Result<Val<'v>, Unfit> {
    Ok(match json {
        Value::Null => Val::Null,
        Value::Bool(flag) => Val::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(int) if node.is_some_and(|n| n.value_type == ValueType::Number && !n.int_or_string) => Val::Double(int as f64),
            Some(int) => Val::Int(int),
            None => Val::Double(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => {
            let format = node.filter(|n| n.value_type == ValueType::String).and_then(|n| n.get().format.as_deref());
            of_string(text, format.unwrap_or_default())?
        }
        Value::Array(items) => Val::List(List::Json(items, node)),
        Value::Object(map) => {
            let is_resource = is_resource || node.is_some_and(|n| n.embedded_resource);
            Val::Map(Map::Json(Object { map, node, is_resource, is_metadata: false }))
        }
    })
}

fn of_string<'v>(text: &'v str, format: &str) -> Result<Val<'v>, Unfit> {
    Ok(match format {
        "byte" => match base64::engine::general_purpose::STANDARD.decode(text) {
            Ok(bytes) => Val::Bytes(bytes.into()),
            Err(_) => return Err(format!("invalid byte formatted string {text}, must be base64 encoded")),
        },
        "duration" => match structural::format::parse_go_duration(text) {
            Some(nanos) => Val::Duration(nanos),
            None => return Err(format!("Invalid duration {text}")),
        },
        "date" => match text.parse::<jiff::civil::Date>().ok().and_then(|d| Moment::of_civil(d.at(0, 0, 0, 0), 0)) {
            Some(day) => Val::Timestamp(day),
            None => return Err(format!("Invalid date formatted string {text}")),
        },
        "date-time" => match Moment::parse(text) {
            Some(time) => Val::Timestamp(time),
            None => return Err(format!("Invalid date-time formatted string {text}")),
        },
        _ => Val::String(Text::Borrowed(text)),
    })
}

impl<'v> List<'v> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Json(items, _) => items.len(),
            Self::Items(items) => items.len(),
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<Result<Val<'v>, Unfit>> {
        match self {
            Self::Json(items, node) => Some(of_json(items.get(index)?, node.and_then(SchemaNode::items), false)),
            Self::Items(items) => items.get(index).cloned().map(Ok),
        }
    }

    pub(super) fn to_vec(&self) -> Result<Vec<Val<'v>>, Unfit> {
        match self {
            Self::Json(..) => (0..self.len()).filter_map(|i| self.get(i)).collect(),
            Self::Items(items) => Ok(items.to_vec()),
        }
    }

    fn list_type(&self) -> (ListType, Option<SchemaNode<'v>>) {
        match self {
            Self::Json(_, node) => (node.map(|n| n.list_type).unwrap_or_default(), *node),
            Self::Items(_) => (ListType::Atomic, None),
        }
    }
}

impl<'v> Object<'v> {
    /// Whether it has named fields, in contrast to a map whose keys are data.
    pub(super) fn has_fields(&self) -> bool {
        self.node.is_some_and(|n| n.additional.is_none() || !n.properties.is_empty())
    }

    /// The member of a name in an expression; null counts as absent.
    pub(super) fn field(&self, escaped: &str) -> Option<Result<Val<'v>, Unfit>> {
        if !self.has_fields() {
            return self.entry(escaped);
        }
        let name = unescape(escaped)?;
        if self.is_metadata && !matches!(name.as_str(), "name" | "generateName") {
            return None;
        }
        let node = self.node.and_then(|n| n.property(&name))?;
        let json = self.map.get(&name).filter(|json| !json.is_null())?;
        if self.is_resource && name == "metadata" {
            let map = json.as_object()?;
            return Some(Ok(Val::Map(Map::Json(Object { map, node: Some(node), is_resource: false, is_metadata: true }))));
        }
        Some(of_json(json, Some(node), false))
    }

    /// The value of a key.
    pub(super) fn entry(&self, key: &str) -> Option<Result<Val<'v>, Unfit>> {
        Some(of_json(self.map.get(key)?, self.node.and_then(SchemaNode::additional), false))
    }

    /// Members that no expression can name.
    fn hidden(&self) -> impl Iterator<Item = (&'v String, &'v Value)> {
        let named = |key: &str| escape(key).is_some() && self.node.is_some_and(|node| node.property(key).is_some());
        let metadata = self.is_metadata;
        self.map.iter().filter(move |(key, value)| !metadata && !value.is_null() && !named(key))
    }

    fn visible(self) -> impl Iterator<Item = (String, Result<Val<'v>, Unfit>)> {
        let fields = self.has_fields();
        self.map.keys().filter_map(move |key| {
            let name = if fields { escape(key)? } else { key.clone() };
            let value = self.field(&name)?;
            Some((name, value))
        })
    }
}

impl<'v> Map<'v> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Json(object) if object.has_fields() => object.visible().count(),
            Self::Json(object) => object.map.len(),
            Self::Entries(entries) => entries.len(),
        }
    }

    pub(super) fn get(&self, key: &Val<'v>) -> Option<Result<Val<'v>, Unfit>> {
        match (self, key) {
            (Self::Json(object), Val::String(key)) if object.has_fields() => object.field(key.as_str()),
            (Self::Json(object), Val::String(key)) => object.entry(key.as_str()),
            (Self::Json(_), _) => None,
            (Self::Entries(entries), key) => entries.iter().find(|(k, _)| k.equals(key)).map(|(_, value)| Ok(value.clone())),
        }
    }

    pub(super) fn keys(&self) -> Vec<Val<'v>> {
        match self {
            Self::Json(object) if object.has_fields() => object.visible().map(|(key, _)| Val::text(&key)).collect(),
            Self::Json(object) => object.map.keys().map(|key| Val::String(Text::Borrowed(key))).collect(),
            Self::Entries(entries) => entries.iter().map(|(key, _)| key.clone()).collect(),
        }
    }
}

impl<'v> Val<'v> {
    pub fn text(text: &str) -> Self {
        Self::String(Text::Shared(text.into()))
    }

    pub(super) fn items(items: Vec<Self>) -> Self {
        Self::List(List::Items(Rc::new(items)))
    }

    pub(super) fn some(value: Self) -> Self {
        Self::Optional(Some(Rc::new(value)))
    }

    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text.as_str()) } else { None }
    }

    pub(super) fn type_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(Map::Json(object)) if object.has_fields() => "object",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Opaque(opaque) => match opaque {
                Opaque::Quantity(_) => QUANTITY,
                Opaque::Url(_) => URL,
                Opaque::Ip(_) => IP,
                Opaque::Cidr(..) => CIDR,
                Opaque::Semver(_) => SEMVER,
                Opaque::Format(_) => FORMAT,
                Opaque::Extension(extension) => extension.type_name(),
            },
        }
    }

    /// What `size()` would say; 1 for values that have none, as costs count them.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::String(text) => text.as_str().chars().count() as u64,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::List(list) => list.len() as u64,
            Self::Map(Map::Json(object)) if object.has_fields() => 1,
            Self::Map(map) => map.len() as u64,
            Self::Optional(Some(inner)) => inner.size(),
            _ => 1,
        }
    }

    pub(super) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::String(a), Self::String(b)) => a.as_str() == b.as_str(),
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Opaque(a), Self::Opaque(b)) => a == b,
            (Self::Optional(None), Self::Optional(None)) => true,
            (Self::Optional(Some(a)), Self::Optional(Some(b))) => a.equals(b),
            (Self::List(a), Self::List(b)) => lists_equal(a, b),
            (Self::Map(a), Self::Map(b)) => maps_equal(a, b),
            _ => self.compare(other) == Some(Ordering::Equal),
        }
    }

    /// The order of two values of comparable types.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(b)),
            (Self::Uint(a), Self::Uint(b)) => Some(a.cmp(b)),
            (Self::Int(a), Self::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Uint(a), Self::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Double(a), Self::Double(b)) => a.partial_cmp(b),
            (Self::Double(a), Self::Int(b)) => a.partial_cmp(&(*b as f64)),
            (Self::Int(a), Self::Double(b)) => (*a as f64).partial_cmp(b),
            (Self::Double(a), Self::Uint(b)) => a.partial_cmp(&(*b as f64)),
            (Self::Uint(a), Self::Double(b)) => (*a as f64).partial_cmp(b),
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::String(a), Self::String(b)) => Some(a.as_str().cmp(b.as_str())),
            (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            (Self::Duration(a), Self::Duration(b)) => Some(a.cmp(b)),
            (Self::Timestamp(a), Self::Timestamp(b)) => Some(a.nanos().cmp(&b.nanos())),
            _ => None,
        }
    }
}

/// Lists that are sets or maps are equal in any order.
fn lists_equal(a: &List<'_>, b: &List<'_>) -> bool {
    let (Ok(left), Ok(right)) = (a.to_vec(), b.to_vec()) else { return false };
    if left.len() != right.len() {
        return false;
    }
    let unordered = |list: &List<'_>| list.list_type().0 != ListType::Atomic;
    if unordered(a) || unordered(b) {
        let contains = |list: &[Val<'_>], value: &Val<'_>| list.iter().any(|v| v.equals(value));
        return left.iter().all(|v| contains(&right, v));
    }
    left.iter().zip(&right).all(|(a, b)| a.equals(b))
}

fn maps_equal(a: &Map<'_>, b: &Map<'_>) -> bool {
    // What the schema does not know cannot be named, but it makes a difference.
    if let (Map::Json(a), Map::Json(b)) = (a, b)
        && a.has_fields()
        && b.has_fields()
        && !a.hidden().eq(b.hidden())
    {
        return false;
    }
    let keys = a.keys();
    keys.len() == b.len() && keys.iter().all(|key| matches!((a.get(key), b.get(key)), (Some(Ok(a)), Some(Ok(b))) if a.equals(&b)))
}

/// `+` of lists: sets take what they do not have, maps replace what has the same keys.
pub(super) fn concat<'v>(a: &List<'v>, b: &List<'v>) -> Result<Val<'v>, Unfit> {
    let (mut left, right) = (a.to_vec()?, b.to_vec()?);
    let (list_type, node) = a.list_type();
    match (list_type, node) {
        (ListType::Set, _) => {
            for value in right {
                if !left.iter().any(|v| v.equals(&value)) {
                    left.push(value);
                }
            }
        }
        (ListType::Map, Some(node)) => {
            for value in right {
                let same_key = |other: &Val<'v>| node.list_map_keys.iter().all(|key| member_equals(other, &value, key));
                match left.iter().position(same_key) {
                    Some(at) => left[at] = value,
                    None => left.push(value),
                }
            }
        }
        _ => left.extend(right),
    }
    Ok(Val::items(left))
}

fn member_equals(a: &Val<'_>, b: &Val<'_>, key: &str) -> bool {
    let member = |value: &Val<'_>| match value {
        Val::Map(Map::Json(object)) => object.map.get(key).cloned(),
        _ => None,
    };
    member(a) == member(b)
}
