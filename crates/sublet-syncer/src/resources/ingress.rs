//! Ingresses: backends and certificates under their host names, the address back up.

use super::manifest::{Field, copied, parts, to_tenant, translated};
use super::{KindId, Refusal, SyncedKind, Translation, Upward, secret, service};
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

pub const INGRESS: SyncedKind = SyncedKind {
    group: "networking.k8s.io",
    fields: &[&FIELDS],
    hook: to_host,
    to_tenant: |_, host, _| Upward { status: Some(host["status"].clone()).filter(Value::is_object), main: None },
    ..SyncedKind::core_v1(KindId::Ingress, "Ingress", "ingresses")
};

const FIELDS: [Field; 6] = [
    parts("/spec"),
    copied("/spec/ingressClassName"),
    translated("/spec/defaultBackend"),
    translated("/spec/rules"),
    translated("/spec/tls"),
    to_tenant("/status"),
];

/// The Secrets with the certificates.
pub fn certificates(ingress: &Value) -> impl Iterator<Item = &str> {
    ingress.array_at("/spec/tls").iter().filter_map(|tls| tls["secretName"].as_str()).filter(|name| !name.is_empty())
}

fn to_host(host: &mut Value, tenant: &Value, translation: &Translation<'_>) -> Result<(), Refusal> {
    let namespace = tenant.namespace();
    let spec = &tenant["spec"];
    if spec["defaultBackend"].is_object() {
        host["spec"]["defaultBackend"] = backend(&spec["defaultBackend"], "spec.defaultBackend", namespace, translation)?;
    }
    let mut rules = spec.array_at("/rules").to_vec();
    for (i, rule) in rules.iter_mut().enumerate() {
        for (j, path) in rule.pointer_mut("/http/paths").and_then(Value::as_array_mut).into_iter().flatten().enumerate() {
            let field = format!("spec.rules[{i}].http.paths[{j}].backend");
            path["backend"] = backend(&path["backend"], &field, namespace, translation)?;
        }
    }
    if !rules.is_empty() {
        host["spec"]["rules"] = Value::Array(rules);
    }
    let mut tls = spec.array_at("/tls").to_vec();
    for entry in &mut tls {
        if let Some(name) = entry.get_mut("secretName") {
            *name = json!(translation.refer(&secret::SECRET, namespace, name.as_str().unwrap_or_default()));
        }
    }
    if !tls.is_empty() {
        host["spec"]["tls"] = Value::Array(tls);
    }
    Ok(())
}

fn backend(backend: &Value, field: &str, namespace: &str, translation: &Translation<'_>) -> Result<Value, Refusal> {
    let Some(name) = backend.str_at("/service/name") else {
        return Err(Refusal::new(format!("{field}.resource"), "names an object that does not exist on the host; use a service"));
    };
    let mut translated = backend.clone();
    translated["service"]["name"] = json!(translation.refer(&service::SERVICE, namespace, name));
    Ok(translated)
}
