//! What an ephemeral container may not have.

use super::super::super::field::{Errors, Field};

/// In the order of the fields in upstream's type.
const REFUSED: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

pub(super) fn validate_fields(container: &Field<'_>, errors: &mut Errors) {
    const DETAIL: &str = "cannot be set for an Ephemeral Container";
    for key in REFUSED {
        if !container.at(key).is_zero() {
            errors.add(container.at(key).forbidden(DETAIL));
        }
    }
    for mount in container.at("volumeMounts").items() {
        for key in ["subPath", "subPathExpr"] {
            if !mount.at(key).is_zero() {
                errors.add(mount.at(key).forbidden(DETAIL));
            }
        }
    }
}
