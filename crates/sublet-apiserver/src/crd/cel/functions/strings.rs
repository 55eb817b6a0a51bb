//! Functions of strings.

use super::super::eval::{Evaluated, failed};
use super::super::value::Val;
use super::{convert, text_of};
use regex::Regex;

/// Text that one call may make.
const TEXT_BYTES_MAX: usize = 8 << 20;

pub(super) fn call<'v>(function: &str, is_member: bool, args: &[Val<'v>]) -> Option<Evaluated<'v>> {
    if function == "join" {
        return join(args);
    }
    let Some((Val::String(first), rest)) = args.split_first() else { return None };
    let text = first.as_str();
    let string = |text: String| Ok(Val::text(&text));
    Some(match (function, rest) {
        ("contains", [Val::String(part)]) => Ok(Val::Bool(text.contains(part.as_str()))),
        ("startsWith", [Val::String(part)]) => Ok(Val::Bool(text.starts_with(part.as_str()))),
        ("endsWith", [Val::String(part)]) => Ok(Val::Bool(text.ends_with(part.as_str()))),
        ("matches", [Val::String(pattern)]) => regex(pattern.as_str()).map(|r| Val::Bool(r.is_match(text))),
        ("strings.quote", []) => string(quote(text)),
        _ if !is_member => return None,
        ("find", [Val::String(pattern)]) => {
            regex(pattern.as_str()).map(|r| Val::text(r.find(text).map(|m| m.as_str()).unwrap_or_default()))
        }
        ("findAll", [Val::String(pattern)]) => find_all(text, pattern.as_str(), -1),
        ("findAll", [Val::String(pattern), Val::Int(limit)]) => find_all(text, pattern.as_str(), *limit),
        ("charAt", [Val::Int(at)]) => char_at(text, *at),
        ("indexOf", [Val::String(part)]) => index_of(text, part.as_str(), 0),
        ("indexOf", [Val::String(part), Val::Int(from)]) => index_of(text, part.as_str(), *from),
        ("lastIndexOf", [Val::String(part)]) => last_index_of(text, part.as_str(), None),
        ("lastIndexOf", [Val::String(part), Val::Int(from)]) => last_index_of(text, part.as_str(), Some(*from)),
        ("lowerAscii", []) => string(text.to_ascii_lowercase()),
        ("upperAscii", []) => string(text.to_ascii_uppercase()),
        ("trim", []) => string(text.trim().to_string()),
        ("replace", [Val::String(old), Val::String(new)]) => replace(text, old.as_str(), new.as_str(), -1),
        ("replace", [Val::String(old), Val::String(new), Val::Int(limit)]) => replace(text, old.as_str(), new.as_str(), *limit),
        ("split", [Val::String(separator)]) => Ok(split(text, separator.as_str(), -1)),
        ("split", [Val::String(separator), Val::Int(limit)]) => Ok(split(text, separator.as_str(), *limit)),
        ("substring", [Val::Int(start)]) => substring(text, *start, text.chars().count() as i64),
        ("substring", [Val::Int(start), Val::Int(end)]) => substring(text, *start, *end),
        ("format", [Val::List(list)]) => match list.to_vec() {
            Ok(values) => format(text, &values),
            Err(error) => Err(failed(error)),
        },
        _ => return None,
    })
}

fn regex(pattern: &str) -> Result<Regex, super::super::eval::EvalError> {
    let built = regex::RegexBuilder::new(pattern).size_limit(4 << 20).build();
    built.map_err(|error| failed(format!("error parsing regexp: {}", error.to_string().lines().last().unwrap_or_default())))
}

fn find_all<'v>(text: &str, pattern: &str, limit: i64) -> Evaluated<'v> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    Ok(Val::items(regex(pattern)?.find_iter(text).take(limit).map(|m| Val::text(m.as_str())).collect()))
}

fn char_at<'v>(text: &str, at: i64) -> Evaluated<'v> {
    let count = text.chars().count() as i64;
    if at < 0 || at > count {
        return Err(failed(format!("index out of range: {at}")));
    }
    Ok(Val::text(&text.chars().nth(at as usize).map(String::from).unwrap_or_default()))
}

fn index_of<'v>(text: &str, part: &str, from: i64) -> Evaluated<'v> {
    if from < 0 {
        return Err(failed(format!("index out of range: {from}")));
    }
    let chars: Vec<char> = text.chars().collect();
    let part: Vec<char> = part.chars().collect();
    let from = from as usize;
    if part.is_empty() {
        return Ok(Val::Int(from.min(chars.len()) as i64));
    }
    let found = (from..chars.len()).find(|at| chars[*at..].starts_with(&part));
    Ok(Val::Int(found.map_or(-1, |at| at as i64)))
}

fn last_index_of<'v>(text: &str, part: &str, from: Option<i64>) -> Evaluated<'v> {
    let chars: Vec<char> = text.chars().collect();
    let part: Vec<char> = part.chars().collect();
    let from = match from {
        Some(from) if from < 0 => return Err(failed(format!("index out of range: {from}"))),
        Some(from) if part.is_empty() => return Ok(Val::Int((from as usize).min(chars.len()) as i64)),
        Some(from) if from as usize >= chars.len() => return Ok(Val::Int(-1)),
        Some(from) => from as usize,
        None if part.is_empty() => return Ok(Val::Int(chars.len() as i64)),
        None => chars.len(),
    };
    let Some(last) = chars.len().checked_sub(part.len()) else { return Ok(Val::Int(-1)) };
    let found = (0..=from.min(last)).rev().find(|at| chars[*at..].starts_with(&part));
    Ok(Val::Int(found.map_or(-1, |at| at as i64)))
}

fn replace<'v>(text: &str, old: &str, new: &str, limit: i64) -> Evaluated<'v> {
    let count = if old.is_empty() { text.chars().count() + 1 } else { text.matches(old).count() };
    let times = usize::try_from(limit).unwrap_or(usize::MAX).min(count);
    if text.len() + times.saturating_mul(new.len()) > TEXT_BYTES_MAX {
        return Err(failed("the replaced text is too long"));
    }
    Ok(Val::text(&text.replacen(old, new, times)))
}

fn split<'v>(text: &str, separator: &str, limit: i64) -> Val<'v> {
    let parts: Vec<&str> = match (usize::try_from(limit), separator.is_empty()) {
        (Ok(0), _) => Vec::new(),
        // Nothing between the characters: each one is a part, the last takes what is left.
        (limit, true) => {
            let limit = limit.unwrap_or(usize::MAX);
            let mut parts = Vec::new();
            let mut rest = text;
            while let Some(c) = rest.chars().next() {
                let (head, tail) = if parts.len() + 1 == limit { (rest, "") } else { rest.split_at(c.len_utf8()) };
                parts.push(head);
                rest = tail;
            }
            parts
        }
        (Ok(limit), false) => text.splitn(limit, separator).collect(),
        (Err(_), false) => text.split(separator).collect(),
    };
    Val::items(parts.into_iter().map(Val::text).collect())
}

fn substring<'v>(text: &str, start: i64, end: i64) -> Evaluated<'v> {
    let count = text.chars().count() as i64;
    if start > end && (0..=count).contains(&end) && start <= count {
        return Err(failed(format!("invalid substring range. start: {start}, end: {end}")));
    }
    for at in [start, end] {
        if at < 0 || at > count {
            return Err(failed(format!("index out of range: {at}")));
        }
    }
    Ok(Val::text(&text.chars().skip(start as usize).take((end - start) as usize).collect::<String>()))
}

fn join<'v>(args: &[Val<'v>]) -> Option<Evaluated<'v>> {
    let (list, separator) = match args {
        [Val::List(list)] => (list, ""),
        [Val::List(list), Val::String(separator)] => (list, separator.as_str()),
        _ => return None,
    };
    let items = match list.to_vec() {
        Ok(items) => items,
        Err(error) => return Some(Err(failed(error))),
    };
    let parts: Option<Vec<&str>> = items.iter().map(Val::as_str).collect();
    Some(match parts {
        Some(parts) => Ok(Val::text(&parts.join(separator))),
        None => Err(failed("join: invalid input: not a string")),
    })
}

fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// `"%s has %d items".format([...])`
fn format<'v>(template: &str, values: &[Val<'v>]) -> Evaluated<'v> {
    let mut out = String::new();
    let mut values = values.iter();
    let mut chars = template.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        if chars.peek() == Some(&'%') {
            chars.next();
            out.push('%');
            continue;
        }
        let mut precision = None;
        if chars.peek() == Some(&'.') {
            chars.next();
            let mut digits = String::new();
            while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            let wanted: usize = digits.parse().map_err(|_| failed("could not parse formatting clause: error while parsing precision"))?;
            precision = Some(wanted.min(100));
        }
        let clause = chars.next().ok_or_else(|| failed("could not parse formatting clause: unexpected end of format string"))?;
        let value = values.next().ok_or_else(|| failed("index out of range: not enough arguments for the format string"))?;
        out.push_str(&clause_text(clause, precision, value)?);
        if out.len() > TEXT_BYTES_MAX {
            return Err(failed("the formatted text is too long"));
        }
    }
    Ok(Val::text(&out))
}

fn clause_text(clause: char, precision: Option<usize>, value: &Val<'_>) -> Result<String, super::super::eval::EvalError> {
    let wrong = |what: &str| failed(format!("error during formatting: {what} clause cannot be used on {}", value.type_name()));
    Ok(match (clause, value) {
        ('s', value) => text_of(value).ok_or_else(|| wrong("string"))?,
        ('d', Val::Int(n)) => n.to_string(),
        ('d', Val::Uint(n)) => n.to_string(),
        ('d', _) => return Err(wrong("decimal")),
        ('f', Val::Double(n)) => format!("{n:.*}", precision.unwrap_or(6)),
        ('f', _) => return Err(wrong("fixed-point")),
        ('e', Val::Double(n)) => exponent_text(*n, precision.unwrap_or(6)),
        ('e', _) => return Err(wrong("scientific")),
        ('b', Val::Int(n)) if *n < 0 => format!("-{:b}", n.unsigned_abs()),
        ('b', Val::Int(n)) => format!("{n:b}"),
        ('b', Val::Uint(n)) => format!("{n:b}"),
        ('b', Val::Bool(flag)) => u8::from(*flag).to_string(),
        ('b', _) => return Err(wrong("binary")),
        ('x' | 'X', _) => {
            let text = match value {
                Val::Int(n) if *n < 0 => format!("-{:x}", n.unsigned_abs()),
                Val::Int(n) => format!("{n:x}"),
                Val::Uint(n) => format!("{n:x}"),
                Val::String(text) => text.as_str().bytes().map(|b| format!("{b:02x}")).collect(),
                Val::Bytes(bytes) => bytes.iter().map(|b| format!("{b:02x}")).collect(),
                _ => return Err(wrong("hex")),
            };
            if clause == 'X' { text.to_uppercase() } else { text }
        }
        ('o', Val::Int(n)) if *n < 0 => format!("-{:o}", n.unsigned_abs()),
        ('o', Val::Int(n)) => format!("{n:o}"),
        ('o', Val::Uint(n)) => format!("{n:o}"),
        ('o', _) => return Err(wrong("octal")),
        (other, _) => return Err(failed(format!("could not parse formatting clause: unrecognized formatting clause {other:?}"))),
    })
}

fn exponent_text(value: f64, precision: usize) -> String {
    if !value.is_finite() {
        return convert::double_text(value);
    }
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
    format!("{digits}e{sign}{exponent:0>2}")
}
