//! Steps of a path to a field, in their order, their printed form, and their form in `FieldsV1`.

use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::fmt;

/// One step: into a map, or to an element of a list.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// A field of a map: `f:replicas`.
    Field(Box<str>),
    /// The element of a list whose key fields have these values, sorted by name: `k:{"name":"web"}`.
    Key(Vec<(Box<str>, Value)>),
    /// An element of a set: `v:"foregroundDeletion"`.
    Value(Value),
    /// An element by its place: `i:0`. Only read, from what older servers wrote.
    Index(i64),
}

impl PathElement {
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// Reads the form in `FieldsV1`. `None` is a kind of step that this version does not know.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        let bytes = text.as_bytes();
        if bytes.len() < 2 {
            return Err("key must be 2 characters long:".into());
        }
        if bytes[1] != b':' {
            return Err(format!("missing colon: {text}"));
        }
        let content = &text[2..];
        let json = || serde_json::from_str::<Value>(content).map_err(|e| e.to_string());
        Ok(Some(match bytes[0] {
            b'f' => Self::Field(content.into()),
            b'v' => Self::Value(json()?),
            b'k' => match json()? {
                Value::Object(map) => Self::Key(map.into_iter().map(|(k, v)| (k.into(), v)).collect()),
                other => return Err(format!("expected an object, got {other}")),
            },
            b'i' => Self::Index(content.parse().map_err(|_| format!("strconv.Atoi: parsing {content:?}: invalid syntax"))?),
            _ => return Ok(None),
        }))
    }

    /// The form in `FieldsV1`.
    pub fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let map: Map<String, Value> = fields.iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
                format!("k:{}", escape_html(Value::Object(map).to_string()))
            }
            Self::Value(value) => format!("v:{}", escape_html(value.to_string())),
            Self::Index(index) => format!("i:{index}"),
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                let pairs = a.iter().zip(b).map(|(a, b)| a.0.cmp(&b.0).then_with(|| compare_values(&a.1, &b.1)));
                pairs.into_iter().find(|o| o.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
            }
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PathElement {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                for (i, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}{name}={value}", if i == 0 { "[" } else { "," })?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// Equality of values in which `1` and `1.0` are the same.
pub(super) fn equal_values(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(_), Value::Number(_)) => compare_values(a, b).is_eq(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal_values(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((ka, a), (kb, b))| ka == kb && equal_values(a, b))
        }
        _ => a == b,
    }
}

/// A total order: numbers, strings, booleans, lists, maps, null.
fn compare_values(a: &Value, b: &Value) -> Ordering {
    let rank = |v: &Value| match v {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    };
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => match (x.as_i64(), y.as_i64()) {
            (Some(x), Some(y)) => x.cmp(&y),
            _ => x.as_f64().unwrap_or_default().total_cmp(&y.as_f64().unwrap_or_default()),
        },
        (Value::String(x), Value::String(y)) => x.cmp(y),
        (Value::Bool(x), Value::Bool(y)) => x.cmp(y),
        (Value::Array(x), Value::Array(y)) => {
            x.iter().zip(y).map(|(x, y)| compare_values(x, y)).find(|o| o.is_ne()).unwrap_or_else(|| x.len().cmp(&y.len()))
        }
        (Value::Object(x), Value::Object(y)) => {
            let pairs = x.iter().zip(y).map(|((kx, x), (ky, y))| kx.cmp(ky).then_with(|| compare_values(x, y)));
            pairs.into_iter().find(|o| o.is_ne()).unwrap_or_else(|| x.len().cmp(&y.len()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Go's encoder escapes what could end a script element; entries must be equal to those of other servers.
pub(super) fn escape_html(json: String) -> String {
    if !json.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match c {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_step_reads_back() {
        for (text, shown) in [
            ("f:replicas", ".replicas"),
            (r#"k:{"containerPort":80,"protocol":"TCP"}"#, r#"[containerPort=80,protocol="TCP"]"#),
            (r#"v:"a\u003cb""#, r#"[="a<b"]"#),
            ("v:1", "[=1]"),
            ("i:3", "[3]"),
        ] {
            let element = PathElement::parse(text).unwrap().unwrap();
            assert_eq!((element.encode().as_str(), element.to_string().as_str()), (text, shown));
        }
        assert_eq!(PathElement::parse("z:x"), Ok(None));
        assert_eq!(PathElement::parse("f").unwrap_err(), "key must be 2 characters long:");
        assert_eq!(PathElement::parse("fx").unwrap_err(), "missing colon: fx");
        assert!(PathElement::parse("k:1").is_err() && PathElement::parse("v:{").is_err() && PathElement::parse("i:a").is_err());
    }

    #[test]
    fn steps_are_ordered_by_kind_and_numbers_by_value() {
        let steps = ["f:b", "f:c", r#"k:{"p":80}"#, r#"k:{"p":443}"#, r#"k:{"p":443,"q":1}"#, r#"v:2"#, r#"v:10"#, r#"v:"a""#, "i:0"];
        let parsed: Vec<PathElement> = steps.iter().map(|s| PathElement::parse(s).unwrap().unwrap()).collect();
        assert!(parsed.is_sorted());
        assert_eq!(PathElement::parse("v:1").unwrap(), PathElement::parse("v:1.0").unwrap());
    }
}
