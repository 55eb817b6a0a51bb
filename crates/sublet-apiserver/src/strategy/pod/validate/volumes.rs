//! Volumes of a pod.

use super::super::super::core::volume::validate_claim_spec;
use super::super::super::field::{Errors, Field, Seen};
use super::sources::{VolumeKind, validate_sources};
use serde_json::Value;
use std::collections::BTreeMap;
use sublet_machinery::{ObjectExt, names};

/// The volumes that are well formed, by name.
pub(super) struct Volumes<'a> {
    named: BTreeMap<&'a str, &'a Value>,
}

impl<'a> Volumes<'a> {
    pub fn validate(list: &Field<'a>, pod: Option<&Value>, errors: &mut Errors) -> Self {
        let pod_name = pod.map(ObjectExt::name).unwrap_or_default();
        let mut made_claims = Seen::default();
        for volume in list.items().filter(|v| !pod_name.is_empty() && v.at("ephemeral").is_set()) {
            made_claims.again(format!("{pod_name}-{}", volume.at("name").text()));
        }
        let mut named = BTreeMap::new();
        for volume in list.items() {
            let mut own = Errors::default();
            validate_sources(&volume, VolumeKind::Pod { pod_name }, &mut own);
            let name = volume.at("name");
            if own.require(&name) {
                own.dns_label(&name);
            }
            if named.contains_key(name.text()) {
                own.add(name.duplicate());
            }
            if own.0.is_empty() {
                named.insert(name.text(), volume.value);
            }
            errors.extend(own.0);
            let claim = volume.at("persistentVolumeClaim").at("claimName");
            if claim.is_set() && made_claims.has(claim.text()) {
                errors.add(claim.invalid("must not reference a PVC that gets created for an ephemeral volume"));
            }
        }
        Self { named }
    }

    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.named.get(name).copied()
    }
}

/// The metadata of what is made from a template: labels and annotations.
pub(crate) fn validate_template_metadata(metadata: &Field<'_>, errors: &mut Errors) {
    errors.annotations(&metadata.at("annotations"));
    errors.labels(&metadata.at("labels"));
    for (key, _) in metadata.entries() {
        // Upstream makes the name of the field from Go's.
        let field = metadata.at_as(key, if key == "uid" { "uID" } else { key });
        // The grace period is a pointer: zero is something.
        let is_set = !field.is_zero() || key == "deletionGracePeriodSeconds" && field.is_set();
        if !matches!(key, "annotations" | "labels") && is_set {
            errors.add(field.forbidden("cannot be set"));
        }
    }
}

/// The template of a claim that lives as long as the pod.
pub(super) fn validate_ephemeral(source: &Field<'_>, volume_name: &Field<'_>, pod_name: &str, errors: &mut Errors) {
    let template = source.at("volumeClaimTemplate");
    if !template.is_set() {
        errors.add(template.required(""));
    } else {
        validate_template_metadata(&template.at("metadata"), errors);
        validate_claim_spec(&template.at("spec"), errors);
    }
    if !pod_name.is_empty() && !volume_name.is_zero() {
        let claim = format!("{pod_name}-{}", volume_name.text());
        let wrong = names::dns_subdomain(&claim).into_iter();
        errors.extend(wrong.map(|message| volume_name.invalid(format!("PVC name {claim:?}: {message}"))));
    }
}
