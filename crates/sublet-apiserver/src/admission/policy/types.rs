//! What expressions of a policy say about fields that the resources do not have. Nothing is refused for it: types are
//! told as warnings in the status.

use super::super::conditions::{self, Extras};
use crate::cel::{self, Fields, Type};
use crate::registry::{Resource, Snapshot};
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::ObjectExt;

/// The most kinds that one policy is checked against.
const KINDS_MAX: usize = 10;

/// `status.typeChecking.expressionWarnings` of a policy.
pub(crate) fn type_warnings(policy: &Value, registry: &Snapshot) -> Vec<Value> {
    let spec = &policy["spec"];
    let rows = rows(spec, registry);
    let param_kind = spec["paramKind"].is_object().then(|| {
        let (group, version) = spec["paramKind"].api_version().split_once('/').unwrap_or(("", spec["paramKind"].api_version()));
        registry.find_kind(group, version, spec["paramKind"].kind())
    });
    let params = param_kind.map(|row| row.and_then(|row| cel::declare(row.schema.node())).unwrap_or(Type::Dyn));
    let mut warnings = Vec::new();
    for (index, validation) in policy.array_at("/spec/validations").iter().enumerate() {
        for part in ["expression", "messageExpression"] {
            let text = validation[part].as_str().unwrap_or_default();
            if text.is_empty() {
                continue;
            }
            let found: Vec<String> = rows.iter().filter_map(|row| check(text, spec, row, params.as_ref())).collect();
            if !found.is_empty() {
                warnings.push(json!({"fieldRef": format!("spec.validations[{index}].{part}"), "warning": found.join("\n")}));
            }
        }
    }
    warnings
}

/// The kinds that rules name one by one, in order.
fn rows<'r>(spec: &Value, registry: &'r Snapshot) -> Vec<&'r Arc<Resource>> {
    let mut found: Vec<&Arc<Resource>> = Vec::new();
    for rule in spec.array_at("/matchConstraints/resourceRules") {
        let texts = |key: &str| -> Vec<&str> { rule[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect() };
        let (groups, versions) = (texts("apiGroups"), texts("apiVersions"));
        // A star says nothing about types.
        if groups.contains(&"*") || versions.contains(&"*") {
            continue;
        }
        let resources: Vec<&str> = texts("resources").into_iter().filter(|r| !r.contains(['*', '/'])).collect();
        let named = registry.resources.values().filter(|row| {
            groups.contains(&row.group.as_str()) && versions.contains(&row.version.as_str()) && resources.contains(&row.plural.as_str())
        });
        found.extend(named);
    }
    found.sort_by(|a, b| (&a.group, &a.version, &a.kind).cmp(&(&b.group, &b.version, &b.kind)));
    found.dedup_by(|a, b| Arc::ptr_eq(a, b));
    found.truncate(KINDS_MAX);
    found
}

fn check<'r>(text: &str, spec: &Value, row: &'r Resource, params: Option<&Type<'r>>) -> Option<String> {
    let object = cel::declare(row.schema.node())?;
    let mut fields: Vec<(String, Type<'static>)> = Vec::new();
    for variable in spec.array_at("/variables") {
        let variables = Arc::new(Fields { name: "kubernetes.variables", fields: fields.clone() });
        let declared = declared(&object, params, &variables);
        let found = cel::compile(variable["expression"].as_str().unwrap_or_default(), &declared, None).map(|c| plain(&c.result));
        fields.push((variable["name"].as_str().unwrap_or_default().to_string(), found.unwrap_or(Type::Dyn)));
    }
    let variables = Arc::new(Fields { name: "kubernetes.variables", fields });
    let error = cel::compile(text, &declared(&object, params, &variables), None).err()?;
    Some(format!("{}, Kind={}: {error}\n", row.api_version(), row.kind))
}

fn declared<'r>(object: &Type<'r>, params: Option<&Type<'r>>, variables: &Arc<Fields>) -> Vec<(&'static str, Type<'r>)> {
    let extras = Extras { params: params.is_some(), authorizer: true, variables: Some(variables), messages: false };
    let known: Vec<(&'static str, Type<'r>)> = conditions::declare(extras);
    let typed = |(name, found): (&'static str, Type<'r>)| match (name, params) {
        ("object" | "oldObject", _) => (name, object.clone()),
        ("params", Some(params)) => (name, params.clone()),
        _ => (name, found),
    };
    known.into_iter().map(typed).collect()
}

/// Types that do not refer to a schema; others are not followed into variables.
fn plain(found: &Type<'_>) -> Type<'static> {
    match found {
        Type::Bool => Type::Bool,
        Type::Int => Type::Int,
        Type::Uint => Type::Uint,
        Type::Double => Type::Double,
        Type::String => Type::String,
        Type::Bytes => Type::Bytes,
        Type::Duration => Type::Duration,
        Type::Timestamp => Type::Timestamp,
        Type::List(of) => Type::List(Box::new(plain(of))),
        Type::Map(key, value) => Type::Map(Box::new(plain(key)), Box::new(plain(value))),
        _ => Type::Dyn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Registry, builtin_rows};

    fn warnings(validation: Value) -> Vec<(String, String)> {
        let rules = json!([{"operations": ["*"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}]);
        let variables = json!([{"name": "replicas", "expression": "object.spec.replicas"}]);
        let policy = json!({"spec": {"matchConstraints": {"resourceRules": rules}, "variables": variables, "validations": [validation]}});
        let registry = Registry::new(builtin_rows()).snapshot();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        type_warnings(&policy, &registry).iter().map(|w| (text(&w["fieldRef"]), text(&w["warning"]))).collect()
    }

    #[test]
    fn fields_that_are_confused_are_told() {
        assert_eq!(warnings(json!({"expression": "object.spec.replicas > 1 && object.metadata.labels['a'] == 'b'"})), []);
        let found = warnings(json!({
            "expression": "object.spec.replicas > '1'", "messageExpression": "'wants more, got ' + variables.replicas",
        }));
        assert_eq!(
            found.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(),
            ["spec.validations[0].expression", "spec.validations[0].messageExpression"]
        );
        assert!(found[0].1.starts_with("apps/v1, Kind=Deployment: compilation failed: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'"), "{}", found[0].1);
        assert!(found[1].1.contains("found no matching overload for '_+_' applied to '(string, int)'"), "{}", found[1].1);
        assert!(warnings(json!({"expression": "object.spec.replica == 1"}))[0].1.contains("undefined field 'replica'"));
    }
}
