//! Config maps and secrets.

use super::super::Strategy;
use super::super::edit::{ensure, fill_zero, remove};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

pub(crate) const CONFIG_MAP: Strategy = Strategy::PLAIN;

pub(crate) const SECRET: Strategy =
    Strategy { default: default_secret, prepare_update: prepare_secret_update, fields: secret_fields, ..Strategy::PLAIN };

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
