//! The strategies of custom resources and of their definitions.

use super::{prepare, validate};
use crate::strategy::{NameRule, Strategy, drop_status, keep_all_but_status, keep_status};
use serde_json::Value;

/// The strategy of custom resources. Validation by schema is not here: it needs the schema of the row,
/// see [`super::validate_create`].
///
/// `generation` of the strategy stays off: unlike built-in kinds, a custom resource counts every change
/// outside of metadata, and status too unless `/status` is served apart. [`prepare_update`] does it.
pub fn strategy(has_status: bool) -> Strategy {
    let base = Strategy {
        name_rule: NameRule::DnsSubdomain,
        unconditional_update: false,
        create_on_update: false,
        warnings: finalizer_warnings,
        ..Strategy::PLAIN
    };
    if has_status {
        Strategy {
            prepare_create: |object| {
                drop_status(object);
                first_generation(object);
            },
            prepare_update: |new, old| {
                keep_status(new, old);
                count_change(new, old);
            },
            prepare_status_update: keep_all_but_status,
            ..base
        }
    } else {
        Strategy { prepare_create: first_generation, prepare_update: count_change, ..base }
    }
}

fn first_generation(object: &mut Value) {
    object["metadata"]["generation"] = Value::from(1);
}

fn count_change(new: &mut Value, old: &Value) {
    let outside = |object: &Value| {
        let mut object = object.clone();
        if let Some(map) = object.as_object_mut() {
            map.remove("metadata");
        }
        object
    };
    let generation = old["metadata"]["generation"].as_i64().unwrap_or(1);
    let changed = outside(new) != outside(old);
    new["metadata"]["generation"] = Value::from(generation + i64::from(changed));
}

/// The strategy of CustomResourceDefinition itself.
pub const DEFINITION: Strategy = Strategy {
    default: prepare::default,
    prepare_create: |crd| prepare::prepare(crd, None),
    prepare_update: |new, old| prepare::prepare(new, Some(old)),
    prepare_status_update: prepare::prepare_status_update,
    validate_create: validate::validate,
    validate_update: validate::validate_update,
    validate_status_update: validate::validate_status_update,
    warnings: validate::warnings,
    unconditional_update: false,
    ..Strategy::PLAIN
};

/// Finalizers without a domain are allowed but frowned upon.
fn finalizer_warnings(object: &Value) -> Vec<String> {
    const STANDARD: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];
    let mut names: Vec<&str> =
        object["metadata"]["finalizers"].as_array().map(|l| l.iter().filter_map(Value::as_str).collect()).unwrap_or_default();
    names.sort_unstable();
    names.dedup();
    names
        .into_iter()
        .filter(|name| !name.contains('/') && !STANDARD.contains(name))
        .map(|name| {
            let with_path = if name.contains('.') { " including a path (/)" } else { "" };
            format!(
                "metadata.finalizers: {name:?}: prefer a domain-qualified finalizer name{with_path} to avoid accidental conflicts with other finalizer writers"
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn generation_counts_changes_outside_of_metadata() {
        let old = json!({"metadata": {"generation": 3}, "spec": {"a": 1}, "status": {"b": 1}});
        let update = |has_status: bool, new: Value| {
            let mut new = new;
            (strategy(has_status).prepare_update)(&mut new, &old);
            new["metadata"]["generation"].clone()
        };
        assert_eq!(update(true, json!({"metadata": {"labels": {"x": "y"}}, "spec": {"a": 1}, "status": {"b": 2}})), 3);
        assert_eq!(update(true, json!({"metadata": {}, "spec": {"a": 2}})), 4);
        assert_eq!(update(false, json!({"metadata": {}, "spec": {"a": 1}, "status": {"b": 2}})), 4);
    }

    #[test]
    fn status_is_dropped_on_create_only_when_it_is_served_apart() {
        let create = |has_status: bool| {
            let mut object = json!({"metadata": {}, "status": {"b": 1}});
            (strategy(has_status).prepare_create)(&mut object);
            object
        };
        assert_eq!(create(true), json!({"metadata": {"generation": 1}}));
        assert_eq!(create(false), json!({"metadata": {"generation": 1}, "status": {"b": 1}}));
    }
}
