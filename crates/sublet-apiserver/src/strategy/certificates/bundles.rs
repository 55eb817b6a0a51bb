//! Bundles of certificates to trust.

use super::super::field::{Errors, Field};
use super::super::{NameRule, Strategy};
use super::validate_signer_name;
use serde_json::Value;
use std::collections::BTreeMap;
use sublet_machinery::names;
use x509_parser::prelude::{FromDer, Pem, X509Certificate};

pub(crate) const TRUST_BUNDLE: Strategy = Strategy {
    validate: |bundle| Errors::of(|errors| validate(bundle, errors)),
    validate_create: |bundle| Errors::of(|errors| validate_content(bundle, errors)),
    validate_update: |new, old| {
        Errors::of(|errors| {
            if new["spec"]["trustBundle"] != old["spec"]["trustBundle"] {
                validate_content(new, errors);
            }
            errors.immutable(&Field::root(new).at("spec").at("signerName"), &old["spec"]["signerName"]);
        })
    },
    unconditional_update: false,
    name_rule: NameRule::PathSegment,
    fields: |object| vec![("spec.signerName", object["spec"]["signerName"].as_str().unwrap_or_default().into())],
    ..Strategy::PLAIN
};

const BUNDLE_BYTES_MAX: usize = 1024 * 1024;

/// A bundle for a signer carries the signer's name in its own.
fn validate(bundle: &Value, errors: &mut Errors) {
    let signer = Field::root(bundle).at("spec").at("signerName");
    if signer.is_zero() {
        errors.own_name(bundle, |name| match name.contains(':') {
            true => vec!["ClusterTrustBundle without signer name must not have \":\" in its name".into()],
            false => names::dns_subdomain(name),
        });
        return;
    }
    let prefix = format!("{}:", signer.text().replace('/', ":"));
    errors.own_name(bundle, |name| match name.strip_prefix(&prefix) {
        Some(rest) => names::dns_subdomain(rest),
        None => vec![format!("ClusterTrustBundle for signerName {} must be named with prefix {prefix}", signer.text())],
    });
    validate_signer_name(&signer, errors);
}

fn validate_content(bundle: &Value, errors: &mut Errors) {
    let field = Field::root(bundle).at("spec").at("trustBundle");
    if field.len() > BUNDLE_BYTES_MAX {
        return errors.add(field.too_long(BUNDLE_BYTES_MAX));
    }
    let before = errors.0.len();
    let mut places: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
    for (index, block) in Pem::iter_from_buffer(field.text().as_bytes()).map_while(Result::ok).enumerate() {
        let wrong = if block.label == "CERTIFICATE" {
            match X509Certificate::from_der(&block.contents) {
                Err(_) => Some("does not parse as X.509".to_string()),
                Ok((_, certificate)) if !certificate.is_ca() => Some("does not have the CA bit set".to_string()),
                Ok(_) => None,
            }
        } else {
            Some(format!("has bad block type: {}", block.label))
        };
        match wrong {
            Some(why) => errors.add(field.invalid_as("<value omitted>", format!("entry {index} {why}"))),
            None => places.entry(block.contents).or_default().push(index),
        }
    }
    if errors.0.len() > before {
        return;
    }
    if places.is_empty() {
        errors.add(field.invalid_as("<value omitted>", "at least one trust anchor must be provided"));
    }
    for indexes in places.values().filter(|indexes| indexes.len() > 1) {
        let shown: Vec<String> = indexes.iter().map(ToString::to_string).collect();
        errors.add(field.invalid_as("<value omitted>", format!("duplicate trust anchor (indices [{}])", shown.join(" "))));
    }
}
