//! Conversions between types.

use super::super::eval::{Evaluated, failed};
use super::super::value::Val;
use super::{text_of, time};
use sublet_machinery::structural::format::parse_go_duration;

pub(super) fn call<'v>(function: &str, is_member: bool, args: &[Val<'v>]) -> Option<Evaluated<'v>> {
    let (false, [value]) = (is_member, args) else { return None };
    Some(match (function, value) {
        ("int", value) => int(value)?,
        ("uint", value) => uint(value)?,
        ("double", Val::Double(n)) => Ok(Val::Double(*n)),
        ("double", Val::Int(n)) => Ok(Val::Double(*n as f64)),
        ("double", Val::Uint(n)) => Ok(Val::Double(*n as f64)),
        ("double", Val::String(text)) => text
            .as_str()
            .parse()
            .map(Val::Double)
            .map_err(|_| failed(format!("strconv.ParseFloat: parsing {:?}: invalid syntax", text.as_str()))),
        ("bool", Val::Bool(flag)) => Ok(Val::Bool(*flag)),
        ("bool", Val::String(text)) => match text.as_str() {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Val::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Val::Bool(false)),
            other => Err(failed(format!("strconv.ParseBool: parsing {other:?}: invalid syntax"))),
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
        ("timestamp", Val::String(text)) => time::parse(text.as_str()),
        ("timestamp", Val::Int(seconds)) => {
            jiff::Timestamp::from_second(*seconds).map(Val::Timestamp).map_err(|_| failed("timestamp overflow"))
        }
        ("duration", Val::Duration(nanos)) => Ok(Val::Duration(*nanos)),
        ("duration", Val::String(text)) => {
            parse_go_duration(text.as_str()).map(Val::Duration).ok_or_else(|| failed(format!("time: invalid duration {:?}", text.as_str())))
        }
        _ => return None,
    })
}

fn int<'v>(value: &Val<'v>) -> Option<Evaluated<'v>> {
    let overflow = || failed("integer overflow");
    Some(match value {
        Val::Int(n) => Ok(Val::Int(*n)),
        Val::Uint(n) => i64::try_from(*n).map(Val::Int).map_err(|_| overflow()),
        Val::Double(n) if n.is_finite() && n.abs() < 9_223_372_036_854_775_807.0 => Ok(Val::Int(*n as i64)),
        Val::Double(_) => Err(overflow()),
        Val::String(text) => text
            .as_str()
            .parse()
            .map(Val::Int)
            .map_err(|_| failed(format!("strconv.ParseInt: parsing {:?}: invalid syntax", text.as_str()))),
        Val::Timestamp(at) => Ok(Val::Int(at.as_second())),
        Val::Duration(nanos) => Ok(Val::Int(*nanos)),
        _ => return None,
    })
}

fn uint<'v>(value: &Val<'v>) -> Option<Evaluated<'v>> {
    let overflow = || failed("unsigned integer overflow");
    Some(match value {
        Val::Uint(n) => Ok(Val::Uint(*n)),
        Val::Int(n) => u64::try_from(*n).map(Val::Uint).map_err(|_| overflow()),
        Val::Double(n) if *n >= 0.0 && *n < 18_446_744_073_709_551_615.0 => Ok(Val::Uint(*n as u64)),
        Val::Double(_) => Err(overflow()),
        Val::String(text) => text
            .as_str()
            .parse()
            .map(Val::Uint)
            .map_err(|_| failed(format!("strconv.ParseUint: parsing {:?}: invalid syntax", text.as_str()))),
        _ => return None,
    })
}

/// `%g` of a double: the shortest text that reads back.
pub(super) fn double_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e21).contains(&magnitude) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    value.to_string()
}
