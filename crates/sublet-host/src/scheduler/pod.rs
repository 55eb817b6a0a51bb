//! A pod as the scheduler sees it: parsed once, shared by queue and cache.

use super::resources::{Resources, pod_requests};
use crate::selector::{Labels, NodeSelector, NodeTerm, Selector};
use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::ObjectExt;
use sublet_runtime::Key;

/// A term of pod affinity or anti-affinity.
#[derive(Clone, Debug)]
pub(crate) struct AffinityTerm {
    pub(crate) selector: Selector,
    namespaces: Vec<String>,
    namespace_selector: Option<Selector>,
    pub(crate) topology_key: String,
    pub(crate) weight: i64,
}

impl AffinityTerm {
    fn parse(term: &Value, weight: i64, pod: &Value) -> Self {
        let mut namespaces: Vec<String> = term.array_at("/namespaces").iter().filter_map(Value::as_str).map(str::to_string).collect();
        let namespace_selector = term.get("namespaceSelector").filter(|s| s.is_object()).map(Selector::parse);
        if namespaces.is_empty() && namespace_selector.is_none() {
            namespaces.push(pod.namespace().to_string());
        }
        // The API server writes matchLabelKeys into the selector; older objects have it beside.
        let selector = Selector::parse(&term["labelSelector"]).with_keys(term.array_at("/matchLabelKeys"), pod.labels(), false).with_keys(
            term.array_at("/mismatchLabelKeys"),
            pod.labels(),
            true,
        );
        let topology_key = term["topologyKey"].as_str().unwrap_or_default().to_string();
        Self { selector, namespaces, namespace_selector, topology_key, weight }
    }

    /// `namespace_labels` reads the labels of the namespace of `pod`.
    pub(crate) fn matches(&self, pod: &Value, namespace_labels: &dyn Fn(&str) -> Option<Arc<Value>>) -> bool {
        let namespace = pod.namespace();
        let inside = self.namespaces.iter().any(|n| n == namespace)
            || self.namespace_selector.as_ref().is_some_and(|s| namespace_labels(namespace).is_some_and(|n| s.matches(n.labels())));
        inside && self.selector.matches(pod.labels())
    }
}

/// A hard or soft topology spread constraint.
#[derive(Clone, Debug)]
pub(crate) struct SpreadConstraint {
    pub(crate) max_skew: i64,
    pub(crate) topology_key: String,
    pub(crate) hard: bool,
    pub(crate) selector: Selector,
    pub(crate) min_domains: usize,
    pub(crate) honor_affinity: bool,
    pub(crate) honor_taints: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Toleration {
    key: String,
    exists: bool,
    value: String,
    effect: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taint {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) effect: String,
}

impl Taint {
    pub(crate) fn parse(taint: &Value) -> Self {
        let text = |key: &str| taint[key].as_str().unwrap_or_default().to_string();
        Self { key: text("key"), value: text("value"), effect: text("effect") }
    }
}

impl Toleration {
    pub(crate) fn parse(toleration: &Value) -> Self {
        let text = |key: &str| toleration[key].as_str().unwrap_or_default().to_string();
        Self { key: text("key"), exists: toleration["operator"] == "Exists", value: text("value"), effect: text("effect") }
    }

    pub(crate) fn tolerates(&self, taint: &Taint) -> bool {
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && (self.exists || (!self.key.is_empty() && self.value == taint.value))
    }
}

/// A port of the node: address, protocol, number.
pub(crate) type HostPort = (String, String, i64);

#[derive(Debug)]
pub(crate) struct PodInfo {
    pub(crate) object: Arc<Value>,
    pub(crate) key: Key,
    pub(crate) priority: i64,
    pub(crate) requests: Resources,
    pub(crate) host_ports: Vec<HostPort>,
    pub(crate) claims: Vec<String>,
    pub(crate) affinity: Vec<AffinityTerm>,
    pub(crate) anti_affinity: Vec<AffinityTerm>,
    pub(crate) preferred_affinity: Vec<AffinityTerm>,
    /// With negative weights.
    pub(crate) preferred_anti_affinity: Vec<AffinityTerm>,
    /// The uid of the controller, for spreading without constraints.
    pub(crate) owner: String,
}

/// The wishes of a pod that has no node yet.
#[derive(Debug)]
pub(crate) struct Wishes {
    pub(crate) node_name: String,
    pub(crate) node_selector: Vec<(String, String)>,
    pub(crate) node_affinity: Option<NodeSelector>,
    pub(crate) preferred_nodes: Vec<(i64, NodeTerm)>,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) spread: Vec<SpreadConstraint>,
}

impl PodInfo {
    pub(crate) fn parse(object: Arc<Value>) -> Self {
        let pod = &*object;
        let terms = |pointer: &str| -> Vec<AffinityTerm> { pod.array_at(pointer).iter().map(|t| AffinityTerm::parse(t, 1, pod)).collect() };
        let preferred = |pointer: &str, sign: i64| -> Vec<AffinityTerm> {
            let parse = |p: &Value| AffinityTerm::parse(&p["podAffinityTerm"], sign * p["weight"].as_i64().unwrap_or(0), pod);
            pod.array_at(pointer).iter().map(parse).collect()
        };
        Self {
            key: Key::of(pod),
            priority: pod.i64_at("/spec/priority").unwrap_or(0),
            requests: pod_requests(pod),
            host_ports: host_ports(pod),
            claims: pod.array_at("/spec/volumes").iter().filter_map(|v| crate::kubelet::claim_name(pod, v)).collect(),
            affinity: terms("/spec/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution"),
            anti_affinity: terms("/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution"),
            preferred_affinity: preferred("/spec/affinity/podAffinity/preferredDuringSchedulingIgnoredDuringExecution", 1),
            preferred_anti_affinity: preferred("/spec/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution", -1),
            owner: pod.controller_owner().and_then(|o| o["uid"].as_str()).unwrap_or_default().to_string(),
            object,
        }
    }

    pub(crate) fn uid(&self) -> &str {
        self.object.uid()
    }

    pub(crate) fn labels(&self) -> Option<&Labels> {
        self.object.labels()
    }

    pub(crate) fn has_affinity(&self) -> bool {
        !(self.affinity.is_empty()
            && self.anti_affinity.is_empty()
            && self.preferred_affinity.is_empty()
            && self.preferred_anti_affinity.is_empty())
    }

    pub(crate) fn wishes(&self) -> Wishes {
        let pod = &*self.object;
        let affinity = "/spec/affinity/nodeAffinity";
        let required = pod.pointer(&format!("{affinity}/requiredDuringSchedulingIgnoredDuringExecution")).filter(|r| r.is_object());
        let preferred = pod.array_at(&format!("{affinity}/preferredDuringSchedulingIgnoredDuringExecution"));
        Wishes {
            node_name: pod.str_at("/spec/nodeName").unwrap_or_default().to_string(),
            node_selector: pod
                .object_at("/spec/nodeSelector")
                .into_iter()
                .flatten()
                .map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_string()))
                .collect(),
            node_affinity: required.map(NodeSelector::parse),
            preferred_nodes: preferred.iter().filter_map(|p| Some((p["weight"].as_i64()?, NodeTerm::parse(&p["preference"])?))).collect(),
            tolerations: pod.array_at("/spec/tolerations").iter().map(Toleration::parse).collect(),
            spread: pod.array_at("/spec/topologySpreadConstraints").iter().map(|c| spread_constraint(c, pod)).collect(),
        }
    }
}

impl Wishes {
    /// Node selector and required node affinity.
    pub(crate) fn matches_node(&self, name: &str, labels: Option<&Labels>) -> bool {
        let has = |key: &str, value: &str| labels.and_then(|l| l.get(key)).and_then(Value::as_str) == Some(value);
        self.node_selector.iter().all(|(k, v)| has(k, v)) && self.node_affinity.as_ref().is_none_or(|a| a.matches(name, labels))
    }

    pub(crate) fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|t| t.tolerates(taint))
    }

    /// A taint that keeps the pod away.
    pub(crate) fn untolerated<'t>(&self, taints: &'t [Taint]) -> Option<&'t Taint> {
        taints.iter().find(|t| (t.effect == "NoSchedule" || t.effect == "NoExecute") && !self.tolerates(t))
    }
}

fn spread_constraint(constraint: &Value, pod: &Value) -> SpreadConstraint {
    SpreadConstraint {
        max_skew: constraint["maxSkew"].as_i64().unwrap_or(1),
        topology_key: constraint["topologyKey"].as_str().unwrap_or_default().to_string(),
        hard: constraint["whenUnsatisfiable"] != "ScheduleAnyway",
        selector: Selector::parse(&constraint["labelSelector"]).with_keys(constraint.array_at("/matchLabelKeys"), pod.labels(), false),
        min_domains: constraint["minDomains"].as_u64().and_then(|d| usize::try_from(d).ok()).unwrap_or(1),
        honor_affinity: constraint["nodeAffinityPolicy"] != "Ignore",
        honor_taints: constraint["nodeTaintsPolicy"] == "Honor",
    }
}

fn host_ports(pod: &Value) -> Vec<HostPort> {
    let containers = pod.array_at("/spec/containers").iter();
    let sidecars = pod.array_at("/spec/initContainers").iter().filter(|c| c["restartPolicy"] == "Always");
    containers
        .chain(sidecars)
        .flat_map(|c| c.array_at("/ports"))
        .filter_map(|port| {
            let number = port["hostPort"].as_i64().filter(|n| *n > 0)?;
            let address = port["hostIP"].as_str().filter(|a| !a.is_empty()).unwrap_or("0.0.0.0");
            Some((address.to_string(), port["protocol"].as_str().unwrap_or("TCP").to_string(), number))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tolerations_match_taints() {
        let taint = Taint::parse(&json!({"key": "k", "value": "v", "effect": "NoSchedule"}));
        let check =
            |toleration: Value, expected: bool| assert_eq!(Toleration::parse(&toleration).tolerates(&taint), expected, "{toleration}");
        check(json!({"operator": "Exists"}), true);
        check(json!({"key": "k", "operator": "Exists"}), true);
        check(json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), false);
        check(json!({"key": "k", "value": "v"}), true);
        check(json!({"key": "k", "operator": "Equal", "value": "w"}), false);
        check(json!({"value": "v"}), false);
    }

    #[test]
    fn affinity_terms_look_into_the_right_namespaces() {
        let own = json!({"metadata": {"namespace": "own", "labels": {"v": "1"}}});
        let term = |term: Value| AffinityTerm::parse(&term, 1, &own);
        let pod = |namespace: &str| json!({"metadata": {"namespace": namespace, "labels": {"app": "a", "v": "1"}}});
        let namespaces = |name: &str| Some(Arc::new(json!({"metadata": {"name": name, "labels": {"team": name}}})));
        let check = |t: Value, namespace: &str, expected: bool| {
            assert_eq!(term(t.clone()).matches(&pod(namespace), &namespaces), expected, "{t} {namespace}");
        };
        let selector = json!({"matchLabels": {"app": "a"}});
        check(json!({"labelSelector": selector}), "own", true);
        check(json!({"labelSelector": selector}), "other", false);
        check(json!({"labelSelector": selector, "namespaces": ["other"]}), "other", true);
        check(json!({"labelSelector": selector, "namespaceSelector": {"matchLabels": {"team": "x"}}}), "x", true);
        check(json!({"labelSelector": selector, "namespaceSelector": {"matchLabels": {"team": "x"}}}), "own", false);
        check(json!({"labelSelector": selector, "matchLabelKeys": ["v"]}), "own", true);
        check(json!({"labelSelector": selector, "mismatchLabelKeys": ["v"]}), "own", false);
    }
}
