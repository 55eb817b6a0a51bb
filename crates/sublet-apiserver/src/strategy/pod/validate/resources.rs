//! Names and amounts of resources.

use super::super::super::field::{Errors, Field, NEGATIVE};
use super::super::super::quantities::{container_sum, is_huge_page, is_overcommit_allowed, is_pod_level, read_list};
use super::claims;
use serde_json::Value;
use std::collections::BTreeSet;
use sublet_machinery::{Quantity, names};

/// Counted things, which come whole.
const COUNTS: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

pub(super) fn validate_container(resources: &Field<'_>, claim_names: &BTreeSet<String>, errors: &mut Errors) {
    validate_requirements(resources, &resources.at("limits"), container_name, errors);
    claims::validate_use(&resources.at("claims"), claim_names, errors);
}

/// Overhead is held to the rules of limits.
pub(crate) fn validate_overhead(overhead: &Field<'_>, errors: &mut Errors) {
    let nothing = Field::new(&Value::Null, overhead.path.clone());
    let limits = Field::new(overhead.value, overhead.path.child("limits"));
    validate_requirements(&nothing, &limits, container_name, errors);
}

/// Resources of the pod as a whole.
pub(super) fn validate_pod(spec: &Field<'_>, claim_names: &BTreeSet<String>, errors: &mut Errors) {
    let resources = spec.at("resources");
    if !resources.is_set() {
        return;
    }
    if spec.at("os").at("name").text() == "windows" {
        return errors.add(resources.forbidden("may not be set for a windows pod"));
    }
    if resources.at("claims").is_set() {
        errors.add(resources.at("claims").forbidden("claims may not be set for Resources at pod-level"));
    }
    validate_requirements(&resources, &resources.at("limits"), pod_name, errors);
    claims::validate_use(&resources.at("claims"), claim_names, errors);
    validate_consistency(spec, &resources, errors);
}

/// The pod holds its containers.
fn validate_consistency(spec: &Field<'_>, resources: &Field<'_>, errors: &mut Errors) {
    let (requests, limits) = (read_list(resources.at("requests").value), read_list(resources.at("limits").value));
    for (name, sum) in container_sum(spec.value, "requests") {
        if let Some(own) = requests.get(&name).filter(|own| sum > **own) {
            let field = Field::new(&Value::Null, resources.path.child("requests").key(&name));
            errors
                .add(field.invalid_as(own.to_string(), format!("must be greater than or equal to aggregate container requests of {sum}")));
        }
    }
    for (name, sum) in container_sum(spec.value, "limits").into_iter().filter(|(name, _)| is_huge_page(name)) {
        if let Some(own) = limits.get(&name).filter(|own| sum > **own) {
            let field = Field::new(&Value::Null, resources.path.child("limits").key(&name));
            errors.add(field.invalid_as(own.to_string(), format!("must be greater than or equal to aggregate container limits of {sum}")));
        }
    }
    for (index, container) in spec.at("containers").list().iter().enumerate() {
        for (name, limit) in read_list(&container["resources"]["limits"]) {
            if let Some(own) = limits.get(&name).filter(|own| limit > **own) {
                let path = resources.path.child("containers").index(index).key(&name).child("limits");
                let field = Field::new(&Value::Null, path);
                errors.add(field.invalid_as(limit.to_string(), format!("must be less than or equal to pod limits of {own}")));
            }
        }
    }
}

fn validate_requirements(resources: &Field<'_>, limits: &Field<'_>, name_rule: fn(&str, &Field<'_>, &mut Errors), errors: &mut Errors) {
    let requests = resources.at("requests");
    let (mut compute, mut huge) = (false, false);
    let mut look = |name: &str, quantity: &Field<'_>, errors: &mut Errors| {
        name_rule(name, quantity, errors);
        validate_quantity(name, quantity, errors);
        compute |= matches!(name, "cpu" | "memory");
        huge |= is_huge_page(name);
    };
    for (name, quantity) in limits.entries() {
        look(name, &quantity, errors);
        validate_huge_pages(name, &quantity, errors);
    }
    let known_limits = read_list(limits.value);
    for (name, request) in requests.entries() {
        look(name, &request, errors);
        let amount = request.quantity();
        match known_limits.get(name) {
            Some(limit) if amount != *limit && !is_overcommit_allowed(name) => {
                errors.add(requests.invalid_as(amount.to_string(), format!("must be equal to {name} limit of {limit}")));
            }
            Some(limit) if amount > *limit => {
                errors.add(requests.invalid_as(amount.to_string(), format!("must be less than or equal to {name} limit of {limit}")));
            }
            None if !is_overcommit_allowed(name) => {
                errors.add(limits.required("Limit must be set for non overcommitable resources"));
            }
            _ => {}
        }
        validate_huge_pages(name, &request, errors);
    }
    if huge && !compute {
        errors.add(resources.forbidden("HugePages require cpu or memory"));
    }
}

/// An amount is not negative, and whole where things are counted.
pub(crate) fn validate_quantity(name: &str, field: &Field<'_>, errors: &mut Errors) {
    let amount = field.quantity();
    if amount.sign() < 0 {
        errors.add(field.invalid_as(amount.to_string(), NEGATIVE));
    }
    let whole = COUNTS.contains(&name) || is_extended(name);
    if whole && amount.milli_value() % 1000 != 0 {
        errors.add(field.invalid_as(amount.to_string(), "must be an integer"));
    }
}

fn validate_huge_pages(name: &str, field: &Field<'_>, errors: &mut Errors) {
    if !is_huge_page(name) {
        return;
    }
    let amount = field.quantity();
    let size = name.strip_prefix("hugepages-").and_then(|size| Quantity::parse(size).ok());
    let fits = size.is_some_and(|size| size.value() > 0 && size.milli_value() % 1000 == 0 && amount.value() % size.value() == 0);
    if !fits {
        errors.add(field.invalid_as(amount.to_string(), format!("{amount} is not positive integer multiple of {name}")));
    }
}

/// A name that Kubernetes knows, or one with a domain.
pub(crate) fn resource_name(name: &str, field: &Field<'_>, errors: &mut Errors) -> bool {
    let wrong = names::qualified_name(name);
    let unknown = wrong.is_empty() && !name.contains('/') && !is_standard(name);
    let fine = wrong.is_empty() && !unknown;
    errors.extend(wrong.into_iter().map(|m| field.invalid_as(name, m)));
    if unknown {
        errors.add(field.invalid_as(name, "must be a standard resource type or fully qualified"));
    }
    fine
}

pub(crate) fn container_name(name: &str, field: &Field<'_>, errors: &mut Errors) {
    resource_name(name, field, errors);
    if !name.contains('/') {
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !is_huge_page(name) {
            errors.add(field.invalid_as(name, "must be a standard resource for containers"));
        }
    } else if !name.contains("kubernetes.io/") && !is_extended(name) {
        errors.add(field.invalid_as(name, "doesn't follow extended resource name standard"));
    }
}

fn pod_name(name: &str, field: &Field<'_>, errors: &mut Errors) {
    if resource_name(name, field, errors) && !is_pod_level(name) {
        let named = Value::String(name.to_string());
        errors.add(Field::new(&named, field.path.clone()).unsupported(&["cpu", "memory"]));
    }
}

fn is_standard(name: &str) -> bool {
    let base = name.strip_prefix("requests.").or(name.strip_prefix("limits.")).unwrap_or(name);
    matches!(base, "cpu" | "memory" | "ephemeral-storage")
        || matches!(name, "storage" | "requests.storage")
        || COUNTS.contains(&name)
        || is_huge_page(name)
        || name.starts_with("requests.hugepages-")
}

/// What a quota may name without a domain.
pub(crate) fn is_standard_for_quota(name: &str) -> bool {
    is_standard(name) && name != "storage"
}

/// A resource of somebody else than Kubernetes.
pub(crate) fn is_extended(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    !native && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}
