//! Service accounts.

use super::super::Strategy;
use super::super::edit::items;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

pub(crate) const SERVICE_ACCOUNT: Strategy = Strategy {
    prepare_create: clean_secrets,
    prepare_update: |new, _| clean_secrets(new),
    warnings,
    warnings_update: Some(|new, old| if old.annotation(MOUNTABLE_SECRETS).is_some() { Vec::new() } else { warnings(new) }),
    ..Strategy::PLAIN
};

const MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

/// References to secrets keep nothing but the name.
fn clean_secrets(account: &mut Value) {
    for secret in items(account, "secrets") {
        *secret = json!({"name": secret["name"]});
    }
}

fn warnings(account: &Value) -> Vec<String> {
    if account.annotation(MOUNTABLE_SECRETS).is_none() {
        return Vec::new();
    }
    vec![format!(
        "metadata.annotations[{MOUNTABLE_SECRETS}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
    )]
}
