//! Projected volumes: several sources below one directory.

use super::super::super::certificates::validate_signer_name;
use super::super::super::field::{Errors, Field, Seen};
use super::env::{FieldPaths, validate_field_ref, validate_resource_ref};
use super::paths::{file_mode, not_reserved};
use sublet_machinery::names;

pub(super) fn validate(volume: &Field<'_>, errors: &mut Errors) {
    file_mode(&volume.at("defaultMode"), errors);
    let mut paths = Seen::default();
    let mut claim = |path: &str, shown: &str, errors: &mut Errors| {
        if !path.is_empty() && paths.again(path) {
            errors.add(volume.invalid_as(shown, "conflicting duplicate paths"));
        }
    };
    for source in volume.at("sources").items() {
        let mut count = 0;
        for kind in ["secret", "configMap"] {
            let part = source.at(kind);
            if part.is_set() {
                count += 1;
                errors.require(&part.at("name"));
                for item in part.at("items").items() {
                    validate_key_to_path(&item, errors);
                    claim(item.at("path").text(), part.at("name").text(), errors);
                }
            }
        }
        let downward = source.at("downwardAPI");
        if downward.is_set() {
            count += 1;
            for item in downward.at("items").items() {
                validate_downward_file(&Field::new(item.value, downward.path.clone()), errors);
                claim(item.at("path").text(), item.at("path").text(), errors);
            }
        }
        if source.at("serviceAccountToken").is_set() {
            count += 1;
            validate_token(volume, &source.at("serviceAccountToken"), errors);
        }
        let bundle = source.at("clusterTrustBundle");
        if bundle.is_set() {
            count += 1;
            validate_trust_bundle(&bundle, errors);
            claim(bundle.at("path").text(), bundle.at("path").text(), errors);
        }
        let certificate = source.at("podCertificate");
        if certificate.is_set() {
            count += 1;
            validate_certificate(&certificate, errors);
            for key in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
                claim(certificate.at(key).text(), certificate.at(key).text(), errors);
            }
        }
        if count > 1 {
            errors.add(source.forbidden("may not specify more than 1 volume type per source"));
        }
    }
}

pub(super) fn validate_key_to_path(item: &Field<'_>, errors: &mut Errors) {
    errors.require_all(item, &["key", "path"]);
    not_reserved(&item.at("path"), errors);
    file_mode(&item.at("mode"), errors);
}

pub(super) fn validate_downward(volume: &Field<'_>, errors: &mut Errors) {
    file_mode(&volume.at("defaultMode"), errors);
    for item in volume.at("items").items() {
        // Upstream tells the errors of items at the volume.
        validate_downward_file(&Field::new(item.value, volume.path.clone()), errors);
    }
}

fn validate_downward_file(file: &Field<'_>, errors: &mut Errors) {
    errors.require(&file.at("path"));
    not_reserved(&file.at("path"), errors);
    let (field, resource) = (file.at("fieldRef"), file.at("resourceFieldRef"));
    if field.is_set() {
        validate_field_ref(&field, FieldPaths::Volume, errors);
        if resource.is_set() {
            errors.add(file.invalid_as("resource", "fieldRef and resourceFieldRef can not be specified simultaneously"));
        }
    } else if resource.is_set() {
        validate_resource_ref(&resource, true, errors);
    } else {
        errors.add(file.required("one of fieldRef and resourceFieldRef is required"));
    }
    file_mode(&file.at("mode"), errors);
}

fn validate_token(volume: &Field<'_>, token: &Field<'_>, errors: &mut Errors) {
    let seconds = token.at("expirationSeconds");
    if !seconds.is_set() {
        errors.add(seconds.required(""));
    } else if seconds.int() < 600 {
        errors.add(seconds.invalid("may not specify a duration less than 10 minutes"));
    } else if seconds.int() > 1 << 32 {
        errors.add(seconds.invalid("may not specify a duration larger than 2^32 seconds"));
    }
    // Upstream tells errors about the path at the volume.
    let path = Field::new(token.at("path").value, volume.path.child("path"));
    if errors.require(&path) {
        not_reserved(&path, errors);
    }
}

fn validate_trust_bundle(bundle: &Field<'_>, errors: &mut Errors) {
    let (name, signer) = (bundle.at("name"), bundle.at("signerName"));
    match (name.is_set(), signer.is_set()) {
        (true, true) => errors.add(bundle.invalid("only one of name and signerName may be used")),
        (true, false) => {
            if name.is_zero() {
                errors.add(name.required("must be a valid object name"));
            }
            let wrong = bundle_name_errors(name.text()).into_iter();
            errors.extend(wrong.map(|m| name.invalid(format!("not a valid clustertrustbundlename: {m}"))));
            if bundle.at("labelSelector").is_set() {
                errors.add(bundle.at("labelSelector").invalid("labelSelector must be unset if name is specified"));
            }
        }
        (false, true) => {
            if signer.is_zero() {
                errors.add(signer.required("must be a valid signer name"));
            }
            validate_signer_name(&signer, errors);
            errors.label_selector(&bundle.at("labelSelector"));
        }
        (false, false) => errors.add(bundle.required("either name or signerName must be specified")),
    }
    errors.require(&bundle.at("path"));
    not_reserved(&bundle.at("path"), errors);
}

/// Bundles of a signer carry its name up to the last colon.
fn bundle_name_errors(name: &str) -> Vec<String> {
    names::dns_subdomain(name.rsplit_once(':').map_or(name, |(_, rest)| rest))
}

/// Keys have the domain of whoever gives them a meaning; errors are told at the map.
fn validate_user_annotations(annotations: &Field<'_>, errors: &mut Errors) {
    for (key, _) in annotations.entries() {
        let key = key.to_lowercase();
        let mut wrong = if key.is_empty() { Vec::new() } else { names::qualified_name(&key) };
        if wrong.is_empty() && !key.contains('/') {
            wrong.push("must be a domain-prefixed key (such as \"acme.io/foo\")".into());
        }
        errors.extend(wrong.into_iter().map(|m| annotations.invalid_as(key.as_str(), m)));
    }
}

fn validate_certificate(certificate: &Field<'_>, errors: &mut Errors) {
    const KEY_TYPES: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
    validate_signer_name(&certificate.at("signerName"), errors);
    validate_user_annotations(&certificate.at("userAnnotations"), errors);
    errors.one_of(&certificate.at("keyType"), &KEY_TYPES);
    let seconds = certificate.at("maxExpirationSeconds");
    let host = certificate.at("signerName").text().split('/').next().unwrap_or_default();
    let longest = if host == "kubernetes.io" || host.ends_with(".kubernetes.io") { 86_400 } else { 91 * 86_400 };
    if seconds.is_set() && seconds.int() < 3600 {
        errors.add(seconds.invalid("if provided, maxExpirationSeconds must be >= 3600"));
    }
    if seconds.is_set() && seconds.int() > longest {
        errors.add(seconds.invalid(format!("if provided, maxExpirationSeconds must be <= {longest}")));
    }
    let mut some = false;
    for key in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let path = certificate.at(key);
        if !path.is_zero() {
            some = true;
            not_reserved(&path, errors);
        }
    }
    if !some {
        errors.add(certificate.required("specify at least one of credentialBundlePath, keyPath, and certificateChainPath"));
    }
}
