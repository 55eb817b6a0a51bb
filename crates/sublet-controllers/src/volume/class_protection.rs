//! The finalizer that keeps a VolumeAttributesClass while a claim or a volume names it.

use super::protection::add_finalizer;
use crate::kit::exec;
use async_trait::async_trait;
use serde_json::Value;
use sublet_machinery::ObjectExt;
use sublet_runtime::manager::{Mapping, map};
use sublet_runtime::resources::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, VOLUME_ATTRIBUTES_CLASSES};
use sublet_runtime::{Change, Controller, Ctx, Informer, Key, Outcome, Reconciler};

const FINALIZER: &str = "kubernetes.io/vac-protection";
/// Claims and volumes by the classes that they name.
const BY_CLASS: &str = "volume-attributes-class";

pub(crate) fn controller() -> Controller {
    Controller::new("volumeattributesclass-protection-controller", Classes)
        .watches(VOLUME_ATTRIBUTES_CLASSES, map::itself)
        .watches(PERSISTENT_VOLUME_CLAIMS, released)
        .watches(PERSISTENT_VOLUMES, released)
}

/// Lets claims and volumes be found by their classes; to be called before the informers run.
pub(crate) fn index_by_class(informer: &Informer) {
    informer.add_index(BY_CLASS, |object| classes_of(object).map(str::to_string).collect());
}

/// What a claim or a volume wants, has, and is on the way to.
fn classes_of(object: &Value) -> impl Iterator<Item = &str> {
    [
        "/spec/volumeAttributesClassName",
        "/status/currentVolumeAttributesClassName",
        "/status/modifyVolumeStatus/targetVolumeAttributesClassName",
    ]
    .into_iter()
    .filter_map(|pointer| object.str_at(pointer))
    .filter(|name| !name.is_empty())
}

/// The classes that a change let go of.
fn released(change: &Change, _: &Mapping) -> Vec<Key> {
    let kept: Vec<&str> = change.new.iter().flat_map(|new| classes_of(new)).collect();
    let before = change.old.iter().flat_map(|old| classes_of(old));
    before.filter(|class| !kept.contains(class)).map(|class| Key::new("", class)).collect()
}

struct Classes;

#[async_trait]
impl Reconciler for Classes {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let Some(class) = ctx.informer(&VOLUME_ATTRIBUTES_CLASSES).get_key(key) else { return Outcome::Done };
        let is_named =
            || [PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS].iter().any(|g| !ctx.informer(g).by_index(BY_CLASS, class.name()).is_empty());
        let result = match (class.is_deleting(), class.has_finalizer(FINALIZER)) {
            (true, true) if !is_named() => exec::remove_finalizer(ctx, &VOLUME_ATTRIBUTES_CLASSES, &class, FINALIZER).await,
            (false, false) => add_finalizer(ctx, &VOLUME_ATTRIBUTES_CLASSES, &class, FINALIZER).await,
            _ => Ok(()),
        };
        result.map_or_else(Outcome::from, |()| Outcome::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_claim_names_what_it_wants_has_and_is_on_the_way_to() {
        let claim = json!({"spec": {"volumeAttributesClassName": "silver"}, "status": {
            "currentVolumeAttributesClassName": "gold", "modifyVolumeStatus": {"targetVolumeAttributesClassName": ""}}});
        assert_eq!(classes_of(&claim).collect::<Vec<_>>(), ["silver", "gold"]);
        assert_eq!(classes_of(&json!({"spec": {}})).count(), 0);
    }
}
