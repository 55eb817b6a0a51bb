//! Config maps and secrets.

use super::super::Strategy;
use super::super::edit::{ensure, fill_zero, remove};
use super::super::field::{Errors, Field};
use crate::rest::decode::go_type;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sublet_machinery::{FieldError, FieldPath, ObjectExt, names, structural};

pub(crate) const CONFIG_MAP: Strategy = Strategy {
    validate: validate_config_map,
    validate_update: |new, old| validate_frozen(new, old, &["data", "binaryData"]),
    ..Strategy::PLAIN
};

pub(crate) const SECRET: Strategy = Strategy {
    default: default_secret,
    prepare_update: prepare_secret_update,
    validate: validate_secret,
    warnings: secret_warnings,
    validate_update: |new, old| {
        let mut errors = Errors::of(|errors| errors.immutable(&Field::root(new).at("type"), &old["type"]));
        errors.extend(validate_frozen(new, old, &["data"]));
        errors
    },
    fields: secret_fields,
    ..Strategy::PLAIN
};

/// Bytes in all values together.
const DATA_BYTES_MAX: usize = 1024 * 1024;

/// `stringData` is written and never read: it lands in `data`.
fn default_secret(secret: &mut Value) {
    fill_zero(secret, "type", "Opaque");
    let Some(Value::Object(strings)) = remove(secret, "stringData") else { return };
    if strings.is_empty() {
        return;
    }
    let data = ensure(secret, "data");
    for (key, text) in strings {
        data[key.as_str()] = json!(STANDARD.encode(text.as_str().unwrap_or_default()));
    }
}

fn prepare_secret_update(new: &mut Value, old: &Value) {
    fill_zero(new, "type", old["type"].clone());
}

fn secret_fields(secret: &Value) -> Vec<(&'static str, String)> {
    vec![("type", secret["type"].as_str().unwrap_or_default().into())]
}

fn bytes_of(encoded: &Value) -> Vec<u8> {
    STANDARD.decode(encoded.as_str().unwrap_or_default()).unwrap_or_default()
}

fn validate_config_map(map: &Value) -> Vec<FieldError> {
    let root = Field::root(map);
    Errors::of(|errors| {
        let mut size = 0;
        for (key, value) in root.at("data").entries() {
            errors.extend(names::config_map_key(key).into_iter().map(|m| value.invalid_as(key, m)));
            if map["binaryData"].get(key).is_some() {
                errors.add(value.invalid_as(key, "duplicate of key present in binaryData"));
            }
            size += value.len();
        }
        for (key, value) in root.at("binaryData").entries() {
            errors.extend(names::config_map_key(key).into_iter().map(|m| value.invalid_as(key, m)));
            size += bytes_of(value.value).len();
        }
        if size > DATA_BYTES_MAX {
            errors.add(FieldError::too_long(&FieldPath::new("[]"), DATA_BYTES_MAX));
        }
    })
}

/// Once `immutable` is set, it stays, and so does the content.
fn validate_frozen(new: &Value, old: &Value, keys: &[&str]) -> Vec<FieldError> {
    const FROZEN: &str = "field is immutable when `immutable` is set";
    let root = Field::root(new);
    Errors::of(|errors| {
        if old["immutable"] != true {
            return;
        }
        if !root.at("immutable").flag() {
            errors.add(root.at("immutable").forbidden(FROZEN));
        }
        for key in keys {
            let same = *root.at(key).value == old[*key] || (root.at(key).is_zero() && super::super::edit::is_zero(&old[*key]));
            if !same {
                errors.add(root.at(key).forbidden(FROZEN));
            }
        }
    })
}

fn validate_secret(secret: &Value) -> Vec<FieldError> {
    let root = Field::root(secret);
    let data = root.at("data");
    Errors::of(|errors| {
        let mut size = 0;
        for (key, value) in data.entries() {
            errors.extend(names::config_map_key(key).into_iter().map(|m| value.invalid_as(key, m)));
            size += bytes_of(value.value).len();
        }
        if size > DATA_BYTES_MAX {
            errors.add(data.too_long(DATA_BYTES_MAX));
        }
        let entry = |key: &str| Field::new(&data.value[key], data.path.key(key));
        match root.at("type").text() {
            "kubernetes.io/service-account-token" => {
                const ACCOUNT: &str = "kubernetes.io/service-account.name";
                if secret.annotation(ACCOUNT).is_none_or(str::is_empty) {
                    let path = FieldPath::new("metadata.annotations").key(ACCOUNT);
                    errors.add(FieldError::required(&path, ""));
                }
            }
            "kubernetes.io/dockercfg" => validate_docker_config(&entry(".dockercfg"), errors),
            "kubernetes.io/dockerconfigjson" => validate_docker_config(&entry(".dockerconfigjson"), errors),
            "kubernetes.io/basic-auth" if !entry("username").is_set() && !entry("password").is_set() => {
                errors.add(entry("username").required(""));
                errors.add(entry("password").required(""));
            }
            "kubernetes.io/ssh-auth" => {
                errors.require(&entry("ssh-privatekey"));
            }
            "kubernetes.io/tls" => {
                for field in [entry("tls.crt"), entry("tls.key")].iter().filter(|f| !f.is_set()) {
                    errors.add(field.required(""));
                }
            }
            _ => {}
        }
    })
}

fn validate_docker_config(entry: &Field<'_>, errors: &mut Errors) {
    if !entry.is_set() {
        return errors.add(entry.required(""));
    }
    let found = structural::decode(&bytes_of(entry.value)).map_err(|e| e.to_string());
    let found = found.and_then(|decoded| match decoded.value {
        Value::Object(_) | Value::Null => Ok(()),
        other => Err(format!("json: cannot unmarshal {} into Go value of type map[string]interface {{}}", go_type(&other))),
    });
    if let Err(why) = found {
        errors.add(entry.invalid_as("<secret contents redacted>", why.to_string()));
    }
}

fn secret_warnings(secret: &Value) -> Vec<String> {
    if secret["type"] != "kubernetes.io/tls" {
        return Vec::new();
    }
    let text = |key: &str| String::from_utf8_lossy(&bytes_of(&secret["data"][key])).into_owned();
    pem_problem(&text("tls.crt"), &text("tls.key")).into_iter().collect()
}

/// What Go says of a certificate and a key in which it finds no such PEM blocks.
fn pem_problem(certificate: &str, key: &str) -> Option<String> {
    let (found, keys) = (pem_types(certificate), pem_types(key));
    if !found.contains(&"CERTIFICATE") {
        return Some(match found.as_slice() {
            [] => "tls: failed to find any PEM data in certificate input".into(),
            [one] if one.ends_with("PRIVATE KEY") => "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched".into(),
            many => format!("tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [{}]", many.join(" ")),
        });
    }
    if keys.iter().any(|kind| *kind == "PRIVATE KEY" || kind.ends_with(" PRIVATE KEY")) {
        return None;
    }
    Some(match keys.as_slice() {
        [] => "tls: failed to find any PEM data in key input".into(),
        ["CERTIFICATE"] => "tls: found a certificate rather than a key in the PEM for the private key".into(),
        many => format!(
            "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [{}]",
            many.join(" ")
        ),
    })
}

fn pem_types(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.trim().strip_prefix("-----BEGIN ")?.strip_suffix("-----")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_data_wins_over_data() {
        let mut secret = json!({"data": {"a": "eA==", "b": "eQ=="}, "stringData": {"a": "hello"}});
        default_secret(&mut secret);
        assert_eq!(secret, json!({"type": "Opaque", "data": {"a": "aGVsbG8=", "b": "eQ=="}}));
    }
}
