//! The user that a client certificate names.

use crate::admission::UserInfo;
use crate::auth::tokens::CREDENTIAL_ID;
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The attribute of the subject that carries the user's UID.
const UID_ATTRIBUTE: &str = "1.3.6.1.4.1.57683.2";

/// When a certificate (DER) ends; one that cannot be read has ended.
pub fn ends_at(certificate: &[u8]) -> Timestamp {
    let parsed = X509Certificate::from_der(certificate).ok();
    let seconds = parsed.map_or(0, |(_, parsed)| parsed.validity().not_after.timestamp());
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

/// The user of a certificate (DER) that TLS has verified: the common name is the user name, organizations
/// are groups. `None` when it names nobody, or more than one UID.
pub fn user(certificate: &[u8]) -> Option<UserInfo> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let subject = parsed.subject();
    // The last common name counts, as in Go's parser.
    let name = subject.iter_common_name().last()?.as_str().ok().filter(|name| !name.is_empty())?;
    let groups = subject.iter_organization().filter_map(|o| o.as_str().ok()).map(Into::into).collect();
    let mut uids = subject.iter_attributes().filter(|a| a.attr_type().to_id_string() == UID_ATTRIBUTE);
    let uid = match (uids.next(), uids.next()) {
        (None, _) => String::new(),
        (Some(uid), None) => uid.as_str().ok().filter(|uid| !uid.is_empty())?.to_string(),
        (Some(_), Some(_)) => return None,
    };
    let id = format!("X509SHA256={:x}", Sha256::digest(certificate));
    Some(UserInfo { name: name.to_string(), uid, groups, extra: BTreeMap::from([(CREDENTIAL_ID.to_string(), vec![id])]) })
}
