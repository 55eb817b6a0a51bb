//! Requests for certificates of pods. Keys and proofs are the signer's to check.

use super::super::conditions::validate_conditions;
use super::super::field::{Errors, Field};
use super::super::status::empty_status;
use super::super::{Strategy, keep_all_but_status, keep_status};
use super::validate_signer_name;
use serde_json::Value;
use sublet_machinery::FieldError;

pub(crate) const POD_CERTIFICATE_REQUEST: Strategy = Strategy {
    prepare_create: empty_status,
    prepare_update: keep_status,
    prepare_status_update: keep_all_but_status,
    validate_create,
    validate_update: |new, old| Errors::of(|errors| errors.immutable(&Field::root(new).at("spec"), &old["spec"])),
    validate_status_update,
    fields,
    unconditional_update: false,
    ..Strategy::PLAIN
};

const UID_BYTES_MAX: usize = 128;
const SECONDS_MIN: i64 = 60 * 60;
const SECONDS_MAX: i64 = 91 * 24 * 60 * 60;
const KUBERNETES_SECONDS_MAX: i64 = 24 * 60 * 60;
const OUTCOMES: [&str; 3] = ["Issued", "Denied", "Failed"];

fn fields(request: &Value) -> Vec<(&'static str, String)> {
    let text = |key: &str| request["spec"][key].as_str().unwrap_or_default().to_string();
    vec![("spec.signerName", text("signerName")), ("spec.podName", text("podName")), ("spec.nodeName", text("nodeName"))]
}

fn validate_create(request: &Value) -> Vec<FieldError> {
    let spec = Field::root(request).at("spec");
    let (signer, seconds) = (spec.at("signerName"), spec.at("maxExpirationSeconds"));
    Errors::of(|errors| {
        validate_signer_name(&signer, errors);
        for (name, uid) in [("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID")] {
            errors.dns_subdomain(&spec.at(name));
            let uid = spec.at(uid);
            if uid.is_zero() {
                errors.add(uid.invalid_as("", "must not be empty"));
            }
            if uid.len() > UID_BYTES_MAX {
                errors.add(uid.too_long(UID_BYTES_MAX));
            }
        }
        if !seconds.is_set() {
            return errors.add(seconds.required("must be set"));
        }
        let most = if is_kubernetes(signer.text()) { KUBERNETES_SECONDS_MAX } else { SECONDS_MAX };
        if !(SECONDS_MIN..=most).contains(&seconds.int()) {
            errors.add(seconds.invalid(format!("must be in the range [{SECONDS_MIN}, {most}]")));
        }
        let given = ["stubPKCS10Request", "pkixPublicKey", "proofOfPossession"].map(|key| !spec.at(key).is_zero());
        if !matches!(given, [true, false, false] | [false, true, true]) {
            let detail = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set";
            errors.add(FieldError::new(sublet_machinery::FieldErrorKind::Invalid, &spec.path, None, detail));
        }
    })
}

fn is_kubernetes(signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    domain == "kubernetes.io" || domain.ends_with(".kubernetes.io")
}

fn outcome(request: &Value) -> Option<&str> {
    let conditions = request["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter_map(|condition| condition["type"].as_str()).find(|kind| OUTCOMES.contains(kind))
}

fn validate_status_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let status = Field::root(new).at("status");
    let conditions = status.at("conditions");
    Errors::of(|errors| {
        let mut known = 0;
        for condition in conditions.items() {
            let kind = condition.at("type");
            if !OUTCOMES.contains(&kind.text()) {
                errors.add(kind.unsupported(&OUTCOMES));
                continue;
            }
            known += 1;
            if known > 1 {
                errors.add(kind.invalid("There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\""));
            }
            errors.one_of(&condition.at("status"), &["True"]);
        }
        validate_conditions(&conditions, errors);
        if !errors.0.is_empty() {
            return;
        }
        let only_conditions = status.value.as_object().is_none_or(|status| status.keys().all(|key| key == "conditions"));
        if outcome(old).is_some() {
            if *status.value != old["status"] {
                errors.add(status.invalid("immutable after PodCertificateRequest is issued, denied, or failed"));
            }
        } else if matches!(outcome(new), Some("Denied" | "Failed")) && !only_conditions {
            errors.add(status.invalid("non-condition status fields must be empty when denying or failing the PodCertificateRequest"));
        } else if outcome(new) == Some("Issued") {
            validate_issued(&status, errors);
        }
    })
}

fn validate_issued(status: &Field<'_>, errors: &mut Errors) {
    let chain = status.at("certificateChain");
    if super::requests::unreadable_certificate(chain.text().as_bytes()).is_some() || chain.is_zero() {
        return errors.add(chain.invalid_as(chain.text(), "issued certificate chain must contain at least one certificate"));
    }
    for key in ["notBefore", "notAfter"].into_iter().filter(|key| !status.at(key).is_set()) {
        errors.add(status.at(key).required("must be present and consistent with the issued certificate"));
    }
    if !status.at("beginRefreshAt").is_set() {
        errors.add(status.at("beginRefreshAt").required("must be present and in the range [notbefore+10min, notafter-10min]"));
    }
}
