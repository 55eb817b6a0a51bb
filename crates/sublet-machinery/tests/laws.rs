//! Laws that hold for every input.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use sublet_machinery::apply::FieldSet;
use sublet_machinery::patch::{json_patch, merge_patch};
use sublet_machinery::{FieldSelector, Quantity, Selector};

/// JSON of a few levels, with few keys, so that values meet each other.
fn any_json(nulls: bool) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::Bool),
        (-3i64..3).prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::String),
        Just(if nulls { Value::Null } else { json!(0) }),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            prop::collection::btree_map("[a-d]", inner, 0..4).prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

fn any_map(nulls: bool) -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map("[a-d]", any_json(nulls), 0..4).prop_map(|m| m.into_iter().collect())
}

fn any_fields() -> impl Strategy<Value = FieldSet> {
    prop::collection::vec(prop::collection::vec("[a-c]", 1..4), 0..6).prop_map(|paths| {
        let paths: Vec<String> = paths.iter().map(|p| p.join(".")).collect();
        FieldSet::of_fields(&paths.iter().map(String::as_str).collect::<Vec<_>>())
    })
}

proptest! {
    #[test]
    fn a_merge_patch_made_from_two_objects_leads_from_one_to_the_other(from in any_map(false), to in any_map(false)) {
        let patch = Value::Object(merge_patch::diff(&from, &to));
        prop_assert_eq!(merge_patch::apply(&Value::Object(from), &patch).unwrap(), Value::Object(to));
    }

    #[test]
    fn a_merge_patch_twice_is_a_merge_patch_once(object in any_map(true), patch in any_map(true)) {
        let (object, patch) = (Value::Object(object), Value::Object(patch));
        let once = merge_patch::apply(&object, &patch).unwrap();
        prop_assert_eq!(&merge_patch::apply(&once, &patch).unwrap(), &once);
    }

    #[test]
    fn a_json_patch_never_panics(object in any_map(true), ops in prop::collection::vec(("add|remove|replace|move|copy|test|x", "(/([a-d]|-?[0-3]|-|~[01]))*", "(/[a-d0-3])*", any_json(true)), 0..6)) {
        let patch: Value = ops.into_iter().map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value})).collect();
        let _ = json_patch::apply(&Value::Object(object), &patch);
    }

    #[test]
    fn a_quantity_prints_as_text_that_reads_as_the_same_quantity(text in "[-+]?[0-9]{0,20}(\\.[0-9]{0,12})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE]-?[0-9]{1,2})?") {
        if let Ok(quantity) = Quantity::parse(&text) {
            let printed = quantity.to_string();
            let again = Quantity::parse(&printed).unwrap();
            prop_assert_eq!(&again, &quantity);
            prop_assert_eq!(Quantity::parse(&again.to_string()).unwrap().to_string(), again.to_string());
            let mut difference = quantity.clone();
            difference.sub(&again);
            prop_assert!(difference.is_zero());
        }
    }

    #[test]
    fn sums_of_quantities_do_not_depend_on_the_order(a in -1_000_000_000i64..1_000_000_000, b in -1_000_000i64..1_000_000, suffix in "m|k|Mi|n|G") {
        let (a, b) = (Quantity::from_milli(a), Quantity::parse(&format!("{b}{suffix}")).unwrap());
        let (mut left, mut right) = (a.clone(), b.clone());
        left.add(&b);
        right.add(&a);
        prop_assert_eq!(&left, &right);
        left.sub(&b);
        prop_assert_eq!(left, a);
    }

    #[test]
    fn selectors_read_back_as_themselves(text in "([a-c]{1,2}|in|notin|=|==|!=|!|,|\\(|\\)|<|>|1| ){0,12}") {
        if let Ok(selector) = Selector::parse(&text) {
            prop_assert_eq!(Selector::parse(&selector.to_string()).unwrap(), selector);
        }
        if let Ok(selector) = FieldSelector::parse(&text) {
            prop_assert_eq!(FieldSelector::parse(&selector.to_string()).unwrap().terms().len(), selector.terms().len());
        }
    }

    #[test]
    fn sets_of_fields_obey_the_laws_of_sets(a in any_fields(), b in any_fields()) {
        prop_assert_eq!(FieldSet::from_json(&a.to_json()).unwrap(), a.clone());
        prop_assert_eq!(a.clone().union(b.clone()), b.clone().union(a.clone()));
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.clone().difference(&b).union(a.intersection(&b)), a.clone());
        prop_assert_eq!(a.intersects(&b), !a.intersection(&b).is_empty());
        prop_assert_eq!(a.is_subset(&b), a.clone().difference(&b).is_empty());
        prop_assert!(a.clone().recursive_difference(&b).is_subset(&a.clone().difference(&b)));
        prop_assert!(a.clone().recursive_difference(&a).is_empty());
    }
}
