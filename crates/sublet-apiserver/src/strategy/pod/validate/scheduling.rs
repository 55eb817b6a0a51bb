//! Tolerations, taints, gates and spread.

use super::super::super::field::{Errors, Field, Seen};
use super::affinity::validate_label_keys;
use sublet_machinery::{FieldError, names};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(crate) fn validate_tolerations(tolerations: &Field<'_>, errors: &mut Errors) {
    for toleration in tolerations.items() {
        let (key, operator) = (toleration.at("key"), toleration.at("operator"));
        let (value, effect) = (toleration.at("value"), toleration.at("effect"));
        if !key.is_zero() {
            errors.words(&key, names::qualified_name);
        }
        if key.is_zero() && operator.text() != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.add(operator.invalid_as(operator.text(), detail));
        }
        if toleration.at("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
            errors.add(effect.invalid_as(effect.text(), "effect must be 'NoExecute' when `tolerationSeconds` is set"));
        }
        match operator.text() {
            "Equal" | "" => {
                let wrong = names::label_value(value.text());
                if !wrong.is_empty() {
                    errors.add(operator.invalid_as(value.text(), wrong.join(";")));
                }
            }
            "Exists" if !value.is_zero() => {
                errors.add(operator.invalid_as(value.text(), "value must be empty when `operator` is 'Exists'"));
            }
            "Exists" => {}
            "Lt" | "Gt" => errors.add(operator.unsupported(&["Equal", "Exists", "Lt", "Gt"])),
            _ => errors.add(operator.unsupported(&["Equal", "Exists"])),
        }
        if !effect.is_zero() {
            errors.one_of(&effect, &EFFECTS);
        }
    }
}

pub(crate) fn validate_taints(taints: &Field<'_>, errors: &mut Errors) {
    let mut seen = Seen::default();
    for taint in taints.items() {
        errors.words(&taint.at("key"), names::qualified_name);
        let value = taint.at("value");
        let wrong = names::label_value(value.text());
        if !wrong.is_empty() {
            errors.add(value.invalid(wrong.join(";")));
        }
        errors.required_one_of(&taint.at("effect"), &EFFECTS);
        if seen.again(format!("{}:{}", taint.at("effect").text(), taint.at("key").text())) {
            let mut error = taint.duplicate();
            error.detail = "taints must be unique by key and effect pair".into();
            errors.add(error);
        }
    }
}

pub(super) fn validate_gates(gates: &Field<'_>, errors: &mut Errors) {
    let mut seen = Seen::default();
    for gate in gates.items() {
        let name = Field::new(gate.at("name").value, gate.path.clone());
        errors.qualified_name(&name);
        if seen.again(name.text()) {
            errors.add(name.duplicate());
        }
    }
}

pub(super) fn validate_spread(constraints: &Field<'_>, errors: &mut Errors) {
    let all: Vec<Field<'_>> = constraints.items().collect();
    for (index, constraint) in all.iter().enumerate() {
        let (key, action) = (constraint.at("topologyKey"), constraint.at("whenUnsatisfiable"));
        errors.positive(&constraint.at("maxSkew"));
        if key.is_zero() {
            errors.add(key.required("can not be empty"));
        }
        errors.one_of(&action, &["DoNotSchedule", "ScheduleAnyway"]);
        let pair = |c: &Field<'_>| (c.at("topologyKey").text().to_string(), c.at("whenUnsatisfiable").text().to_string());
        if all[index + 1..].iter().any(|other| pair(other) == pair(constraint)) {
            let path = constraint.path.child("{topologyKey, whenUnsatisfiable}");
            errors.add(FieldError::duplicate(&path, format!("{{{}, {}}}", key.text(), action.text())));
        }
        let domains = constraint.at("minDomains");
        if domains.is_set() {
            errors.positive(&domains);
            if action.text() != "DoNotSchedule" {
                let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}", action.text());
                errors.add(domains.invalid(detail));
            }
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            errors.one_of_if_set(&constraint.at(policy), &["Honor", "Ignore"]);
        }
        validate_label_keys(constraint, errors);
        errors.label_selector(&constraint.at("labelSelector"));
    }
}
