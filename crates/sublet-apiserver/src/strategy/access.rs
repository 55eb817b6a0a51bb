//! RBAC, certificates and leases.

use super::edit::{ensure, fill, fill_zero, items};
use super::field::{Errors, Field};
use super::status::{empty_status, keep_spec};
use super::{NameRule, Strategy, keep_status};
use serde_json::{Value, json};
use sublet_machinery::names;

pub(super) const ROLE: Strategy = Strategy {
    default: |role| fill(role, "rules", Value::Null),
    name_rule: NameRule::PathSegment,
    create_on_update: true,
    ..Strategy::PLAIN
};

pub(super) const CLUSTER_ROLE: Strategy = ROLE;

pub(super) const ROLE_BINDING: Strategy =
    Strategy { default: default_binding, name_rule: NameRule::PathSegment, create_on_update: true, ..Strategy::PLAIN };

pub(super) const CERTIFICATE_REQUEST: Strategy = Strategy {
    default: default_certificate_request,
    prepare_create: empty_status,
    prepare_update: |new, old| {
        super::edit::copy_or_remove(new, old, "spec");
        keep_status(new, old);
    },
    prepare_status_update: keep_spec,
    fields: |object| vec![("spec.signerName", object["spec"]["signerName"].as_str().unwrap_or_default().into())],
    ..Strategy::PLAIN
};

pub(super) const TRUST_BUNDLE: Strategy = Strategy {
    unconditional_update: false,
    fields: |object| vec![("spec.signerName", object["spec"]["signerName"].as_str().unwrap_or_default().into())],
    ..Strategy::PLAIN
};

pub(super) const POD_CERTIFICATE_REQUEST: Strategy = Strategy {
    prepare_create: empty_status,
    prepare_update: keep_status,
    fields: pod_certificate_fields,
    unconditional_update: false,
    ..Strategy::PLAIN
};

pub(super) const LEASE: Strategy = Strategy {
    default: |lease| {
        ensure(lease, "spec");
    },
    prepare_create: |lease| drop_coordination(lease, &Value::Null),
    prepare_update: drop_coordination,
    create_on_update: true,
    unconditional_update: false,
    ..Strategy::PLAIN
};

const RBAC: &str = "rbac.authorization.k8s.io";

fn default_binding(binding: &mut Value) {
    fill_zero(ensure(binding, "roleRef"), "apiGroup", RBAC);
    for subject in items(binding, "subjects") {
        if subject["kind"] == "User" || subject["kind"] == "Group" {
            fill_zero(subject, "apiGroup", RBAC);
        }
    }
}

fn default_certificate_request(request: &mut Value) {
    fill(request, "status", json!({}));
}

/// Coordinated leader election is behind a gate that is off.
fn drop_coordination(new: &mut Value, old: &Value) {
    for key in ["strategy", "preferredHolder"] {
        if old["spec"][key].is_null() {
            super::edit::remove(ensure(new, "spec"), key);
        }
    }
}

fn pod_certificate_fields(request: &Value) -> Vec<(&'static str, String)> {
    let text = |key: &str| request["spec"][key].as_str().unwrap_or_default().to_string();
    vec![("spec.signerName", text("signerName")), ("spec.podName", text("podName")), ("spec.nodeName", text("nodeName"))]
}

/// `example.com/name`: a domain of two labels or more, and names separated by dots.
pub(crate) fn validate_signer_name(signer: &Field<'_>, errors: &mut Errors) {
    if !errors.require(signer) {
        return;
    }
    let Some((domain, path)) = signer.text().split_once('/').filter(|(_, path)| !path.contains('/')) else {
        return errors.add(signer.invalid("must be a fully qualified domain and path of the form 'example.com/signer-name'"));
    };
    if domain.len() > names::DNS_SUBDOMAIN_BYTES_MAX {
        errors.add(signer.too_long(names::DNS_SUBDOMAIN_BYTES_MAX));
    }
    let rules: [(&str, fn(&str) -> Vec<String>); 2] = [(domain, names::dns_label), (path, names::dns_subdomain)];
    for (part, rule) in rules {
        if let Some(label) = part.split('.').find(|label| !rule(label).is_empty()) {
            let wrong = rule(label).into_iter();
            errors.extend(wrong.map(|m| signer.invalid_as(part, format!("validating label {label:?}: {m}"))));
        }
        if part == domain && !domain.contains('.') {
            errors.add(signer.invalid_as(domain, "should be a domain with at least two segments separated by dots"));
        }
    }
    const SIGNER_BYTES_MAX: usize = 571;
    if signer.len() > SIGNER_BYTES_MAX {
        errors.add(signer.too_long(SIGNER_BYTES_MAX));
    }
}
