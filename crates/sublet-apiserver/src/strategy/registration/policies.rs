//! Admission policies and their bindings.

use super::super::conditions::validate_conditions as validate_status_conditions;
use super::super::edit::{child, ensure, fill};
use super::super::field::{Errors, Field, Seen};
use super::super::status::empty_status;
use super::super::{Strategy, keep_status};
use super::rules::{default_match, validate_conditions, validate_match};
use crate::admission::PolicyScope;
use crate::cel::{KEYWORDS, Type};
use regex::Regex;
use serde_json::{Value, json};
use std::sync::LazyLock;
use sublet_machinery::{FieldError, ObjectExt, names};

pub(crate) const ADMISSION_POLICY: Strategy = Strategy {
    default: |object| {
        default_policy(object);
        fill(object, "status", json!({}));
    },
    prepare_create: empty_status,
    prepare_update: keep_status,
    validate: validate_validating,
    validate_status_update: |new, _| {
        let conditions = Field::root(new).at("status").at("conditions");
        Errors::of(|errors| validate_status_conditions(&conditions, errors))
    },
    generation: true,
    unconditional_update: false,
    ..Strategy::PLAIN
};

pub(crate) const MUTATING_POLICY: Strategy =
    Strategy { default: default_policy, prepare_create: |_| {}, validate: validate_mutating, ..ADMISSION_POLICY };

pub(crate) const VALIDATING_POLICY_BINDING: Strategy = Strategy {
    default: |object| {
        if let Some(resources) = child(ensure(object, "spec"), "matchResources") {
            default_match(resources);
        }
    },
    validate: |binding| {
        let spec = Field::root(binding).at("spec");
        Errors::of(|errors| {
            validate_binding(&spec, errors);
            validate_actions(&spec.at("validationActions"), errors);
        })
    },
    generation: true,
    unconditional_update: false,
    ..Strategy::PLAIN
};

pub(crate) const MUTATING_POLICY_BINDING: Strategy = Strategy {
    validate: |binding| {
        let spec = Field::root(binding).at("spec");
        Errors::of(|errors| {
            validate_binding(&spec, errors);
            validate_operations(&spec.at("matchResources"), errors);
        })
    },
    ..VALIDATING_POLICY_BINDING
};

const ANNOTATIONS_MAX: usize = 20;
const ANNOTATION_BYTES_MAX: usize = 5 * 1024;
const MUTATING_OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];

static IDENTIFIER: LazyLock<Regex> = LazyLock::new(|| Regex::new("^[_a-zA-Z][_a-zA-Z0-9]*$").expect("a valid pattern"));

fn default_policy(object: &mut Value) {
    let spec = ensure(object, "spec");
    fill(spec, "failurePolicy", "Fail");
    if let Some(constraints) = child(spec, "matchConstraints") {
        default_match(constraints);
    }
}

/// What both kinds of policies say in the same words. Gives what their other expressions can name.
fn validate_common(spec: &Field<'_>, errors: &mut Errors) -> PolicyScope {
    let (params, constraints) = (spec.at("paramKind"), spec.at("matchConstraints"));
    errors.required_one_of(&spec.at("failurePolicy"), &FAILURE_POLICIES);
    if params.is_set() {
        validate_param_kind(&params, errors);
    }
    if constraints.is_set() {
        validate_match(&constraints, errors);
        errors.require(&constraints.at("resourceRules"));
    } else {
        errors.add(constraints.required(""));
    }
    validate_conditions(&spec.at("matchConditions"), params.is_set(), errors);
    let mut scope = PolicyScope::new(params.is_set(), !spec.at("variables").is_zero());
    for variable in spec.at("variables").items() {
        let name = variable.at("name");
        if name.text().trim().is_empty() {
            errors.add(name.required("name is not specified"));
        } else if !IDENTIFIER.is_match(name.text()) || KEYWORDS.contains(&name.text()) {
            errors.add(name.invalid("must be a valid CEL identifier"));
        }
        let expression = variable.at("expression");
        if expression.text().trim().is_empty() {
            errors.add(expression.required("expression is not specified"));
        } else if let Err(why) = scope.variable(name.text(), expression.text()) {
            errors.add(expression.invalid(why));
        }
    }
    scope
}

fn validate_expression(expression: &Field<'_>, missing: &str, errors: &mut Errors) {
    if expression.text().trim().is_empty() {
        errors.add(expression.required(missing));
    }
}

fn validate_param_kind(params: &Field<'_>, errors: &mut Errors) {
    let (version, kind) = (params.at("apiVersion"), params.at("kind"));
    if errors.require(&version) {
        let text = version.text();
        let (group, name) = text.split_once('/').unwrap_or(("", text));
        if name.contains('/') {
            errors.add(version.invalid(format!("unexpected GroupVersion string: {text}")));
        } else {
            let wrong = names::dns_subdomain(group);
            if !group.is_empty() && !wrong.is_empty() {
                errors.add(version.invalid_as(group, wrong.join(",")));
            }
            let wrong = names::dns_1035_label(name);
            if name.is_empty() {
                errors.add(version.invalid("version must be specified"));
            } else if !wrong.is_empty() {
                errors.add(version.invalid_as(name, wrong.join(",")));
            }
        }
    }
    if errors.require(&kind) {
        let wrong = names::dns_1035_label(&kind.text().to_lowercase());
        if !wrong.is_empty() {
            errors.add(kind.invalid(format!("may have mixed case, but should otherwise match: {}", wrong.join(","))));
        }
    }
}

fn validate_validating(policy: &Value) -> Vec<FieldError> {
    const NEEDED: &str = "validations or auditAnnotations must contain at least one item";
    let spec = Field::root(policy).at("spec");
    let (validations, annotations) = (spec.at("validations"), spec.at("auditAnnotations"));
    Errors::of(|errors| {
        let scope = validate_common(&spec, errors);
        if validations.is_zero() && annotations.is_zero() {
            errors.add(validations.required(NEEDED));
            errors.add(annotations.required(NEEDED));
        }
        validations.items().for_each(|validation| validate_validation(&validation, &scope, errors));
        if annotations.len() > ANNOTATIONS_MAX {
            errors.add(annotations.invalid(format!("must not have more than {ANNOTATIONS_MAX} auditAnnotations")));
        }
        let mut seen = Seen::default();
        for annotation in annotations.items() {
            let (key, value) = (annotation.at("key"), annotation.at("valueExpression"));
            let full = format!("{}/{}", policy.name(), key.text());
            errors.extend(names::qualified_name(&full).into_iter().map(|m| key.invalid_as(full.as_str(), m)));
            validate_expression(&value, "valueExpression is not specified", errors);
            if value.text().trim().len() > ANNOTATION_BYTES_MAX {
                errors.add(value.required(&format!("must not exceed {ANNOTATION_BYTES_MAX} bytes in length")));
            } else if !value.text().trim().is_empty()
                && let Err(why) = scope.compile(value.text().trim(), true, &[Type::String, Type::Null])
            {
                errors.add(value.invalid(why));
            }
            if seen.again(key.text()) {
                errors.add(FieldError::duplicate(&key.path, key.text()));
            }
        }
    })
}

fn validate_validation(validation: &Field<'_>, scope: &PolicyScope, errors: &mut Errors) {
    let (expression, expressed) = (validation.at("expression"), validation.at("messageExpression"));
    if expression.text().trim().is_empty() {
        errors.add(expression.required("expression is not specified"));
    } else if let Err(why) = scope.compile(expression.text(), true, &[Type::Bool]) {
        errors.add(expression.invalid(why));
    }
    for part in [&expressed, &validation.at("message")] {
        if !part.is_zero() && part.text().trim().is_empty() {
            errors.add(part.invalid("must be non-empty if specified"));
        }
    }
    if !expressed.text().trim().is_empty()
        && let Err(why) = scope.compile(expressed.text(), false, &[Type::String])
    {
        errors.add(expressed.invalid(why));
    }
    let message = validation.at("message");
    if message.text().trim().contains(['\n', '\r']) {
        errors.add(message.invalid("must not contain line breaks"));
    }
    errors.one_of_if_set(&validation.at("reason"), &["Forbidden", "Invalid", "RequestEntityTooLarge"]);
}

fn validate_mutating(policy: &Value) -> Vec<FieldError> {
    let spec = Field::root(policy).at("spec");
    let mutations = spec.at("mutations");
    Errors::of(|errors| {
        let scope = validate_common(&spec, errors);
        validate_operations(&spec.at("matchConstraints"), errors);
        if mutations.is_zero() {
            errors.add(mutations.required("mutations must contain at least one item"));
        }
        mutations.items().for_each(|mutation| validate_mutation(&mutation, &scope, errors));
        errors.required_one_of(&spec.at("reinvocationPolicy"), &["IfNeeded", "Never"]);
    })
}

fn validate_operations(resources: &Field<'_>, errors: &mut Errors) {
    let path = resources.at("resourceRules").at("operations").path;
    for rule in resources.at("resourceRules").items() {
        for operation in rule.at("operations").items() {
            errors.one_of(&Field::new(operation.value, path.clone()), &MUTATING_OPERATIONS);
        }
    }
}

fn validate_mutation(mutation: &Field<'_>, scope: &PolicyScope, errors: &mut Errors) {
    let kind = mutation.at("patchType");
    if !errors.require(&kind) {
        return;
    }
    let (used, unused) = match kind.text() {
        "JSONPatch" => ("jsonPatch", "applyConfiguration"),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
        _ => return errors.add(kind.unsupported(&["ApplyConfiguration", "JSONPatch"])),
    };
    if mutation.at(used).is_set() {
        let expression = mutation.at(used).at("expression");
        if expression.text().trim().is_empty() {
            errors.add(expression.required(""));
        } else if let Err(why) = scope.compile_mutation(expression.text(), used == "applyConfiguration") {
            errors.add(expression.invalid(why));
        }
    } else {
        errors.add(mutation.at(used).required(&format!("must be specified when patchType is {}", kind.text())));
    }
    if mutation.at(unused).is_set() {
        let detail = format!("must not be specified when patchType is {}", kind.text());
        errors.add(mutation.at(unused).invalid_as(format!("{{{unused}}}"), detail));
    }
}

fn validate_binding(spec: &Field<'_>, errors: &mut Errors) {
    let (name, params) = (spec.at("policyName"), spec.at("paramRef"));
    if errors.require(&name) {
        errors.dns_subdomain(&name);
    }
    if params.is_set() {
        validate_params(&params, errors);
    }
    validate_match(&spec.at("matchResources"), errors);
}

fn validate_params(params: &Field<'_>, errors: &mut Errors) {
    const ONE: &str = "name and selector are mutually exclusive";
    let (name, selector) = (params.at("name"), params.at("selector"));
    if !name.is_zero() {
        errors.words(&name, names::path_segment);
    }
    errors.label_selector(&selector);
    match (name.is_zero(), selector.is_set()) {
        (false, true) => {
            errors.add(name.forbidden(ONE));
            errors.add(selector.forbidden(ONE));
        }
        (true, false) => errors.add(params.required("one of name or selector must be specified")),
        _ => {}
    }
    errors.required_one_of(&params.at("parameterNotFoundAction"), &["Deny", "Allow"]);
}

fn validate_actions(actions: &Field<'_>, errors: &mut Errors) {
    let mut seen = Seen::default();
    for action in actions.items() {
        errors.one_of(&action, &["Audit", "Deny", "Warn"]);
        if seen.again(action.text()) {
            errors.add(action.duplicate());
        }
    }
    if seen.has("Deny") && seen.has("Warn") {
        errors.add(actions.invalid(
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)",
        ));
    }
    if actions.is_zero() {
        errors.add(actions.required(""));
    }
}
