//! Containers: references in their environment, and the variables that a kubelet would have added.

use super::{downward, network};
use crate::resources::{Translation, configmap, secret};
use serde_json::{Value, json};
use std::collections::HashSet;
use sublet_machinery::ObjectExt;

const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

pub(super) fn translate(host: &mut Value, tenant: &Value, translation: &Translation<'_>) {
    let variables = network::service_variables(tenant, translation);
    for list in LISTS {
        let mut containers = tenant["spec"][list].clone();
        let Some(items) = containers.as_array_mut().filter(|items| !items.is_empty()) else { continue };
        for container in items {
            translate_one(container, tenant.namespace(), &variables, translation);
        }
        host["spec"][list] = containers;
    }
}

fn translate_one(container: &mut Value, namespace: &str, variables: &[(String, String)], translation: &Translation<'_>) {
    let own = without_repeats(container.array_at("/env"));
    let named: HashSet<&str> = own.iter().filter_map(|e| e["name"].as_str()).collect();
    // First, so that the container's own variables may refer to them.
    let mut env: Vec<Value> = variables
        .iter()
        .filter(|(name, _)| !named.contains(name.as_str()))
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    for mut variable in own.iter().cloned() {
        if let Some(source) = variable.get_mut("valueFrom") {
            translate_source(source, namespace, translation);
        }
        env.push(variable);
    }
    container["env"] = Value::Array(env);
    if let Some(sources) = container.get_mut("envFrom").and_then(Value::as_array_mut) {
        for source in sources {
            refer(source, "/configMapRef/name", namespace, &configmap::CONFIG_MAP, translation);
            refer(source, "/secretRef/name", namespace, &secret::SECRET, translation);
        }
    }
}

fn translate_source(source: &mut Value, namespace: &str, translation: &Translation<'_>) {
    refer(source, "/configMapKeyRef/name", namespace, &configmap::CONFIG_MAP, translation);
    refer(source, "/secretKeyRef/name", namespace, &secret::SECRET, translation);
    if let Some(path) = source.pointer_mut("/fieldRef/fieldPath")
        && let Some(text) = path.as_str()
    {
        *path = json!(downward::host_path(text));
    }
}

/// Rewrites the name at `pointer`, if there is one.
pub(super) fn refer(value: &mut Value, pointer: &str, namespace: &str, kind: &crate::resources::SyncedKind, translation: &Translation<'_>) {
    if let Some(name) = value.pointer_mut(pointer)
        && let Some(text) = name.as_str().filter(|t| !t.is_empty())
    {
        *name = json!(translation.refer(kind, namespace, text));
    }
}

/// Of variables with the same name the last counts, as with a kubelet; server-side apply takes no more than one.
fn without_repeats(env: &[Value]) -> Vec<Value> {
    let mut seen = HashSet::new();
    let mut kept: Vec<Value> = env.iter().rev().filter(|e| seen.insert(e["name"].as_str().unwrap_or_default())).cloned().collect();
    kept.reverse();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_repeated_variables_the_last_counts() {
        let env = json!([{"name": "a", "value": "1"}, {"name": "b", "value": "2"}, {"name": "a", "value": "3"}]);
        assert_eq!(without_repeats(env.as_array().unwrap()), [json!({"name": "b", "value": "2"}), json!({"name": "a", "value": "3"})]);
    }
}
