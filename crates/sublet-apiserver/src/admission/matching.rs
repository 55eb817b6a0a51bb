//! Which requests a webhook or a policy is about.

use super::{Attributes, Operation};
use crate::reader::Reader;
use crate::registry::{Resource, Snapshot};
use crate::rest::convert::storage_resource;
use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::ApiError;
use sublet_machinery::selector::Selector;

/// `operations`, `apiGroups`, `apiVersions`, `resources`, `scope` and, of policies, `resourceNames`.
#[derive(Clone, Debug, Default)]
pub(super) struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    /// Resource and subresource.
    resources: Vec<(String, String)>,
    scope: String,
    names: Vec<String>,
}

/// Rules, selectors and the policy on versions: the part that webhooks and policies share.
#[derive(Clone, Debug)]
pub(super) struct Matcher {
    rules: Vec<Rule>,
    exclude: Vec<Rule>,
    equivalent: bool,
    namespaces: Result<Selector, String>,
    objects: Result<Selector, String>,
}

impl Rule {
    fn of(stated: &Value) -> Self {
        let texts = |name: &str| -> Vec<String> {
            stated[name].as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_string)).collect()
        };
        let split = |text: String| match text.split_once('/') {
            Some((resource, sub)) => (resource.to_string(), sub.to_string()),
            None => (text, String::new()),
        };
        Self {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources").into_iter().map(split).collect(),
            scope: stated["scope"].as_str().unwrap_or("*").to_string(),
            names: texts("resourceNames"),
        }
    }

    /// Whether the request is meant, were it one for `resource`.
    fn matches(&self, attributes: &Attributes<'_>, resource: &Resource) -> bool {
        let is_namespace = resource.group.is_empty() && resource.plural == "namespaces";
        let in_scope = match self.scope.as_str() {
            "Namespaced" => !is_namespace && !attributes.namespace.is_empty(),
            "Cluster" => is_namespace || attributes.namespace.is_empty(),
            _ => true,
        };
        let one_of = |list: &[String], text: &str| list.iter().any(|item| item == "*" || item == text);
        in_scope
            && one_of(&self.operations, attributes.operation_name())
            && one_of(&self.groups, &resource.group)
            && one_of(&self.versions, &resource.version)
            && self
                .resources
                .iter()
                .any(|(name, sub)| (name == "*" || *name == resource.plural) && (sub == "*" || sub == attributes.subresource))
            && (self.names.is_empty() || self.names.iter().any(|name| name == attributes.name))
    }
}

impl Matcher {
    /// From a webhook (`rules`) or from match resources of a policy (`resourceRules`).
    pub(super) fn of(stated: &Value) -> Self {
        let rules = |name: &str| -> Vec<Rule> { stated[name].as_array().into_iter().flatten().map(Rule::of).collect() };
        let selector = |name: &str| match &stated[name] {
            Value::Null => Ok(Selector::everything()),
            stated => Selector::from_object(stated).map_err(|e| e.to_string()),
        };
        let mut all = rules("rules");
        all.extend(rules("resourceRules"));
        Self {
            rules: all,
            exclude: rules("excludeResourceRules"),
            equivalent: stated["matchPolicy"] != "Exact",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }

    pub(super) fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// The resource in whose version the object is to be shown; `None` when the request is not meant.
    pub(super) fn matches(
        &self,
        attributes: &Attributes<'_>,
        reader: &dyn Reader,
        registry: &Snapshot,
    ) -> Result<Option<Arc<Resource>>, ApiError> {
        // An error of a selector counts only when the rules are about the request.
        let in_namespace = self.in_namespace(attributes, reader);
        if matches!(in_namespace, Ok(false)) || matches!(self.selects_object(attributes), Ok(false)) {
            return Ok(None);
        }
        if self.resource_of(&self.exclude, attributes, registry).is_some() {
            return Ok(None);
        }
        let Some(resource) = self.resource_of(&self.rules, attributes, registry) else { return Ok(None) };
        in_namespace?;
        self.selects_object(attributes)?;
        Ok(Some(resource))
    }

    /// Whether match resources of a binding take the request; without rules they take all that the policy is about.
    pub(super) fn matches_within(&self, attributes: &Attributes<'_>, reader: &dyn Reader, registry: &Snapshot) -> Result<bool, ApiError> {
        if !self.rules.is_empty() {
            return self.matches(attributes, reader, registry).map(|found| found.is_some());
        }
        let excluded = self.resource_of(&self.exclude, attributes, registry).is_some();
        Ok(!excluded && self.in_namespace(attributes, reader)? && self.selects_object(attributes)?)
    }

    /// Rules about other versions of the resource count when the policy is `Equivalent`.
    fn resource_of(&self, rules: &[Rule], attributes: &Attributes<'_>, registry: &Snapshot) -> Option<Arc<Resource>> {
        if rules.iter().any(|rule| rule.matches(attributes, attributes.resource)) {
            return Some(attributes.resource.clone());
        }
        if !self.equivalent || rules.is_empty() {
            return None;
        }
        let others = equivalents(registry, attributes);
        rules.iter().find_map(|rule| others.iter().find(|other| rule.matches(attributes, other))).cloned()
    }

    fn in_namespace(&self, attributes: &Attributes<'_>, reader: &dyn Reader) -> Result<bool, ApiError> {
        let (name, is_namespace) = (attributes.namespace_seen(), attributes.is("namespaces"));
        if name.is_empty() && !is_namespace {
            return Ok(true);
        }
        let selector = self.namespaces.as_ref().map_err(ApiError::internal)?;
        if selector.is_empty() {
            return Ok(true);
        }
        let is_own = is_namespace && attributes.subresource.is_empty();
        match &attributes.object {
            Some(object) if is_own && matches!(attributes.operation, Operation::Create | Operation::Update) => {
                Ok(selector.matches_object(object))
            }
            _ => {
                let namespace = reader.get("namespaces", "", name).ok_or_else(|| ApiError::not_found("", "namespaces", name))?;
                Ok(selector.matches_object(&namespace))
            }
        }
    }

    fn selects_object(&self, attributes: &Attributes<'_>) -> Result<bool, ApiError> {
        let selector = self.objects.as_ref().map_err(ApiError::internal)?;
        if selector.is_empty() {
            return Ok(true);
        }
        let selects = |object: &Value| object["metadata"].is_object() && selector.matches_object(object);
        let object = attributes.object_seen();
        Ok(object.is_some_and(|o| selects(&o)) || attributes.old_seen().is_some_and(|o| selects(&o)))
    }
}

/// The same resource in other versions, or in the other group that it is served in.
fn equivalents(registry: &Snapshot, attributes: &Attributes<'_>) -> Vec<Arc<Resource>> {
    let own = attributes.resource;
    let stored = storage_resource(own);
    let others = registry.resources.values().filter(|r| r.plural == own.plural && storage_resource(r) == stored);
    others
        .filter(|r| r.version != own.version || r.group != own.group)
        .filter(|r| attributes.subresource.is_empty() || r.subresource(attributes.subresource).is_some())
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::UserInfo;
    use super::*;
    use crate::auth::testing::FakeReader;
    use crate::registry::{Registry, builtin_rows};
    use serde_json::json;

    struct Asked<'a> {
        path: &'a str,
        namespace: &'a str,
        object: Value,
    }

    fn check(asked: &Asked<'_>, stated: Value) -> Result<Option<String>, String> {
        let registry = Registry::new(builtin_rows()).snapshot();
        let reader = FakeReader::default();
        reader.put("namespaces", json!({"metadata": {"name": "blue", "labels": {"color": "blue"}}}));
        let parts: Vec<&str> = asked.path.split('/').collect();
        let row = registry.find(parts[0], parts[1], parts[2]).expect("a built-in resource");
        let user = UserInfo::default();
        let attributes = Attributes {
            namespace: asked.namespace,
            name: "x",
            subresource: parts.get(3).copied().unwrap_or_default(),
            object: Some(asked.object.clone()),
            ..Attributes::new(&user, Operation::Create, row)
        };
        let found = Matcher::of(&stated).matches(&attributes, &reader, &registry);
        found.map(|r| r.map(|r| r.api_version())).map_err(|e| e.message)
    }

    fn rule(group: &str, version: &str, resource: &str) -> Value {
        json!({"operations": ["CREATE"], "apiGroups": [group], "apiVersions": [version], "resources": [resource]})
    }

    #[test]
    fn rules_say_which_requests_are_meant() {
        let pod = Asked { path: "/v1/pods", namespace: "blue", object: json!({"metadata": {"labels": {"a": "b"}}}) };
        let status = Asked { path: "/v1/pods/status", namespace: "blue", object: Value::Null };
        let node = Asked { path: "/v1/nodes", namespace: "", object: Value::Null };
        let matched = Ok(Some("v1".to_string()));
        for (asked, stated, expected) in [
            (&pod, json!({"rules": [rule("", "v1", "pods")]}), &matched),
            (&pod, json!({"rules": [rule("*", "*", "*")]}), &matched),
            (&pod, json!({"rules": [rule("apps", "v1", "pods")]}), &Ok(None)),
            (&status, json!({"rules": [rule("*", "*", "*")]}), &Ok(None)),
            (&status, json!({"rules": [rule("*", "*", "*/*")]}), &matched),
            (&status, json!({"rules": [rule("", "v1", "pods/status")]}), &matched),
            (&pod, json!({"rules": [rule("", "v1", "pods")], "excludeResourceRules": [rule("", "*", "pods")]}), &Ok(None)),
            (&pod, json!({"rules": [rule("", "v1", "pods")], "namespaceSelector": {"matchLabels": {"color": "red"}}}), &Ok(None)),
            (&pod, json!({"rules": [rule("", "v1", "pods")], "namespaceSelector": {"matchLabels": {"color": "blue"}}}), &matched),
            (&pod, json!({"rules": [rule("", "v1", "pods")], "objectSelector": {"matchLabels": {"a": "b"}}}), &matched),
            (&pod, json!({"rules": [rule("", "v1", "pods")], "objectSelector": {"matchLabels": {"a": "c"}}}), &Ok(None)),
            (&node, json!({"rules": [rule("", "v1", "nodes")], "namespaceSelector": {"matchLabels": {"color": "red"}}}), &matched),
        ] {
            assert_eq!(&check(asked, stated.clone()), expected, "{} {stated}", asked.path);
        }
        let mut scoped = rule("*", "*", "*");
        scoped["scope"] = json!("Cluster");
        assert_eq!(check(&pod, json!({"rules": [scoped.clone()]})), Ok(None));
        assert_eq!(check(&node, json!({"rules": [scoped]})), matched);
        let lost = Asked { namespace: "gone", ..pod };
        let stated = json!({"rules": [rule("", "v1", "pods")], "namespaceSelector": {"matchLabels": {"color": "red"}}});
        assert_eq!(check(&lost, stated), Err("namespaces \"gone\" not found".into()));
    }

    #[test]
    fn equivalent_versions_are_meant_unless_the_policy_is_exact() {
        let asked = Asked { path: "autoscaling/v2/horizontalpodautoscalers", namespace: "blue", object: Value::Null };
        let stated = |policy: &str| json!({"matchPolicy": policy, "rules": [rule("autoscaling", "v1", "horizontalpodautoscalers")]});
        assert_eq!(check(&asked, stated("Equivalent")), Ok(Some("autoscaling/v1".into())));
        assert_eq!(check(&asked, stated("Exact")), Ok(None));
        let event = Asked { path: "events.k8s.io/v1/events", namespace: "blue", object: Value::Null };
        assert_eq!(check(&event, json!({"rules": [rule("", "v1", "events")]})), Ok(Some("v1".into())));
    }
}
