//! Which objects belong to an owner: the rules of upstream's `ControllerRefManager`.
//!
//! An owner keeps what it controls and its selector matches, adopts orphans that match, and releases
//! what no longer matches. An owner that is being deleted does neither.

use super::exec;
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::{ApiError, Gvk, Gvr, ObjectExt};
use sublet_runtime::{ClientError, Ctx, Informer};

/// The index of informers by namespace of the objects without a controller.
const ORPHANS: &str = "orphans";

/// Candidates sorted by what is to be done with them.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Claims {
    pub(crate) mine: Vec<Arc<Value>>,
    pub(crate) adopt: Vec<Arc<Value>>,
    pub(crate) release: Vec<Arc<Value>>,
}

/// The pure rule.
pub(crate) fn sort(owner: &Value, candidates: Vec<Arc<Value>>, matches: impl Fn(&Value) -> bool) -> Claims {
    let mut claims = Claims::default();
    for candidate in candidates {
        match candidate.controller_owner() {
            Some(reference) if reference["uid"] != owner.uid() => {}
            Some(_) if matches(&candidate) => claims.mine.push(candidate),
            Some(_) if !owner.is_deleting() => claims.release.push(candidate),
            Some(_) => {}
            None if owner.is_deleting() || candidate.is_deleting() || !matches(&candidate) => {}
            None => claims.adopt.push(candidate),
        }
    }
    claims
}

/// Who claims: the owner and the names of its kind.
pub(crate) struct Claimant<'a> {
    pub(crate) owner: &'a Value,
    pub(crate) gvr: &'a Gvr,
    pub(crate) gvk: &'a Gvk,
    /// Put on adopted objects and taken from released ones.
    pub(crate) finalizer: Option<&'a str>,
}

/// Lets informers of dependents find orphans; to be called before they run.
pub(crate) fn index_orphans(informer: &Informer) {
    informer.add_index(ORPHANS, |object| match object.controller_owner() {
        None => vec![object.namespace().to_string()],
        Some(_) => Vec::new(),
    });
}

/// The objects that an owner may have a claim on: its own and the orphans of its namespace.
pub(crate) fn candidates(informer: &Informer, owner: &Value) -> Vec<Arc<Value>> {
    let mut all = informer.owned_by(owner.uid());
    all.retain(|o| o.controller_owner().is_some());
    all.extend(informer.by_index(ORPHANS, owner.namespace()));
    all
}

/// Adopts and releases, and answers what now belongs to the owner.
pub(crate) async fn claim(
    ctx: &Ctx,
    claimant: &Claimant<'_>,
    dependents: &Gvr,
    candidates: Vec<Arc<Value>>,
    matches: impl Fn(&Value) -> bool,
) -> Result<Vec<Arc<Value>>, ClientError> {
    let owner = claimant.owner;
    let claims = sort(owner, candidates, matches);
    let mut mine = claims.mine;
    for object in claims.release {
        let mut patch = json!({"metadata": {"uid": object.uid(), "ownerReferences": [{"$patch": "delete", "uid": owner.uid()}]}});
        if let Some(finalizer) = claimant.finalizer {
            patch["metadata"]["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
        }
        match exec::strategic_patch(ctx, dependents, &object, patch).await {
            Ok(_) => {}
            // Gone, or replaced by another object of that name, or no longer ours.
            Err(error) if error.is_not_found() || error.api().is_some_and(|e| e.code == 422) => {}
            Err(error) => return Err(error),
        }
    }
    if !claims.adopt.is_empty() {
        confirm_alive(ctx, claimant).await?;
    }
    for object in claims.adopt {
        let reference = super::template::controller_reference(owner, claimant.gvk);
        let mut patch = json!({"metadata": {"uid": object.uid(), "ownerReferences": [reference]}});
        if let Some(finalizer) = claimant.finalizer {
            patch["metadata"]["finalizers"] = json!([finalizer]);
        }
        match exec::strategic_patch(ctx, dependents, &object, patch).await {
            Ok(adopted) => mine.push(Arc::new(adopted)),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(mine)
}

/// Adopting needs a live look at the owner: the local copy may not know yet that it is being deleted,
/// and what it adopts then would be deleted with it.
async fn confirm_alive(ctx: &Ctx, claimant: &Claimant<'_>) -> Result<(), ClientError> {
    let owner = claimant.owner;
    let fresh = ctx.client.get(claimant.gvr, owner.namespace(), owner.name()).await?;
    if fresh.uid() != owner.uid() || fresh.is_deleting() {
        let why = "the owner is being deleted or was replaced, so it adopts nothing";
        return Err(ApiError::conflict(&claimant.gvr.group, &claimant.gvr.resource, owner.name(), why).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependent(name: &str, controller: Option<&str>, label: &str, deleting: bool) -> Arc<Value> {
        let mut object = json!({"metadata": {"name": name, "labels": {"app": label}}});
        if let Some(uid) = controller {
            object["metadata"]["ownerReferences"] = json!([{"uid": uid, "controller": true}]);
        }
        if deleting {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Arc::new(object)
    }

    fn check(owner_deleting: bool, expected: [&[&str]; 3]) {
        let mut owner = json!({"metadata": {"name": "o", "uid": "u"}});
        if owner_deleting {
            owner["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let candidates = vec![
            dependent("mine", Some("u"), "x", false),
            dependent("mine-deleting", Some("u"), "x", true),
            dependent("mine-no-match", Some("u"), "y", false),
            dependent("other", Some("v"), "x", false),
            dependent("orphan", None, "x", false),
            dependent("orphan-deleting", None, "x", true),
            dependent("orphan-no-match", None, "y", false),
        ];
        let claims = sort(&owner, candidates, |o| o.label("app") == Some("x"));
        let names = |all: &[Arc<Value>]| all.iter().map(|o| o.name().to_string()).collect::<Vec<_>>();
        assert_eq!([names(&claims.mine), names(&claims.adopt), names(&claims.release)], expected.map(|e| e.to_vec()));
    }

    #[test]
    fn owners_keep_adopt_and_release() {
        check(false, [&["mine", "mine-deleting"], &["orphan"], &["mine-no-match"]]);
    }

    #[test]
    fn owners_being_deleted_change_nothing() {
        check(true, [&["mine", "mine-deleting"], &[], &[]]);
    }
}
