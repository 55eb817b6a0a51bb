//! Secrets that pods use.

use super::manifest::{Field, copied, kept, translated};
use super::{KindId, Refusal, SyncedKind, Translation};
use crate::index;
use crate::translate::TenantKey;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

pub const SECRET: SyncedKind = SyncedKind {
    fields: &[&FIELDS],
    select: |object, view| view.is_used(index::SECRETS, &TenantKey::of(object)),
    hook: keep_type,
    slim: true,
    ..SyncedKind::core_v1(KindId::Secret, "Secret", "secrets")
};

const FIELDS: [Field; 4] = [
    copied("/data"),
    copied("/immutable"),
    translated("/type"),
    kept("/stringData", "only ever part of a write; the API server turns it into data"),
];

/// Types that make the host's controllers act: their copies are plain data.
const ACTED_UPON: [&str; 2] = ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"];

fn keep_type(host: &mut Value, tenant: &Value, _: &Translation<'_>) -> Result<(), Refusal> {
    let kind = tenant.str_at("/type").unwrap_or("Opaque");
    host["type"] = json!(if ACTED_UPON.contains(&kind) { "Opaque" } else { kind });
    if let Some(annotations) = host["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|key, _| !key.starts_with("kubernetes.io/service-account."));
    }
    Ok(())
}
