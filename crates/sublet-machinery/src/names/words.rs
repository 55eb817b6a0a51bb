//! Names inside specs: ports, environment variables, config keys, header names.

use super::{DNS_SUBDOMAIN_BYTES_MAX, dns_label, dns_subdomain, mismatch, too_many_characters};
use crate::error::{FieldError, FieldPath};

pub fn c_identifier(value: &str) -> Vec<String> {
    let valid = value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !value.bytes().next().is_none_or(|b| b.is_ascii_digit());
    check(
        valid,
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )
}

/// The name of a port of a container or service.
pub fn port_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 15 {
        errors.push(too_many_characters(15));
    }
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !value.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".into());
    }
    if value.contains("--") {
        errors.push("must not contain consecutive hyphens".into());
    }
    if value.starts_with('-') || value.ends_with('-') {
        errors.push("must not begin or end with a hyphen".into());
    }
    errors
}

pub fn port_number(port: i64) -> Vec<String> {
    if (1..=65535).contains(&port) { Vec::new() } else { vec!["must be between 1 and 65535, inclusive".into()] }
}

/// `50%`, as in maxUnavailable.
pub fn percent(value: &str) -> Vec<String> {
    let valid = value.strip_suffix('%').is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()));
    check(valid, "a valid percent string must be a numeric string followed by an ending '%'", "[0-9]+%", &["1%", "93%"])
}

pub fn http_header_name(value: &str) -> Vec<String> {
    let valid = !value.is_empty() && value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    check(valid, "a valid HTTP header must consist of alphanumeric characters or '-'", "[-A-Za-z0-9]+", &["X-Header-Name"])
}

/// The strict rule; pods follow [`relaxed_env_var_name`].
pub fn env_var_name(value: &str) -> Vec<String> {
    let valid = value.bytes().all(is_key_byte) && !value.bytes().next().is_none_or(|b| b.is_ascii_digit());
    let mut errors = check(
        valid,
        "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not start with a digit",
        "[-._a-zA-Z][-._a-zA-Z0-9]*",
        &["my.env-name", "MY_ENV.NAME", "MyEnvName1"],
    );
    errors.extend(parent_folder(value));
    errors
}

pub fn relaxed_env_var_name(value: &str) -> Vec<String> {
    if value.is_empty() {
        return vec!["environment variable name must be non-empty".into()];
    }
    if value.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=') {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".into()]
}

/// A key of a ConfigMap or Secret.
pub fn config_map_key(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > DNS_SUBDOMAIN_BYTES_MAX {
        errors.push(too_many_characters(DNS_SUBDOMAIN_BYTES_MAX));
    }
    errors.extend(check(
        !value.is_empty() && value.bytes().all(is_key_byte),
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
        "[-._a-zA-Z0-9]+",
        &["key.name", "KEY_NAME", "key-name"],
    ));
    errors.extend(parent_folder(value));
    errors
}

/// A domain of at least three labels: the old rule for signer names and API service names.
pub fn fully_qualified_name(path: &FieldPath, name: &str) -> Vec<FieldError> {
    if name.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let errors = dns_subdomain(name);
    if !errors.is_empty() {
        return vec![FieldError::invalid(path, name, errors.join(","))];
    }
    if name.split('.').count() < 3 {
        return vec![FieldError::invalid(path, name, "should be a domain with at least three segments separated by dots")];
    }
    Vec::new()
}

/// A domain of at least two labels; one dot at the end is fine.
pub fn fully_qualified_domain_name(path: &FieldPath, name: &str) -> Vec<FieldError> {
    if name.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let errors = dns_subdomain(name);
    if !errors.is_empty() {
        return vec![FieldError::invalid(path, name, errors.join(","))];
    }
    if name.split('.').count() < 2 {
        return vec![FieldError::invalid(path, name, "should be a domain with at least two segments separated by dots")];
    }
    let wrong = name.split('.').find_map(|label| {
        let errors = dns_label(label);
        (!errors.is_empty()).then(|| FieldError::invalid(path, label, errors.join(",")))
    });
    wrong.into_iter().collect()
}

/// `acme.io/foo`.
pub fn domain_prefixed_path(path: &FieldPath, value: &str) -> Vec<FieldError> {
    if value.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let Some((host, rest)) = value.split_once('/').filter(|(host, rest)| !host.is_empty() && !rest.is_empty()) else {
        return vec![FieldError::invalid(path, value, "must be a domain-prefixed path (such as \"acme.io/foo\")")];
    };
    let mut errors: Vec<FieldError> = dns_subdomain(host).into_iter().map(|e| FieldError::invalid(path, host, e)).collect();
    if !rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b)) {
        errors.push(FieldError::invalid(path, rest, mismatch("Invalid path", "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+", &[])));
    }
    errors
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')
}

fn check(valid: bool, rule: &str, format: &str, examples: &[&str]) -> Vec<String> {
    if valid { Vec::new() } else { vec![mismatch(rule, format, examples)] }
}

/// Keys become file names, so none may lead out of the folder.
fn parent_folder(value: &str) -> Option<String> {
    match value {
        "." => Some("must not be '.'".into()),
        ".." => Some("must not be '..'".into()),
        _ if value.starts_with("..") => Some("must not start with '..'".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_of_a_port_name_is_named() {
        assert!(port_name("http-1").is_empty());
        assert_eq!(port_name("1"), ["must contain at least one letter (a-z)"]);
        assert_eq!(port_name("a--").len(), 2);
        assert_eq!(port_name("").len(), 2);
    }

    #[test]
    fn keys_stay_inside_their_folder() {
        assert!(config_map_key("a.b_C-1").is_empty());
        assert_eq!(config_map_key("..a"), ["must not start with '..'"]);
        assert_eq!(env_var_name("..").len(), 1);
        assert!(!env_var_name("1A").is_empty() && relaxed_env_var_name("1 A").is_empty());
    }
}
