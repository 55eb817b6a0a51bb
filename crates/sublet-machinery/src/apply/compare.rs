//! What changed between two values, as sets of paths.

use super::path::{PathElement, equal_values};
use super::set::FieldSet;
use super::types::{Elements, Shape, Type};
use serde_json::{Map, Value};

/// No path is in more than one of the sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) removed: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) added: FieldSet,
}

impl Comparison {
    pub(super) fn without(self, fields: &FieldSet) -> Self {
        if fields.is_empty() {
            return self;
        }
        Self {
            removed: self.removed.recursive_difference(fields),
            modified: self.modified.recursive_difference(fields),
            added: self.added.recursive_difference(fields),
        }
    }

    fn push(&mut self, element: PathElement, (change, below): (Option<Change>, Self)) {
        let is = |kind| change == Some(kind);
        let mut element = Some(element);
        // The last set that needs the element takes it.
        let parts = [
            (&mut self.removed, is(Change::Removed), below.removed),
            (&mut self.modified, is(Change::Modified), below.modified),
            (&mut self.added, is(Change::Added), below.added),
        ];
        let mut needed = parts.iter().filter(|(_, member, below)| *member || !below.is_empty()).count();
        for (set, member, below) in parts {
            if !member && below.is_empty() {
                continue;
            }
            needed -= 1;
            let of_set = if needed == 0 { element.take() } else { element.clone() };
            set.push(of_set.expect("taken by the last set only"), member, below);
        }
    }
}

/// What happened to a path itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Removed,
    Modified,
    Added,
}

pub(super) fn compare(old: &Value, new: &Value, of: Type<'_>) -> Comparison {
    compare_at(Some(old), Some(new), of).1
}

fn compare_at(old: Option<&Value>, new: Option<&Value>, of: Type<'_>) -> (Option<Change>, Comparison) {
    let mut below = Comparison::default();
    let change = match (old, new) {
        (None, None) => None,
        (Some(old), Some(new)) => {
            // Equal values are the common case, and cheap to find out.
            if old == new {
                return (None, below);
            }
            compare_both(old, new, of, &mut below)
        }
        (None, Some(new)) => {
            below.added = everything(new, of);
            Some(Change::Added)
        }
        (Some(old), None) => {
            below.removed = everything(old, of);
            Some(Change::Removed)
        }
    };
    (change, below)
}

fn compare_both(old: &Value, new: &Value, of: Type<'_>, below: &mut Comparison) -> Option<Change> {
    let (old_shape, new_shape) = (of.shape(Some(old)), of.shape(Some(new)));
    if old_shape == new_shape {
        return compare_as(old_shape, Some(old), Some(new), of, below);
    }
    // The kind changed: once seen as what it was, once as what it is.
    let first = compare_as(old_shape, Some(old), Some(new), of, below);
    compare_as(new_shape, Some(old), Some(new), of, below).or(first)
}

fn compare_as(shape: Shape, old: Option<&Value>, new: Option<&Value>, of: Type<'_>, below: &mut Comparison) -> Option<Change> {
    match shape {
        Shape::Scalar => leaf(old, new),
        Shape::Map => {
            let (old_map, new_map) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            let empty = old_map.is_none_or(Map::is_empty) && new_map.is_none_or(Map::is_empty);
            if empty || of.is_atomic_map() {
                return leaf(old, new);
            }
            compare_maps(old_map, new_map, of, below);
            None
        }
        Shape::List => {
            let (old_list, new_list) = (old.and_then(Value::as_array), new.and_then(Value::as_array));
            let empty = old_list.is_none_or(Vec::is_empty) && new_list.is_none_or(Vec::is_empty);
            if empty || of.elements() == Elements::Atomic {
                return leaf(old, new);
            }
            compare_lists(old_list, new_list, of, below);
            None
        }
    }
}

/// The paths of all fields of a value that came or went as a whole, and of the maps and lists on the way.
fn everything(value: &Value, of: Type<'_>) -> FieldSet {
    let mut below = FieldSet::new();
    match (of.shape(Some(value)), value) {
        (Shape::Map, Value::Object(map)) if !of.is_atomic_map() => {
            for (key, value) in map {
                below.push(PathElement::field(key), true, everything(value, of.field(key).unwrap_or(Type::Deduced)));
            }
        }
        (Shape::List, Value::Array(items)) if of.elements() != Elements::Atomic => {
            let mut steps = steps(Some(items), of);
            steps.sort_by(|a, b| a.0.cmp(&b.0));
            for twins in steps.chunk_by(|a, b| a.0 == b.0) {
                let children = if let [(_, item)] = twins { everything(item, of.item()) } else { FieldSet::new() };
                below.push(twins[0].0.clone(), true, children);
            }
        }
        _ => {}
    }
    below
}

fn leaf(old: Option<&Value>, new: Option<&Value>) -> Option<Change> {
    match (old, new) {
        (None, _) => Some(Change::Added),
        (_, None) => Some(Change::Removed),
        (Some(old), Some(new)) => (!equal_values(old, new)).then_some(Change::Modified),
    }
}

fn compare_maps(old: Option<&Map<String, Value>>, new: Option<&Map<String, Value>>, of: Type<'_>, below: &mut Comparison) {
    let of_key = |key: &str| of.field(key).unwrap_or(Type::Deduced);
    let (mut left, mut right) = (old.into_iter().flatten().peekable(), new.into_iter().flatten().peekable());
    loop {
        let order = match (left.peek(), right.peek()) {
            (None, None) => return,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some((a, _)), Some((b, _))) => a.cmp(b),
        };
        let (old, new) = (left.next_if(|_| order.is_le()), right.next_if(|_| order.is_ge()));
        let Some((key, _)) = old.or(new) else { return };
        let (old, new) = (old.map(|(_, v)| v), new.map(|(_, v)| v));
        if old == new {
            continue;
        }
        below.push(PathElement::field(key), compare_at(old, new, of_key(key)));
    }
}

fn compare_lists(old: Option<&Vec<Value>>, new: Option<&Vec<Value>>, of: Type<'_>, below: &mut Comparison) {
    let mut old = steps(old, of);
    let mut new = steps(new, of);
    old.sort_by(|a, b| a.0.cmp(&b.0));
    new.sort_by(|a, b| a.0.cmp(&b.0));
    let (mut old_groups, mut new_groups) = (old.chunk_by(|a, b| a.0 == b.0).peekable(), new.chunk_by(|a, b| a.0 == b.0).peekable());
    loop {
        let order = match (old_groups.peek(), new_groups.peek()) {
            (None, None) => return,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(a), Some(b)) => a[0].0.cmp(&b[0].0),
        };
        let before = old_groups.next_if(|_| order.is_le()).unwrap_or_default();
        let after = new_groups.next_if(|_| order.is_ge()).unwrap_or_default();
        compare_twins(before, after, of, below);
    }
}

/// Elements with the same key. More than one of them are seen as one atomic value.
fn compare_twins(old: &[(PathElement, &Value)], new: &[(PathElement, &Value)], of: Type<'_>, below: &mut Comparison) {
    let Some((step, _)) = old.first().or(new.first()) else { return };
    let result = match (old, new) {
        ([_, _, ..], [_, _, ..]) => {
            let equal = old.len() == new.len() && old.iter().zip(new).all(|(a, b)| equal_values(a.1, b.1));
            ((!equal).then_some(Change::Modified), Comparison::default())
        }
        ([_, _, ..], rest) => {
            if let [(_, item)] = rest {
                below.push(step.clone(), compare_at(None, Some(item), of.item()));
            }
            (Some(Change::Removed), Comparison::default())
        }
        (rest, [_, _, ..]) => {
            if let [(_, item)] = rest {
                below.push(step.clone(), compare_at(Some(item), None, of.item()));
            }
            (Some(Change::Added), Comparison::default())
        }
        (old, new) => compare_at(old.first().map(|i| i.1), new.first().map(|i| i.1), of.item()),
    };
    below.push(step.clone(), result);
}

fn steps<'v>(list: Option<&'v Vec<Value>>, of: Type<'_>) -> Vec<(PathElement, &'v Value)> {
    list.into_iter().flatten().filter_map(|item| Some((of.step(item).ok()?, item))).collect()
}
