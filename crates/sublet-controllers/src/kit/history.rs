//! Revisions of a pod template as `ControllerRevision` objects: what a rollout goes back to.

use super::claim::{self, Claimant};
use super::template::{self, Fnv32};
use super::{count_at, exec, time};
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::CONTROLLER_REVISIONS;
use sublet_runtime::{ClientError, Ctx};

/// The label with the hash of a revision's data.
pub(crate) const HASH_LABEL: &str = "controller.kubernetes.io/hash";
/// The label of pods that tells their revision.
pub(crate) const POD_LABEL: &str = "controller-revision-hash";
/// Names tried for a new revision whose hash is taken.
const COLLISIONS_MAX: u32 = 10;

/// The revisions of one owner, oldest first.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) all: Vec<Arc<Value>>,
    /// The one of the owner's template.
    pub(crate) update: Arc<Value>,
    pub(crate) collisions: i64,
}

/// What is to be done so that the newest revision is that of the template.
#[derive(Debug, PartialEq)]
enum Step {
    Keep(Arc<Value>),
    /// The template returned to that of an older revision.
    Renumber(Arc<Value>, i64),
    Create(i64),
}

/// The data of a revision: a patch that sets the pod template.
pub(crate) fn data(owner: &Value) -> Value {
    let mut pod_template = template::plain(&owner["spec"]["template"]);
    pod_template["$patch"] = json!("replace");
    json!({"spec": {"template": pod_template}})
}

/// The pod template that a revision holds.
pub(crate) fn template_of(revision: &Value) -> Value {
    let mut pod_template = revision["data"]["spec"]["template"].clone();
    pod_template.remove_at("/$patch");
    pod_template
}

pub(crate) fn is_same(revision: &Value, data: &Value) -> bool {
    template::plain(&revision["data"]) == *data
}

fn sort(revisions: &mut [Arc<Value>]) {
    revisions.sort_by(|a, b| {
        let key = |r: &Value| (count_at(r, "/revision"), time::created(r));
        key(a).cmp(&key(b)).then_with(|| a.name().cmp(b.name()))
    });
}

fn decide(sorted: &[Arc<Value>], data: &Value) -> Step {
    let next = sorted.last().map_or(1, |r| count_at(r, "/revision") + 1);
    match sorted.iter().rposition(|r| is_same(r, data)) {
        Some(at) if at + 1 == sorted.len() => Step::Keep(sorted[at].clone()),
        Some(at) => Step::Renumber(sorted[at].clone(), next),
        None => Step::Create(next),
    }
}

/// The revisions that belong to the owner, adopted where they are orphans.
pub(crate) async fn claim(ctx: &Ctx, claimant: &Claimant<'_>, matches: impl Fn(&Value) -> bool) -> Result<Vec<Arc<Value>>, ClientError> {
    let informer = ctx.informer(&CONTROLLER_REVISIONS);
    let candidates = claim::candidates(&informer, claimant.owner);
    claim::claim(ctx, claimant, &CONTROLLER_REVISIONS, candidates, matches).await
}

/// Makes the newest revision that of the owner's template.
pub(crate) async fn sync(
    ctx: &Ctx,
    claimant: &Claimant<'_>,
    matches: impl Fn(&Value) -> bool,
    hash_labels: &[&str],
) -> Result<History, ClientError> {
    let owner = claimant.owner;
    let mut all = claim(ctx, claimant, matches).await?;
    sort(&mut all);
    let mut collisions = count_at(owner, "/status/collisionCount");
    let wanted = data(owner);
    let update = match decide(&all, &wanted) {
        Step::Keep(revision) => revision,
        Step::Renumber(revision, number) => {
            let patch = json!({"revision": number, "metadata": {"resourceVersion": revision.resource_version()}});
            let renumbered = Arc::new(exec::merge_patch(ctx, &CONTROLLER_REVISIONS, &revision, patch).await?);
            all.retain(|r| r.uid() != renumbered.uid());
            all.push(renumbered.clone());
            renumbered
        }
        Step::Create(number) => {
            let made = Arc::new(create(ctx, claimant, &wanted, number, &mut collisions, hash_labels).await?);
            if all.iter().all(|r| r.uid() != made.uid()) {
                all.push(made.clone());
            }
            made
        }
    };
    Ok(History { all, update, collisions })
}

async fn create(
    ctx: &Ctx,
    claimant: &Claimant<'_>,
    data: &Value,
    number: i64,
    collisions: &mut i64,
    hash_labels: &[&str],
) -> Result<Value, ClientError> {
    let owner = claimant.owner;
    for _ in 0..COLLISIONS_MAX {
        let hash = hash(data, *collisions);
        let mut revision = json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision",
            "metadata": {
                "name": template::joined_name(owner.name().get(..223).unwrap_or(owner.name()), &hash), "namespace": owner.namespace(),
                "labels": owner["spec"]["template"]["metadata"]["labels"].clone(),
                "ownerReferences": [template::controller_reference(owner, claimant.gvk)],
            },
            "data": data, "revision": number,
        });
        if let Some(annotations) = owner.annotations() {
            revision["metadata"]["annotations"] = json!(annotations);
        }
        for label in hash_labels {
            revision.set_label(label, &hash);
        }
        match exec::create(ctx, &CONTROLLER_REVISIONS, &revision).await {
            Err(error) if error.is_already_exists() => {
                let taken = ctx.client.get(&CONTROLLER_REVISIONS, owner.namespace(), revision.name()).await?;
                let is_ours = taken.controller_owner().is_some_and(|r| r["uid"] == owner.uid());
                if is_ours && is_same(&taken, data) {
                    return Ok(taken);
                }
                *collisions += 1;
            }
            result => return result,
        }
    }
    Err(ClientError::Decode(format!("no free name for a revision of {}", owner.name())))
}

fn hash(data: &Value, collisions: i64) -> String {
    let mut hash = Fnv32::default();
    hash.write(data.to_string().as_bytes());
    hash.write(collisions.to_string().as_bytes());
    template::safe_encode(&hash.finish().to_string())
}

/// The revisions beyond the history limit that are not alive, oldest first.
pub(crate) fn surplus(all: &[Arc<Value>], limit: i64, is_alive: impl Fn(&Value) -> bool) -> Vec<Arc<Value>> {
    let dead: Vec<&Arc<Value>> = all.iter().filter(|r| !is_alive(r)).collect();
    let surplus = dead.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
    dead.into_iter().take(surplus).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(name: &str, number: i64, image: &str) -> Arc<Value> {
        let owner = json!({"spec": {"template": {"spec": {"image": image}}}});
        Arc::new(json!({"metadata": {"name": name}, "revision": number, "data": data(&owner)}))
    }

    fn wanted(image: &str) -> Value {
        data(&json!({"spec": {"template": {"spec": {"image": image}}}}))
    }

    #[test]
    fn an_older_template_gets_a_new_number_and_a_new_one_a_new_revision() {
        let all = [revision("a", 1, "x"), revision("b", 2, "y")];
        assert_eq!(decide(&all, &wanted("y")), Step::Keep(all[1].clone()));
        assert_eq!(decide(&all, &wanted("x")), Step::Renumber(all[0].clone(), 3));
        assert_eq!(decide(&all, &wanted("z")), Step::Create(3));
        assert_eq!(decide(&[], &wanted("z")), Step::Create(1));
    }

    #[test]
    fn a_revision_gives_its_template_back() {
        assert_eq!(template_of(&revision("a", 1, "x")), json!({"spec": {"image": "x"}}));
    }

    #[test]
    fn history_beyond_the_limit_is_the_oldest_that_is_not_alive() {
        let all = [revision("a", 1, "w"), revision("b", 2, "x"), revision("c", 3, "y")];
        let names: Vec<String> = surplus(&all, 1, |r| r.name() == "a").iter().map(|r| r.name().to_string()).collect();
        assert_eq!(names, ["b"]);
    }
}
