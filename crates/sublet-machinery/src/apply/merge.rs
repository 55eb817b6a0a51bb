//! The merge of an applied configuration into a live value.

use super::path::PathElement;
use super::types::{Elements, Shape, Type};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The live value with everything that the configuration states. Nothing is removed.
pub(super) fn merge(live: &Value, config: &Value, of: Type<'_>) -> Option<Value> {
    merge_at(Some(live), Some(config), of)
}

fn merge_at(live: Option<&Value>, config: Option<&Value>, of: Type<'_>) -> Option<Value> {
    let keep = || config.or(live).cloned();
    let decides = config.or(live)?;
    match of.shape(Some(decides)) {
        Shape::Scalar => keep(),
        Shape::Map => {
            let (live_map, config_map) = (live.and_then(Value::as_object), config.and_then(Value::as_object));
            let empty = live_map.is_none_or(Map::is_empty) && config_map.is_none_or(Map::is_empty);
            if empty || of.is_atomic_map() { keep() } else { merge_maps(live_map, config_map, of) }
        }
        Shape::List => {
            let (live_list, config_list) = (live.and_then(Value::as_array), config.and_then(Value::as_array));
            let empty = live_list.is_none_or(Vec::is_empty) && config_list.is_none_or(Vec::is_empty);
            if empty || of.elements() == Elements::Atomic {
                return keep();
            }
            match (live_list, config_list) {
                (Some(live), Some(config)) => merge_lists(live, config, of),
                // A list that only one side has keeps its order and its elements.
                (only, None) | (None, only) => only.map(|list| Value::Array(list.clone())),
            }
        }
    }
}

fn merge_maps(live: Option<&Map<String, Value>>, config: Option<&Map<String, Value>>, of: Type<'_>) -> Option<Value> {
    let (Some(live), Some(config)) = (live, config) else {
        return live.or(config).map(|only| Value::Object(only.clone()));
    };
    let mut out = live.clone();
    for (key, value) in config {
        match merge_at(live.get(key), Some(value), of.field(key).unwrap_or(Type::Deduced)) {
            Some(merged) => out.insert(key.clone(), merged),
            None => out.remove(key),
        };
    }
    (!out.is_empty()).then_some(Value::Object(out))
}

/// Elements of both sides merge in the order of the configuration; elements of the live side alone keep
/// their place between them.
fn merge_lists(live: &[Value], config: &[Value], of: Type<'_>) -> Option<Value> {
    let steps = |list: &[Value]| -> Vec<PathElement> { list.iter().filter_map(|item| of.step(item).ok()).collect() };
    let (live_steps, config_steps) = (steps(live), steps(config));
    if live_steps.len() != live.len() || config_steps.len() != config.len() {
        // Elements without keys cannot be merged; validation has named them.
        return Some(Value::Array(config.to_vec()));
    }
    let mut of_live: BTreeMap<&PathElement, &Value> = BTreeMap::new();
    for (step, item) in live_steps.iter().zip(live) {
        // Elements that stand there twice are not merged with the new one, which replaces them.
        of_live.entry(step).and_modify(|value| *value = &Value::Null).or_insert(item);
    }
    let of_config: BTreeMap<&PathElement, &Value> = config_steps.iter().zip(config).collect();
    let mut merged: BTreeSet<&PathElement> = BTreeSet::new();
    let mut shared = config_steps.iter().filter(|s| of_live.contains_key(s)).peekable();
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let join = |step: &PathElement| merge_at(of_live.get(step).copied(), of_config.get(step).copied(), of.item());

    let (mut l, mut r) = (0, 0);
    while l < live_steps.len() || r < config_steps.len() {
        if let (Some(left), Some(right)) = (live_steps.get(l), config_steps.get(r)) {
            if left == right {
                out.extend(join(left));
                merged.insert(left);
                (l, r) = (l + 1, r + 1);
                shared.next();
                continue;
            }
            if of_config.contains_key(left) && shared.peek().is_some_and(|next| *next != left) {
                // Shared, but its turn comes later in the configuration's order.
                l += 1;
                continue;
            }
        }
        if let Some(left) = live_steps.get(l) {
            if !of_config.contains_key(left) {
                out.push(live[l].clone());
                l += 1;
                continue;
            }
            if merged.contains(left) {
                l += 1;
            }
        }
        if let Some(right) = config_steps.get(r) {
            out.extend(join(right));
            merged.insert(right);
            r += 1;
            if shared.peek() == Some(&right) {
                shared.next();
            }
        }
    }
    (!out.is_empty()).then_some(Value::Array(out))
}
