//! Names in the documents: of types, operations and tags.

use crate::registry::{Resource, Subresource};

/// How a group version is written in operations.
#[derive(Debug)]
pub(super) struct Names {
    /// `AppsV1`, in operation ids.
    pub title: String,
    /// `apps_v1`
    pub tag: String,
}

impl Names {
    pub(super) fn of(group: &str, version: &str) -> Self {
        Self { title: format!("{}{}", group_title(group), capitalized(version)), tag: format!("{}_{version}", group_tag(group)) }
    }
}

/// `RbacAuthorization` of `rbac.authorization.k8s.io`, `Core` of the core group.
pub(super) fn group_title(group: &str) -> String {
    short_group(group).split(['.', '-']).map(capitalized).collect()
}

/// The title with a small letter.
pub(super) fn group_tag(group: &str) -> String {
    let title = group_title(group);
    let mut chars = title.chars();
    chars.next().map(|c| c.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

fn short_group(group: &str) -> &str {
    if group.is_empty() { "core" } else { group.strip_suffix(".k8s.io").unwrap_or(group) }
}

pub(super) fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// `/api/v1` or `/apis/apps/v1`.
pub(super) fn base_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

/// The published name of the type of a row: `io.k8s.api.core.v1.Pod`, `com.example.shop.v1.Widget`.
pub(super) fn kind_type(row: &Resource) -> String {
    match (&row.custom, &row.schema.node().type_name) {
        (None, Some(name)) => name.to_string(),
        _ => custom_type(row, &row.kind),
    }
}

pub(super) fn list_type(row: &Resource) -> String {
    match row.custom {
        None => format!("{}{}", kind_type(row).strip_suffix(row.kind.as_str()).unwrap_or_default(), row.list_kind),
        Some(_) => custom_type(row, &row.list_kind),
    }
}

fn custom_type(row: &Resource, kind: &str) -> String {
    let mut parts: Vec<&str> = row.group.split('.').rev().collect();
    parts.extend([row.version.as_str(), kind]);
    parts.join(".")
}

pub(super) fn subresource_type(row: &Resource, subresource: &Subresource) -> String {
    let kind = &subresource.kind;
    if *kind == row.gvk() {
        return kind_type(row);
    }
    let schema = crate::facts::builtin().kind(&kind.group, &kind.version, &kind.kind);
    schema.and_then(|s| s.node().type_name.as_deref().map(str::to_string)).unwrap_or_else(|| kind_type(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_written_as_upstream_writes_them() {
        for (group, version, title, tag) in [
            ("", "v1", "CoreV1", "core_v1"),
            ("apps", "v1", "AppsV1", "apps_v1"),
            ("rbac.authorization.k8s.io", "v1", "RbacAuthorizationV1", "rbacAuthorization_v1"),
            ("shop.example.com", "v1beta1", "ShopExampleComV1beta1", "shopExampleCom_v1beta1"),
        ] {
            let names = Names::of(group, version);
            assert_eq!((names.title.as_str(), names.tag.as_str()), (title, tag));
        }
    }
}
