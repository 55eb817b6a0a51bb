//! The order of groups and versions, as the APIServices of upstream give it.

use crate::facts::GROUPS;
use crate::registry::Snapshot;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A group and its versions, the preferred one first.
#[derive(Debug)]
pub(super) struct Group<'a> {
    pub name: &'a str,
    pub versions: Vec<&'a str>,
    /// The priority of the group, higher ones first.
    priority: i64,
}

/// Groups by priority, then by name: aggregated discovery.
pub(super) fn groups_by_name(snapshot: &Snapshot) -> Vec<Group<'_>> {
    let mut groups = groups(snapshot);
    groups.sort_by_key(|g| Reverse(g.priority));
    groups
}

/// Groups by priority, then by the name of an APIService, which starts with the version: `/apis`.
pub(super) fn groups_by_api_service(snapshot: &Snapshot) -> Vec<Group<'_>> {
    let mut groups = groups(snapshot);
    let first_service = |group: &Group<'_>| group.versions.iter().map(|v| format!("{v}.{}", group.name)).min();
    groups.sort_by_cached_key(|g| (Reverse(g.priority), first_service(g)));
    groups
}

fn groups(snapshot: &Snapshot) -> Vec<Group<'_>> {
    let builtin = priorities();
    // Group and version, their priorities.
    let mut versions: BTreeMap<&str, BTreeMap<&str, (i64, i64)>> = BTreeMap::new();
    for (group, version, _) in snapshot.resources.keys().filter(|(group, _, _)| !group.is_empty()) {
        let known = builtin.get(&(group.as_str(), version.as_str())).copied();
        versions.entry(group).or_default().insert(version, known.unwrap_or((CUSTOM_GROUP_PRIORITY, CUSTOM_VERSION_PRIORITY)));
    }
    for external in &snapshot.external {
        let priorities = (external.group_priority, external.version_priority);
        versions.entry(&external.group).or_default().entry(&external.version).or_insert(priorities);
    }
    versions.into_iter().map(|(name, of)| sorted(name, of)).collect()
}

fn sorted<'a>(name: &'a str, of: BTreeMap<&'a str, (i64, i64)>) -> Group<'a> {
    let highest = of.values().map(|(group, _)| *group).max().unwrap_or(CUSTOM_GROUP_PRIORITY);
    let mut versions: Vec<(&str, i64)> = of.into_iter().map(|(version, (_, priority))| (version, priority)).collect();
    versions.sort_by_key(|(version, priority)| Reverse((*priority, version_rank(version))));
    let priority = if name == FIRST_GROUP { i64::MAX } else { highest };
    Group { name, versions: versions.into_iter().map(|(version, _)| version).collect(), priority }
}

/// Group and version priority by group and version.
fn priorities() -> BTreeMap<(&'static str, &'static str), (i64, i64)> {
    let rows = GROUPS.lines().filter(|l| !l.starts_with('#')).filter_map(|line| {
        let mut cells = line.split('\t');
        let (group, version) = (cells.next()?, cells.next()?);
        let (group_priority, version_priority) = (cells.next()?.parse().ok()?, cells.next()?.parse().ok()?);
        Some(((group, version), (group_priority, version_priority)))
    });
    rows.collect()
}

/// Where a version stands: `v2` before `v1` before `v2beta1` before `v1alpha1` before names of another form, which
/// stand by the alphabet.
pub(crate) fn version_rank(version: &str) -> (u8, u64, u64, Reverse<&str>) {
    parse_version(version).map_or((0, 0, 0, Reverse(version)), |(stability, major, minor)| (stability, major, minor, Reverse("")))
}

fn parse_version(version: &str) -> Option<(u8, u64, u64)> {
    let number = |text: &str| if text.starts_with('0') { None } else { text.parse::<u64>().ok() };
    let rest = version.strip_prefix('v')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let major = number(&rest[..digits])?;
    match &rest[digits..] {
        "" => Some((3, major, 0)),
        word => match word.strip_prefix("beta") {
            Some(minor) => Some((2, major, number(minor)?)),
            None => Some((1, major, number(word.strip_prefix("alpha")?)?)),
        },
    }
}

/// The aggregator's own group comes before all others.
const FIRST_GROUP: &str = "apiregistration.k8s.io";
/// What upstream gives to every custom resource.
const CUSTOM_GROUP_PRIORITY: i64 = 1000;
const CUSTOM_VERSION_PRIORITY: i64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_come_first() {
        let mut versions = ["foo10", "v1alpha1", "v1", "v2beta1", "v11alpha2", "v10", "v2", "foo1", "v1beta2"];
        versions.sort_by_key(|v| Reverse(version_rank(v)));
        assert_eq!(versions, ["v10", "v2", "v1", "v2beta1", "v1beta2", "v11alpha2", "v1alpha1", "foo1", "foo10"]);
    }
}
