//! Flow schemas and priority levels as one table: which level a request is of, and what that level may do.

use crate::admission::UserInfo;
use crate::auth::split_service_account;
use crate::http::RequestInfo;
use crate::strategy::{MANDATORY_FLOW_NAMES, mandatory_level, mandatory_schema};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use sublet_machinery::ObjectExt;

/// Requests in work at once, exempt and long-running ones apart: as upstream's sum of
/// `--max-requests-inflight` and `--max-mutating-requests-inflight`.
pub(super) const SEATS: u32 = 600;

/// What is known of levels and schemas.
pub(crate) struct FlowTable {
    /// In the order in which they are tried.
    schemas: Vec<Schema>,
    pub(super) levels: BTreeMap<Arc<str>, Arc<Level>>,
}

struct Schema {
    name: Arc<str>,
    uid: Arc<str>,
    precedence: i64,
    level: Arc<Level>,
    distinguisher: Distinguisher,
    rules: Vec<Rule>,
}

#[derive(Clone, Copy)]
enum Distinguisher {
    Nothing,
    User,
    Namespace,
}

/// A priority level.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Level {
    pub name: Arc<str>,
    pub uid: Arc<str>,
    pub exempt: bool,
    /// Seats of its own.
    pub nominal: u32,
    /// Those of its own that others may use while they are free.
    pub lendable: u32,
    /// How many of others it may use; `None`: what there is.
    pub borrowed_max: Option<u32>,
    pub queuing: Option<Queuing>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Queuing {
    /// Requests of one flow that may wait.
    pub flow_max: usize,
    /// Requests of the level that may wait.
    pub level_max: usize,
}

/// What a request is.
pub(super) struct Class {
    pub schema: Arc<str>,
    pub schema_uid: Arc<str>,
    pub level: Arc<Level>,
    /// Requests of one flow wait for each other; flows take turns.
    pub flow: u64,
}

impl FlowTable {
    /// Of all `flowschemas` and `prioritylevelconfigurations`.
    pub(super) fn of([schemas, levels]: &[Vec<Arc<Value>>; 2]) -> Self {
        let mut known: BTreeMap<&str, &Value> = levels.iter().map(|level| (level.name(), &**level)).collect();
        let mandatory: Vec<Value> = MANDATORY_FLOW_NAMES.iter().filter_map(|name| with_spec(name, mandatory_level(name))).collect();
        for level in &mandatory {
            known.entry(level.name()).or_insert(level);
        }
        let shares: i64 = known.values().map(|level| shares(level)).sum();
        let levels: BTreeMap<Arc<str>, Arc<Level>> =
            known.values().map(|level| Arc::new(Level::of(level, shares))).map(|level| (level.name.clone(), level)).collect();
        let mut found: Vec<Schema> = schemas.iter().filter_map(|schema| Schema::of(schema, &levels)).collect();
        for name in MANDATORY_FLOW_NAMES {
            if !found.iter().any(|schema| *schema.name == *name) {
                found.extend(with_spec(name, mandatory_schema(name)).and_then(|schema| Schema::of(&schema, &levels)));
            }
        }
        found.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        Self { schemas: found, levels }
    }

    /// The first schema that matches. Everybody is somebody to `catch-all`.
    pub(super) fn classify(&self, user: &UserInfo, info: &RequestInfo) -> Class {
        let matching = self.schemas.iter().find(|schema| schema.rules.iter().any(|rule| rule.matches(user, info)));
        let schema = matching.or(self.schemas.last()).expect("there is a mandatory schema");
        let mut hasher = DefaultHasher::new();
        schema.name.hash(&mut hasher);
        match schema.distinguisher {
            Distinguisher::Nothing => {}
            Distinguisher::User => user.name.hash(&mut hasher),
            Distinguisher::Namespace => info.namespace.hash(&mut hasher),
        }
        Class { schema: schema.name.clone(), schema_uid: schema.uid.clone(), level: schema.level.clone(), flow: hasher.finish() }
    }
}

/// An object that stands for a mandatory one that is missing.
fn with_spec(name: &str, spec: Option<Value>) -> Option<Value> {
    spec.map(|spec| json!({"metadata": {"name": name}, "spec": spec}))
}

/// The part of the spec that says how much the level has.
fn part(level: &Value) -> &Value {
    if level["spec"]["type"] == "Exempt" { &level["spec"]["exempt"] } else { &level["spec"]["limited"] }
}

fn shares(level: &Value) -> i64 {
    let exempt = level["spec"]["type"] == "Exempt";
    part(level)["nominalConcurrencyShares"].as_i64().unwrap_or(if exempt { 0 } else { 30 }).max(0)
}

/// A count that comes from a client.
fn count(value: i64) -> u32 {
    u32::try_from(value.max(0)).unwrap_or(u32::MAX)
}

impl Level {
    fn of(level: &Value, all_shares: i64) -> Self {
        let part = part(level);
        let seats = i64::from(SEATS).saturating_mul(shares(level));
        let nominal = if all_shares > 0 { count(seats / all_shares + i64::from(seats % all_shares > 0)) } else { 0 };
        let percent = |field: &str| part[field].as_i64().map(|p| count((i64::from(nominal).saturating_mul(p) + 50) / 100));
        let response = &part["limitResponse"];
        let queuing = (response["type"] == "Queue").then(|| {
            let number = |field: &str, otherwise: i64| count(response["queuing"][field].as_i64().unwrap_or(otherwise)) as usize;
            let (queues, hand, length) = (number("queues", 64), number("handSize", 8), number("queueLengthLimit", 50));
            Queuing { flow_max: hand.saturating_mul(length), level_max: queues.saturating_mul(length) }
        });
        Self {
            name: level.name().into(),
            uid: level.uid().into(),
            exempt: level["spec"]["type"] == "Exempt",
            nominal,
            lendable: percent("lendablePercent").unwrap_or(0).min(nominal),
            borrowed_max: percent("borrowingLimitPercent"),
            queuing,
        }
    }
}

impl Schema {
    /// `None` when its level does not exist.
    fn of(schema: &Value, levels: &BTreeMap<Arc<str>, Arc<Level>>) -> Option<Self> {
        let spec = &schema["spec"];
        Some(Self {
            name: schema.name().into(),
            uid: schema.uid().into(),
            precedence: spec["matchingPrecedence"].as_i64().unwrap_or(1000),
            level: levels.get(spec["priorityLevelConfiguration"]["name"].as_str()?)?.clone(),
            distinguisher: match spec["distinguisherMethod"]["type"].as_str() {
                Some("ByUser") => Distinguisher::User,
                Some("ByNamespace") => Distinguisher::Namespace,
                _ => Distinguisher::Nothing,
            },
            rules: spec["rules"].as_array().into_iter().flatten().map(Rule::of).collect(),
        })
    }
}

struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

enum Subject {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String },
}

struct ResourceRule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    namespaces: Vec<String>,
    cluster_scope: bool,
}

struct PathRule {
    verbs: Vec<String>,
    paths: Vec<String>,
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_string).collect()
}

/// A star stands for all when it stands alone.
fn covers(list: &[String], value: &str) -> bool {
    list.iter().any(|item| item == value) || matches!(list, [only] if only == "*")
}

impl Rule {
    fn of(rule: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let subject = |subject: &Value| match subject["kind"].as_str()? {
            "User" => Some(Subject::User(text(&subject["user"]["name"]))),
            "Group" => Some(Subject::Group(text(&subject["group"]["name"]))),
            "ServiceAccount" => {
                let account = &subject["serviceAccount"];
                Some(Subject::ServiceAccount { namespace: text(&account["namespace"]), name: text(&account["name"]) })
            }
            _ => None,
        };
        let items = |field: &str| rule[field].as_array().map(Vec::as_slice).unwrap_or_default();
        Self {
            subjects: items("subjects").iter().filter_map(subject).collect(),
            resources: items("resourceRules").iter().map(ResourceRule::of).collect(),
            paths: items("nonResourceRules")
                .iter()
                .map(|rule| PathRule { verbs: texts(&rule["verbs"]), paths: texts(&rule["nonResourceURLs"]) })
                .collect(),
        }
    }

    fn matches(&self, user: &UserInfo, info: &RequestInfo) -> bool {
        self.subjects.iter().any(|subject| subject.matches(user))
            && if info.is_resource {
                self.resources.iter().any(|rule| rule.matches(info))
            } else {
                self.paths.iter().any(|rule| covers(&rule.verbs, info.verb) && rule.paths.iter().any(|path| is_below(path, &info.path)))
            }
    }
}

impl Subject {
    fn matches(&self, user: &UserInfo) -> bool {
        match self {
            Self::User(name) => name == "*" || *name == user.name,
            Self::Group(name) => name == "*" || user.groups.contains(name),
            Self::ServiceAccount { namespace, name } => split_service_account(&user.name)
                .is_some_and(|(of_namespace, of_name)| namespace == of_namespace && (name == "*" || name == of_name)),
        }
    }
}

impl ResourceRule {
    fn of(rule: &Value) -> Self {
        Self {
            verbs: texts(&rule["verbs"]),
            groups: texts(&rule["apiGroups"]),
            resources: texts(&rule["resources"]),
            namespaces: texts(&rule["namespaces"]),
            cluster_scope: rule["clusterScope"] == true,
        }
    }

    fn matches(&self, info: &RequestInfo) -> bool {
        let is_resource = |stated: &String| match stated.split_once('/') {
            None => info.subresource.is_empty() && *stated == info.resource,
            Some((resource, subresource)) => resource == info.resource && subresource == info.subresource,
        };
        covers(&self.verbs, info.verb)
            && covers(&self.groups, &info.group)
            && (matches!(self.resources.as_slice(), [only] if only == "*") || self.resources.iter().any(is_resource))
            && if info.namespace.is_empty() { self.cluster_scope } else { covers(&self.namespaces, &info.namespace) }
    }
}

/// The path itself, or one below it.
fn is_below(stated: &str, path: &str) -> bool {
    let prefix = stated.trim_end_matches('*').trim_end_matches('/');
    stated == "*" || stated == path || path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::testing::user;
    use crate::http::Query;
    use http::Method;

    fn table(schemas: Value, levels: Value) -> FlowTable {
        let objects = |list: Value| list.as_array().unwrap().iter().cloned().map(Arc::new).collect();
        FlowTable::of(&[objects(schemas), objects(levels)])
    }

    fn limited(name: &str, shares: i64, lendable: i64) -> Value {
        json!({"metadata": {"name": name, "uid": format!("uid-{name}")}, "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares, "lendablePercent": lendable, "borrowingLimitPercent": 50,
            "limitResponse": {"type": "Queue", "queuing": {"queues": 2, "handSize": 1, "queueLengthLimit": 3}},
        }}})
    }

    fn schema(name: &str, precedence: i64, level: &str, subject: Value, resource: &str) -> Value {
        json!({"metadata": {"name": name, "uid": name}, "spec": {
            "matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": level}, "distinguisherMethod": {"type": "ByUser"},
            "rules": [{
                "subjects": [subject],
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": [resource], "namespaces": ["a"], "clusterScope": true}],
                "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz/*"]}],
            }],
        }})
    }

    #[test]
    fn the_first_matching_schema_by_precedence_and_name_decides() {
        let everybody = json!({"kind": "Group", "group": {"name": "*"}});
        let account = json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "x", "name": "*"}});
        let table = table(
            json!([
                schema("late", 20, "l", everybody.clone(), "*"),
                schema("early-b", 10, "l", everybody.clone(), "pods"),
                schema("early-a", 10, "l", account, "pods/log"),
                schema("lost", 2, "no-such-level", everybody, "*"),
            ]),
            json!([limited("l", 30, 0)]),
        );
        let class = |who: &str, groups: &[&str], path: &str| {
            let info = RequestInfo::parse(&Method::GET, path, &Query::default());
            table.classify(&user(who, groups), &info).schema.to_string()
        };
        assert_eq!(class("eve", &[], "/api/v1/namespaces/a/pods/p"), "early-b");
        assert_eq!(class("system:serviceaccount:x:y", &[], "/api/v1/namespaces/a/pods/p/log"), "early-a");
        assert_eq!(class("eve", &[], "/api/v1/namespaces/a/pods/p/log"), "late");
        assert_eq!(class("eve", &["system:authenticated"], "/api/v1/namespaces/b/pods/p"), "catch-all");
        assert_eq!((class("eve", &[], "/healthz/x"), class("eve", &[], "/version")), ("early-b".into(), "catch-all".into()));
        assert_eq!(class("root", &["system:masters"], "/api/v1/namespaces/a/pods/p"), "exempt");
    }

    #[test]
    fn shares_become_seats_as_upstream_counts_them() {
        let table = table(json!([]), json!([limited("a", 30, 50), limited("b", 65, 0)]));
        // catch-all is there, with 5 shares.
        let level = |name: &str| table.levels[name].clone();
        assert_eq!((level("a").nominal, level("a").lendable, level("a").borrowed_max), (180, 90, Some(90)));
        assert_eq!((level("b").nominal, level("catch-all").nominal, level("exempt").nominal), (390, 30, 0));
        assert_eq!(level("a").queuing, Some(Queuing { flow_max: 3, level_max: 6 }));
        assert!(level("exempt").exempt && level("catch-all").queuing.is_none());
    }
}
