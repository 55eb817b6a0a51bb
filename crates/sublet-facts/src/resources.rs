//! Resources and groups: from discovery documents and APIServices to one line each.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// `discovery` holds the `APIResourceList` of every group version, in the order of the groups.
pub fn render(discovery: &[Value]) -> Result<String> {
    let mut out = String::from(HEADER);
    let versions: Vec<&str> = discovery.iter().filter_map(|list| list["groupVersion"].as_str()).collect();
    for list in discovery {
        let (group, version) = split(list["groupVersion"].as_str().context("a list has groupVersion")?);
        for resource in list["resources"].as_array().into_iter().flatten() {
            writeln!(out, "{}", row(group, version, resource, &versions)?)?;
        }
    }
    Ok(out)
}

fn row(group: &str, version: &str, resource: &Value, versions: &[&str]) -> Result<String> {
    let text = |key: &str| resource[key].as_str().unwrap_or_default();
    let list = |key: &str| {
        let items = resource[key].as_array();
        items.into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
    };
    let name = text("name");
    let (plural, subresource) = name.split_once('/').unwrap_or((name, ""));
    // A kind of another group, such as Scale, states its group and version.
    let kind = match text("version") {
        "" => text("kind").to_string(),
        kind_version => format!("{}/{kind_version}/{}", text("group"), text("kind")),
    };
    let namespaced = resource["namespaced"].as_bool().context("a resource has namespaced")?.to_string();
    let storage = match text("storageVersionHash") {
        "" => String::new(),
        hash => storage_version(hash, text("kind"), versions).with_context(|| format!("{name}: no version has the hash {hash}"))?,
    };
    Ok([
        group,
        version,
        plural,
        subresource,
        &kind,
        &namespaced,
        &list("verbs"),
        &list("shortNames"),
        &list("categories"),
        text("singularName"),
        &storage,
    ]
    .join("\t"))
}

/// The hash names the group, version and kind in storage; it is found again by trying.
fn storage_version(hash: &str, kind: &str, versions: &[&str]) -> Option<String> {
    let groups = versions.iter().map(|v| split(v).0);
    let all = groups.flat_map(|group| STORAGE_VERSIONS.iter().map(move |version| (group, *version)));
    all.into_iter().find_map(|(group, version)| {
        let digest = Sha256::digest(format!("{group}/{version}/{kind}"));
        (STANDARD.encode(&digest[..8]) == hash).then(|| format!("{group}/{version}"))
    })
}

/// Groups in the order of `/apis`, with the priorities of their APIServices.
pub fn render_groups(apiservices: &Value) -> Result<String> {
    let mut out = String::from(GROUPS_HEADER);
    let items = apiservices["items"].as_array().context("apiservices.json is a list")?;
    let mut rows: Vec<(i64, i64, &str, &str)> = Vec::new();
    for spec in items.iter().map(|item| &item["spec"]) {
        let number = |key: &str| spec[key].as_i64().with_context(|| format!("an APIService has {key}"));
        let text = |key: &str| spec[key].as_str().unwrap_or_default();
        rows.push((-number("groupPriorityMinimum")?, -number("versionPriority")?, text("group"), text("version")));
    }
    // Groups of one priority stand by name, and a group stays together.
    rows.sort_by_key(|(group_priority, version_priority, group, version)| (*group_priority, *group, *version_priority, *version));
    for (group_priority, version_priority, group, version) in rows {
        writeln!(out, "{group}\t{version}\t{}\t{}", -group_priority, -version_priority)?;
    }
    Ok(out)
}

fn split(group_version: &str) -> (&str, &str) {
    group_version.split_once('/').unwrap_or(("", group_version))
}

const STORAGE_VERSIONS: &[&str] = &["v1", "v2", "v1beta1", "v1beta2", "v1beta3", "v1alpha1", "v1alpha2", "v1alpha3"];
const HEADER: &str = "# Resources of Kubernetes 1.37, as discovery publishes them. Written by sublet-facts; do not edit.
#group\tversion\tresource\tsubresource\tkind\tnamespaced\tverbs\tshort names\tcategories\tsingular\tstorage version
";
const GROUPS_HEADER: &str = "# Group versions of Kubernetes 1.37 in the order of /apis. Written by sublet-facts; do not edit.
#group\tversion\tgroup priority\tversion priority
";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn resources_become_lines() {
        let list = json!({"groupVersion": "autoscaling/v1", "resources": [
            {"name": "horizontalpodautoscalers", "singularName": "horizontalpodautoscaler", "namespaced": true, "kind": "HorizontalPodAutoscaler",
                "verbs": ["get", "list"], "shortNames": ["hpa"], "categories": ["all"], "storageVersionHash": "qwQve8ut294="},
            {"name": "horizontalpodautoscalers/scale", "namespaced": true, "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get"]},
        ]});
        let text = render(&[list]).expect("text");
        let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "autoscaling\tv1\thorizontalpodautoscalers\t\tHorizontalPodAutoscaler\ttrue\tget,list\thpa\tall\thorizontalpodautoscaler\tautoscaling/v2",
                "autoscaling\tv1\thorizontalpodautoscalers\tscale\tautoscaling/v1/Scale\ttrue\tget\t\t\t\t",
            ]
        );
    }

    #[test]
    fn groups_stand_by_priority() {
        let service = |group: &str, version: &str, priorities: (i64, i64)| json!({"spec": {"group": group, "version": version, "groupPriorityMinimum": priorities.0, "versionPriority": priorities.1}});
        let services = json!({"items": [service("b", "v1", (100, 1)), service("a", "v1", (200, 1)), service("a", "v2", (200, 2))]});
        let text = render_groups(&services).expect("text");
        let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(lines, ["a\tv2\t200\t2", "a\tv1\t200\t1", "b\tv1\t100\t1"]);
    }
}
