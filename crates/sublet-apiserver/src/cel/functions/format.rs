//! `'%s has %d items'.format([...])`

use super::super::eval::{Evaluated, failed};
use super::super::value::Val;
use super::{convert, text_of};

/// Text that one call may make.
pub(super) const TEXT_BYTES_MAX: usize = 8 << 20;
const PRECISION_MAX: usize = 100;

/// Fills a template. `clause` makes the text of one clause from the index of its argument.
pub(in super::super) fn fill<E: From<String>>(
    template: &str,
    arguments: usize,
    mut clause: impl FnMut(usize, char, Option<usize>) -> Result<String, E>,
) -> Result<(String, usize), E> {
    let (mut out, mut rest, mut used) = (String::new(), template, 0);
    while let Some((text, after)) = rest.split_once('%') {
        out.push_str(text);
        if let Some(after) = after.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        if after.is_empty() {
            return Err("unexpected end of string".to_string().into());
        }
        if used >= arguments {
            return Err(format!("index {used} out of range").into());
        }
        let (precision, after) =
            precision(after).map_err(|e| format!("could not parse formatting clause: error while parsing precision: {e}"))?;
        let kind = after.chars().next().unwrap_or_default();
        if !"sdfebxXo".contains(kind) {
            // Upstream looks at bytes.
            let byte = char::from(after.as_bytes().first().copied().unwrap_or_default());
            return Err(format!("could not parse formatting clause: unrecognized formatting clause \"{byte}\"").into());
        }
        out.push_str(&clause(used, kind, precision)?);
        used += 1;
        rest = &after[1..];
        if out.len() > TEXT_BYTES_MAX {
            return Err("the formatted text is too long".to_string().into());
        }
    }
    out.push_str(rest);
    Ok((out, used))
}

/// `.2` before the letter of a clause.
fn precision(text: &str) -> Result<(Option<usize>, &str), String> {
    let Some(text) = text.strip_prefix('.') else { return Ok((None, text)) };
    let end = text.find(|c: char| !c.is_ascii_digit()).ok_or("could not find end of precision specifier")?;
    let (digits, rest) = text.split_at(end);
    let precision = digits.parse::<u64>().map_err(|_| {
        let why = if digits.is_empty() { "invalid syntax" } else { "value out of range" };
        format!("error while converting precision to integer: strconv.Atoi: parsing {digits:?}: {why}")
    })?;
    Ok((Some(usize::try_from(precision).map_or(PRECISION_MAX, |p| p.min(PRECISION_MAX))), rest))
}

/// Why a clause does not take a value of a type.
pub(in super::super) fn unfit(kind: char, type_name: &str) -> String {
    let what = match kind {
        's' => "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps",
        'd' => "decimal clause can only be used on integers",
        'f' => "fixed-point clause can only be used on doubles",
        'e' => "scientific clause can only be used on doubles",
        'b' => "only integers and bools can be formatted as binary",
        'o' => "octal clause can only be used on integers",
        _ => "only integers, byte buffers, and strings can be formatted as hex",
    };
    format!("error during formatting: {what}, was given {type_name}")
}

pub(super) fn call<'v>(template: &str, values: &[Val<'v>]) -> Evaluated<'v> {
    let filled = fill(template, values.len(), |index, kind, precision| {
        let value = &values[index];
        clause_text(kind, precision, value).ok_or_else(|| failed(unfit(kind, value.type_name())))
    });
    filled.map(|(text, _)| Val::text(&text))
}

fn clause_text(kind: char, precision: Option<usize>, value: &Val<'_>) -> Option<String> {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    Some(match (kind, value) {
        ('s', value) => text_of(value)?,
        ('d', Val::Int(n)) => n.to_string(),
        ('d', Val::Uint(n)) => n.to_string(),
        ('f', Val::Double(n)) => fixed(*n, precision.unwrap_or(6)),
        ('e', Val::Double(n)) => scientific(*n),
        ('b', Val::Int(n)) if *n < 0 => format!("-{:b}", n.unsigned_abs()),
        ('b', Val::Int(n)) => format!("{n:b}"),
        ('b', Val::Uint(n)) => format!("{n:b}"),
        ('b', Val::Bool(flag)) => u8::from(*flag).to_string(),
        ('o', Val::Int(n)) if *n < 0 => format!("-{:o}", n.unsigned_abs()),
        ('o', Val::Int(n)) => format!("{n:o}"),
        ('o', Val::Uint(n)) => format!("{n:o}"),
        ('X', value) => clause_text('x', precision, value)?.to_uppercase(),
        ('x', Val::Int(n)) if *n < 0 => format!("-{:x}", n.unsigned_abs()),
        ('x', Val::Int(n)) => format!("{n:x}"),
        ('x', Val::Uint(n)) => format!("{n:x}"),
        ('x', Val::String(text)) => hex(text.as_str().as_bytes()),
        ('x', Val::Bytes(bytes)) => hex(bytes),
        _ => return None,
    })
}

fn infinite(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        return Some("NaN");
    }
    value.is_infinite().then_some(if value > 0.0 { "∞" } else { "-∞" })
}

/// As one writes numbers in English: `1,234,567.50`.
fn fixed(value: f64, precision: usize) -> String {
    if let Some(text) = infinite(value) {
        return text.into();
    }
    let text = format!("{:.precision$}", value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut out = String::from(if value.is_sign_negative() { "-" } else { "" });
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// `1.234500×10⁰³`; the precision of the clause is not looked at.
fn scientific(value: f64) -> String {
    if let Some(text) = infinite(value) {
        return text.into();
    }
    let text = format!("{value:.6e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(("", exponent), |e| ("⁻", e));
    let raised = |c: char| "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(c.to_digit(10).unwrap_or_default() as usize).unwrap_or('⁰');
    format!("{digits}×10{sign}{}", format!("{exponent:0>2}").chars().map(raised).collect::<String>())
}

/// A double as `%s` shows it inside of lists and maps.
pub(super) fn nested_double(value: f64) -> String {
    if value.is_finite() { format!("{value:.6}") } else { format!("{:?}", convert::double_text(value)) }
}
