//! What webhooks and policies have in common: which requests they are about.

use super::super::edit::{fill, items};
use super::super::field::{Errors, Field, Seen};
use crate::admission::{Extras, compile_expression, declare_variables};
use crate::cel::Type;
use serde_json::{Value, json};
use sublet_machinery::names;

const CONDITIONS_MAX: usize = 64;
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

pub(super) fn default_match(object: &mut Value) {
    fill(object, "matchPolicy", "Equivalent");
    fill(object, "namespaceSelector", json!({}));
    fill(object, "objectSelector", json!({}));
    for rules in ["resourceRules", "excludeResourceRules"] {
        for rule in items(object, rules) {
            fill(rule, "scope", "*");
        }
    }
}

fn only_star(list: &Field<'_>, what: &str, errors: &mut Errors) {
    if list.len() > 1 && list.items().any(|item| item.text() == "*") {
        errors.add(list.invalid(format!("if '*' is present, must not specify other {what}")));
    }
}

pub(super) fn validate_rule(rule: &Field<'_>, errors: &mut Errors) {
    let operations = rule.at("operations");
    errors.require(&operations);
    only_star(&operations, "operations", errors);
    for operation in operations.items() {
        errors.one_of(&operation, &OPERATIONS);
    }
    errors.require(&rule.at("apiGroups"));
    only_star(&rule.at("apiGroups"), "API groups", errors);
    errors.require(&rule.at("apiVersions"));
    only_star(&rule.at("apiVersions"), "API versions", errors);
    for version in rule.at("apiVersions").items() {
        errors.require(&version);
    }
    validate_resources(&rule.at("resources"), errors);
    errors.one_of_if_set(&rule.at("scope"), &["*", "Cluster", "Namespaced"]);
}

fn validate_resources(resources: &Field<'_>, errors: &mut Errors) {
    errors.require(resources);
    let (mut with_any_sub, mut of_any_resource) = (Seen::default(), Seen::default());
    let mut plain_last = false;
    for resource in resources.items() {
        let text = resource.text();
        if !errors.require(&resource) {
            continue;
        }
        let Some((name, sub)) = text.split_once('/') else {
            plain_last = text != "*";
            continue;
        };
        if with_any_sub.has(name) {
            errors.add(resource.invalid(format!("if '{name}/*' is present, must not specify {text}")));
        }
        if of_any_resource.has(sub) {
            errors.add(resource.invalid(format!("if '*/{sub}' is present, must not specify {text}")));
        }
        if sub == "*" {
            with_any_sub.again(name);
        }
        if name == "*" {
            of_any_resource.again(sub);
        }
    }
    let has = |wanted: &str| resources.items().any(|resource| resource.text() == wanted);
    if resources.len() > 1 && has("*/*") {
        errors.add(resources.invalid("if '*/*' is present, must not specify other resources"));
    }
    if has("*") && plain_last {
        errors.add(resources.invalid("if '*' is present, must not specify other resources without subresources"));
    }
}

fn validate_named_rule(rule: &Field<'_>, errors: &mut Errors) {
    let mut seen = Seen::default();
    for name in rule.at("resourceNames").items() {
        errors.words(&name, names::path_segment);
        if seen.again(name.text()) {
            errors.add(name.duplicate());
        }
    }
    validate_rule(rule, errors);
}

pub(super) fn validate_match(resources: &Field<'_>, errors: &mut Errors) {
    if !resources.is_set() {
        return;
    }
    let policy = resources.at("matchPolicy");
    if policy.is_set() {
        errors.one_of(&policy, &["Equivalent", "Exact"]);
    } else {
        errors.add(policy.required(""));
    }
    for selector in [resources.at("namespaceSelector"), resources.at("objectSelector")] {
        if selector.is_set() {
            errors.label_selector(&selector);
        } else {
            errors.add(selector.required(""));
        }
    }
    for rules in ["resourceRules", "excludeResourceRules"] {
        resources.at(rules).items().for_each(|rule| validate_named_rule(&rule, errors));
    }
}

/// Match conditions are about the request, and about parameters where there are some.
pub(super) fn validate_conditions(conditions: &Field<'_>, params: bool, errors: &mut Errors) {
    let variables = declare_variables(Extras { params, authorizer: true, ..Extras::default() });
    if conditions.len() > CONDITIONS_MAX {
        errors.add(sublet_machinery::FieldError::too_many(&conditions.path, conditions.len(), CONDITIONS_MAX));
    }
    let mut seen = Seen::default();
    for condition in conditions.items() {
        let (name, expression) = (condition.at("name"), condition.at("expression"));
        if expression.text().trim().is_empty() {
            errors.add(expression.required(""));
        } else if let Err(why) = compile_expression(expression.text().trim(), &variables, &[Type::Bool]) {
            errors.add(expression.invalid_as(expression.text().trim(), why));
        }
        if errors.require(&name) {
            errors.qualified_name(&name);
            if seen.again(name.text()) {
                errors.add(name.duplicate());
            }
        }
    }
}
