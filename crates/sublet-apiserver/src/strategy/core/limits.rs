//! Rules for limit ranges and resource quotas.

use super::super::field::{Errors, Field, IMMUTABLE, Seen};
use super::super::pod::validate::resources::{container_name, is_standard_for_quota, resource_name, validate_quantity};
use super::super::quantities::is_overcommit_allowed;
use serde_json::Value;
use std::collections::BTreeSet;
use sublet_machinery::{FieldError, FieldPath, Quantity, names};

pub(super) fn validate_limit_range(range: &Value) -> Vec<FieldError> {
    let limits = Field::root(range).at("spec").at("limits");
    Errors::of(|errors| {
        let mut seen = Seen::default();
        for limit in limits.items() {
            let kind = limit.at("type");
            validate_limit_type(&kind, errors);
            if seen.again(kind.text()) {
                errors.add(kind.duplicate());
            }
            validate_limit(&limit, kind.text(), errors);
        }
    })
}

fn validate_limit_type(kind: &Field<'_>, errors: &mut Errors) {
    let wrong = names::qualified_name(kind.text());
    if wrong.is_empty() && !kind.text().contains('/') && !matches!(kind.text(), "Pod" | "Container" | "PersistentVolumeClaim") {
        errors.add(kind.invalid("must be a standard limit type or fully qualified"));
    }
    errors.extend(wrong.into_iter().map(|m| kind.invalid_as(kind.text(), m)));
}

fn validate_limit(limit: &Field<'_>, kind: &str, errors: &mut Errors) {
    let mut keys: BTreeSet<String> = BTreeSet::new();
    for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let field = limit.at(list);
        if kind == "Pod" && matches!(list, "default" | "defaultRequest") {
            if !field.is_zero() {
                errors.add(field.forbidden("may not be specified when `type` is 'Pod'"));
            }
            continue;
        }
        for (name, entry) in field.entries() {
            if matches!(kind, "Pod" | "Container") {
                container_name(name, &entry, errors);
            } else {
                resource_name(name, &entry, errors);
            }
            keys.insert(name.to_string());
        }
    }
    if kind == "PersistentVolumeClaim" && limit.value["min"]["storage"].is_null() && limit.value["max"]["storage"].is_null() {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.add(limit.at("limits").required(detail));
    }
    for key in keys {
        validate_order(limit, kind, &key, errors);
    }
}

/// min <= default request <= default <= max, and a ratio that can hold.
fn validate_order(limit: &Field<'_>, kind: &str, key: &str, errors: &mut Errors) {
    let entry = |list: &str| Field::new(&limit.value[list][key], limit.at(list).path.key(key));
    let get = |list: &str| {
        let hidden = kind == "Pod" && matches!(list, "default" | "defaultRequest");
        let field = entry(list);
        (field.is_set() && !hidden).then(|| field.quantity())
    };
    let (min, max, ratio) = (get("min"), get("max"), get("maxLimitRequestRatio"));
    let (default, request) = (get("default"), get("defaultRequest"));
    let mut check = |wrong: bool, list: &str, shown: &Option<Quantity>, detail: String| {
        if wrong {
            let shown = shown.as_ref().map(ToString::to_string).unwrap_or_default();
            errors.add(entry(list).invalid_as(shown, detail));
        }
    };
    let above = |a: &Option<Quantity>, b: &Option<Quantity>| matches!((a, b), (Some(a), Some(b)) if a > b);
    let text = |q: &Option<Quantity>| q.as_ref().map(ToString::to_string).unwrap_or_default();
    check(above(&min, &max), "min", &min, format!("min value {} is greater than max value {}", text(&min), text(&max)));
    let detail = format!("min value {} is greater than default request value {}", text(&min), text(&request));
    check(above(&min, &request), "defaultRequest", &request, detail);
    let detail = format!("default request value {} is greater than max value {}", text(&request), text(&max));
    check(above(&request, &max), "defaultRequest", &request, detail);
    let detail = format!("default request value {} is greater than default limit value {}", text(&request), text(&default));
    check(above(&request, &default), "defaultRequest", &request, detail);
    let detail = format!("min value {} is greater than default value {}", text(&min), text(&default));
    check(above(&min, &default), "default", &min, detail);
    let detail = format!("default value {} is greater than max value {}", text(&default), text(&max));
    check(above(&default, &max), "default", &max, detail);
    let small = ratio.as_ref().is_some_and(|r| r.as_f64() < 1.0);
    check(small, "maxLimitRequestRatio", &ratio, format!("ratio {} is less than 1", text(&ratio)));
    if let (Some(amount), Some(low), Some(high)) = (&ratio, &min, &max) {
        let most = high.as_f64() / low.as_f64();
        let detail = format!("ratio {amount} is greater than max/min = {most:.6}");
        check(amount.as_f64() > most, "maxLimitRequestRatio", &ratio, detail);
    }
    let differ = matches!((&default, &request), (Some(a), Some(b)) if a != b);
    let detail = format!("default value {} must equal to defaultRequest value {} in {key}", text(&default), text(&request));
    check(differ && !is_overcommit_allowed(key), "defaultRequest", &request, detail);
}

pub(super) fn validate_quota(quota: &Value) -> Vec<FieldError> {
    let root = Field::root(quota);
    Errors::of(|errors| {
        validate_amounts(&root.at("spec").at("hard"), errors);
        validate_scopes(&root.at("spec"), errors);
        validate_scope_selector(&root.at("spec"), errors);
    })
}

pub(super) fn validate_quota_status(new: &Value, _: &Value) -> Vec<FieldError> {
    let status = Field::root(new).at("status");
    Errors::of(|errors| ["hard", "used"].iter().for_each(|list| validate_amounts(&status.at(list), errors)))
}

fn validate_amounts(list: &Field<'_>, errors: &mut Errors) {
    for (name, entry) in list.entries() {
        resource_name(name, &entry, errors);
        if !name.contains('/') && !is_standard_for_quota(name) {
            errors.add(entry.invalid_as(name, "must be a standard resource for quota"));
        }
        validate_quantity(name, &entry, errors);
    }
}

const SCOPES: [&str; 7] =
    ["Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass", "VolumeAttributesClass", "CrossNamespacePodAffinity"];

/// Whether a scope can be applied to a resource of Kubernetes.
fn scope_fits(scope: &str, name: &str) -> bool {
    let compute = matches!(name, "cpu" | "memory" | "limits.cpu" | "limits.memory" | "requests.cpu" | "requests.memory");
    match scope {
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => name == "pods" || compute,
        "BestEffort" => name == "pods",
        "VolumeAttributesClass" => matches!(name, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    }
}

fn misfits(spec: &Field<'_>, scope: &str) -> usize {
    let hard = spec.at("hard");
    hard.entries().filter(|(name, _)| is_standard_for_quota(name) && !scope_fits(scope, name)).count()
}

fn conflicting(scopes: &BTreeSet<&str>) -> usize {
    [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]]
        .iter()
        .filter(|pair| pair.iter().all(|s| scopes.contains(s)))
        .count()
}

fn validate_scopes(spec: &Field<'_>, errors: &mut Errors) {
    let scopes = spec.at("scopes");
    let mut seen = BTreeSet::new();
    for scope in scopes.items() {
        if !SCOPES.contains(&scope.text()) {
            errors.add(scopes.invalid("unsupported scope"));
        }
        for _ in 0..misfits(spec, scope.text()) {
            errors.add(scopes.invalid("unsupported scope applied to resource"));
        }
        seen.insert(scope.text());
    }
    (0..conflicting(&seen)).for_each(|_| errors.add(scopes.invalid("conflicting scopes")));
}

fn validate_scope_selector(spec: &Field<'_>, errors: &mut Errors) {
    let selector = spec.at("scopeSelector");
    let expressions = selector.at("matchExpressions");
    let mut seen = BTreeSet::new();
    for expression in expressions.items() {
        // Upstream tells these at the list.
        let at = |key: &str| Field::new(expression.at(key).value, expressions.path.child(key));
        let (scope, operator, values) = (at("scopeName"), at("operator"), at("values"));
        if !SCOPES.contains(&scope.text()) {
            errors.add(scope.invalid_as(scope.text(), "unsupported scope"));
        }
        for _ in 0..misfits(spec, scope.text()) {
            errors.add(Field::new(selector.value, expressions.path.clone()).invalid("unsupported scope applied to resource"));
        }
        let plain = matches!(scope.text(), "BestEffort" | "NotBestEffort" | "Terminating" | "NotTerminating" | "CrossNamespacePodAffinity");
        if plain && operator.text() != "Exists" {
            errors.add(operator.invalid_as(
                operator.text(),
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity",
            ));
        }
        match operator.text() {
            "In" | "NotIn" if values.is_zero() => {
                errors.add(values.required("must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"));
            }
            "Exists" | "DoesNotExist" if !values.is_zero() => {
                errors.add(values.invalid("must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.add(operator.invalid_as(other, "not a valid selector operator")),
        }
        seen.insert(scope.text());
    }
    let scopes = Field::new(spec.at("scopes").value, expressions.path.clone());
    (0..conflicting(&seen)).for_each(|_| errors.add(scopes.invalid("conflicting scopes")));
}

pub(super) fn validate_quota_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let set = |quota: &Value| -> BTreeSet<String> {
        let scopes = quota["spec"]["scopes"].as_array().into_iter().flatten();
        scopes.filter_map(Value::as_str).map(str::to_string).collect()
    };
    let scopes = Field::new(&new["spec"]["scopes"], FieldPath::new("spec.scopes"));
    Errors::of(|errors| {
        if set(new) != set(old) {
            errors.add(scopes.invalid(IMMUTABLE));
        }
    })
}

/// Requests above limits can never be used up.
pub(super) fn quota_warnings(quota: &Value) -> Vec<String> {
    let hard = &quota["spec"]["hard"];
    let get = |name: &str| hard.get(name).and_then(|q| Quantity::from_json(q).ok());
    let mut warnings = Vec::new();
    for name in ["cpu", "memory", "ephemeral-storage"] {
        let (mut shown, limit_name) = (format!("requests.{name}"), format!("limits.{name}"));
        let mut request = get(&shown);
        if request.is_none() && name != "ephemeral-storage" {
            request = get(name);
            shown = name.to_string();
        }
        if let (Some(request), Some(limit)) = (request, get(&limit_name))
            && request > limit
        {
            warnings.push(format!("ResourceQuota {shown} ({request}) should be less than {limit_name} ({limit})"));
        }
    }
    warnings
}
