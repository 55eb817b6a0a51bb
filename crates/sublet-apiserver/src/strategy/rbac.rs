//! Roles and their bindings.

use super::edit::{ensure, fill_zero, items};
use super::field::{Errors, Field};
use super::{NameRule, Strategy};
use serde_json::Value;
use sublet_machinery::{FieldError, names};

pub(super) const ROLE: Strategy = Strategy {
    default: |role| {
        if role.get("rules").is_none() {
            role["rules"] = Value::Null;
        }
    },
    validate: |role| Errors::of(|errors| Field::root(role).at("rules").items().for_each(|rule| validate_rule(&rule, true, errors))),
    name_rule: NameRule::PathSegment,
    create_on_update: true,
    ..Strategy::PLAIN
};

pub(super) const CLUSTER_ROLE: Strategy = Strategy { validate: validate_cluster_role, ..ROLE };

pub(super) const ROLE_BINDING: Strategy = Strategy {
    default: default_binding,
    validate: |binding| validate_binding(binding, true),
    validate_update: |new, old| Errors::of(|errors| errors.immutable(&Field::root(new).at("roleRef"), &old["roleRef"])),
    name_rule: NameRule::PathSegment,
    create_on_update: true,
    ..Strategy::PLAIN
};

pub(super) const CLUSTER_ROLE_BINDING: Strategy = Strategy { validate: |binding| validate_binding(binding, false), ..ROLE_BINDING };

const GROUP: &str = "rbac.authorization.k8s.io";

fn default_binding(binding: &mut Value) {
    fill_zero(ensure(binding, "roleRef"), "apiGroup", GROUP);
    for subject in items(binding, "subjects") {
        if subject["kind"] == "User" || subject["kind"] == "Group" {
            fill_zero(subject, "apiGroup", GROUP);
        }
    }
}

fn validate_rule(rule: &Field<'_>, namespaced: bool, errors: &mut Errors) {
    let (verbs, urls, groups, resources) = (rule.at("verbs"), rule.at("nonResourceURLs"), rule.at("apiGroups"), rule.at("resources"));
    errors.require(&verbs);
    if !urls.is_zero() {
        if namespaced {
            errors.add(urls.invalid("namespaced rules cannot apply to non-resource URLs"));
        }
        if !groups.is_zero() || !resources.is_zero() || !rule.at("resourceNames").is_zero() {
            errors.add(urls.invalid("rules cannot apply to both regular resources and non-resource URLs"));
        }
        return;
    }
    if groups.is_zero() {
        errors.add(groups.required("resource rules must supply at least one api group"));
    }
    if resources.is_zero() {
        errors.add(resources.required("resource rules must supply at least one resource"));
    }
}

fn validate_cluster_role(role: &Value) -> Vec<FieldError> {
    let role = Field::root(role);
    Errors::of(|errors| {
        role.at("rules").items().for_each(|rule| validate_rule(&rule, false, errors));
        if !role.at("aggregationRule").is_set() {
            return;
        }
        let selectors = role.at("aggregationRule").at("clusterRoleSelectors");
        if selectors.is_zero() {
            errors.add(selectors.required("at least one clusterRoleSelector required if aggregationRule is non-nil"));
        }
        for selector in selectors.items() {
            let before = errors.0.len();
            errors.label_selector(&selector);
            if errors.0.len() > before {
                errors.add(selector.invalid_as(Value::Null, "invalid label selector."));
            }
        }
    })
}

fn validate_binding(binding: &Value, namespaced: bool) -> Vec<FieldError> {
    let binding = Field::root(binding);
    let role = binding.at("roleRef");
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    Errors::of(|errors| {
        errors.one_of(&role.at("apiGroup"), &[GROUP]);
        errors.one_of(&role.at("kind"), kinds);
        if errors.require(&role.at("name")) {
            errors.words(&role.at("name"), names::path_segment);
        }
        binding.at("subjects").items().for_each(|subject| validate_subject(&subject, namespaced, errors));
    })
}

fn validate_subject(subject: &Field<'_>, namespaced: bool, errors: &mut Errors) {
    let (name, group, kind) = (subject.at("name"), subject.at("apiGroup"), subject.at("kind"));
    errors.require(&name);
    match kind.text() {
        "ServiceAccount" => {
            if !name.is_zero() {
                errors.dns_subdomain(&name);
            }
            if !group.is_zero() {
                errors.add(group.unsupported(&[""]));
            }
            if !namespaced {
                errors.require(&subject.at("namespace"));
            }
        }
        "User" | "Group" => errors.one_of(&group, &[GROUP]),
        _ => errors.add(kind.unsupported(&["ServiceAccount", "User", "Group"])),
    }
}
