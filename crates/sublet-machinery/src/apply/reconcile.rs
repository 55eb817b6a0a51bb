//! Ownership that was recorded when a type was granular, for a type that is atomic now.

use super::path::PathElement;
use super::set::FieldSet;
use super::types::{Elements, Shape, Type};

/// The set as the current type would record it; `None` when it is so already.
pub(super) fn reconcile(set: &FieldSet, of: Type<'_>) -> Option<FieldSet> {
    match reconcile_at(set, false, of) {
        Outcome::Same | Outcome::Atomic => None,
        Outcome::Changed(set) => Some(set),
    }
}

enum Outcome {
    Same,
    /// Owned as one from now on.
    Atomic,
    Changed(FieldSet),
}

fn reconcile_at(set: &FieldSet, is_atomic: bool, of: Type<'_>) -> Outcome {
    match of.shape(None) {
        Shape::Scalar => Outcome::Same,
        Shape::Map if of.is_untyped_map() => Outcome::Same,
        Shape::Map if !is_atomic && of.is_atomic_map() => {
            if set.is_empty() {
                Outcome::Same
            } else {
                Outcome::Atomic
            }
        }
        Shape::List if !is_atomic && of.elements() == Elements::Atomic => Outcome::Atomic,
        Shape::Map => reconcile_children(set, |element| match element {
            PathElement::Field(name) => of.field(name),
            _ => None,
        }),
        Shape::List => reconcile_children(set, |_| Some(of.item())),
    }
}

fn reconcile_children<'a>(set: &FieldSet, type_of: impl Fn(&PathElement) -> Option<Type<'a>>) -> Outcome {
    let mut out: Option<FieldSet> = None;
    for (i, node) in set.nodes.iter().enumerate() {
        let outcome = match type_of(&node.element) {
            Some(of) => reconcile_at(&node.children, node.member && node.children.is_empty(), of),
            None => Outcome::Same,
        };
        let changed = match outcome {
            Outcome::Same => None,
            Outcome::Atomic => Some((true, FieldSet::new())),
            Outcome::Changed(children) => Some((node.member, children)),
        };
        if changed.is_some() && out.is_none() {
            out = Some(FieldSet { nodes: set.nodes[..i].to_vec() });
        }
        let Some(out) = &mut out else { continue };
        match changed {
            Some((member, children)) => out.push(node.element.clone(), member, children),
            None => out.nodes.push(node.clone()),
        }
    }
    out.map_or(Outcome::Same, Outcome::Changed)
}
