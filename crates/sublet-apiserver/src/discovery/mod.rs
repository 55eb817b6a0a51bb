//! Discovery: which groups, versions and resources there are, in the old form (a document per group version) and in
//! the aggregated form (`apidiscovery.k8s.io/v2`, two documents for all).

mod cache;
mod documents;
mod groups;
mod order;

pub use documents::{Document, DocumentId, Documents};

use crate::registry::{Resource, Snapshot, Subresource, storage_group_version};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use groups::{Group, groups_by_api_service, groups_by_name};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use sublet_machinery::Gvk;

/// The two roots of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Root {
    /// `/api`: the core group.
    Api,
    /// `/apis`: all other groups.
    Apis,
}

/// The document at `/api`, `/api/v1`, `/apis`, `/apis/GROUP` or `/apis/GROUP/VERSION`; `None` when there is no such
/// group or version here; those of other servers are asked for there. `server_address` is host and port as the client reached the server.
pub fn legacy(path: &str, snapshot: &Snapshot, server_address: &str) -> Option<Value> {
    let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
    match parts[..] {
        ["api"] => Some(json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": server_address }],
        })),
        ["api", version] => resource_list("", version, snapshot),
        ["apis"] => {
            let groups: Vec<Value> = groups_by_api_service(snapshot).iter().map(group_value).collect();
            Some(json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }))
        }
        ["apis", group] => {
            let group = groups_by_name(snapshot).into_iter().find(|g| g.name == group)?;
            let mut value = group_value(&group);
            value["kind"] = "APIGroup".into();
            value["apiVersion"] = "v1".into();
            Some(value)
        }
        ["apis", group, version] => resource_list(group, version, snapshot),
        _ => None,
    }
}

/// The `APIGroupDiscoveryList` of a root.
pub fn aggregated(snapshot: &Snapshot, root: Root) -> Value {
    let items: Vec<Value> = match root {
        Root::Api => vec![json!({ "metadata": {}, "versions": [version_value("", "v1", snapshot)] })],
        Root::Apis => {
            let groups = groups_by_name(snapshot);
            let item = |group: &Group<'_>| {
                let versions: Vec<Value> = group.versions.iter().map(|v| version_value(group.name, v, snapshot)).collect();
                json!({ "metadata": { "name": group.name }, "versions": versions })
            };
            groups.iter().map(item).collect()
        }
    };
    json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items })
}

fn group_value(group: &Group<'_>) -> Value {
    let version = |v: &&str| json!({ "groupVersion": format!("{}/{v}", group.name), "version": v });
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    json!({ "name": group.name, "preferredVersion": versions[0], "versions": versions })
}

fn resource_list(group: &str, version: &str, snapshot: &Snapshot) -> Option<Value> {
    let mut resources = Vec::new();
    for row in snapshot.in_version(group, version) {
        resources.push(resource_value(row));
        resources.extend(row.subresources.iter().map(|s| subresource_value(row, s)));
    }
    if resources.is_empty() {
        let external = snapshot.external.iter().find(|e| e.own && e.group == group && e.version == version)?;
        resources.extend(external.resources.iter().map(external_value));
    }
    let mut list = Map::new();
    list.insert("kind".into(), "APIResourceList".into());
    // Upstream leaves the version out for the core group, whose list is as old as Kubernetes.
    if group.is_empty() {
        list.insert("groupVersion".into(), version.into());
    } else {
        list.insert("apiVersion".into(), "v1".into());
        list.insert("groupVersion".into(), format!("{group}/{version}").into());
    }
    list.insert("resources".into(), Value::Array(resources));
    Some(Value::Object(list))
}

/// A resource without a row, from the form of aggregated discovery.
fn external_value(resource: &Value) -> Value {
    json!({
        "name": resource["resource"], "singularName": resource["singularResource"], "namespaced": resource["scope"] == "Namespaced",
        "kind": resource["responseKind"]["kind"], "verbs": resource["verbs"],
    })
}

fn resource_value(row: &Resource) -> Value {
    let mut value = json!({
        "name": row.plural,
        "singularName": row.singular,
        "namespaced": row.namespaced,
        "kind": row.kind,
        "verbs": row.verbs,
    });
    insert_names(&mut value, row);
    if let Some(hash) = storage_version_hash(row) {
        value["storageVersionHash"] = hash.into();
    }
    value
}

fn subresource_value(row: &Resource, subresource: &Subresource) -> Value {
    let mut value = json!({
        "name": format!("{}/{}", row.plural, subresource.name),
        "singularName": "",
        "namespaced": row.namespaced,
        "kind": subresource.kind.kind,
        "verbs": subresource.verbs,
    });
    if !is_own(row, &subresource.kind) {
        value["group"] = subresource.kind.group.as_ref().into();
        value["version"] = subresource.kind.version.as_ref().into();
    }
    value
}

fn insert_names(value: &mut Value, row: &Resource) {
    if !row.short_names.is_empty() {
        value["shortNames"] = json!(row.short_names);
    }
    if !row.categories.is_empty() {
        value["categories"] = json!(row.categories);
    }
}

fn version_value(group: &str, version: &str, snapshot: &Snapshot) -> Value {
    let resources: Vec<Value> = snapshot.in_version(group, version).map(|row| aggregated_resource(row)).collect();
    let external = snapshot.external.iter().find(|e| e.group == group && e.version == version);
    match external.filter(|_| resources.is_empty()) {
        Some(external) => {
            let freshness = if external.current { "Current" } else { "Stale" };
            json!({ "version": version, "resources": external.resources, "freshness": freshness })
        }
        None => json!({ "version": version, "resources": resources, "freshness": "Current" }),
    }
}

fn aggregated_resource(row: &Resource) -> Value {
    let mut value = json!({
        "resource": row.plural,
        "responseKind": response_kind(row, &row.gvk()),
        "scope": if row.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": row.singular,
        "verbs": row.verbs,
    });
    insert_names(&mut value, row);
    if !row.subresources.is_empty() {
        let subresource = |s: &Subresource| json!({ "subresource": s.name, "responseKind": response_kind(row, &s.kind), "verbs": s.verbs });
        value["subresources"] = row.subresources.iter().map(subresource).collect();
    }
    value
}

/// Built-in rows leave group and version of their own kinds empty, custom ones write them out.
fn response_kind(row: &Resource, kind: &Gvk) -> Value {
    if row.custom.is_none() && is_own(row, kind) {
        return json!({ "group": "", "version": "", "kind": kind.kind });
    }
    json!({ "group": kind.group, "version": kind.version, "kind": kind.kind })
}

fn is_own(row: &Resource, kind: &Gvk) -> bool {
    kind.group == row.group && kind.version == row.version
}

/// Tells clients when the stored version changes. Resources that are not stored have none.
fn storage_version_hash(row: &Resource) -> Option<String> {
    let stored = match row.custom {
        Some(_) => format!("{}/{}", row.group, row.storage_version),
        None => storage_group_version(&row.group, &row.version, &row.plural)?.to_string(),
    };
    let digest = Sha256::digest(format!("{stored}/{}", row.kind));
    Some(STANDARD.encode(&digest[..8]))
}

#[cfg(test)]
mod tests;
