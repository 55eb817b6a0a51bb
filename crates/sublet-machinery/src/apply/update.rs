//! Who owns what after a change: the algorithm of structured-merge-diff.

use super::compare::compare;
use super::fields::{fields_of, with_named_parents};
use super::managers::{Conflict, ManagerId, Managers, Owned};
use super::merge::merge;
use super::reconcile::reconcile;
use super::remove::remove;
use super::set::FieldSet;
use super::types::Type;
use serde_json::Value;

/// Brings entries in line with a type that became atomic since they were written.
pub(super) fn reconcile_all(managers: &mut Managers<'_>, of: Type<'_>) {
    for owned in managers.0.values_mut() {
        if let Some(set) = reconcile(&owned.set, of) {
            owned.replace_set(set);
        }
    }
}

/// Takes what changed from everybody but `own`. Without `force`, values that `own` would take are conflicts.
fn take_over(
    managers: &mut Managers<'_>,
    written: &FieldSet,
    removed: &FieldSet,
    own: Option<&ManagerId>,
    force: bool,
) -> Result<(), Vec<Conflict>> {
    let others = || managers.0.iter().filter(|(id, _)| Some(*id) != own);
    if !force {
        let conflicts: Vec<Conflict> = others()
            .map(|(id, owned)| Conflict { manager: id.clone(), set: owned.set.intersection(written) })
            .filter(|c| !c.set.is_empty())
            .collect();
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
    }
    for (_, owned) in managers.0.iter_mut().filter(|(id, _)| Some(*id) != own) {
        for taken in [written, removed] {
            if owned.set.intersects(taken) {
                owned.change_set(|set| set.difference(taken));
            }
        }
    }
    managers.0.retain(|_, owned| !owned.set.is_empty());
    Ok(())
}

/// An update happened: returns what its manager owns by it.
pub(super) fn update(managers: &mut Managers<'_>, live: &Value, new: &Value, of: Type<'_>, reset: &FieldSet) -> FieldSet {
    reconcile_all(managers, of);
    let changes = compare(live, new, of).without(reset);
    let written = changes.modified.union(changes.added);
    take_over(managers, &written, &changes.removed, None, true).expect("a forced change has no conflicts");
    written.recursive_difference(reset)
}

/// Merges an applied configuration. `None` means that the object stays as it is.
pub(super) fn apply(
    managers: &mut Managers<'_>,
    live: &Value,
    config: &Value,
    of: Type<'_>,
    id: &ManagerId,
    api_version: &str,
    reset: &FieldSet,
    force: bool,
) -> Result<Option<Value>, Vec<Conflict>> {
    reconcile_all(managers, of);
    let merged = merge(live, config, of).unwrap_or(Value::Null);
    let set = fields_of(config, of).recursive_difference(reset);
    let last = managers.0.remove(id);
    let time = last.as_ref().and_then(|owned| owned.time.clone());
    managers.0.insert(id.clone(), Owned::new(api_version, set, time));
    let new = match last {
        Some(last) => prune(merged, managers, id, &last.set, of),
        None => merged,
    };
    let changes = compare(live, &new, of).without(reset);
    take_over(managers, &changes.modified.union(changes.added), &changes.removed, Some(id), force)?;
    Ok((!super::path::equal_values(live, &new)).then_some(new))
}

/// Removes what the manager applied before and does not apply now, unless somebody else owns it.
fn prune(merged: Value, managers: &Managers<'_>, id: &ManagerId, last: &FieldSet, of: Type<'_>) -> Value {
    if managers.0.get(id).is_some_and(|now| last.is_subset(&now.set)) {
        return merged;
    }
    let named = |set: &FieldSet| with_named_parents(set, Some(of));
    let last = named(last);
    let owned = managers.0.values().fold(FieldSet::new(), |all, owned| all.union(owned.set.clone()));
    let all = named(&fields_of(&merged, of));

    let without_last = remove(&merged, &last, of).unwrap_or(Value::Null);
    let kept = named(&fields_of(&without_last, of)).union(named(&owned));
    let with_owned = remove(&merged, &all.clone().difference(&kept), of).unwrap_or(Value::Null);
    let kept = named(&fields_of(&with_owned, of));
    let unwanted = all.difference(&kept).intersection(&last);
    if unwanted.is_empty() {
        return merged;
    }
    remove(&merged, &unwanted, of).unwrap_or(Value::Null)
}
