//! Selectors narrowed to what the tenant means by them: its own objects, in its own namespaces.

use super::{Names, host_meta_key, label_value};
use serde_json::{Map, Value, json};
use sublet_api::marks;

/// The tenant namespaces in which a selector looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespaces {
    All,
    /// None at all, when empty.
    These(Vec<String>),
}

/// A LabelSelector for host objects that copies of tenant objects match as their originals match the
/// given one. Null stays null: it selects nothing on either side.
pub fn scoped_selector(selector: &Value, namespaces: &Namespaces, names: &Names) -> Value {
    if selector.is_null() {
        return Value::Null;
    }
    let mut labels = translated_map(&selector["matchLabels"]);
    labels.insert(marks::VIRTUAL_CLUSTER.into(), json!(label_value(&names.tenant().name)));
    let mut expressions: Vec<Value> = Vec::new();
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let mut expression = expression.clone();
        if let Some(key) = expression["key"].as_str() {
            expression["key"] = json!(host_meta_key(key));
        }
        expressions.push(expression);
    }
    match namespaces {
        Namespaces::All => {}
        Namespaces::These(list) => match list.as_slice() {
            [one] => {
                labels.insert(marks::NAMESPACE.into(), json!(one));
            }
            // No object carries the mark with an empty value.
            [] => expressions.push(json!({"key": marks::NAMESPACE, "operator": "In", "values": [""]})),
            many => expressions.push(json!({"key": marks::NAMESPACE, "operator": "In", "values": many})),
        },
    }
    let mut scoped = json!({"matchLabels": labels});
    if !expressions.is_empty() {
        scoped["matchExpressions"] = Value::Array(expressions);
    }
    scoped
}

/// A plain map selector (services) for the pods of one tenant namespace.
pub fn scoped_map_selector(selector: &Value, namespace: &str, names: &Names) -> Value {
    let mut labels = translated_map(selector);
    labels.insert(marks::VIRTUAL_CLUSTER.into(), json!(label_value(&names.tenant().name)));
    labels.insert(marks::NAMESPACE.into(), json!(namespace));
    Value::Object(labels)
}

fn translated_map(labels: &Value) -> Map<String, Value> {
    labels.as_object().into_iter().flatten().map(|(k, v)| (host_meta_key(k).into_owned(), v.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::TenantIdentity;

    fn names() -> Names {
        Names::new(TenantIdentity { name: "alpha".into(), namespace: "team-a".into(), uid: "u".into() }, "team-a")
    }

    fn check(selector: Value, namespaces: Namespaces, expected: Value) {
        assert_eq!(scoped_selector(&selector, &namespaces, &names()), expected);
    }

    #[test]
    fn selectors_see_only_the_tenant_and_its_namespaces() {
        let own = || Namespaces::These(vec!["prod".into()]);
        check(Value::Null, own(), Value::Null);
        // An empty selector means everything in its namespaces, and no more.
        check(json!({}), own(), json!({"matchLabels": {marks::VIRTUAL_CLUSTER: "alpha", marks::NAMESPACE: "prod"}}));
        check(json!({"matchLabels": {"a": "b"}}), Namespaces::All, json!({"matchLabels": {"a": "b", marks::VIRTUAL_CLUSTER: "alpha"}}));
        check(
            json!({"matchExpressions": [{"key": "sublet.dev/name", "operator": "Exists"}]}),
            Namespaces::These(vec!["a".into(), "b".into()]),
            json!({"matchLabels": {marks::VIRTUAL_CLUSTER: "alpha"}, "matchExpressions": [
                {"key": "n.sublet.dev/name", "operator": "Exists"},
                {"key": marks::NAMESPACE, "operator": "In", "values": ["a", "b"]},
            ]}),
        );
        check(
            json!({}),
            Namespaces::These(Vec::new()),
            json!({"matchLabels": {marks::VIRTUAL_CLUSTER: "alpha"}, "matchExpressions": [
                {"key": marks::NAMESPACE, "operator": "In", "values": [""]},
            ]}),
        );
    }
}
