//! Versions as `blang/semver` reads and compares them.

use super::super::eval::{Evaluated, failed};
use super::super::value::{Opaque, Semver, Val};
use std::cmp::Ordering;
use std::rc::Rc;

pub(super) fn call<'v>(function: &str, args: &[Val<'v>]) -> Option<Evaluated<'v>> {
    use Opaque::Semver as Version;
    let bool = |value: bool| Ok(Val::Bool(value));
    let of = |text: &str, normal: bool| if normal { normalized(text).and_then(|text| parse(&text)) } else { parse(text) };
    let value = |version: Result<Semver, String>| version.map(|v| Val::Opaque(Version(Rc::new(v)))).map_err(failed);
    Some(match (function, args) {
        ("semver", [Val::String(text)]) => value(of(text.as_str(), false)),
        ("semver", [Val::String(text), Val::Bool(normal)]) => value(of(text.as_str(), *normal)),
        ("isSemver", [Val::String(text)]) => bool(of(text.as_str(), false).is_ok()),
        ("isSemver", [Val::String(text), Val::Bool(normal)]) => bool(of(text.as_str(), *normal).is_ok()),
        ("isGreaterThan", [Val::Opaque(Version(a)), Val::Opaque(Version(b))]) => bool(compare(a, b).is_gt()),
        ("isLessThan", [Val::Opaque(Version(a)), Val::Opaque(Version(b))]) => bool(compare(a, b).is_lt()),
        ("compareTo", [Val::Opaque(Version(a)), Val::Opaque(Version(b))]) => Ok(Val::Int(compare(a, b) as i64)),
        ("major" | "minor" | "patch", [Val::Opaque(Version(v))]) => {
            let at = ["major", "minor", "patch"].iter().position(|name| *name == function)?;
            Ok(Val::Int(i64::try_from(v.numbers[at]).unwrap_or(i64::MAX)))
        }
        _ => return None,
    })
}

fn parse(text: &str) -> Result<Semver, String> {
    if text.is_empty() {
        return Err("Version string empty".into());
    }
    let parts: Vec<&str> = text.splitn(3, '.').collect();
    let [major, minor, rest] = parts[..] else { return Err("No Major.Minor.Patch elements found".into()) };
    let numbers = [number(major, "major", "Major")?, number(minor, "minor", "Minor")?];
    let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
    let (patch, pre) = rest.split_once('-').map_or((rest, None), |(patch, pre)| (patch, Some(pre)));
    let numbers = [numbers[0], numbers[1], number(patch, "patch", "Patch")?];
    let is_plain = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    for part in pre.iter().flat_map(|pre| pre.split('.')) {
        if part.is_empty() {
            return Err("Prerelease is empty".into());
        }
        if has_leading_zero(part) {
            return Err(format!("Numeric PreRelease version must not contain leading zeroes {part:?}"));
        }
        if !is_plain(part) {
            return Err(format!("Invalid character(s) found in prerelease {part:?}"));
        }
    }
    for part in build.iter().flat_map(|build| build.split('.')) {
        if part.is_empty() {
            return Err("Build meta data is empty".into());
        }
        if !is_plain(part) {
            return Err(format!("Invalid character(s) found in build meta data {part:?}"));
        }
    }
    Ok(Semver { numbers, pre: pre.unwrap_or_default().into() })
}

fn is_numeric(part: &str) -> bool {
    part.bytes().all(|b| b.is_ascii_digit())
}

fn has_leading_zero(part: &str) -> bool {
    part.len() > 1 && part.starts_with('0') && is_numeric(part)
}

fn number(part: &str, name: &str, title: &str) -> Result<u64, String> {
    if !is_numeric(part) {
        return Err(format!("Invalid character(s) found in {name} number {part:?}"));
    }
    if has_leading_zero(part) {
        return Err(format!("{title} number must not contain leading zeroes {part:?}"));
    }
    let why = if part.is_empty() { "invalid syntax" } else { "value out of range" };
    part.parse().map_err(|_| format!("strconv.ParseUint: parsing {part:?}: {why}"))
}

/// `v01.2` is `1.2.0`.
fn normalized(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_string).collect();
    for part in &mut parts {
        let stripped = part.trim_start_matches('0');
        if part.len() > 1 {
            *part = if stripped.starts_with(|c: char| c.is_ascii_digit()) { stripped.into() } else { format!("0{stripped}") };
        }
    }
    if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
        return Err("Short version cannot contain PreRelease/Build meta data".into());
    }
    parts.resize(parts.len().max(3), "0".into());
    Ok(parts.join("."))
}

fn compare(a: &Semver, b: &Semver) -> Ordering {
    a.numbers.cmp(&b.numbers).then_with(|| match (a.pre.is_empty(), b.pre.is_empty()) {
        (true, true) => Ordering::Equal,
        // A release comes after what leads to it.
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => compare_pre(&a.pre, &b.pre),
    })
}

fn compare_pre(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a.split('.'), b.split('.'));
    loop {
        let order = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => match (a.parse::<u64>(), b.parse::<u64>()) {
                (Ok(a), Ok(b)) => a.cmp(&b),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => a.cmp(b),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}
