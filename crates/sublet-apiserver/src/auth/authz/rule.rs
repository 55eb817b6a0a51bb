//! One rule of a role: what it matches, and what it covers of another rule.

use super::AuthzAttributes;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

const ALL: &str = "*";

/// A `PolicyRule`, taken out of its JSON once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub verbs: Vec<String>,
    pub groups: Vec<String>,
    pub resources: Vec<String>,
    pub names: Vec<String>,
    pub urls: Vec<String>,
}

impl Rule {
    pub fn of(rule: &Value) -> Self {
        let strings = |key: &str| rule[key].as_array().map_or(Vec::new(), |a| a.iter().filter_map(Value::as_str).map(Into::into).collect());
        Self {
            verbs: strings("verbs"),
            groups: strings("apiGroups"),
            resources: strings("resources"),
            names: strings("resourceNames"),
            urls: strings("nonResourceURLs"),
        }
    }

    /// The rules of a Role or ClusterRole.
    pub fn all_of(role: &Value) -> Vec<Self> {
        role["rules"].as_array().map_or(Vec::new(), |rules| rules.iter().map(Self::of).collect())
    }

    /// All verbs on all resources, and on all paths that are none.
    pub fn everything() -> [Self; 2] {
        let all = || one(ALL);
        [Self { verbs: all(), groups: all(), resources: all(), ..Self::default() }, Self { verbs: all(), urls: all(), ..Self::default() }]
    }

    pub fn matches(&self, attributes: &AuthzAttributes<'_>) -> bool {
        if !has(&self.verbs, attributes.verb) {
            return false;
        }
        match attributes.path {
            Some(path) => self.urls.iter().any(|url| url_covers(url, path)),
            None => {
                has(&self.groups, attributes.group)
                    && self.resources.iter().any(|r| resource_matches(r, attributes.resource, attributes.subresource))
                    && (self.names.is_empty() || self.names.iter().any(|n| n == attributes.name))
            }
        }
    }

    /// As `status.resourceRules` of a SelfSubjectRulesReview.
    pub fn resource_rule(&self) -> Value {
        object([("verbs", &self.verbs), ("apiGroups", &self.groups), ("resources", &self.resources), ("resourceNames", &self.names)])
    }

    /// As `status.nonResourceRules`.
    pub fn non_resource_rule(&self) -> Value {
        object([("verbs", &self.verbs), ("nonResourceURLs", &self.urls)])
    }

    /// For messages: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
    fn compact(&self) -> String {
        let parts = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.urls),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let shown = parts.iter().filter(|(_, list)| !list.is_empty()).map(|(name, list)| format!("{name}:{}", quoted(list)));
        format!("{{{}}}", shown.collect::<Vec<_>>().join(", "))
    }

    /// The smallest rules that together are this one: one verb, one resource, one name each.
    fn atoms(&self) -> Vec<Self> {
        let mut atoms = Vec::new();
        for group in &self.groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let atom = Self { verbs: one(verb), groups: one(group), resources: one(resource), ..Self::default() };
                    if self.names.is_empty() {
                        atoms.push(atom);
                    } else {
                        atoms.extend(self.names.iter().map(|name| Self { names: one(name), ..atom.clone() }));
                    }
                }
            }
        }
        for url in &self.urls {
            atoms.extend(self.verbs.iter().map(|verb| Self { verbs: one(verb), urls: one(url), ..Self::default() }));
        }
        atoms
    }

    /// Whether this rule allows all that an atom allows.
    fn covers(&self, atom: &Self) -> bool {
        let resource_covered = |path: &String| {
            has(&self.resources, path)
                || path.split_once('/').is_some_and(|(_, sub)| self.resources.iter().any(|r| r.strip_prefix("*/") == Some(sub)))
        };
        atom.verbs.iter().all(|verb| has(&self.verbs, verb))
            && atom.groups.iter().all(|group| has(&self.groups, group))
            && atom.resources.iter().all(resource_covered)
            && atom.urls.iter().all(|path| self.urls.iter().any(|url| url_covers(url, path)))
            && (self.names.is_empty() || (!atom.names.is_empty() && atom.names.iter().all(|name| self.names.contains(name))))
    }
}

/// What `wanted` allows and `held` does not, one line each; empty when everything is covered.
pub(super) fn missing(held: &[&Rule], wanted: &[Rule]) -> Vec<String> {
    let mut compacted: Vec<Rule> = Vec::new();
    for atom in wanted.iter().flat_map(Rule::atoms).filter(|atom| !held.iter().any(|rule| rule.covers(atom))) {
        // Atoms for the same resource differ in their verbs alone.
        let same = |rule: &&mut Rule| {
            atom.urls.is_empty() && (&rule.groups, &rule.resources, &rule.names) == (&atom.groups, &atom.resources, &atom.names)
        };
        match compacted.iter_mut().find(same) {
            Some(rule) => rule.verbs.extend(atom.verbs),
            None => compacted.push(atom),
        }
    }
    compacted.iter().map(Rule::compact).collect::<BTreeSet<_>>().into_iter().collect()
}

/// A list as Go's `%q` shows it: `["a" "b"]`.
pub(super) fn quoted(list: &[String]) -> String {
    format!("[{}]", list.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>().join(" "))
}

fn one(text: &str) -> Vec<String> {
    vec![text.to_string()]
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == ALL || item == wanted)
}

/// `*`, `pods`, `pods/log` or `*/scale`.
fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == ALL {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    rule.strip_suffix(subresource).and_then(|r| r.strip_suffix('/')).is_some_and(|r| r == ALL || r == resource)
}

/// A path, or a prefix that ends in `*`.
fn url_covers(rule: &str, path: &str) -> bool {
    rule == path || (rule.ends_with(ALL) && path.starts_with(rule.trim_end_matches('*')))
}

fn object<const N: usize>(lists: [(&str, &Vec<String>); N]) -> Value {
    let present = lists.into_iter().filter(|(_, list)| !list.is_empty());
    Value::Object(present.map(|(key, list)| (key.to_string(), json!(list))).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::UserInfo;

    fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> Rule {
        let list = |items: &[&str]| items.iter().map(ToString::to_string).collect();
        Rule { verbs: list(verbs), groups: list(groups), resources: list(resources), names: list(names), urls: vec![] }
    }

    #[test]
    fn resources_match_exactly_by_star_or_by_subresource() {
        let user = UserInfo::default();
        let check = |resources: &[&str], resource: &str, subresource: &str, expected: bool| {
            let attributes = AuthzAttributes { subresource, name: "a", ..AuthzAttributes::resource(&user, "get", "", resource) };
            assert_eq!(rule(&["get"], &[""], resources, &[]).matches(&attributes), expected, "{resources:?} {resource}/{subresource}");
        };
        check(&["pods"], "pods", "", true);
        check(&["pods"], "pods", "log", false);
        check(&["pods/log"], "pods", "log", true);
        check(&["pods/log"], "pods", "", false);
        check(&["*/scale"], "deployments", "scale", true);
        check(&["*/scale"], "deployments", "", false);
        check(&["*/scale"], "deployments", "xscale", false);
        check(&["*"], "deployments", "scale", true);
        check(&["scale"], "deployments", "scale", false);
    }

    #[test]
    fn names_bind_a_rule_to_objects() {
        let user = UserInfo::default();
        let rule = rule(&["*"], &["apps"], &["deployments"], &["a"]);
        let named = |name| AuthzAttributes { name, ..AuthzAttributes::resource(&user, "update", "apps", "deployments") };
        assert!(rule.matches(&named("a")));
        assert!(!rule.matches(&named("b")));
        assert!(!rule.matches(&named("")), "a create or list has no name");
    }

    #[test]
    fn paths_match_by_prefix() {
        let user = UserInfo::default();
        let rule = Rule { verbs: vec!["get".into()], urls: vec!["/healthz".into(), "/api/*".into()], ..Rule::default() };
        let check = |path: &str, expected| assert_eq!(rule.matches(&AuthzAttributes::path(&user, "get", path)), expected, "{path}");
        check("/healthz", true);
        check("/healthz/etcd", false);
        check("/api/", true);
        check("/api/v1", true);
        check("/api", false);
        assert!(!rule.matches(&AuthzAttributes::resource(&user, "get", "", "pods")));
    }

    #[test]
    fn what_is_not_covered_is_told_compactly() {
        let held = rule(&["get", "list"], &[""], &["pods", "*/status"], &[]);
        let named = rule(&["*"], &[""], &["secrets"], &["mine"]);
        let held = [&held, &named];
        assert!(missing(&held, &[rule(&["get"], &[""], &["pods", "nodes/status"], &["x"])]).is_empty());
        assert!(missing(&held, &[rule(&["get"], &[""], &["secrets"], &["mine"])]).is_empty());
        assert_eq!(
            missing(&held, &[rule(&["get", "watch", "delete"], &[""], &["secrets", "pods"], &[])]),
            [
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["watch" "delete"]}"#,
                r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get" "watch" "delete"]}"#
            ]
        );
        let everything = rule(&["*"], &["*"], &["*"], &[]);
        assert!(!missing(&held, std::slice::from_ref(&everything)).is_empty());
        assert!(missing(&[&everything], &[rule(&["*"], &["x"], &["y/z"], &[])]).is_empty());
    }
}
