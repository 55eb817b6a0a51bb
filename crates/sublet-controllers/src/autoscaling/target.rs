//! What is scaled: found by its kind, read and written through its scale.

use serde_json::Value;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::client::object_path;
use sublet_runtime::{Client, ClientError};

/// The resources of a kind in the group of an API version, in the version named first.
pub(super) async fn resources(client: &Client, api_version: &str, kind: &str) -> Result<Vec<Gvr>, String> {
    let (group, version) = match api_version.split('/').collect::<Vec<_>>()[..] {
        [version] => ("", version),
        [group, version] => (group, version),
        _ => return Err(format!("unexpected GroupVersion string: {api_version}")),
    };
    let mut versions = vec![version.to_string()];
    let listed = if group.is_empty() { Ok(Value::Null) } else { client.get_raw(&format!("/apis/{group}")).await };
    match listed {
        Ok(listed) => versions.extend(
            listed.array_at("/versions").iter().filter_map(|v| v["version"].as_str()).filter(|v| *v != version).map(str::to_string),
        ),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error.to_string()),
    }
    let mut found = Vec::new();
    for version in versions {
        let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let list = match client.get_raw(&path).await {
            Ok(list) => list,
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(error.to_string()),
        };
        let of_kind = list.array_at("/resources").iter().filter(|r| r["kind"] == kind);
        let names = of_kind.filter_map(|r| r["name"].as_str()).filter(|name| !name.contains('/'));
        found.extend(names.map(|name| Gvr::owned(group, &version, name)));
    }
    if found.is_empty() { Err(format!("no matches for kind {kind:?} in group {group:?}")) } else { Ok(found) }
}

/// The first of the resources that has the object, with its scale.
pub(super) async fn scale(client: &Client, resources: Vec<Gvr>, namespace: &str, name: &str) -> Result<(Gvr, Value), ClientError> {
    let mut first = None;
    for gvr in resources {
        match client.get_raw(&object_path(&gvr, namespace, name, "scale")).await {
            Ok(scale) => return Ok((gvr, scale)),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| ClientError::Decode("unrecognized resource".into())))
}

/// Writes the count. Whoever wrote in between had no wish about it: it is tried on what they left.
pub(super) async fn rescale(client: &Client, gvr: &Gvr, mut scale: Value, replicas: i64) -> Result<(), ClientError> {
    const TRIES_MAX: usize = 5;
    let mut tries = 1;
    loop {
        scale["spec"]["replicas"] = replicas.into();
        match client.update_subresource(gvr, &scale, "scale").await {
            Err(error) if error.is_conflict() && tries < TRIES_MAX => {
                scale = client.get_raw(&object_path(gvr, scale.namespace(), scale.name(), "scale")).await?;
                tries += 1;
            }
            result => return result.map(|_| ()),
        }
    }
}
