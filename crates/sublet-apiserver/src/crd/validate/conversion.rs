//! The conversion of custom resources: none, or a webhook.

use super::super::view::{strings, text};
use super::not_supported;
use super::text::{dns1035_label, dns1123_subdomain};
use serde_json::Value;
use sublet_machinery::{FieldError, FieldPath};

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

pub(super) fn validate(conversion: &Value, is_established: bool, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !conversion.is_object() {
        return errors;
    }
    let webhook = &conversion["webhook"];
    let client = path.child("webhookClientConfig");
    let versions = strings(&webhook["conversionReviewVersions"]);
    match text(conversion, "strategy") {
        "" => errors.push(FieldError::required(&path.child("strategy"), "")),
        "None" | "Webhook" => {}
        other => errors.push(not_supported(&path.child("strategy"), other, &["None", "Webhook"])),
    }
    if text(conversion, "strategy") == "Webhook" {
        let config = &webhook["clientConfig"];
        if config.is_object() {
            errors.extend(validate_client(config, is_established, &client));
        } else {
            errors.push(FieldError::required(&client, "required when strategy is set to Webhook"));
        }
        errors.extend(validate_review_versions(&versions, &path.child("conversionReviewVersions")));
    } else {
        let why = "should not be set when strategy is not set to Webhook";
        if webhook["clientConfig"].is_object() {
            errors.push(FieldError::forbidden(&client, why));
        }
        if !versions.is_empty() {
            errors.push(FieldError::forbidden(&path.child("conversionReviewVersions"), why));
        }
    }
    errors
}

fn validate_client(config: &Value, is_established: bool, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (url, service) = (config["url"].as_str(), &config["service"]);
    match (url, service.is_object()) {
        (Some(url), false) => errors.extend(validate_url(url, &path.child("url"))),
        // Upstream hands the two names over in the wrong order, so that each is told as the other.
        (None, true) => errors.extend(validate_service(&exchanged(service), &path.child("service"))),
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
    let bundle = text(config, "caBundle");
    // Until the definition is established a placeholder is tolerated, for tools that fill it in later.
    if is_established && !bundle.is_empty() && !is_ca_bundle(bundle) {
        let detail = "unable to load root certificates: unable to parse bytes as PEM block";
        errors.push(FieldError::invalid(&path.child("caBundle"), bundle, detail));
    }
    errors
}

/// Whether base64 text holds a PEM certificate.
pub(crate) fn is_ca_bundle(bundle: &str) -> bool {
    use base64::Engine as _;
    let Ok(bytes) = base64::engine::general_purpose::STANDARD.decode(bundle) else { return false };
    let certificate = String::from_utf8_lossy(&bytes);
    let Some((_, rest)) = certificate.split_once("-----BEGIN CERTIFICATE-----") else { return false };
    let Some((body, _)) = rest.split_once("-----END CERTIFICATE-----") else { return false };
    let body: String = body.split_whitespace().collect();
    base64::engine::general_purpose::STANDARD.decode(body).is_ok_and(|der| der.first() == Some(&0x30))
}

pub(crate) fn validate_url(url: &str, path: &FieldPath) -> Vec<FieldError> {
    const FORM: &str = "; desired format: https://host[/path]";
    let mut errors = Vec::new();
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme != "https" {
        errors.push(FieldError::invalid(path, scheme, format!("'https' is the only allowed URL scheme{FORM}")));
    }
    let authority = if scheme.is_empty() { "" } else { rest.split(['/', '?', '#']).next().unwrap_or_default() };
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if host.is_empty() {
        errors.push(FieldError::invalid(path, host, format!("host must be specified{FORM}")));
    }
    if let Some(user) = user {
        errors.push(FieldError::invalid(path, user, "user information is not permitted in the URL"));
    }
    let (before, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    if !fragment.is_empty() {
        errors.push(FieldError::invalid(path, fragment, "fragments are not permitted in the URL"));
    }
    if let Some((_, query)) = before.split_once('?').filter(|(_, query)| !query.is_empty()) {
        errors.push(FieldError::invalid(path, query, "query parameters are not permitted in the URL"));
    }
    errors
}

fn exchanged(service: &Value) -> Value {
    let mut other = service.clone();
    other["name"] = service["namespace"].clone();
    other["namespace"] = service["name"].clone();
    other
}

pub(crate) fn validate_service(service: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for key in ["name", "namespace"] {
        if text(service, key).is_empty() {
            errors.push(FieldError::required(&path.child(key), ""));
        }
    }
    let port = service["port"].as_i64().unwrap_or(443);
    if !(1..=65535).contains(&port) {
        errors.push(FieldError::invalid(&path.child("port"), port, "port is not valid: must be between 1 and 65535, inclusive"));
    }
    let Some(stated) = service["path"].as_str().filter(|p| !p.is_empty() && *p != "/") else { return errors };
    let path = path.child("path");
    if stated == "//" {
        errors.push(FieldError::invalid(&path, stated, "segment[0] may not be empty"));
        return errors;
    }
    if !stated.starts_with('/') {
        errors.push(FieldError::invalid(&path, stated, "must start with a '/'"));
    }
    let steps = stated.get(1..).unwrap_or_default();
    for (index, step) in steps.strip_suffix('/').unwrap_or(steps).split('/').enumerate() {
        if step.is_empty() {
            errors.push(FieldError::invalid(&path, stated, format!("segment[{index}] may not be empty")));
        } else {
            let wrong = dns1123_subdomain(step);
            errors.extend(wrong.iter().map(|w| FieldError::invalid(&path, stated, format!("segment[{index}]: {w}"))));
        }
    }
    errors
}

fn validate_review_versions(versions: &[String], path: &FieldPath) -> Vec<FieldError> {
    if versions.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let mut errors = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        let path = path.index(index);
        if versions[..index].contains(version) {
            errors.push(FieldError::invalid(&path, version.as_str(), "duplicate version"));
            continue;
        }
        errors.extend(dns1035_label(version).into_iter().map(|wrong| FieldError::invalid(&path, version.as_str(), wrong)));
    }
    if !versions.iter().any(|v| REVIEW_VERSIONS.contains(&v.as_str())) {
        let detail = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        errors.push(FieldError::invalid(path, versions.to_vec(), detail));
    }
    errors
}
