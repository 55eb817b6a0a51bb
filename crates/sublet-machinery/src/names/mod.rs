//! The rules for names, label keys and the like, with upstream's words for what is wrong.
//!
//! Every check returns what is wrong with the text; an empty list (which costs nothing) means valid.

mod ip;
mod words;

pub use ip::{
    cidr_warnings, ip_warnings, parse_cidr_sloppy, parse_ip_sloppy, validate_cidr, validate_cidr_legacy, validate_ip, validate_ip_legacy,
};
pub use words::{
    c_identifier, config_map_key, domain_prefixed_path, env_var_name, fully_qualified_domain_name, fully_qualified_name, http_header_name,
    percent, port_name, port_number, relaxed_env_var_name,
};

pub const DNS_LABEL_BYTES_MAX: usize = 63;
pub const DNS_SUBDOMAIN_BYTES_MAX: usize = 253;
pub const LABEL_VALUE_BYTES_MAX: usize = 63;

/// A rule for object names; `true` says that the text is a prefix (`generateName`).
pub type NameFn = fn(&str, bool) -> Vec<String>;

const LABEL_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";

/// A label of DNS as RFC 1123 has it.
pub fn dns_label(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > DNS_LABEL_BYTES_MAX {
        errors.push(too_many_characters(DNS_LABEL_BYTES_MAX));
    }
    if !is_dns_label(value) {
        if is_dns_subdomain(value) {
            errors.push("must not contain dots".into());
        } else {
            errors.push(mismatch(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                LABEL_FORMAT,
                &["my-name", "123-abc"],
            ));
        }
    }
    errors
}

/// A domain name as RFC 1123 has it.
pub fn dns_subdomain(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > DNS_SUBDOMAIN_BYTES_MAX {
        errors.push(too_many_characters(DNS_SUBDOMAIN_BYTES_MAX));
    }
    if !is_dns_subdomain(value) {
        errors.push(subdomain_mismatch());
    }
    errors
}

/// A domain name whose labels may also hold underscores.
pub fn dns_subdomain_with_underscore(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > DNS_SUBDOMAIN_BYTES_MAX {
        errors.push(too_many_characters(DNS_SUBDOMAIN_BYTES_MAX));
    }
    let label_fits = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        bounded_by(label, is_lower_alphanumeric, |b| is_lower_alphanumeric(b) || b == b'-' || b == b'_')
    };
    if !value.split('.').all(label_fits) {
        errors.push(mismatch(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
            "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    errors
}

/// `*.` and a domain name.
pub fn wildcard_dns_subdomain(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > DNS_SUBDOMAIN_BYTES_MAX {
        errors.push(too_many_characters(DNS_SUBDOMAIN_BYTES_MAX));
    }
    if !value.strip_prefix("*.").is_some_and(is_dns_subdomain) {
        errors.push(mismatch(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!("\\*\\.{SUBDOMAIN_FORMAT}"),
            &["*.example.com"],
        ));
    }
    errors
}

/// A label of DNS as RFC 1035 has it: no digit first.
pub fn dns_1035_label(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > DNS_LABEL_BYTES_MAX {
        errors.push(too_many_characters(DNS_LABEL_BYTES_MAX));
    }
    if !(is_dns_label(value) && value.as_bytes()[0].is_ascii_lowercase()) {
        errors.push(mismatch(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// A label key (also called qualified name): an optional domain, a slash, and a name.
pub fn qualified_name(value: &str) -> Vec<String> {
    let format = || {
        mismatch(
            "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
            &["MyName", "my.name", "123-abc"],
        )
    };
    let mut errors = Vec::new();
    let name = match value.split_once('/') {
        None => value,
        Some((_, name)) if name.contains('/') => {
            errors
                .push(format!("a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')", format()));
            return errors;
        }
        Some(("", name)) => {
            errors.push("prefix part must be non-empty".into());
            name
        }
        Some((prefix, name)) => {
            if prefix.len() > DNS_SUBDOMAIN_BYTES_MAX {
                errors.push(format!("prefix part {}", too_many_bytes(DNS_SUBDOMAIN_BYTES_MAX)));
            }
            if !is_dns_subdomain(prefix) {
                errors.push(format!("prefix part {}", subdomain_mismatch()));
            }
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".into());
    } else if name.len() > LABEL_VALUE_BYTES_MAX {
        errors.push(format!("name part {}", too_many_bytes(LABEL_VALUE_BYTES_MAX)));
    }
    if !is_label_word(name) {
        errors.push(format!("name part {}", format()));
    }
    errors
}

/// The value of a label.
pub fn label_value(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_VALUE_BYTES_MAX {
        errors.push(too_many_bytes(LABEL_VALUE_BYTES_MAX));
    }
    if !value.is_empty() && !is_label_word(value) {
        errors.push(mismatch(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

/// What stands in a URL path as one segment.
pub fn path_segment(value: &str) -> Vec<String> {
    match value {
        "." | ".." => vec![format!("may not be '{value}'")],
        _ => path_segment_prefix(value),
    }
}

/// The start of a path segment.
pub fn path_segment_prefix(value: &str) -> Vec<String> {
    ["/", "%"].into_iter().filter(|bad| value.contains(bad)).map(|bad| format!("may not contain '{bad}'")).collect()
}

/// Object names that are domain names: most kinds.
pub fn name_is_dns_subdomain(name: &str, prefix: bool) -> Vec<String> {
    with_masked_dash(name, prefix, dns_subdomain)
}

/// Object names that are DNS labels: namespaces.
pub fn name_is_dns_label(name: &str, prefix: bool) -> Vec<String> {
    with_masked_dash(name, prefix, dns_label)
}

/// Object names that are RFC 1035 labels: services.
pub fn name_is_dns_1035_label(name: &str, prefix: bool) -> Vec<String> {
    with_masked_dash(name, prefix, dns_1035_label)
}

/// Object names that are path segments: RBAC.
pub fn name_is_path_segment(name: &str, prefix: bool) -> Vec<String> {
    if prefix { path_segment_prefix(name) } else { path_segment(name) }
}

/// A prefix may end in a dash, because something follows it. As upstream, the check sees the text
/// without its last two bytes and an `a` in their place.
fn with_masked_dash(name: &str, prefix: bool, check: fn(&str) -> Vec<String>) -> Vec<String> {
    match name.len().checked_sub(2).and_then(|end| name.get(..end)) {
        Some(start) if prefix && name.ends_with('-') => check(&format!("{start}a")),
        _ => check(name),
    }
}

pub fn is_dns_label(value: &str) -> bool {
    bounded_by(value, is_lower_alphanumeric, |b| is_lower_alphanumeric(b) || b == b'-')
}

pub fn is_dns_subdomain(value: &str) -> bool {
    value.split('.').all(is_dns_label)
}

/// A non-empty label value, or the name part of a label key.
fn is_label_word(value: &str) -> bool {
    bounded_by(value, |b| b.is_ascii_alphanumeric(), |b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// First and last byte satisfy `end`, those between `inner`.
fn bounded_by(value: &str, end: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    match value.as_bytes() {
        [] => false,
        [only] => end(*only),
        [first, middle @ .., last] => end(*first) && end(*last) && middle.iter().all(|b| inner(*b)),
    }
}

fn subdomain_mismatch() -> String {
    mismatch(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
        SUBDOMAIN_FORMAT,
        &["example.com"],
    )
}

fn too_many_characters(max: usize) -> String {
    format!("must be no more than {max} characters")
}

fn too_many_bytes(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

/// The text for a failed pattern: the rule, examples, and the pattern itself.
fn mismatch(rule: &str, format: &str, examples: &[&str]) -> String {
    let mut text = rule.to_string();
    text.push_str(" (");
    for (i, example) in examples.iter().enumerate() {
        text.push_str(if i == 0 { "e.g. '" } else { " or '" });
        text.push_str(example);
        text.push_str("', ");
    }
    text.push_str("regex used for validation is '");
    text.push_str(format);
    text.push_str("')");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_their_rules() {
        let long = "a".repeat(64);
        let valid: [(fn(&str) -> Vec<String>, &[&str]); 6] = [
            (dns_label, &["a", "a-1", "1"]),
            (dns_subdomain, &["a", "a.b-c", "1.2"]),
            (dns_1035_label, &["a", "a-1"]),
            (qualified_name, &["a", "A.b_c-d", "example.com/Name", "1/2"]),
            (label_value, &["", "a", "A_b.c"]),
            (path_segment, &["", "a:b", "system:node"]),
        ];
        for (check, texts) in valid {
            for text in texts {
                assert_eq!(check(text), Vec::<String>::new(), "{text}");
            }
        }
        let invalid: [(fn(&str) -> Vec<String>, &[&str]); 6] = [
            (dns_label, &["", "-a", "a-", "A", "a.b", "a_b", &long]),
            (dns_subdomain, &["", ".", "a.", ".a", "a..b", "a/b"]),
            (dns_1035_label, &["", "1a", "a.b"]),
            (qualified_name, &["", "/a", "a/", "a/b/c", "-a", "A.com/a", &long]),
            (label_value, &["-", "a b", "é", &long]),
            (path_segment, &[".", "..", "a/b", "a%b"]),
        ];
        for (check, texts) in invalid {
            for text in texts {
                assert!(!check(text).is_empty(), "{text}");
            }
        }
    }

    #[test]
    fn texts_are_those_of_upstream() {
        assert_eq!(
            dns_label("A"),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        assert_eq!(dns_label("a.b"), ["must not contain dots"]);
        assert_eq!(path_segment("a/b"), ["may not contain '/'"]);
    }

    #[test]
    fn a_prefix_may_end_in_a_dash() {
        assert!(name_is_dns_label("web-", true).is_empty());
        assert!(!name_is_dns_label("web-", false).is_empty());
        assert!(!name_is_dns_label("-", true).is_empty());
    }
}
