//! What a route attaches to. A listener says which namespaces may; the host cannot know.

use super::{GATEWAY, GROUP, namespace_of};
use crate::resources::peers::matches;
use crate::resources::{KindId, TenantView, Translation, service};
use crate::translate::TenantKey;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

/// A parent of the tenant's route, and what of it the host gets: one reference, one for each listener
/// that lets it in, or none.
pub(super) struct Parent<'a> {
    pub tenant: &'a Value,
    pub host: Vec<Value>,
}

pub(super) fn to_host(route: &Value, translation: &Translation<'_>) -> Vec<Value> {
    all(route, translation).into_iter().flat_map(|p| p.host).collect()
}

pub(super) fn all<'a>(route: &'a Value, translation: &Translation<'_>) -> Vec<Parent<'a>> {
    let parents = route.array_at("/spec/parentRefs").iter();
    parents.map(|tenant| Parent { tenant, host: translated(tenant, route.namespace(), translation) }).collect()
}

fn translated(parent: &Value, own: &str, translation: &Translation<'_>) -> Vec<Value> {
    let key = TenantKey::new(namespace_of(parent, own), parent["name"].as_str().unwrap_or_default());
    let mut host = parent.clone();
    host.remove_at("/namespace");
    match (parent.str_at("/group").unwrap_or(GROUP), parent.str_at("/kind").unwrap_or("Gateway")) {
        (GROUP, "Gateway") => {}
        ("", "Service") => {
            host["name"] = json!(translation.refer(&service::SERVICE, &key.namespace, &key.name));
            return vec![host];
        }
        _ => return Vec::new(),
    }
    host["name"] = json!(translation.refer(&GATEWAY, &key.namespace, &key.name));
    if key.namespace == own {
        return vec![host];
    }
    // Without a look at the gateway nobody is let in.
    let Some(gateway) = translation.view.object(KindId::Gateway, &key) else { return Vec::new() };
    let asked = parent.str_at("/sectionName");
    let listeners: Vec<&Value> = gateway.array_at("/spec/listeners").iter().filter(|l| asked.is_none_or(|a| l["name"] == a)).collect();
    let open: Vec<&&Value> = listeners.iter().filter(|l| lets_in(l, own, translation.view)).collect();
    if open.len() == listeners.len() && !open.is_empty() {
        return vec![host];
    }
    let section = |listener: &&&Value| {
        let mut section = host.clone();
        section["sectionName"] = listener["name"].clone();
        section
    };
    open.iter().map(section).collect()
}

/// Whether a listener takes routes of a namespace other than its own.
fn lets_in(listener: &Value, namespace: &str, view: &dyn TenantView) -> bool {
    let namespaces = &listener["allowedRoutes"]["namespaces"];
    match namespaces["from"].as_str().unwrap_or("Same") {
        "All" => true,
        "Selector" => {
            let selector = &namespaces["selector"];
            selector.is_object() && view.namespaces().iter().any(|n| n.name() == namespace && matches(selector, n))
        }
        _ => false,
    }
}
