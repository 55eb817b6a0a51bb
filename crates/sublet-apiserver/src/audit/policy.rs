//! What is audited, and in how much detail: `audit.k8s.io/v1` Policy.

use crate::admission::UserInfo;
use crate::http::RequestInfo;
use serde::Deserialize;
use serde_json::json;
use sublet_machinery::{FieldError, FieldPath, names};

/// How much is written about a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    #[default]
    None,
    Metadata,
    Request,
    RequestResponse,
}

impl Level {
    pub(super) const ALL: [(Self, &'static str); 4] =
        [(Self::None, "None"), (Self::Metadata, "Metadata"), (Self::Request, "Request"), (Self::RequestResponse, "RequestResponse")];

    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// When something is written about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    /// Is never reached here, and may be named in policies.
    Panic,
}

impl Stage {
    const ALL: [(Self, &'static str); 4] = [
        (Self::RequestReceived, "RequestReceived"),
        (Self::ResponseStarted, "ResponseStarted"),
        (Self::ResponseComplete, "ResponseComplete"),
        (Self::Panic, "Panic"),
    ];

    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stages(u8);

impl Stages {
    fn of(names: &[String]) -> Self {
        let known = Stage::ALL.iter().filter(|(_, name)| names.iter().any(|n| n == name));
        Self(known.fold(0, |set, (stage, _)| set | 1 << *stage as u8))
    }

    fn contains(self, stage: Stage) -> bool {
        self.0 & 1 << stage as u8 != 0
    }
}

/// What a policy says about one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub level: Level,
    pub omit_managed_fields: bool,
    omit_stages: Stages,
}

impl Verdict {
    pub fn writes(&self, stage: Stage) -> bool {
        self.level != Level::None && !self.omit_stages.contains(stage)
    }
}

/// A policy in force.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Vec<(Rule, Verdict)>,
    otherwise: Verdict,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PolicyText {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: serde_json::Value,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: Vec<String>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Rule {
    level: String,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

const GROUP_VERSION: &str = "audit.k8s.io/v1";

impl Policy {
    /// Of YAML or JSON text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let policy: PolicyText = serde_saphyr::from_str(text).map_err(|e| format!("the audit policy cannot be read: {e}"))?;
        if (policy.api_version.as_str(), policy.kind.as_str()) != (GROUP_VERSION, "Policy") {
            return Err(format!(
                "the audit policy is a {:?} of {:?}; write kind Policy of {GROUP_VERSION}",
                policy.kind, policy.api_version
            ));
        }
        let errors = errors(&policy);
        if !errors.is_empty() {
            return Err(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
        }
        if policy.rules.is_empty() {
            return Err("loaded illegal policy with 0 rules".into());
        }
        let omitted = Stages::of(&policy.omit_stages);
        let verdict = |rule: &Rule| Verdict {
            level: Level::ALL.iter().find(|(_, name)| *name == rule.level).map_or(Level::None, |(level, _)| *level),
            omit_stages: Stages(omitted.0 | Stages::of(&rule.omit_stages).0),
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(policy.omit_managed_fields),
        };
        let otherwise = Verdict { level: Level::None, omit_stages: omitted, omit_managed_fields: policy.omit_managed_fields };
        let rules = policy.rules.iter().map(|rule| (rule.clone(), verdict(rule))).collect();
        Ok(Self { rules, otherwise })
    }

    /// The first rule that matches decides. `user` is who was authenticated, if anybody was.
    pub fn judge(&self, user: Option<&UserInfo>, info: &RequestInfo) -> Verdict {
        self.rules.iter().find(|(rule, _)| rule.matches(user, info)).map_or(self.otherwise, |(_, verdict)| *verdict)
    }
}

impl Rule {
    fn matches(&self, user: Option<&UserInfo>, info: &RequestInfo) -> bool {
        let one_of = |list: &[String], value: &str| list.iter().any(|item| item == value);
        let named = self.users.is_empty() || user.is_some_and(|user| one_of(&self.users, &user.name));
        let member = self.user_groups.is_empty() || user.is_some_and(|user| user.groups.iter().any(|g| one_of(&self.user_groups, g)));
        if !named || !member || !(self.verbs.is_empty() || one_of(&self.verbs, info.verb)) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return info.is_resource
                && (self.namespaces.is_empty() || one_of(&self.namespaces, &info.namespace))
                && (self.resources.is_empty() || self.resources.iter().any(|r| r.matches(info)));
        }
        self.non_resource_urls.is_empty() || (!info.is_resource && self.non_resource_urls.iter().any(|url| covers(url, &info.path)))
    }
}

impl GroupResources {
    fn matches(&self, info: &RequestInfo) -> bool {
        if self.group != info.group && self.group != "*" {
            return false;
        }
        let named = self.resource_names.is_empty() || self.resource_names.iter().any(|name| name == info.authorized_name());
        let is_meant = |stated: &String| match stated.split_once('/') {
            _ if stated == "*" => true,
            None => info.subresource.is_empty() && *stated == info.resource,
            Some(("*", subresource)) if !info.subresource.is_empty() && subresource == info.subresource => true,
            Some((resource, "*")) => resource == info.resource,
            Some((resource, subresource)) => resource == info.resource && subresource == info.subresource,
        };
        self.resources.is_empty() || (named && self.resources.iter().any(is_meant))
    }
}

/// `*` at the end stands for anything.
fn covers(stated: &str, path: &str) -> bool {
    stated == path || stated.ends_with('*') && path.starts_with(stated.trim_end_matches('*'))
}

fn errors(policy: &PolicyText) -> Vec<FieldError> {
    let mut errors = stage_errors(&policy.omit_stages, &FieldPath::new("omitStages"));
    for (index, rule) in policy.rules.iter().enumerate() {
        rule_errors(rule, &FieldPath::new("rules").index(index), &mut errors);
    }
    errors
}

fn stage_errors(stages: &[String], path: &FieldPath) -> Vec<FieldError> {
    let names = Stage::ALL.map(|(_, name)| name);
    let unknown = stages.iter().enumerate().filter(|(_, stage)| !names.contains(&stage.as_str()));
    unknown
        .map(|(at, stage)| FieldError::invalid(&path.index(at), stage.as_str(), format!("allowed stages are {}", names.join(","))))
        .collect()
}

fn rule_errors(rule: &Rule, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let levels = Level::ALL.map(|(_, name)| name);
    if rule.level.is_empty() {
        errors.push(FieldError::required(&path.child("level"), ""));
    } else if !levels.contains(&rule.level.as_str()) {
        errors.push(FieldError::not_supported(&path.child("level"), rule.level.as_str(), &levels));
    }
    let urls = path.child("nonResourceURLs");
    for (at, url) in rule.non_resource_urls.iter().enumerate().filter(|(_, url)| *url != "*") {
        if !url.starts_with('/') {
            errors.push(FieldError::invalid(&urls.index(at), url.as_str(), "non-resource URL rules must begin with a '/' character"));
        }
        if url.char_indices().any(|(i, c)| c == '*' && i + 1 < url.len()) {
            errors.push(FieldError::invalid(
                &urls.index(at),
                url.as_str(),
                "non-resource URL wildcards '*' must be the final character of the rule",
            ));
        }
    }
    for resources in &rule.resources {
        let path = path.child("resources");
        let problems = names::name_is_dns_subdomain(&resources.group, false);
        if !matches!(resources.group.as_str(), "" | "*") && !problems.is_empty() {
            errors.push(FieldError::invalid(&path.child("group"), resources.group.as_str(), problems.join(",")));
        }
        if !resources.resource_names.is_empty() && resources.resources.is_empty() {
            let detail = "using resourceNames requires at least one resource";
            errors.push(FieldError::invalid(&path.child("resourceNames"), json!(resources.resource_names), detail));
        }
    }
    errors.extend(stage_errors(&rule.omit_stages, &path.child("omitStages")));
    if !rule.non_resource_urls.is_empty() && (!rule.resources.is_empty() || !rule.namespaces.is_empty()) {
        let detail = "rules cannot apply to both regular resources and non-resource URLs";
        errors.push(FieldError::invalid(&urls, json!(rule.non_resource_urls), detail));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Query;
    use http::Method;

    fn policy(rules: &str) -> Result<Policy, String> {
        Policy::parse(&format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [Panic]\nrules: {rules}\n"))
    }

    /// Levels of GETs by `eve` of group `ops`.
    fn check(rules: &str, cases: &[(&str, Level)]) {
        let policy = policy(rules).unwrap();
        let user = UserInfo { name: "eve".into(), groups: vec!["ops".into()], ..UserInfo::default() };
        for (path, expected) in cases {
            let info = RequestInfo::parse(&Method::GET, path, &Query::default());
            assert_eq!(policy.judge(Some(&user), &info).level, *expected, "{rules} {path}");
        }
    }

    #[test]
    fn the_first_matching_rule_decides() {
        let pod = "/api/v1/namespaces/a/pods/p";
        let log = "/api/v1/namespaces/a/pods/p/log";
        check("[{level: Request, users: [eve], verbs: [get]}]", &[(pod, Level::Request), ("/api/v1/pods", Level::None)]);
        check("[{level: Request, userGroups: [dev]}, {level: Metadata, userGroups: [ops]}]", &[(pod, Level::Metadata)]);
        check("[{level: Metadata, resources: [{group: '', resources: [pods]}]}]", &[(pod, Level::Metadata), (log, Level::None)]);
        check("[{level: Metadata, resources: [{group: '', resources: ['*/log']}]}]", &[(pod, Level::None), (log, Level::Metadata)]);
        check("[{level: Metadata, resources: [{resources: ['pods/*']}]}]", &[(pod, Level::Metadata), (log, Level::Metadata)]);
        check("[{level: Metadata, resources: [{group: apps}]}]", &[(pod, Level::None), ("/apis/apps/v1/deployments", Level::Metadata)]);
        check("[{level: Metadata, resources: [{group: '*', resources: ['*'], resourceNames: [q]}]}]", &[(pod, Level::None)]);
        check(
            "[{level: Metadata, namespaces: [b, '']}]",
            &[(pod, Level::None), ("/api/v1/nodes", Level::Metadata), ("/version", Level::None)],
        );
        let urls = [("/healthz", Level::Metadata), ("/healthz/x", Level::Metadata), ("/version", Level::None), (pod, Level::None)];
        check("[{level: Metadata, nonResourceURLs: ['/healthz*']}]", &urls);
    }

    #[test]
    fn nobody_known_matches_rules_without_users() {
        let policy = policy("[{level: Request, users: ['']}, {level: Metadata}]").unwrap();
        let info = RequestInfo::parse(&Method::GET, "/api", &Query::default());
        assert_eq!(policy.judge(None, &info).level, Level::Metadata);
    }

    #[test]
    fn stages_and_fields_are_left_out() {
        let policy = policy("[{level: Request, omitStages: [RequestReceived], omitManagedFields: true}]").unwrap();
        let verdict = policy.judge(None, &RequestInfo::default());
        assert!(verdict.omit_managed_fields && verdict.writes(Stage::ResponseComplete));
        assert!(!verdict.writes(Stage::RequestReceived) && !verdict.writes(Stage::Panic));
    }

    #[test]
    fn wrong_policies_are_refused_in_upstreams_words() {
        let why = |rules: &str| policy(rules).unwrap_err();
        assert_eq!(why("[]"), "loaded illegal policy with 0 rules");
        assert_eq!(why("[{}]"), "rules[0].level: Required value");
        assert_eq!(
            why("[{level: Much}]"),
            r#"rules[0].level: Unsupported value: "Much": supported values: "Metadata", "None", "Request", "RequestResponse""#
        );
        assert_eq!(
            why("[{level: None, nonResourceURLs: ['/a*b']}]"),
            r#"rules[0].nonResourceURLs[0]: Invalid value: "/a*b": non-resource URL wildcards '*' must be the final character of the rule"#
        );
        assert_eq!(
            why("[{level: None, omitStages: [X]}]"),
            r#"rules[0].omitStages[0]: Invalid value: "X": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic"#
        );
        assert!(why("[{level: None, nonsense: 1}]").contains("nonsense"));
        assert!(Policy::parse("kind: Policy\napiVersion: audit.k8s.io/v1beta1\nrules: [{level: None}]").is_err());
    }
}
