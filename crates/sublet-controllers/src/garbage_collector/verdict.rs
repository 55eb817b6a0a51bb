//! What becomes of an object, given what live reads tell about each of its owners.

use super::{FOREGROUND, ORPHAN};
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerState {
    Solid,
    /// Being deleted in the foreground: it waits for its dependents to go.
    Waiting,
    Gone,
}

#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    Keep,
    /// Some owners remain: only these references are kept.
    Rewrite(Vec<Value>),
    Delete {
        policy: &'static str,
        /// Objects that wait for each other would wait for ever: stop blocking the owners first.
        unblock: bool,
    },
}

pub(super) fn decide(item: &Value, owners: &[(&Value, OwnerState)], has_dependents: bool, in_cycle: bool) -> Verdict {
    let has = |state: OwnerState| owners.iter().any(|(_, s)| *s == state);
    if owners.is_empty() {
        return Verdict::Keep;
    }
    if has(OwnerState::Solid) {
        if !has(OwnerState::Waiting) && !has(OwnerState::Gone) {
            return Verdict::Keep;
        }
        // References to waiting owners must go too, or these would wait for an object that stays.
        return Verdict::Rewrite(owners.iter().filter(|(_, s)| *s == OwnerState::Solid).map(|(r, _)| (*r).clone()).collect());
    }
    if has(OwnerState::Waiting) && has_dependents {
        return Verdict::Delete { policy: "Foreground", unblock: in_cycle };
    }
    let policy = if item.has_finalizer(ORPHAN) {
        "Orphan"
    } else if item.has_finalizer(FOREGROUND) {
        "Foreground"
    } else {
        "Background"
    };
    Verdict::Delete { policy, unblock: false }
}

/// The references of an object, none of which blocks its owner.
pub(super) fn unblocked(item: &Value) -> Vec<Value> {
    let unblock = |reference: &Value| {
        let mut reference = reference.clone();
        reference["blockOwnerDeletion"] = json!(false);
        reference
    };
    item.owner_references().iter().map(unblock).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use OwnerState::{Gone, Solid, Waiting};

    fn check(states: &[OwnerState], has_dependents: bool, in_cycle: bool, expected: Verdict) {
        let references: Vec<Value> = (0..states.len()).map(|i| json!({"uid": i})).collect();
        let owners: Vec<(&Value, OwnerState)> = references.iter().zip(states.iter().copied()).collect();
        assert_eq!(decide(&json!({}), &owners, has_dependents, in_cycle), expected, "{states:?}");
    }

    #[test]
    fn objects_live_as_long_as_one_owner() {
        let background = || Verdict::Delete { policy: "Background", unblock: false };
        check(&[], false, false, Verdict::Keep);
        check(&[Solid], false, false, Verdict::Keep);
        check(&[Solid, Gone], false, false, Verdict::Rewrite(vec![json!({"uid": 0})]));
        check(&[Waiting, Solid], true, false, Verdict::Rewrite(vec![json!({"uid": 1})]));
        check(&[Gone, Gone], true, false, background());
        check(&[Waiting], false, false, background());
        check(&[Waiting, Gone], true, false, Verdict::Delete { policy: "Foreground", unblock: false });
        check(&[Waiting], true, true, Verdict::Delete { policy: "Foreground", unblock: true });
    }

    #[test]
    fn finalizers_choose_how_an_object_goes() {
        let owner = json!({});
        let policy = |finalizer: &str| decide(&json!({"metadata": {"finalizers": [finalizer]}}), &[(&owner, Gone)], true, false);
        assert_eq!(policy(ORPHAN), Verdict::Delete { policy: "Orphan", unblock: false });
        assert_eq!(policy(FOREGROUND), Verdict::Delete { policy: "Foreground", unblock: false });
    }
}
