//! Functions of strings.

use super::super::eval::{Evaluated, failed};
use super::super::value::Val;
use super::format;
use regex::Regex;
use sublet_machinery::pattern;

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
        ("jsonpatch.escapeKey", []) => string(text.replace('~', "~0").replace('/', "~1")),
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
            Ok(values) => format::call(text, &values),
            Err(error) => Err(failed(error)),
        },
        _ => return None,
    })
}

fn regex(text: &str) -> Result<Regex, super::super::eval::EvalError> {
    // Kept: the same pattern is asked for each item of a list.
    pattern::compiled(text).map_err(|why| failed(format!("error parsing regexp: {why}")))
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
    let count = text.chars().count();
    let from = (from as usize).min(count);
    if part.is_empty() {
        return Ok(Val::Int(from as i64));
    }
    let start = byte_of(text, from);
    // Searched as bytes, which takes one pass; comparing at each character takes as many as the part is long.
    let found = text[start..].find(part).map(|at| from + text[start..start + at].chars().count());
    Ok(Val::Int(found.map_or(-1, |at| at as i64)))
}

/// Where a character begins; the end for the one after the last.
fn byte_of(text: &str, character: usize) -> usize {
    text.char_indices().nth(character).map_or(text.len(), |(at, _)| at)
}

fn last_index_of<'v>(text: &str, part: &str, from: Option<i64>) -> Evaluated<'v> {
    let count = text.chars().count();
    let from = match from {
        Some(from) if from < 0 => return Err(failed(format!("index out of range: {from}"))),
        Some(from) if part.is_empty() => return Ok(Val::Int(from)),
        Some(from) if from as usize >= count => return Ok(Val::Int(-1)),
        Some(from) => from as usize,
        None if part.is_empty() => return Ok(Val::Int(count as i64)),
        None => count,
    };
    // A part that begins at `from` may reach beyond it.
    let end = byte_of(text, from.saturating_add(part.chars().count()));
    let found = text[..end].rfind(part).map(|at| text[..at].chars().count());
    Ok(Val::Int(found.map_or(-1, |at| at as i64)))
}

fn replace<'v>(text: &str, old: &str, new: &str, limit: i64) -> Evaluated<'v> {
    let count = if old.is_empty() { text.chars().count() + 1 } else { text.matches(old).count() };
    let times = usize::try_from(limit).unwrap_or(usize::MAX).min(count);
    if text.len() + times.saturating_mul(new.len()) > format::TEXT_BYTES_MAX {
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
