//! Requests for certificates, and bundles of trusted ones.

mod bundles;
mod pods;
mod requests;

pub(super) use bundles::TRUST_BUNDLE;
pub(super) use pods::POD_CERTIFICATE_REQUEST;
pub(super) use requests::{CERTIFICATE_APPROVAL, CERTIFICATE_REQUEST};

use super::field::{Errors, Field};
use sublet_machinery::names;

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
