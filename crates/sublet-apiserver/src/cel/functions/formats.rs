//! Named formats: `format.dns1123Label().validate(self.name)`.

use super::super::eval::Evaluated;
use super::super::value::{Opaque, Val};
use crate::crd::validate::text::{dns1035_label, dns1123_label, dns1123_subdomain};
use sublet_machinery::structural::format::is_valid;

/// (name, length of its pattern, which decides costs)
const FORMATS: [(&str, u64); 13] = [
    ("dns1123Label", 30),
    ("dns1123Subdomain", 60),
    ("dns1035Label", 30),
    ("qualifiedName", 60),
    ("dns1123LabelPrefix", 30),
    ("dns1123SubdomainPrefix", 60),
    ("dns1035LabelPrefix", 30),
    ("labelValue", 40),
    ("uri", 1000),
    ("uuid", 76),
    ("byte", 85),
    ("date", 79),
    ("datetime", 79),
];

pub(super) fn pattern_size(name: &str) -> u64 {
    FORMATS.iter().find(|(n, _)| *n == name).map_or(1, |(_, size)| *size)
}

pub(super) fn call<'v>(function: &str, args: &[Val<'v>]) -> Option<Evaluated<'v>> {
    let named = |name: &str| FORMATS.iter().find(|(n, _)| *n == name).map(|(n, _)| Val::Opaque(Opaque::Format(n)));
    Some(Ok(match (function, args) {
        ("format.named", [Val::String(name)]) => named(name.as_str()).map_or(Val::Optional(None), Val::some),
        ("validate", [Val::Opaque(Opaque::Format(name)), Val::String(text)]) => {
            let wrong = judge(name, text.as_str());
            if wrong.is_empty() { Val::Optional(None) } else { Val::some(Val::items(wrong.iter().map(|w| Val::text(w)).collect())) }
        }
        (name, []) => named(name.strip_prefix("format.")?)?,
        _ => return None,
    }))
}

fn judge(name: &str, text: &str) -> Vec<String> {
    // A prefix may end with a dash, as something will follow it.
    let prefix = || if text.len() > 1 { text.strip_suffix('-').map(|t| format!("{t}a")) } else { None }.unwrap_or_else(|| text.into());
    let strict = |format: &str, message: &str| if is_valid(format, text) { Vec::new() } else { vec![message.to_string()] };
    match name {
        "dns1123Label" => dns1123_label(text),
        "dns1123LabelPrefix" => dns1123_label(&prefix()),
        "dns1123Subdomain" => dns1123_subdomain(text),
        "dns1123SubdomainPrefix" => dns1123_subdomain(&prefix()),
        "dns1035Label" => dns1035_label(text),
        "dns1035LabelPrefix" => dns1035_label(&prefix()),
        "labelValue" => label_value(text),
        "qualifiedName" => qualified_name(text),
        "uri" => strict("uri", &format!("parse {text:?}: invalid URI for request")),
        "uuid" => strict("uuid", "does not match the UUID format"),
        "byte" => strict("byte", "invalid base64"),
        "date" => strict("date", "invalid date"),
        "datetime" => strict("datetime", "invalid datetime"),
        _ => Vec::new(),
    }
}

fn is_name(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    ends(text.chars().next()) && ends(text.chars().next_back()) && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn label_value(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 63 {
        wrong.push("must be no more than 63 characters".into());
    }
    if !text.is_empty() && !is_name(text) {
        wrong.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
             alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .into(),
        );
    }
    wrong
}

fn qualified_name(text: &str) -> Vec<String> {
    const FORM: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character \
                        (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                        '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let mut wrong = Vec::new();
    if name.contains('/') {
        return vec![format!("a qualified name {FORM} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')")];
    }
    match prefix {
        Some("") => wrong.push("prefix part must be non-empty".into()),
        Some(prefix) => wrong.extend(dns1123_subdomain(prefix).into_iter().map(|w| format!("prefix part {w}"))),
        None => {}
    }
    if name.is_empty() {
        wrong.push("name part must be non-empty".into());
    } else if name.len() > 63 {
        wrong.push("name part must be no more than 63 characters".into());
    }
    if !is_name(name) {
        wrong.push(format!("name part {FORM}"));
    }
    wrong
}
