//! The Gateway API, where the host serves it. All namespaces of the tenant are one namespace of the
//! host, where every reference is one within a namespace: who may refer to whom across the tenant's
//! namespaces is judged here.

mod grants;
mod parents;
mod status;

use super::manifest::{Field, copied, parts, to_tenant, translated};
use super::{KindId, Refusal, SyncedKind, Translation, Upward, secret, service};
use crate::index;
use crate::translate::{NAME_BYTES_MAX_LABEL, TenantKey};
use grants::Target;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

const GROUP: &str = "gateway.networking.k8s.io";

/// Judged here and of no use on the host, where nothing crosses namespaces.
pub const REFERENCE_GRANT: SyncedKind = SyncedKind {
    group: GROUP,
    version: "v1beta1",
    fields: &[&GRANT_FIELDS],
    select: |_, _| false,
    ..SyncedKind::core_v1(KindId::ReferenceGrant, "ReferenceGrant", "referencegrants")
};

pub const GATEWAY: SyncedKind = SyncedKind {
    group: GROUP,
    // Controllers name Services and labels after it.
    name_bytes_max: NAME_BYTES_MAX_LABEL,
    fields: &[&GATEWAY_FIELDS],
    hook: gateway_to_host,
    to_tenant: |tenant, host, _| Upward { status: status::of(tenant, host), main: None },
    ..SyncedKind::core_v1(KindId::Gateway, "Gateway", "gateways")
};

pub const HTTP_ROUTE: SyncedKind = SyncedKind {
    group: GROUP,
    fields: &[&ROUTE_FIELDS],
    hook: |host, tenant, translation| route_to_host("HTTPRoute", host, tenant, translation),
    to_tenant: |tenant, host, translation| Upward { status: status::of_route("HTTPRoute", tenant, host, translation), main: None },
    ..SyncedKind::core_v1(KindId::HttpRoute, "HTTPRoute", "httproutes")
};

pub const GRPC_ROUTE: SyncedKind = SyncedKind {
    group: GROUP,
    fields: &[&ROUTE_FIELDS],
    hook: |host, tenant, translation| route_to_host("GRPCRoute", host, tenant, translation),
    to_tenant: |tenant, host, translation| Upward { status: status::of_route("GRPCRoute", tenant, host, translation), main: None },
    ..SyncedKind::core_v1(KindId::GrpcRoute, "GRPCRoute", "grpcroutes")
};

const GRANT_FIELDS: [Field; 1] = [translated("/spec")];

const GATEWAY_FIELDS: [Field; 9] = [
    parts("/spec"),
    copied("/spec/gatewayClassName"),
    copied("/spec/addresses"),
    parts("/spec/infrastructure"),
    copied("/spec/infrastructure/labels"),
    copied("/spec/infrastructure/annotations"),
    translated("/spec/infrastructure/parametersRef"),
    translated("/spec/listeners"),
    to_tenant("/status"),
];

const ROUTE_FIELDS: [Field; 5] =
    [parts("/spec"), copied("/spec/hostnames"), translated("/spec/parentRefs"), translated("/spec/rules"), to_tenant("/status")];

/// The index keys of the Secrets that a Gateway refers to.
pub fn uses(gateway: &Value) -> Vec<String> {
    let references = gateway.array_at("/spec/listeners").iter().flat_map(|l| l.array_at("/tls/certificateRefs"));
    let secrets = references.filter(|r| r.str_at("/kind").unwrap_or("Secret") == "Secret");
    secrets.filter_map(|r| Some(index::usage_key(index::SECRETS, namespace_of(r, gateway.namespace()), r["name"].as_str()?))).collect()
}

/// The namespace of a reference from an object in `own`.
fn namespace_of<'a>(reference: &'a Value, own: &'a str) -> &'a str {
    reference.str_at("/namespace").unwrap_or(own)
}

fn gateway_to_host(host: &mut Value, tenant: &Value, translation: &Translation<'_>) -> Result<(), Refusal> {
    if tenant["spec"]["infrastructure"]["parametersRef"].is_object() {
        return Err(Refusal::new("spec.infrastructure.parametersRef", "names an object that does not exist on the host"));
    }
    let mut listeners = tenant.array_at("/spec/listeners").to_vec();
    for (i, listener) in listeners.iter_mut().enumerate() {
        // Which namespaces may attach is judged with each route; on the host all are one.
        if listener["allowedRoutes"].is_object() && listener["allowedRoutes"]["namespaces"]["from"] != "None" {
            listener["allowedRoutes"]["namespaces"] = json!({"from": "Same"});
        }
        for (j, certificate) in listener.pointer_mut("/tls/certificateRefs").and_then(Value::as_array_mut).into_iter().flatten().enumerate()
        {
            let is_secret =
                certificate.str_at("/group").unwrap_or_default().is_empty() && certificate.str_at("/kind").unwrap_or("Secret") == "Secret";
            if !is_secret {
                let field = format!("spec.listeners[{i}].tls.certificateRefs[{j}]");
                return Err(Refusal::new(field, "names an object that does not exist on the host; use a Secret"));
            }
            translate_reference(certificate, "Gateway", "Secret", tenant.namespace(), &secret::SECRET, translation);
        }
    }
    host["spec"]["listeners"] = Value::Array(listeners);
    Ok(())
}

/// A reference in the host's names. One that nobody granted leads to a name that nothing has, and the
/// host says so in the status.
fn translate_reference(
    reference: &mut Value,
    from_kind: &str,
    to_kind: &'static str,
    own: &str,
    row: &SyncedKind,
    translation: &Translation<'_>,
) {
    let key = TenantKey::new(namespace_of(reference, own), reference["name"].as_str().unwrap_or_default());
    let granted = grants::allow(from_kind, own, &Target { group: "", kind: to_kind, key: &key }, translation.view);
    reference["name"] = json!(match granted {
        true => translation.refer(row, &key.namespace, &key.name),
        false => translation.names.derived_name("ungranted", &key, row.name_bytes_max),
    });
    reference.remove_at("/namespace");
}

fn route_to_host(kind: &'static str, host: &mut Value, tenant: &Value, translation: &Translation<'_>) -> Result<(), Refusal> {
    let parents = parents::to_host(tenant, translation);
    if !parents.is_empty() {
        host["spec"]["parentRefs"] = Value::Array(parents);
    }
    let mut rules = tenant.array_at("/spec/rules").to_vec();
    for (i, rule) in rules.iter_mut().enumerate() {
        let field = format!("spec.rules[{i}]");
        translate_filters(rule, &field, kind, tenant.namespace(), translation)?;
        for (j, backend) in items(rule, "backendRefs").enumerate() {
            let field = format!("{field}.backendRefs[{j}]");
            translate_backend(backend, &field, kind, tenant.namespace(), translation)?;
            translate_filters(backend, &field, kind, tenant.namespace(), translation)?;
        }
    }
    if !rules.is_empty() {
        host["spec"]["rules"] = Value::Array(rules);
    }
    Ok(())
}

fn items<'a>(value: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}

fn translate_filters(holder: &mut Value, field: &str, kind: &str, own: &str, translation: &Translation<'_>) -> Result<(), Refusal> {
    for (i, filter) in items(holder, "filters").enumerate() {
        let field = format!("{field}.filters[{i}]");
        if filter["extensionRef"].is_object() {
            return Err(Refusal::new(format!("{field}.extensionRef"), "names an object that does not exist on the host"));
        }
        if let Some(backend) = filter.pointer_mut("/requestMirror/backendRef") {
            translate_backend(backend, &format!("{field}.requestMirror.backendRef"), kind, own, translation)?;
        }
    }
    Ok(())
}

fn translate_backend(backend: &mut Value, field: &str, kind: &str, own: &str, translation: &Translation<'_>) -> Result<(), Refusal> {
    let is_service = backend.str_at("/group").unwrap_or_default().is_empty() && backend.str_at("/kind").unwrap_or("Service") == "Service";
    if !is_service {
        return Err(Refusal::new(field, "names an object that does not exist on the host; use a Service"));
    }
    translate_reference(backend, kind, "Service", own, &service::SERVICE, translation);
    Ok(())
}
