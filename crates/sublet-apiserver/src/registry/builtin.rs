//! The rows of the built-in kinds, from the facts file.

use crate::facts::{self, RESOURCES};
use crate::registry::{Resource, ScalePaths, Subresource};
use crate::strategy;
use crate::table;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use sublet_machinery::{Gvk, Schema};

/// The rows of all built-in resources. Made once in a process and shared.
pub fn builtin_rows() -> Vec<Arc<Resource>> {
    static ROWS: OnceLock<Vec<Arc<Resource>>> = OnceLock::new();
    ROWS.get_or_init(|| rows(RESOURCES)).clone()
}

/// The group and version that the kind of a built-in resource is stored in, as `group/version`. Its hash is published
/// in discovery. `None` for what is not stored.
pub(crate) fn storage_group_version(group: &str, version: &str, plural: &str) -> Option<&'static str> {
    static STORED: OnceLock<HashMap<[&'static str; 3], &'static str>> = OnceLock::new();
    let stored = STORED.get_or_init(|| {
        let main = lines(RESOURCES).filter(|l| l.subresource.is_empty() && !l.storage.is_empty());
        main.map(|l| ([l.group, l.version, l.plural], l.storage)).collect()
    });
    stored.get(&[group, version, plural]).copied()
}

fn rows(text: &'static str) -> Vec<Arc<Resource>> {
    let lines: Vec<Line<'_>> = lines(text).collect();
    let main = lines.iter().filter(|l| l.subresource.is_empty());
    main.map(|main| {
        let same = |l: &&Line<'_>| [l.group, l.version, l.plural] == [main.group, main.version, main.plural];
        let subresources = lines.iter().filter(|l| !l.subresource.is_empty()).filter(same).map(subresource).collect();
        Arc::new(resource(main, subresources, &lines))
    })
    .collect()
}

fn resource(line: &Line<'static>, subresources: Vec<Subresource>, lines: &[Line<'_>]) -> Resource {
    Resource {
        group: line.group.to_string(),
        version: line.version.to_string(),
        kind: line.kind.to_string(),
        list_kind: format!("{}List", line.kind),
        plural: line.plural.to_string(),
        singular: line.singular.to_string(),
        short_names: words(line.short_names),
        categories: words(line.categories),
        namespaced: line.namespaced,
        verbs: words(line.verbs),
        columns: table::builtin_columns(line.group, line.plural),
        schema: schema(line),
        storage_version: storage_version(line, lines).to_string(),
        strategy: strategy::of(line.group, line.plural),
        subresources,
        custom: None,
    }
}

fn schema(line: &Line<'_>) -> Schema {
    let schema = facts::builtin().kind(line.group, line.version, line.kind);
    schema.unwrap_or_else(|| panic!("the facts have no type for {}/{}/{}", line.group, line.version, line.kind))
}

/// The version in storage if it is served here, or else the row's own: upstream keeps some kinds in a beta version
/// that only an older server needs.
fn storage_version<'a>(line: &Line<'a>, lines: &[Line<'_>]) -> &'a str {
    let Some((group, version)) = line.storage.split_once('/') else { return line.version };
    let served = lines.iter().any(|l| [l.group, l.version, l.plural] == [group, version, line.plural]);
    if served && group == line.group { version } else { line.version }
}

fn subresource(line: &Line<'_>) -> Subresource {
    let scale = (line.subresource == "scale").then(|| ScalePaths {
        spec_replicas: "/spec/replicas".into(),
        status_replicas: "/status/replicas".into(),
        label_selector: Some("/spec/selector".into()),
    });
    let kind = match line.kind.split('/').collect::<Vec<_>>()[..] {
        [group, version, kind] => Gvk::owned(group, version, kind),
        _ => Gvk::owned(line.group, line.version, line.kind),
    };
    Subresource { name: line.subresource.to_string(), kind, verbs: words(line.verbs), scale }
}

/// A line of the facts file.
struct Line<'a> {
    group: &'a str,
    version: &'a str,
    plural: &'a str,
    subresource: &'a str,
    /// `Pod`, or `policy/v1/Eviction` when the kind is another group's.
    kind: &'a str,
    namespaced: bool,
    verbs: &'a str,
    short_names: &'a str,
    categories: &'a str,
    singular: &'a str,
    storage: &'a str,
}

fn lines<'a>(text: &'a str) -> impl Iterator<Item = Line<'a>> {
    text.lines().filter(|l| !l.starts_with('#')).map(|line| {
        let mut cells = line.split('\t');
        let mut next = || cells.next().unwrap_or_default();
        Line {
            group: next(),
            version: next(),
            plural: next(),
            subresource: next(),
            kind: next(),
            namespaced: next() == "true",
            verbs: next(),
            short_names: next(),
            categories: next(),
            singular: next(),
            storage: next(),
        }
    })
}

fn words(text: &str) -> Vec<String> {
    text.split(',').filter(|w| !w.is_empty()).map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn every_resource_of_1_37_has_a_row() {
        let rows = builtin_rows();
        assert_eq!(rows.len(), 72);
        assert_eq!(rows.iter().map(|r| r.subresources.len()).sum::<usize>(), 49);
        let groups: std::collections::BTreeSet<&str> = rows.iter().map(|r| r.group.as_str()).collect();
        assert_eq!(groups.len(), 22);
    }

    #[test]
    fn rows_carry_names_verbs_and_subresources() {
        let snapshot = Registry::new(builtin_rows()).snapshot();
        let deployments = snapshot.find("apps", "v1", "deployments").expect("deployments");
        assert_eq!((deployments.kind.as_str(), deployments.list_kind.as_str()), ("Deployment", "DeploymentList"));
        assert_eq!(deployments.short_names, ["deploy"]);
        assert_eq!(deployments.categories, ["all"]);
        let scale = deployments.subresource("scale").expect("scale");
        assert_eq!(scale.kind, Gvk::new("autoscaling", "v1", "Scale"));
        assert!(scale.scale.is_some());
        let pods = snapshot.find("", "v1", "pods").expect("pods");
        assert_eq!(pods.subresource("eviction").expect("eviction").kind, Gvk::new("policy", "v1", "Eviction"));
        assert_eq!(pods.subresource("exec").expect("exec").verbs, ["create", "get"]);
        assert_eq!(pods.schema.node().type_name.as_deref(), Some("io.k8s.api.core.v1.Pod"));
        assert!(pods.namespaced);
    }

    #[test]
    fn old_versions_are_stored_in_the_new_one() {
        let snapshot = Registry::new(builtin_rows()).snapshot();
        let v1 = snapshot.find("autoscaling", "v1", "horizontalpodautoscalers").expect("v1");
        assert_eq!(v1.storage_version, "v2");
        let bundles = snapshot.find("certificates.k8s.io", "v1", "clustertrustbundles").expect("clustertrustbundles");
        assert_eq!(bundles.storage_version, "v1");
        assert_eq!(storage_group_version("events.k8s.io", "v1", "events"), Some("/v1"));
    }
}
