//! The kinds of `storage.k8s.io`, `node.k8s.io` and `scheduling.k8s.io`.

use super::edit::{ensure, fill, fill_zero};
use super::status::empty_status;
use super::{Strategy, keep_all_but_status, keep_status, spec_changed};
use serde_json::{Value, json};

pub(super) const STORAGE_CLASS: Strategy = Strategy {
    default: |class| {
        fill(class, "reclaimPolicy", "Delete");
        fill(class, "volumeBindingMode", "Immediate");
    },
    ..Strategy::PLAIN
};

/// The generation of a driver starts at nothing and rises with changes of the spec.
pub(super) const CSI_DRIVER: Strategy =
    Strategy { default: default_driver, prepare_update: bump_driver, unconditional_update: false, ..Strategy::PLAIN };

pub(super) const CSI_NODE: Strategy = Strategy {
    default: |node| {
        for driver in super::edit::items(ensure(node, "spec"), "drivers") {
            fill(driver, "topologyKeys", Value::Null);
        }
        fill(node, "status", json!({}));
    },
    prepare_create: empty_status,
    prepare_update: keep_status,
    prepare_status_update: keep_all_but_status,
    unconditional_update: false,
    ..Strategy::PLAIN
};

pub(super) const CSI_STORAGE_CAPACITY: Strategy = Strategy { unconditional_update: false, ..Strategy::PLAIN };

pub(super) const VOLUME_ATTACHMENT: Strategy = Strategy {
    default: |object| fill(ensure(object, "status"), "attached", false),
    prepare_create: |object| object["status"] = json!({"attached": false}),
    prepare_update: keep_status,
    unconditional_update: false,
    ..Strategy::PLAIN
};

pub(super) const VOLUME_ATTRIBUTES_CLASS: Strategy = Strategy::PLAIN;

pub(super) const RUNTIME_CLASS: Strategy = Strategy { create_on_update: true, unconditional_update: false, ..Strategy::PLAIN };

/// Nothing but the description and labels of a priority class can change, so the generation stays at 1.
pub(super) const PRIORITY_CLASS: Strategy = Strategy {
    default: |class| {
        fill(class, "preemptionPolicy", "PreemptLowerPriority");
        fill(class, "value", 0);
    },
    generation: true,
    changes_generation: |_, _| false,
    ..Strategy::PLAIN
};

/// Kept for objects whose status is the whole of what `/status` may write.
pub(super) const MIGRATION: Strategy =
    Strategy { prepare_create: empty_status, prepare_update: keep_status, unconditional_update: false, ..Strategy::PLAIN };

fn default_driver(driver: &mut Value) {
    let spec = ensure(driver, "spec");
    fill(spec, "attachRequired", true);
    for key in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount", "preventPodSchedulingIfMissing"] {
        fill(spec, key, false);
    }
    fill(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    fill_zero(spec, "volumeLifecycleModes", json!(["Persistent"]));
}

fn bump_driver(new: &mut Value, old: &Value) {
    if spec_changed(new, old) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or_default() + 1;
        ensure(new, "metadata")["generation"] = json!(generation);
    }
}
