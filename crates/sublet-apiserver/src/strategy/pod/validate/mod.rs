//! Rules for pods and pod templates (as in core/validation/validation.go, 1.37, with the gates at their
//! defaults). Everything below a pod spec is written once, here, for all workloads.

mod affinity;
mod annotations;
pub(crate) mod claims;
mod containers;
mod env;
mod ephemeral;
mod handlers;
mod mounts;
pub(crate) mod node_selector;
mod paths;
mod projected;
mod resize;
pub(crate) mod resources;
mod restart;
mod scheduling;
mod security;
mod sources;
mod spec;
mod status;
mod update;
mod volumes;
mod windows;

pub(crate) use resize::validate_resize;
pub(crate) use scheduling::{validate_taints, validate_tolerations};
pub(crate) use sources::{VolumeKind, validate_driver_name, validate_driver_name_in_any_case, validate_sources};
pub use status::validate_binding;
pub(crate) use status::{is_dual_stack, validate_status_update};
pub(crate) use update::{validate_ephemeral_update, validate_update};
pub(crate) use volumes::validate_template_metadata;

use super::super::field::{Errors, Field};
use serde_json::Value;
use spec::Spec;
use sublet_machinery::{FieldError, ObjectExt};

/// A pod, at any time of its life.
pub(crate) fn validate(pod: &Value) -> Vec<FieldError> {
    let root = Field::root(pod);
    Errors::of(|errors| {
        annotations::validate(&root.at("metadata").at("annotations"), &pod["spec"], errors);
        let spec = root.at("spec");
        Spec { spec: &spec, pod: Some(pod) }.validate(errors);
        token_volumes_need_an_account(&spec, errors);
        let grace = spec.at("terminationGracePeriodSeconds");
        if grace.is_set() {
            errors.non_negative(&grace);
        }
        for list in ["containers", "initContainers"] {
            spec.at(list).items().for_each(|container| containers::validate_image_spaces(&container, errors));
        }
    })
}

/// What holds only when the pod is made.
pub(crate) fn validate_create(pod: &Value) -> Vec<FieldError> {
    let spec = Field::root(pod).at("spec");
    Errors::of(|errors| {
        if !spec.at("ephemeralContainers").is_zero() {
            errors.add(spec.at("ephemeralContainers").forbidden("cannot be set on create"));
        }
        if !spec.at("nodeName").is_zero() && !spec.at("schedulingGates").is_zero() {
            errors.add(spec.at("nodeName").forbidden("cannot be set until all schedulingGates have been cleared"));
        }
        annotations::validate_fields_match(&pod["metadata"]["annotations"], &spec, errors);
    })
}

/// A template inside a workload: `{metadata, spec}`.
pub(crate) fn validate_template(template: &Field<'_>, errors: &mut Errors) {
    let metadata = template.at("metadata");
    // Upstream's paths leave out `metadata` here.
    errors.labels(&metadata_as(template, &metadata, "labels"));
    let notes = metadata_as(template, &metadata, "annotations");
    errors.annotations(&notes);
    let spec = template.at("spec");
    annotations::validate(&notes, spec.value, errors);
    Spec { spec: &spec, pod: None }.validate(errors);
    annotations::validate_fields_match(notes.value, &spec, errors);
    if !spec.at("ephemeralContainers").is_zero() {
        errors.add(spec.at("ephemeralContainers").forbidden("ephemeral containers not allowed in pod template"));
    }
}

fn metadata_as<'a>(template: &Field<'a>, metadata: &Field<'a>, key: &str) -> Field<'a> {
    Field::new(metadata.at(key).value, template.path.child(key))
}

fn token_volumes_need_an_account(spec: &Field<'_>, errors: &mut Errors) {
    if !spec.at("serviceAccountName").is_zero() {
        return;
    }
    for volume in spec.at("volumes").items() {
        for source in volume.at("projected").at("sources").items() {
            let token = source.at("serviceAccountToken");
            if token.is_set() {
                errors.add(token.forbidden("must not be specified when serviceAccountName is not set"));
            }
        }
    }
}

/// All containers of a spec with their paths, in the order in which upstream visits them.
pub(crate) fn all_containers<'a>(spec: &Field<'a>) -> Vec<Field<'a>> {
    ["initContainers", "containers", "ephemeralContainers"].iter().flat_map(|list| spec.at(list).items()).collect()
}

fn is_mirror(pod: &Value) -> bool {
    pod.annotation("kubernetes.io/config.mirror").is_some()
}
