//! `allOf`, `anyOf`, `oneOf` and `not`.

use super::super::correlate::Correlated;
use super::check as check_value;
use super::problem::{Outcome, Problem};
use crate::schema::{NodeId, SchemaNode};
use serde_json::Value;

pub(super) fn check(value: &Value, node: SchemaNode<'_>, path: &str, old: Option<Correlated<'_>>) -> Outcome {
    let mut outcome = Outcome::default();
    let branch = |id: &NodeId| check_value(value, node.at(*id), path, old);
    if !node.any_of.is_empty() {
        any_of(&mut outcome, node.any_of.iter().map(branch), path);
    }
    if !node.one_of.is_empty() {
        one_of(&mut outcome, node.one_of.iter().map(branch), path);
    }
    if !node.all_of.is_empty() {
        all_of(&mut outcome, node.all_of.iter().map(branch), path);
    }
    if node.not.is_some_and(|id| branch(&id).is_valid()) {
        outcome.merge(Problem::without_place(format!("{path:?} must not validate the schema (not)")));
    }
    outcome.matches += 1;
    outcome
}

fn any_of(outcome: &mut Outcome, branches: impl Iterator<Item = Outcome>, path: &str) {
    let mut best: Option<Outcome> = None;
    for branch in branches {
        if branch.is_valid() {
            outcome.merge(branch);
            return;
        }
        if best.as_ref().is_none_or(|b| branch.matches > b.matches) {
            best = Some(branch);
        }
    }
    outcome.merge(Problem::without_place(format!("{path:?} must validate at least one schema (anyOf)")));
    outcome.merge(best.unwrap_or_default());
}

fn one_of(outcome: &mut Outcome, branches: impl Iterator<Item = Outcome>, path: &str) {
    let (mut valid, mut first_valid, mut best) = (0, None, None::<Outcome>);
    for branch in branches {
        if branch.is_valid() {
            valid += 1;
            best = None;
            first_valid.get_or_insert(branch);
        } else if valid == 0 && best.as_ref().is_none_or(|b| branch.matches > b.matches) {
            best = Some(branch);
        }
    }
    if valid == 1 {
        outcome.merge(first_valid.unwrap_or_default());
        return;
    }
    let found = if valid == 0 { "Found none valid".to_string() } else { format!("Found {valid} valid alternatives") };
    outcome.merge(Problem::without_place(format!("{path:?} must validate one and only one schema (oneOf). {found}")));
    outcome.merge(best.unwrap_or_default());
}

fn all_of(outcome: &mut Outcome, branches: impl Iterator<Item = Outcome>, path: &str) {
    let (mut valid, mut total) = (0, 0);
    for branch in branches {
        total += 1;
        valid += u32::from(branch.is_valid());
        outcome.merge(branch);
    }
    if valid != total {
        let none = if valid == 0 { ". None validated" } else { "" };
        outcome.merge(Problem::without_place(format!("{path:?} must validate all the schemas (allOf){none}")));
    }
}
