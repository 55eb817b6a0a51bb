//! Requests for certificates.

use super::super::edit::{copy_or_remove, ensure, fill, is_zero, items, now};
use super::super::field::{Errors, Field, Seen, diff};
use super::super::status::{empty_status, keep_spec};
use super::super::{NameRule, Strategy, keep_status};
use super::validate_signer_name;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sublet_machinery::FieldError;
use x509_parser::prelude::{FromDer, Pem, X509Certificate, X509CertificationRequest};

pub(crate) const CERTIFICATE_REQUEST: Strategy = Strategy {
    default: |object| fill(object, "status", json!({})),
    prepare_create: empty_status,
    prepare_update: |new, old| {
        copy_or_remove(new, old, "spec");
        keep_status(new, old);
    },
    prepare_status_update: prepare_status,
    validate_create: validate_request,
    validate_status_update: |new, old| validate_change(new, old, Change::Certificate),
    fields: |object| vec![("spec.signerName", object["spec"]["signerName"].as_str().unwrap_or_default().into())],
    name_rule: NameRule::PathSegment,
    ..Strategy::PLAIN
};

/// An approver changes the conditions alone.
pub(crate) const CERTIFICATE_APPROVAL: Strategy = Strategy {
    prepare_update: prepare_approval,
    validate_create: |_| Vec::new(),
    validate_update: |new, old| validate_change(new, old, Change::Approval),
    ..CERTIFICATE_REQUEST
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Approval,
    Certificate,
}

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const EXPIRATION_SECONDS_MIN: i64 = 600;
const DECISIONS: [&str; 2] = ["Approved", "Denied"];

fn prepare_status(new: &mut Value, old: &Value) {
    keep_spec(new, old);
    for kind in DECISIONS {
        let before: Vec<&Value> = of_kind(old, kind);
        if before.len() == of_kind(new, kind).len() {
            let kept = items(&mut new["status"], "conditions").filter(|c| c["type"] == kind);
            kept.zip(before).for_each(|(condition, old)| *condition = old.clone());
        }
    }
    fill_times(new, old);
}

fn prepare_approval(new: &mut Value, old: &Value) {
    fill_times(new, old);
    let conditions = new["status"]["conditions"].take();
    copy_or_remove(new, old, "spec");
    keep_status(new, old);
    if !is_zero(&conditions) {
        ensure(new, "status")["conditions"] = conditions;
    }
}

fn of_kind<'a>(request: &'a Value, kind: &str) -> Vec<&'a Value> {
    request["status"]["conditions"].as_array().into_iter().flatten().filter(|c| c["type"] == kind).collect()
}

fn fill_times(new: &mut Value, old: &Value) {
    let now = now();
    for condition in items(ensure(new, "status"), "conditions") {
        if is_zero(&condition["lastUpdateTime"]) {
            condition["lastUpdateTime"] = json!(now);
        }
        if is_zero(&condition["lastTransitionTime"]) {
            let known = old["status"]["conditions"].as_array().into_iter().flatten().find(|old| {
                old["type"] == condition["type"] && old["status"] == condition["status"] && !is_zero(&old["lastTransitionTime"])
            });
            condition["lastTransitionTime"] = known.map_or_else(|| json!(now), |old| old["lastTransitionTime"].clone());
        }
    }
}

fn decoded(field: &Field<'_>) -> Vec<u8> {
    STANDARD.decode(field.text()).unwrap_or_default()
}

fn validate_request(request: &Value) -> Vec<FieldError> {
    let spec = Field::root(request).at("spec");
    let (usages, signer, seconds) = (spec.at("usages"), spec.at("signerName"), spec.at("expirationSeconds"));
    Errors::of(|errors| {
        if let Some(why) = unreadable_request(&decoded(&spec.at("request"))) {
            errors.add(spec.at("request").invalid_as(spec.at("request").text(), why));
        }
        errors.require(&usages);
        let mut seen = Seen::default();
        for usage in usages.items() {
            errors.one_of(&usage, &USAGES);
            if seen.again(usage.text()) {
                errors.add(usage.duplicate());
            }
        }
        if signer.text() == LEGACY_SIGNER {
            errors.add(signer.invalid("the legacy signerName is not allowed via this API version"));
        } else {
            validate_signer_name(&signer, errors);
        }
        if seconds.is_set() && seconds.int() < EXPIRATION_SECONDS_MIN {
            errors.add(seconds.invalid("may not specify a duration less than 600 seconds (10 minutes)"));
        }
    })
}

fn unreadable_request(pem: &[u8]) -> Option<String> {
    let block = Pem::iter_from_buffer(pem).next().and_then(Result::ok).filter(|block| block.label == "CERTIFICATE REQUEST");
    let Some(block) = block else { return Some("PEM block type must be CERTIFICATE REQUEST".into()) };
    X509CertificationRequest::from_der(&block.contents).err().map(|why| format!("x509: malformed certificate request: {why}"))
}

pub(super) fn unreadable_certificate(pem: &[u8]) -> Option<String> {
    let mut blocks = 0;
    for block in Pem::iter_from_buffer(pem).map_while(Result::ok) {
        if block.label != "CERTIFICATE" {
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {:?}", block.label));
        }
        if let Err(why) = X509Certificate::from_der(&block.contents) {
            return Some(format!("x509: malformed certificate: {why}"));
        }
        blocks += 1;
    }
    (blocks == 0 && !pem.is_empty()).then(|| "must contain at least one CERTIFICATE PEM block".into())
}

fn validate_change(new: &Value, old: &Value, change: Change) -> Vec<FieldError> {
    let status = Field::root(new).at("status");
    let (conditions, certificate) = (status.at("conditions"), status.at("certificate"));
    Errors::of(|errors| {
        validate_conditions(&conditions, errors);
        let issued = &old["status"]["certificate"];
        let differs = certificate.text() != issued.as_str().unwrap_or_default();
        if differs && let Some(why) = unreadable_certificate(&decoded(&certificate)) {
            errors.add(certificate.invalid_as("<certificate data>", why));
        }
        for kind in ["Approved", "Denied", "Failed"].into_iter().filter(|kind| of_kind(new, kind).len() < of_kind(old, kind).len()) {
            errors.add(conditions.forbidden(format!("updates may not remove a condition of type {kind:?}")));
        }
        for kind in DECISIONS.into_iter().filter(|_| change != Change::Approval) {
            let (before, after) = (of_kind(old, kind), of_kind(new, kind));
            if after.len() > before.len() {
                errors.add(conditions.forbidden(format!("updates may not add a condition of type {kind:?}")));
            } else if after.len() == before.len() && after != before {
                let detail = diff(&json!(before), &json!(after));
                errors.add(conditions.forbidden(format!("updates may not modify a condition of type {kind:?}\n{detail}")));
            }
        }
        if differs && change != Change::Certificate {
            errors.add(certificate.forbidden("updates may not set certificate content"));
        } else if differs && !is_zero(issued) {
            errors.add(certificate.forbidden("updates may not modify existing certificate content"));
        }
    })
}

fn validate_conditions(conditions: &Field<'_>, errors: &mut Errors) {
    let mut seen = Seen::default();
    for condition in conditions.items() {
        let (kind, status) = (condition.at("type"), condition.at("status"));
        errors.require(&kind);
        let only_true = matches!(kind.text(), "Approved" | "Denied" | "Failed");
        errors.required_one_of(&status, if only_true { &["True"] } else { &["False", "True", "Unknown"] });
        if seen.again(kind.text()) {
            errors.add(kind.duplicate());
        }
    }
    if DECISIONS.iter().all(|kind| seen.has(kind)) {
        let shown = DECISIONS.map(|kind| format!("conditions[{{\"type\": {kind:?}}}]"));
        let detail = format!("must specify at most one of: `{}`", shown.join("`, `"));
        errors.add(conditions.invalid_as(format!("{{{}}}", shown.join(", ")), detail));
    }
}
