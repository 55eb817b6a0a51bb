//! From a definition to the rows that serve its custom resources.

use super::conversion::Conversion;
use super::rules::Rules;
use super::strategy;
use super::view::{self, strings, text};
use crate::registry::{Cell, Column, Custom, Resource, ScalePaths, Subresource};
use serde_json::Value;
use std::cmp::Ordering;
use std::sync::Arc;
use sublet_machinery::{Gvk, ObjectExt, structural};

/// A row for every served version. Empty when the names are not accepted.
///
/// The names are those in force (`status.acceptedNames`), so the status must be written first.
pub fn rows(crd: &Value) -> Vec<Arc<Resource>> {
    if !view::is_served(crd) {
        return Vec::new();
    }
    let storage = view::versions(crd).iter().find(|v| v["storage"] == true);
    let conversion = storage.and_then(|version| Conversion::of(crd, Arc::new(row(crd, version)))).map(Arc::new);
    let served = view::versions(crd).iter().filter(|v| v["served"] == true);
    let with_converter = |version| {
        let mut row = row(crd, version);
        if let Some(custom) = &mut row.custom {
            custom.conversion.clone_from(&conversion);
        }
        Arc::new(row)
    };
    served.map(with_converter).collect()
}

/// The row of one version, served or not. The storage version needs one for conversion too.
pub fn row(crd: &Value, version: &Value) -> Resource {
    let names = &crd["status"]["acceptedNames"];
    let (group, name) = (view::group(crd), view::version_name(version));
    let kind = text(names, "kind");
    let namespaced = crd.str_at("/spec/scope") == Some("Namespaced");
    let gvk = Gvk::owned(group, name, kind);
    let has_status = version.pointer("/subresources/status").is_some_and(Value::is_object);
    let preserve_unknown = crd.bool_at("/spec/preserveUnknownFields").unwrap_or_default();
    let schema = view::schema(version);
    let terminating = view::is_terminating(crd);
    let schema = structural::build(schema, preserve_unknown, &type_name(group, name, kind));
    let rules = Rules::compile(schema.node()).map(Arc::new);
    let crd_revision = crd.resource_version().parse().unwrap_or(0);
    let complete_after = match view::versions(crd).len() {
        _ if !structural::has_defaults(&schema) => 0,
        1 => crd_revision,
        // What was written in one version has the defaults of that version.
        _ => u64::MAX,
    };
    Resource {
        group: group.into(),
        version: name.into(),
        kind: kind.into(),
        list_kind: text(names, "listKind").into(),
        plural: text(names, "plural").into(),
        singular: text(names, "singular").into(),
        short_names: strings(&names["shortNames"]),
        categories: strings(&names["categories"]),
        namespaced,
        verbs: verbs(terminating),
        subresources: subresources(version, &gvk, has_status),
        columns: columns(version),
        schema,
        storage_version: view::storage_version(crd).unwrap_or(name).into(),
        strategy: strategy::strategy(has_status),
        custom: Some(Custom {
            crd: crd.name().into(),
            crd_uid: crd.uid().into(),
            crd_revision,
            complete_after,
            selectable_fields: version.array_at("/selectableFields").iter().map(|f| text(f, "jsonPath").to_string()).collect(),
            has_status,
            preserve_unknown,
            deprecation_warning: deprecation_warning(crd, version, kind),
            terminating,
            rules,
            conversion: None,
        }),
    }
}

fn verbs(terminating: bool) -> Vec<String> {
    let verbs: &[&str] = if terminating {
        &["delete", "deletecollection", "get", "list", "watch"]
    } else {
        &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
    };
    verbs.iter().map(ToString::to_string).collect()
}

/// `io.example.stable.v1.CronTab` for the group `stable.example.io`, as published schemas name it.
fn type_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').rev().collect();
    parts.extend([version, kind]);
    parts.join(".")
}

fn subresources(version: &Value, gvk: &Gvk, has_status: bool) -> Vec<Subresource> {
    let verbs = || ["get", "patch", "update"].map(String::from).to_vec();
    let mut found = Vec::new();
    if has_status {
        found.push(Subresource { name: "status".into(), kind: gvk.clone(), verbs: verbs(), scale: None });
    }
    if let Some(scale) = version.pointer("/subresources/scale").filter(|s| s.is_object()) {
        let selector = text(scale, "labelSelectorPath");
        found.push(Subresource {
            name: "scale".into(),
            kind: Gvk::new("autoscaling", "v1", "Scale"),
            verbs: verbs(),
            scale: Some(ScalePaths {
                spec_replicas: pointer(text(scale, "specReplicasPath")),
                status_replicas: pointer(text(scale, "statusReplicasPath")),
                label_selector: (!selector.is_empty()).then(|| pointer(selector)),
            }),
        });
    }
    found
}

/// `.spec.replicas` as a JSON pointer.
fn pointer(path: &str) -> String {
    path.trim_start_matches('.').split('.').map(|part| format!("/{}", part.replace('~', "~0").replace('/', "~1"))).collect()
}

/// Name comes first; a version without columns shows its age.
fn columns(version: &Value) -> Vec<Column> {
    const NAME: &str = "Name must be unique within a namespace.";
    const AGE: &str = "CreationTimestamp is a timestamp representing the server time when this object was created.";
    let column = |name: &str, value_type: &str, description: &str, path: &str| Column {
        name: name.into(),
        value_type: value_type.into(),
        format: String::new(),
        description: description.into(),
        priority: 0,
        cell: Cell::JsonPath(path.into()),
    };
    let mut columns = vec![Column { format: "name".into(), ..column("Name", "string", NAME, ".metadata.name") }];
    let stated = version.array_at("/additionalPrinterColumns");
    if stated.is_empty() {
        columns.push(column("Age", "date", AGE, ".metadata.creationTimestamp"));
    }
    columns.extend(stated.iter().map(|stated| {
        let path = text(stated, "jsonPath");
        let description = match text(stated, "description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            description => description.to_string(),
        };
        Column {
            format: text(stated, "format").into(),
            priority: stated["priority"].as_i64().and_then(|p| i32::try_from(p).ok()).unwrap_or_default(),
            ..column(text(stated, "name"), text(stated, "type"), &description, path)
        }
    }));
    columns
}

fn deprecation_warning(crd: &Value, version: &Value, kind: &str) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(stated) = version["deprecationWarning"].as_str() {
        return Some(stated.into());
    }
    let (group, name) = (view::group(crd), view::version_name(version));
    let newer = view::versions(crd)
        .iter()
        .filter(|v| v["served"] == true && v["deprecated"] != true)
        .map(view::version_name)
        .filter(|other| compare_versions(other, name) == Ordering::Greater)
        .max_by(|a, b| compare_versions(a, b));
    let hint = newer.map(|newer| format!("; use {group}/{newer} {kind}")).unwrap_or_default();
    Some(format!("{group}/{name} {kind} is deprecated{hint}"))
}

/// The order of versions in discovery: `v2`, `v1`, `v1beta2`, `v1alpha1`, then the others by name.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (parse_version(a), parse_version(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        // Of two unusual names the first in the alphabet is preferred.
        (None, None) => b.cmp(a),
    }
}

/// (stability, major, minor): `v1beta2` is (beta, 1, 2).
fn parse_version(text: &str) -> Option<(u8, u64, u64)> {
    let rest = text.strip_prefix('v')?;
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let major = positive(&rest[..digits])?;
    match &rest[digits..] {
        "" => Some((2, major, 0)),
        rest => match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
            (Some(minor), _) => Some((1, major, positive(minor)?)),
            (_, Some(minor)) => Some((0, major, positive(minor)?)),
            _ => None,
        },
    }
}

fn positive(text: &str) -> Option<u64> {
    if text.starts_with('0') { None } else { text.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn crd() -> Value {
        json!({"metadata": {"name": "foos.stable.ex.com", "uid": "u"}, "spec": {"group": "stable.ex.com", "scope": "Namespaced", "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
                "additionalPrinterColumns": [{"name": "Spec", "type": "string", "jsonPath": ".spec.x", "priority": 1}], "selectableFields": [{"jsonPath": ".spec.x"}]},
            {"name": "v1beta1", "served": true, "deprecated": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
            {"name": "v1alpha1", "served": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
        ]}, "status": {"acceptedNames": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
            "conditions": [{"type": "NamesAccepted", "status": "True"}]}})
    }

    #[test]
    fn every_served_version_has_a_row() {
        let rows = rows(&crd());
        assert_eq!(rows.iter().map(|r| r.version.as_str()).collect::<Vec<_>>(), ["v1", "v1beta1"]);
        let (v1, beta) = (&rows[0], &rows[1]);
        assert_eq!(v1.subresources.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["status", "scale"]);
        assert_eq!(
            v1.subresource("scale").and_then(|s| s.scale.clone()).expect("was stated").label_selector.as_deref(),
            Some("/status/selector")
        );
        assert_eq!(v1.columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["Name", "Spec"]);
        assert_eq!(beta.columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["Name", "Age"]);
        assert_eq!(v1.schema.node().type_name.as_deref(), Some("com.ex.stable.v1.Foo"));
        let custom = beta.custom.clone().expect("is custom");
        assert_eq!(custom.deprecation_warning.as_deref(), Some("stable.ex.com/v1beta1 Foo is deprecated; use stable.ex.com/v1 Foo"));
        assert_eq!(beta.storage_version, "v1");
    }

    #[test]
    fn a_definition_that_goes_takes_no_new_objects() {
        let mut crd = crd();
        crd["metadata"]["deletionTimestamp"] = json!("t");
        assert!(!rows(&crd)[0].has_verb("create"));
        crd["status"]["conditions"] = json!([]);
        assert!(rows(&crd).is_empty());
    }

    #[test]
    fn versions_are_ordered_as_kubernetes_does() {
        let mut versions = ["foo1", "v1beta1", "v10", "v1", "v2", "v1alpha2", "bar", "v11alpha2", "v3beta1"];
        versions.sort_by(|a, b| compare_versions(b, a));
        assert_eq!(versions, ["v10", "v2", "v1", "v3beta1", "v1beta1", "v11alpha2", "v1alpha2", "bar", "foo1"]);
    }
}
