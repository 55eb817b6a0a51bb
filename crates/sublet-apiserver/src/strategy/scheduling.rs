//! Priority classes and runtime classes.

use super::Strategy;
use super::edit::fill;
use super::field::{Errors, Field, Seen};
use super::pod::validate::resources::validate_overhead;
use super::pod::validate::validate_tolerations;
use super::pod::warnings::old_label;
use serde_json::Value;
use sublet_machinery::{FieldError, FieldPath, ObjectExt};

pub(super) const RUNTIME_CLASS: Strategy = Strategy {
    validate: validate_runtime,
    validate_update: |new, old| Errors::of(|errors| errors.immutable_unshown(&Field::root(new).at("handler"), &old["handler"])),
    warnings: |class| {
        let selector = Field::root(class).at("scheduling").at("nodeSelector");
        let keys = selector.entries().filter_map(|(key, _)| old_label(key));
        keys.map(|message| format!("{}: {message}", selector.path)).collect()
    },
    create_on_update: true,
    unconditional_update: false,
    ..Strategy::PLAIN
};

/// Nothing but the description and labels of a priority class can change, so the generation stays at 1.
pub(super) const PRIORITY_CLASS: Strategy = Strategy {
    default: |class| {
        fill(class, "preemptionPolicy", "PreemptLowerPriority");
        fill(class, "value", 0);
    },
    validate_create: validate_priority,
    validate_update: validate_priority_update,
    generation: true,
    changes_generation: |_, _| false,
    ..Strategy::PLAIN
};

const USER_PRIORITY_MAX: i64 = 1_000_000_000;
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-cluster-critical", 2 * USER_PRIORITY_MAX), ("system-node-critical", 2 * USER_PRIORITY_MAX + 1000)];

fn validate_priority(class: &Value) -> Vec<FieldError> {
    let field = Field::root(class);
    Errors::of(|errors| {
        if class.name().starts_with("system-") {
            if let Some(why) = unlike_system_class(class) {
                errors.add(FieldError::forbidden(
                    &FieldPath::new("metadata.name"),
                    format!("priority class names with 'system-' prefix are reserved for system use only. error: {why}"),
                ));
            }
        } else if field.at("value").int() > USER_PRIORITY_MAX {
            let detail = format!("maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}");
            errors.add(field.at("value").forbidden(detail));
        }
        let preemption = field.at("preemptionPolicy");
        if preemption.is_set() {
            errors.required_one_of(&preemption, &["PreemptLowerPriority", "Never"]);
        }
    })
}

fn unlike_system_class(class: &Value) -> Option<String> {
    let name = class.name();
    let Some((_, value)) = SYSTEM_CLASSES.iter().find(|(known, _)| *known == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if class["value"].as_i64() != Some(*value) {
        return Some(format!("value of {name} PriorityClass must be {value}"));
    }
    (class["globalDefault"] == true).then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

fn validate_priority_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let field = Field::root(new);
    Errors::of(|errors| {
        if new["value"] != old["value"] {
            errors.add(field.at("value").forbidden("may not be changed in an update."));
        }
        errors.immutable(&field.at("preemptionPolicy"), &old["preemptionPolicy"]);
    })
}

fn validate_runtime(class: &Value) -> Vec<FieldError> {
    let field = Field::root(class);
    let (handler, overhead, scheduling) = (field.at("handler"), field.at("overhead"), field.at("scheduling"));
    Errors::of(|errors| {
        if errors.require(&handler) {
            errors.dns_label(&handler);
        }
        if overhead.is_set() {
            validate_overhead(&Field::new(overhead.at("podFixed").value, overhead.path.clone()), errors);
        }
        errors.labels(&scheduling.at("nodeSelector"));
        let tolerations = scheduling.at("tolerations");
        validate_tolerations(&tolerations, errors);
        let mut seen = Seen::default();
        for toleration in tolerations.items() {
            let key = ["key", "operator", "value", "effect"].map(|part| toleration.at(part).text());
            if seen.again(key.join("\0")) {
                errors.add(toleration.duplicate());
            }
        }
    })
}
