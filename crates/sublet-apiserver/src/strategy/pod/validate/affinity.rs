//! Affinity to nodes and to other pods.

use super::super::super::field::{Errors, Field};
use super::node_selector;
use sublet_machinery::names;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn validate(affinity: &Field<'_>, errors: &mut Errors) {
    let node = affinity.at("nodeAffinity");
    if node.at(REQUIRED).is_set() {
        node_selector::validate(&node.at(REQUIRED), errors);
    }
    for preferred in node.at(PREFERRED).items() {
        validate_weight(&preferred, errors);
        node_selector::validate_term(&preferred.at("preference"), false, errors);
    }
    for side in ["podAffinity", "podAntiAffinity"] {
        let side = affinity.at(side);
        side.at(REQUIRED).items().for_each(|term| validate_term(&term, errors));
        for preferred in side.at(PREFERRED).items() {
            validate_weight(&preferred, errors);
            validate_term(&preferred.at("podAffinityTerm"), errors);
        }
    }
}

fn validate_weight(preferred: &Field<'_>, errors: &mut Errors) {
    let weight = preferred.at("weight");
    if !(1..=100).contains(&weight.int()) {
        errors.add(weight.invalid_as(weight.int(), "must be in the range 1-100"));
    }
}

fn validate_term(term: &Field<'_>, errors: &mut Errors) {
    errors.label_selector(&term.at("labelSelector"));
    errors.label_selector(&term.at("namespaceSelector"));
    for namespace in term.at("namespaces").items() {
        let shown = term.at_as("namespaces", "namespace");
        errors.extend(names::dns_label(namespace.text()).into_iter().map(|m| shown.invalid_as(namespace.text(), m)));
    }
    validate_label_keys(term, errors);
    let key = term.at("topologyKey");
    if key.is_zero() {
        errors.add(key.required("can not be empty"));
    }
    errors.words(&key, names::qualified_name);
}

/// `matchLabelKeys` and `mismatchLabelKeys` against each other and against the selector.
pub(super) fn validate_label_keys(term: &Field<'_>, errors: &mut Errors) {
    let (matching, mismatching, selector) = (term.at("matchLabelKeys"), term.at("mismatchLabelKeys"), term.at("labelSelector"));
    for keys in [&matching, &mismatching] {
        if keys.is_zero() {
            continue;
        }
        if !selector.is_set() {
            errors.add(keys.forbidden("must not be specified when labelSelector is not set"));
            continue;
        }
        keys.items().for_each(|key| errors.words(&key, names::qualified_name));
    }
    let mut told = Vec::new();
    let mut selected: Vec<&str> = selector.at("matchLabels").entries().map(|(key, _)| key).collect();
    for expression in selector.at("matchExpressions").items() {
        let key = expression.at("key").text();
        // The pod's own labels are merged into the selector as expressions, so the first one is expected.
        if let Some(index) = matching.list().iter().rposition(|k| k == key).filter(|_| selected.contains(&key) && !told.contains(&key)) {
            told.push(key);
            let place = Field::new(&matching.list()[index], term.path.index(index));
            errors.add(place.invalid("exists in both matchLabelKeys and labelSelector"));
        }
        selected.push(key);
    }
    for key in matching.items().filter(|k| mismatching.list().contains(k.value)) {
        errors.add(key.invalid("exists in both matchLabelKeys and mismatchLabelKeys"));
    }
}
