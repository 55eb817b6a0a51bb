//! Messages that expressions make, and values as JSON.

use super::ast::{Expr, Kind, Literal, MESSAGE};
use super::functions::text_of;
use super::value::{Map, Opaque, Val};
use base64::Engine as _;
use serde_json::Value;

/// The first message of another type than the path that leads to it.
pub(super) fn misplaced(expr: &Expr, expected: Option<&str>) -> Option<String> {
    let of = |part: &Expr| misplaced(part, expected);
    match &expr.kind {
        Kind::Literal(_) | Kind::Ident(_) | Kind::Select(_) | Kind::Has(_) => None,
        Kind::List(elements) => elements.iter().find_map(|e| of(&e.value)),
        Kind::Map(entries) => entries.iter().find_map(|e| of(&e.value)),
        Kind::Macro(found) => of(&found.body),
        Kind::Call(call) => {
            let Some(name) = call.function.strip_prefix(MESSAGE) else { return call.args.iter().find_map(of) };
            if let Some(expected) = expected.filter(|expected| *expected != name) {
                return Some(format!(
                    "unexpected type name {name:?}, expected {expected:?}, which matches field name path from root Object type"
                ));
            }
            let Some(Kind::Map(entries)) = call.args.first().map(|fields| &fields.kind) else { return None };
            entries.iter().find_map(|entry| match &entry.key.kind {
                // The value of a patch begins a path of its own.
                Kind::Literal(Literal::String(_)) if !name.starts_with("Object") => misplaced(&entry.value, None),
                Kind::Literal(Literal::String(field)) => misplaced(&entry.value, Some(&format!("{name}.{field}"))),
                _ => None,
            })
        }
    }
}

/// A value as JSON; the error names what JSON has not.
pub fn to_json(value: &Val<'_>) -> Result<Value, String> {
    Ok(match value {
        Val::Null | Val::Optional(None) => Value::Null,
        Val::Bool(flag) => (*flag).into(),
        Val::Int(n) => (*n).into(),
        Val::Uint(n) => (*n).into(),
        Val::Double(n) => (*n).into(),
        Val::String(text) => text.as_str().into(),
        Val::Bytes(bytes) => base64::engine::general_purpose::STANDARD.encode(bytes).into(),
        Val::Optional(Some(inner)) => to_json(inner)?,
        Val::List(list) => list.to_vec()?.iter().map(to_json).collect::<Result<Value, _>>()?,
        Val::Map(map) => of_map(map)?,
        Val::Duration(_) | Val::Timestamp(_) | Val::Opaque(Opaque::Ip(_) | Opaque::Cidr(..)) => text_of(value).into(),
        other => return Err(format!("a {} cannot be written as JSON", other.type_name())),
    })
}

fn of_map(map: &Map<'_>) -> Result<Value, String> {
    let mut out = serde_json::Map::new();
    for key in map.keys() {
        let value = map.get(&key).transpose()?.unwrap_or(Val::Null);
        let name = text_of(&key).ok_or_else(|| format!("a {} cannot be a key in JSON", key.type_name()))?;
        out.insert(name, to_json(&value)?);
    }
    Ok(Value::Object(out))
}
