//! What an AuthenticationConfiguration may say, with upstream's paths and messages.

use super::config::{
    AuthenticationConfiguration, ClaimMappings, ClaimValidationRule, ISSUERS_MAX, Issuer, JwtAuthenticator, PrefixedClaim,
};
use super::mapping::{CLAIMS, Expression, Mapping, USER, user_type};
use crate::admission::compile_expression;
use crate::cel::Type;
use http::Uri;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::json;
use std::collections::BTreeSet;
use sublet_machinery::{FieldError, FieldPath, names};

/// Whether expressions look at an address, and at whether it was verified.
#[derive(Default)]
struct EmailUse {
    email: bool,
    verified: bool,
}

pub(super) fn configuration(config: &AuthenticationConfiguration, own: &[String], errors: &mut Vec<FieldError>) -> Vec<Mapping> {
    let root = FieldPath::new("jwt");
    if config.jwt.len() > ISSUERS_MAX {
        errors.push(FieldError::too_many(&root, config.jwt.len(), ISSUERS_MAX));
        return Vec::new();
    }
    let (mut urls, mut discovery_urls) = (BTreeSet::new(), BTreeSet::new());
    let mut mappings = Vec::new();
    for (index, jwt) in config.jwt.iter().enumerate() {
        let path = root.index(index);
        issuer(&jwt.issuer, own, &path.child("issuer"), errors);
        mappings.push(authenticator(jwt, &path, errors));
        if !urls.insert(&jwt.issuer.url) {
            errors.push(FieldError::duplicate(&path.child("issuer").child("url"), jwt.issuer.url.as_str()));
        }
        if !jwt.issuer.discovery_url.is_empty() && !discovery_urls.insert(&jwt.issuer.discovery_url) {
            errors.push(FieldError::duplicate(&path.child("issuer").child("discoveryURL"), jwt.issuer.discovery_url.as_str()));
        }
    }
    if let Some(anonymous) = &config.anonymous
        && !anonymous.enabled
        && !anonymous.conditions.is_empty()
    {
        let paths: Vec<_> = anonymous.conditions.iter().map(|c| json!({"path": c.path})).collect();
        let detail = "enabled should be set to true when conditions are defined";
        errors.push(FieldError::invalid(&FieldPath::new("anonymous.conditions"), paths, detail));
    }
    mappings
}

fn issuer(issuer: &Issuer, own: &[String], path: &FieldPath, errors: &mut Vec<FieldError>) {
    let (url, discovery) = (issuer.url.as_str(), issuer.discovery_url.as_str());
    if url.is_empty() {
        errors.push(FieldError::required(&path.child("url"), ""));
    } else {
        if own.iter().any(|o| o == url) {
            let detail = format!("URL must not overlap with disallowed issuers: [{}]", own.join(" "));
            errors.push(FieldError::invalid(&path.child("url"), url, detail));
        }
        check_url(url, &path.child("url"), errors);
    }
    if !discovery.is_empty() {
        let path = path.child("discoveryURL");
        if url.trim_end_matches('/') == discovery.trim_end_matches('/') {
            errors.push(FieldError::invalid(&path, discovery, "discoveryURL must be different from URL"));
        }
        check_url(discovery, &path, errors);
    }
    audiences(issuer, path, errors);
    let authority = issuer.certificate_authority.as_bytes();
    if !authority.is_empty() && !CertificateDer::pem_slice_iter(authority).any(|c| c.is_ok()) {
        let detail = "data does not contain any valid RSA or ECDSA certificates";
        errors.push(FieldError::invalid(&path.child("certificateAuthority"), "<omitted>", detail));
    }
    if !issuer.egress_selector_type.is_empty() {
        let detail = "egress selector is not supported when StructuredAuthenticationConfigurationEgressSelector feature gate is disabled";
        errors.push(FieldError::invalid(&path.child("egressSelectorType"), issuer.egress_selector_type.as_str(), detail));
    }
}

fn check_url(url: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut wrong = |detail: &str| errors.push(FieldError::invalid(path, url, detail));
    if url.contains('#') {
        wrong("URL must not contain a fragment");
    }
    let uri: Uri = match url.split('#').next().unwrap_or_default().parse() {
        Ok(uri) => uri,
        Err(error) => return wrong(&format!("parse {url:?}: {error}")),
    };
    if uri.scheme_str() != Some("https") {
        wrong("URL scheme must be https");
    }
    if uri.authority().is_some_and(|a| a.as_str().contains('@')) {
        wrong("URL must not contain a username or password");
    }
    if uri.query().is_some_and(|query| !query.is_empty()) {
        wrong("URL must not contain a query");
    }
}

fn audiences(issuer: &Issuer, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let (list, at) = (&issuer.audiences, path.child("audiences"));
    if list.is_empty() {
        return errors.push(FieldError::required(&at, format!("at least one {at} is required")));
    }
    for (index, audience) in list.iter().enumerate() {
        if audience.is_empty() {
            errors.push(FieldError::required(&at.index(index), ""));
        }
        if list[..index].contains(audience) {
            errors.push(FieldError::duplicate(&at.index(index), audience.as_str()));
        }
    }
    let (policy, at) = (issuer.audience_match_policy.as_str(), path.child("audienceMatchPolicy"));
    if list.len() > 1 && policy != "MatchAny" {
        errors.push(FieldError::invalid(&at, policy, "audienceMatchPolicy must be MatchAny for multiple audiences"));
    } else if !matches!(policy, "" | "MatchAny") {
        errors.push(FieldError::invalid(&at, policy, "audienceMatchPolicy must be empty or MatchAny for single audience"));
    }
}

fn authenticator(jwt: &JwtAuthenticator, path: &FieldPath, errors: &mut Vec<FieldError>) -> Mapping {
    let mut mapping = Mapping::default();
    let mut emails = EmailUse::default();
    claim_rules(&jwt.claim_validation_rules, &path.child("claimValidationRules"), &mut mapping, &mut emails, errors);
    claim_mappings(&jwt.claim_mappings, &path.child("claimMappings"), &mut mapping, &mut emails, errors);
    let (path, mut seen) = (path.child("userValidationRules"), BTreeSet::new());
    for (index, rule) in jwt.user_validation_rules.iter().enumerate() {
        let at = path.index(index).child("expression");
        if rule.expression.is_empty() {
            errors.push(FieldError::required(&at, ""));
        } else if !seen.insert(&rule.expression) {
            errors.push(FieldError::duplicate(&at, rule.expression.as_str()));
        } else if let Some(compiled) = compile(&rule.expression, USER, Wanted::Bool, &at, errors) {
            mapping.user_rules.push((compiled, rule.message.clone()));
        }
    }
    mapping
}

fn claim_rules(
    rules: &[ClaimValidationRule],
    path: &FieldPath,
    mapping: &mut Mapping,
    emails: &mut EmailUse,
    errors: &mut Vec<FieldError>,
) {
    let (mut claims, mut expressions) = (BTreeSet::new(), BTreeSet::new());
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        match (rule.claim.is_empty(), rule.expression.is_empty()) {
            (false, false) => errors.push(FieldError::invalid(&path, rule.claim.as_str(), "claim and expression can't both be set")),
            (true, true) => errors.push(FieldError::required(&path, "claim or expression is required")),
            (false, true) => {
                if !rule.message.is_empty() {
                    let detail = "may not be specified when claim is set";
                    errors.push(FieldError::invalid(&path.child("message"), rule.message.as_str(), detail));
                }
                if !claims.insert(&rule.claim) {
                    errors.push(FieldError::duplicate(&path.child("claim"), rule.claim.as_str()));
                }
                mapping.required.push((rule.claim.clone(), rule.required_value.clone()));
            }
            (true, false) => {
                let at = path.child("expression");
                if !rule.required_value.is_empty() {
                    let detail = "may not be specified when expression is set";
                    errors.push(FieldError::invalid(&path.child("requiredValue"), rule.required_value.as_str(), detail));
                }
                if !expressions.insert(&rule.expression) {
                    errors.push(FieldError::duplicate(&at, rule.expression.as_str()));
                } else if let Some(compiled) = compile(&rule.expression, CLAIMS, Wanted::Bool, &at, errors) {
                    emails.verified |= names_claim(&rule.expression, "email_verified");
                    mapping.claim_rules.push((compiled, rule.message.clone()));
                }
            }
        }
    }
}

fn claim_mappings(stated: &ClaimMappings, path: &FieldPath, mapping: &mut Mapping, emails: &mut EmailUse, errors: &mut Vec<FieldError>) {
    mapping.username = prefixed(&stated.username, &path.child("username"), true, errors);
    mapping.groups = prefixed(&stated.groups, &path.child("groups"), false, errors);
    emails.email |= names_claim(&stated.username.expression, "email");
    emails.verified |= names_claim(&stated.username.expression, "email_verified");
    let at = path.child("uid");
    if !stated.uid.claim.is_empty() && !stated.uid.expression.is_empty() {
        errors.push(FieldError::invalid(&at, "", "claim and expression can't both be set"));
    } else if !stated.uid.expression.is_empty() {
        mapping.uid = compile(&stated.uid.expression, CLAIMS, Wanted::Anything, &at.child("expression"), errors);
    }
    let mut keys = BTreeSet::new();
    for (index, extra) in stated.extra.iter().enumerate() {
        let path = path.child("extra").index(index);
        extra_key(&extra.key, &path.child("key"), errors);
        let at = path.child("valueExpression");
        if !keys.insert(&extra.key) {
            errors.push(FieldError::duplicate(&path.child("key"), extra.key.as_str()));
        } else if extra.value_expression.is_empty() {
            errors.push(FieldError::required(&at, ""));
        } else if let Some(compiled) = compile(&extra.value_expression, CLAIMS, Wanted::Anything, &at, errors) {
            emails.verified |= names_claim(&extra.value_expression, "email_verified");
            mapping.extra.push((extra.key.clone(), compiled));
        }
    }
    if emails.email && !emails.verified {
        let detail = "claims.email_verified must be used in claimMappings.username.expression or \
                      claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in \
                      claimMappings.username.expression";
        errors.push(FieldError::invalid(&path.child("username").child("expression"), stated.username.expression.as_str(), detail));
    }
}

fn prefixed(stated: &PrefixedClaim, path: &FieldPath, needed: bool, errors: &mut Vec<FieldError>) -> Option<Expression> {
    match (stated.claim.is_empty(), stated.expression.is_empty()) {
        (false, false) => errors.push(FieldError::invalid(path, "", "claim and expression can't both be set")),
        (true, true) if needed => errors.push(FieldError::required(path, "claim or expression is required")),
        (true, true) => {}
        (true, false) => {
            if let Some(prefix) = &stated.prefix {
                errors.push(FieldError::invalid(&path.child("prefix"), prefix.as_str(), "may not be specified when expression is set"));
            }
            return compile(&stated.expression, CLAIMS, Wanted::Anything, &path.child("expression"), errors);
        }
        (false, true) if stated.prefix.is_none() => {
            let detail = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
            errors.push(FieldError::required(&path.child("prefix"), detail));
        }
        (false, true) => {}
    }
    None
}

fn extra_key(key: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if key.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        match key.split_once('/') {
            Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => {
                errors.extend(names::name_is_dns_subdomain(domain, false).into_iter().map(|why| FieldError::invalid(path, domain, why)));
            }
            _ => errors.push(FieldError::invalid(path, key, "must be a domain-prefixed path (such as \"acme.io/foo\")")),
        }
    }
    if key != key.to_lowercase() {
        errors.push(FieldError::invalid(path, key, "must be lowercase"));
    }
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    if ["k8s.io", "kubernetes.io"].iter().any(|own| domain == *own || domain.ends_with(&format!(".{own}"))) {
        let detail = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
        errors.push(FieldError::invalid(path, key, detail));
    }
}

/// What an expression results in. Of claims nothing is known before there are some.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Bool,
    Anything,
}

fn compile(text: &str, variable: &'static str, wanted: Wanted, path: &FieldPath, errors: &mut Vec<FieldError>) -> Option<Expression> {
    let of = if variable == USER { user_type() } else { Type::Map(Box::new(Type::String), Box::new(Type::Dyn)) };
    match compile_expression(text, &[(variable, of)], &[]) {
        Ok((program, result)) if wanted == Wanted::Anything || result == Type::Bool => Some(Expression { text: text.to_string(), program }),
        Ok(_) => {
            errors.push(FieldError::invalid(path, text, "must evaluate to bool"));
            None
        }
        Err(why) => {
            errors.push(FieldError::invalid(path, text, why));
            None
        }
    }
}

/// Whether an expression selects this claim, by the two ways there are to write it.
fn names_claim(text: &str, claim: &str) -> bool {
    let follows = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let dotted = ["claims.", "claims.?"]
        .iter()
        .any(|prefix| text.match_indices(&format!("{prefix}{claim}")).any(|(at, found)| follows(&text[at + found.len()..])));
    dotted || [format!("claims[\"{claim}\"]"), format!("claims['{claim}']")].iter().any(|indexed| text.contains(indexed.as_str()))
}
