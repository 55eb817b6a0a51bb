//! What functions do, by the types of the values they get.

mod arithmetic;
mod convert;
mod cost;
pub(super) mod format;
mod formats;
mod lists;
mod net;
mod netip;
mod quantity;
mod semver;
mod strings;
mod time;

pub(super) use cost::{after as cost_after, before as cost_before};

use super::eval::{EvalError, Evaluated, failed, no_overload};
use super::value::{List, Map, Opaque, Val, concat};

/// Calls a function; the target of a member function is the first argument.
pub(super) fn call<'v>(function: &str, is_member: bool, args: &[Val<'v>]) -> Evaluated<'v> {
    if let Some(result) = operator(function, args) {
        return result;
    }
    if let Some(result) = optional(function, args) {
        return result;
    }
    if let (true, Some((Val::Opaque(Opaque::Extension(extension)), rest))) = (is_member, args.split_first()) {
        return extension.call(function, rest).unwrap_or_else(|| Err("no such overload".into())).map_err(Into::into);
    }
    strings::call(function, is_member, args)
        .or_else(|| lists::call(function, is_member, args))
        .or_else(|| convert::call(function, is_member, args))
        .or_else(|| time::call(function, is_member, args))
        .or_else(|| quantity::call(function, args))
        .or_else(|| semver::call(function, args))
        .or_else(|| net::call(function, is_member, args))
        .or_else(|| formats::call(function, args))
        .or_else(|| arithmetic::call(function, args))
        .unwrap_or_else(|| Err(unknown(function, args)))
}

/// No overload for these values. Operators ask values what they can do, and only name themselves when
/// the first one can do nothing; other functions name themselves and the types.
fn unknown(function: &str, args: &[Val<'_>]) -> EvalError {
    use Val::{Bytes, Double, Duration, Int, List, String, Timestamp, Uint};
    let can = matches!(
        (function, args.first()),
        ("_+_", Some(Int(_) | Uint(_) | Double(_) | String(_) | Bytes(_) | List(_) | Timestamp(_) | Duration(_)))
            | ("_-_", Some(Int(_) | Uint(_) | Double(_) | Timestamp(_) | Duration(_)))
            | ("_*_" | "_/_", Some(Int(_) | Uint(_) | Double(_)))
            | ("_%_", Some(Int(_) | Uint(_)))
    );
    match function {
        _ if can => no_overload(),
        "_+_" | "_-_" | "_*_" | "_/_" | "_%_" | "size" | "sort" => failed(format!("no such overload: {function}")),
        "-_" | "!_" | "@in" | "matches" | "startsWith" | "endsWith" | "contains" | "find" | "findAll" => no_overload(),
        _ => {
            let types: Vec<&str> = args.iter().map(Val::type_name).collect();
            failed(format!("no such overload: {function}({})", types.join(", ")))
        }
    }
}

fn operator<'v>(function: &str, args: &[Val<'v>]) -> Option<Evaluated<'v>> {
    Some(match (function, args) {
        ("_==_", [a, b]) => Ok(Val::Bool(a.equals(b))),
        ("_!=_", [a, b]) => Ok(Val::Bool(!a.equals(b))),
        ("!_", [Val::Bool(value)]) => Ok(Val::Bool(!value)),
        ("_<_" | "_<=_" | "_>_" | "_>=_", [a, b]) => compare(function, a, b),
        ("@in", [value, Val::List(list)]) => list.to_vec().map(|v| Val::Bool(v.iter().any(|i| i.equals(value)))).map_err(Into::into),
        ("@in", [key, Val::Map(map)]) => Ok(Val::Bool(map.get(key).is_some())),
        ("_+_", [Val::List(a), Val::List(b)]) => concat(a, b).map_err(Into::into),
        ("_[_]", [Val::Optional(None), _]) => Ok(Val::Optional(None)),
        ("_[_]", [Val::Optional(Some(inner)), key]) => optional_index(inner, key),
        ("_[?_]", [Val::Optional(None), _]) => Ok(Val::Optional(None)),
        ("_[?_]", [Val::Optional(Some(inner)), key]) => optional_index(inner, key),
        ("_[?_]", [container, key]) => optional_index(container, key),
        ("_[_]", [container, key]) => index(container, key),
        ("dyn", [value]) => Ok(value.clone()),
        ("type", [value]) => Ok(Val::Type(value.type_name().into())),
        ("size", [value]) => match value {
            Val::String(_) | Val::Bytes(_) | Val::List(_) | Val::Map(_) => Ok(Val::Int(value.size() as i64)),
            _ => return None,
        },
        _ => return None,
    })
}

fn compare<'v>(function: &str, a: &Val<'v>, b: &Val<'v>) -> Evaluated<'v> {
    let Some(order) = a.compare(b) else {
        // Not a number compares with nothing, and false is the answer.
        let numbers = matches!((a, b), (Val::Double(_), _) | (_, Val::Double(_)));
        return if numbers { Ok(Val::Bool(false)) } else { Err(no_overload()) };
    };
    Ok(Val::Bool(match function {
        "_<_" => order.is_lt(),
        "_<=_" => order.is_le(),
        "_>_" => order.is_gt(),
        _ => order.is_ge(),
    }))
}

pub(super) fn position(list: &List<'_>, key: &Val<'_>) -> Result<Option<usize>, EvalError> {
    let index = match key {
        Val::Int(index) => *index,
        Val::Uint(index) => i64::try_from(*index).unwrap_or(i64::MAX),
        Val::Double(index) if index.fract() == 0.0 => *index as i64,
        Val::Double(index) => return Err(failed(format!("unsupported index value {} in list", convert::double_text(*index)))),
        other => return Err(failed(format!("unsupported index type '{}' in list", other.type_name()))),
    };
    Ok(usize::try_from(index).ok().filter(|index| *index < list.len()))
}

fn index<'v>(container: &Val<'v>, key: &Val<'v>) -> Evaluated<'v> {
    match container {
        Val::List(list) => match position(list, key)?.and_then(|index| list.get(index)) {
            Some(value) => Ok(value?),
            None => Err(failed(format!("index out of bounds: {}", shown(key)))),
        },
        Val::Map(Map::Json(_)) if key.as_str().is_none() => Err(no_overload()),
        Val::Map(map) => match map.get(key) {
            Some(value) => Ok(value?),
            None => Err(failed(format!("no such key: {}", shown(key)))),
        },
        _ => Err(failed(format!("no such key: {}", shown(key)))),
    }
}

fn optional_index<'v>(container: &Val<'v>, key: &Val<'v>) -> Evaluated<'v> {
    let found = match container {
        Val::List(list) => position(list, key)?.and_then(|index| list.get(index)),
        Val::Map(map) => map.get(key),
        _ => None,
    };
    Ok(match found {
        Some(value) => Val::some(value?),
        None => Val::Optional(None),
    })
}

fn shown(key: &Val<'_>) -> String {
    match key {
        Val::String(text) => text.as_str().into(),
        Val::Int(n) => n.to_string(),
        Val::Uint(n) => n.to_string(),
        Val::Bool(flag) => flag.to_string(),
        other => other.type_name().into(),
    }
}

fn optional<'v>(function: &str, args: &[Val<'v>]) -> Option<Evaluated<'v>> {
    Some(match (function, args) {
        ("optional.of", [value]) => Ok(Val::some(value.clone())),
        ("optional.ofNonZeroValue", [value]) => Ok(if is_zero(value) { Val::Optional(None) } else { Val::some(value.clone()) }),
        ("optional.none", []) => Ok(Val::Optional(None)),
        ("hasValue", [Val::Optional(inner)]) => Ok(Val::Bool(inner.is_some())),
        ("value", [Val::Optional(Some(inner))]) => Ok((**inner).clone()),
        ("value", [Val::Optional(None)]) => Err(failed("optional.none() dereference")),
        _ => return None,
    })
}

fn is_zero(value: &Val<'_>) -> bool {
    match value {
        Val::Null | Val::Bool(false) | Val::Int(0) | Val::Uint(0) | Val::Duration(0) | Val::Optional(None) => true,
        Val::Double(n) => *n == 0.0,
        Val::String(text) => text.as_str().is_empty(),
        Val::Bytes(bytes) => bytes.is_empty(),
        Val::List(list) => list.len() == 0,
        Val::Map(map) => map.len() == 0,
        _ => false,
    }
}

/// A value as text, for `format` and conversions.
pub(super) fn text_of(value: &Val<'_>) -> Option<String> {
    Some(match value {
        Val::Null => "null".into(),
        Val::Bool(flag) => flag.to_string(),
        Val::Int(n) => n.to_string(),
        Val::Uint(n) => n.to_string(),
        Val::Double(n) => convert::double_text(*n),
        Val::String(text) => text.as_str().into(),
        Val::Bytes(bytes) => String::from_utf8(bytes.to_vec()).ok()?,
        Val::Duration(nanos) => time::duration_text(*nanos),
        Val::Timestamp(time) => time.to_string(),
        Val::Type(name) => name.to_string(),
        Val::Opaque(Opaque::Ip(ip)) => ip.to_string(),
        Val::Opaque(Opaque::Cidr(ip, bits)) => format!("{ip}/{bits}"),
        Val::List(list) => {
            let items: Option<Vec<String>> = list.to_vec().ok()?.iter().map(literal_text).collect();
            format!("[{}]", items?.join(", "))
        }
        Val::Map(map) => map_text(map)?,
        _ => return None,
    })
}

fn map_text(map: &Map<'_>) -> Option<String> {
    let mut members = Vec::new();
    for key in map.keys() {
        let value = map.get(&key)?.ok()?;
        members.push(format!("{}:{}", literal_text(&key)?, literal_text(&value)?));
    }
    members.sort();
    Some(format!("{{{}}}", members.join(", ")))
}

/// As it would be written in an expression.
fn literal_text(value: &Val<'_>) -> Option<String> {
    let text = text_of(value)?;
    Some(match value {
        Val::String(_) => format!("{text:?}"),
        Val::Bytes(_) => format!("b{text:?}"),
        Val::Double(n) => format::nested_double(*n),
        Val::Duration(_) => format!("duration({text:?})"),
        Val::Timestamp(_) => format!("timestamp({text:?})"),
        _ => text,
    })
}
