//! Which namespaces of the tenant an affinity term or the peer of a policy speaks of.

use super::TenantView;
use crate::translate::Namespaces;
use serde_json::Value;
use sublet_machinery::ObjectExt;

/// Those listed and those that the selector matches; neither means the object's own.
pub(super) fn namespaces_of(selector: &Value, listed: Vec<String>, own: &str, view: &dyn TenantView) -> Namespaces {
    if selector.is_null() && listed.is_empty() {
        return Namespaces::These(vec![own.to_string()]);
    }
    if selector.is_object() && is_empty_selector(selector) {
        return Namespaces::All;
    }
    let mut found = listed;
    if selector.is_object() {
        let matching = view.namespaces().into_iter().filter(|n| matches(selector, n));
        found.extend(matching.map(|n| n.name().to_string()));
    }
    found.sort();
    found.dedup();
    Namespaces::These(found)
}

fn is_empty_selector(selector: &Value) -> bool {
    selector["matchLabels"].as_object().is_none_or(serde_json::Map::is_empty) && selector.array_at("/matchExpressions").is_empty()
}

/// Whether the labels of an object match a LabelSelector.
pub(super) fn matches(selector: &Value, object: &Value) -> bool {
    let equal = selector["matchLabels"].as_object().into_iter().flatten().all(|(k, v)| object.label(k) == v.as_str());
    equal
        && selector.array_at("/matchExpressions").iter().all(|expression| {
            let have = object.label(expression["key"].as_str().unwrap_or_default());
            let listed = have.is_some_and(|have| expression.array_at("/values").iter().any(|v| v == have));
            match expression["operator"].as_str() {
                Some("In") => listed,
                Some("NotIn") => !listed,
                Some("Exists") => have.is_some(),
                Some("DoesNotExist") => have.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn namespace_selectors_match_as_upstream_has_it() {
        let namespace = json!({"metadata": {"name": "a", "labels": {"team": "x"}}});
        let check = |selector: Value, expected: bool| assert_eq!(matches(&selector, &namespace), expected, "{selector}");
        check(json!({"matchLabels": {"team": "x"}}), true);
        check(json!({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["y"]}]}), true);
        check(json!({"matchExpressions": [{"key": "other", "operator": "NotIn", "values": ["y"]}]}), true);
        check(json!({"matchExpressions": [{"key": "other", "operator": "In", "values": ["y"]}]}), false);
        check(json!({"matchExpressions": [{"key": "other", "operator": "Exists"}]}), false);
    }
}
