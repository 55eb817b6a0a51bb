//! Classes of volumes, and of their attributes.

use super::super::Strategy;
use super::super::edit::fill;
use super::super::field::{Errors, Field, Seen};
use super::super::pod::warnings::old_label;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use sublet_machinery::{FieldError, names};

pub(crate) const STORAGE_CLASS: Strategy = Strategy {
    default: |class| {
        fill(class, "reclaimPolicy", "Delete");
        fill(class, "volumeBindingMode", "Immediate");
    },
    validate,
    warnings: |class| {
        let expressions = Field::root(class).at("allowedTopologies").items().flat_map(|term| term.at("matchLabelExpressions").items());
        let keys = expressions.map(|expression| expression.at("key"));
        keys.filter_map(|key| Some(format!("{}: {}", key.path, old_label(key.text())?))).collect()
    },
    validate_update: |new, old| {
        Errors::of(|errors| {
            for key in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
                errors.immutable_unshown(&Field::root(new).at(key), &old[key]);
            }
        })
    },
    ..Strategy::PLAIN
};

pub(crate) const VOLUME_ATTRIBUTES_CLASS: Strategy = Strategy {
    validate: |class| {
        let class = Field::root(class);
        Errors::of(|errors| {
            validate_driver(&class.at("driverName"), errors);
            validate_parameters(&class.at("parameters"), errors);
            if class.at("parameters").is_zero() {
                errors.add(class.at("parameters").required("must contain at least one key/value pair"));
            }
        })
    },
    validate_update: |new, old| {
        Errors::of(|errors| {
            for key in ["driverName", "parameters"].into_iter().filter(|key| new[*key] != old[*key]) {
                errors.add(Field::root(new).at(key).forbidden(format!("updates to {key} are forbidden.")));
            }
        })
    },
    ..Strategy::PLAIN
};

const PARAMETERS_MAX: usize = 512;
const PARAMETER_BYTES_MAX: usize = 256 * 1024;

fn validate(class: &Value) -> Vec<FieldError> {
    let class = Field::root(class);
    Errors::of(|errors| {
        validate_driver(&class.at("provisioner"), errors);
        validate_parameters(&class.at("parameters"), errors);
        if !class.at("reclaimPolicy").is_zero() {
            errors.one_of(&class.at("reclaimPolicy"), &["Delete", "Retain"]);
        }
        errors.one_of_if_set(&class.at("volumeBindingMode"), &["Immediate", "WaitForFirstConsumer"]);
        validate_topologies(&class.at("allowedTopologies"), errors);
    })
}

fn validate_driver(name: &Field<'_>, errors: &mut Errors) {
    if errors.require(name) {
        let lower = name.text().to_lowercase();
        errors.extend(names::qualified_name(&lower).into_iter().map(|m| name.invalid_as(lower.as_str(), m)));
    }
}

fn validate_parameters(parameters: &Field<'_>, errors: &mut Errors) {
    if parameters.len() > PARAMETERS_MAX {
        return errors.add(parameters.too_long(PARAMETERS_MAX));
    }
    let mut size = 0;
    for (key, value) in parameters.entries() {
        if key.is_empty() {
            errors.add(parameters.invalid_as("", "field can not be empty."));
        }
        size += key.len() + value.len();
    }
    if size > PARAMETER_BYTES_MAX {
        errors.add(parameters.too_long(PARAMETER_BYTES_MAX));
    }
}

fn validate_topologies(topologies: &Field<'_>, errors: &mut Errors) {
    let mut terms: Vec<BTreeMap<&str, BTreeSet<&str>>> = Vec::new();
    for term in topologies.items() {
        let expressions = term.at("matchLabelExpressions");
        let mut read = BTreeMap::new();
        for expression in expressions.items() {
            let (key, values) = (expression.at("key"), expression.at("values"));
            let mut seen = Seen::default();
            errors.require(&values);
            for value in values.items() {
                if seen.again(value.text()) {
                    errors.add(value.duplicate());
                }
            }
            errors.qualified_name(&key);
            if read.insert(key.text(), values.items().map(|v| v.text()).collect()).is_some() {
                errors.add(key.duplicate());
            }
        }
        // One that selects nothing is a repeat even when it is alone.
        if read.is_empty() || terms.contains(&read) {
            errors.add(FieldError::duplicate(&expressions.path, ""));
        }
        terms.push(read);
    }
}
