//! Conversions between types.

use super::super::eval::{Evaluated, failed};
use super::super::moment::Moment;
use super::super::value::Val;
use super::text_of;
use sublet_machinery::structural::format::parse_go_duration;

pub(super) fn call<'v>(function: &str, is_member: bool, args: &[Val<'v>]) -> Option<Evaluated<'v>> {
    let (false, [value]) = (is_member, args) else { return None };
    let wrong = |wanted: &str| failed(format!("type conversion error from 'string' to '{wanted}'"));
    let overflow = || failed(if function == "uint" { "unsigned integer overflow" } else { "integer overflow" });
    Some(match (function, value) {
        ("int", Val::Int(n)) => Ok(Val::Int(*n)),
        ("int", Val::Uint(n)) => i64::try_from(*n).map(Val::Int).map_err(|_| overflow()),
        ("int", Val::Double(n)) if n.is_finite() && n.abs() < 9_223_372_036_854_775_807.0 => Ok(Val::Int(*n as i64)),
        ("int", Val::Double(_)) => Err(overflow()),
        ("int", Val::String(text)) => text.as_str().parse().map(Val::Int).map_err(|_| wrong("int")),
        ("int", Val::Timestamp(at)) => Ok(Val::Int(at.seconds())),
        ("int", Val::Duration(nanos)) => Ok(Val::Int(*nanos)),
        ("uint", Val::Uint(n)) => Ok(Val::Uint(*n)),
        ("uint", Val::Int(n)) => u64::try_from(*n).map(Val::Uint).map_err(|_| overflow()),
        ("uint", Val::Double(n)) if *n >= 0.0 && *n < 18_446_744_073_709_551_615.0 => Ok(Val::Uint(*n as u64)),
        ("uint", Val::Double(_)) => Err(overflow()),
        ("uint", Val::String(text)) => text.as_str().parse().map(Val::Uint).map_err(|_| wrong("uint")),
        ("double", Val::Double(n)) => Ok(Val::Double(*n)),
        ("double", Val::Int(n)) => Ok(Val::Double(*n as f64)),
        ("double", Val::Uint(n)) => Ok(Val::Double(*n as f64)),
        ("double", Val::String(text)) => text.as_str().parse().map(Val::Double).map_err(|_| wrong("double")),
        ("bool", Val::Bool(flag)) => Ok(Val::Bool(*flag)),
        ("bool", Val::String(text)) => match text.as_str() {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Val::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Val::Bool(false)),
            _ => Err(wrong("bool")),
        },
        ("string", value) => match text_of(value) {
            Some(text) if !matches!(value, Val::List(_) | Val::Map(_) | Val::Null | Val::Type(_)) => Ok(Val::text(&text)),
            Some(_) => return None,
            None if matches!(value, Val::Bytes(_)) => Err(failed("invalid UTF-8 in bytes, cannot convert to string")),
            None => return None,
        },
        ("bytes", Val::Bytes(bytes)) => Ok(Val::Bytes(bytes.clone())),
        ("bytes", Val::String(text)) => Ok(Val::Bytes(text.as_str().as_bytes().into())),
        ("timestamp", Val::Timestamp(at)) => Ok(Val::Timestamp(*at)),
        ("timestamp", Val::String(text)) => {
            Moment::parse(text.as_str()).map(Val::Timestamp).ok_or_else(|| wrong("google.protobuf.Timestamp"))
        }
        ("timestamp", Val::Int(seconds)) => {
            Moment::new(i128::from(*seconds) * 1_000_000_000, 0).map(Val::Timestamp).ok_or_else(|| failed("timestamp overflow"))
        }
        ("duration", Val::Duration(nanos)) => Ok(Val::Duration(*nanos)),
        ("duration", Val::String(text)) => {
            parse_go_duration(text.as_str()).map(Val::Duration).ok_or_else(|| wrong("google.protobuf.Duration"))
        }
        _ => return None,
    })
}

/// `%g` of a double: the shortest text that reads back, with an exponent from a million on.
pub(super) fn double_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e6).contains(&magnitude) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    value.to_string()
}
