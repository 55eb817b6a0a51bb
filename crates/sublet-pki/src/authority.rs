//! A certificate authority and what it signs.

use crate::{PkiError, Request, der};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SerialNumber, SigningKey as _,
};
use std::net::{Ipv4Addr, Ipv6Addr};
use x509_parser::extensions::GeneralName;

/// How long an authority lives.
pub(crate) const AUTHORITY_LIFETIME: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);

/// Certificates begin a little in the past: the clocks of clients differ.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);

/// Below it the time before the start is not taken off the end.
const SHORT_LIFETIME: SignedDuration = SignedDuration::from_hours(8);

const SUBJECT_ALTERNATIVE_NAMES: &[u64] = &[2, 5, 29, 17];

/// A certificate with its key, both in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct CertifiedKey {
    pub certificate_pem: String,
    pub key_pem: String,
}

impl std::fmt::Debug for CertifiedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keys stay out of logs.
        f.debug_struct("CertifiedKey").field("certificate_pem", &self.certificate_pem).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    Server,
    Client,
    Both,
}

/// What a leaf certificate says.
#[derive(Clone, Debug)]
pub struct Leaf<'a> {
    /// The user name, for clients.
    pub common_name: &'a str,
    /// The group, for clients.
    pub organization: Option<&'a str>,
    /// DNS names and IP addresses, for servers.
    pub names: &'a [String],
    pub usage: Usage,
    pub lifetime: SignedDuration,
}

/// Signs certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    certified: CertifiedKey,
}

impl Authority {
    pub fn new(common_name: &str, now: Timestamp) -> Result<Self, PkiError> {
        let key = KeyPair::generate()?;
        let mut params = params(common_name, None, now, AUTHORITY_LIFETIME);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?;
        Ok(Self { certified: CertifiedKey { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() } })
    }

    /// Takes over an authority made before; fails when its PEMs cannot be read.
    pub fn from_pem(certified: CertifiedKey) -> Result<Self, PkiError> {
        let authority = Self { certified };
        authority.issuer()?;
        Ok(authority)
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certified.certificate_pem
    }

    pub fn certified_key(&self) -> &CertifiedKey {
        &self.certified
    }

    /// A new key with a certificate for it.
    pub fn issue(&self, leaf: &Leaf<'_>, now: Timestamp) -> Result<CertifiedKey, PkiError> {
        let key = KeyPair::generate()?;
        let mut params = params(leaf.common_name, leaf.organization, now, leaf.lifetime);
        params.subject_alt_names = CertificateParams::new(leaf.names.to_vec())?.subject_alt_names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        if leaf.usage != Usage::Client {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        if leaf.usage != Usage::Server {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        }
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer()?)?;
        Ok(CertifiedKey { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }

    /// Signs a certificate request for the usages named as in `CertificateSigningRequest.spec.usages`, the way
    /// upstream's signers do. Subject, key and names are the request's, as it has them; whether they may be is the
    /// caller's to check. The certificate ends with the authority at the latest.
    pub fn sign_request(&self, request: &Request, usages: &[&str], lifetime: SignedDuration, now: Timestamp) -> Result<String, PkiError> {
        let end = expires_at(self.certificate_pem())?;
        if now >= end {
            return Err(PkiError::Expired(end));
        }
        // What is short-lived keeps its whole life; of a longer one nobody misses the minutes before its start.
        let lifetime = if lifetime < SHORT_LIFETIME { lifetime } else { lifetime - BACKDATE };
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from_slice(&(rand::random::<u128>() >> 1).to_be_bytes()));
        set_validity(&mut params, now, lifetime.min(end.duration_since(now)));
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = usages.iter().filter_map(|u| key_usage(u)).collect();
        params.extended_key_usages = usages.iter().filter_map(|u| extended_key_usage(u)).collect();
        params.use_authority_key_identifier_extension = true;
        if let Some(names) = &request.parts.alternative_names_der {
            params.custom_extensions.push(CustomExtension::from_oid_content(SUBJECT_ALTERNATIVE_NAMES, names.clone()));
        }
        let issuer = self.issuer()?;
        let form = params.signed_by(issuer.key(), &issuer)?;
        sign_in_form(form.der(), request, issuer.key())
    }

    fn issuer(&self) -> Result<Issuer<'static, KeyPair>, PkiError> {
        Ok(Issuer::from_ca_cert_pem(&self.certified.certificate_pem, KeyPair::from_pem(&self.certified.key_pem)?)?)
    }
}

/// Puts the request's own words in the place of subject and key, and signs anew: a parsed subject would lose
/// what its parser does not keep, all organizations but one among it.
fn sign_in_form(form: &[u8], request: &Request, key: &KeyPair) -> Result<String, PkiError> {
    let broken = || PkiError::Parse("what was signed");
    let [to_sign, algorithm, _] = der::children(form).ok_or_else(broken)?[..] else { return Err(broken()) };
    let mut parts = der::children(to_sign).ok_or_else(broken)?;
    // Version, serial number, algorithm, issuer, validity, subject, key, extensions.
    let [_, _, _, _, _, subject, public_key, _] = &mut parts[..] else { return Err(broken()) };
    (*subject, *public_key) = (&request.parts.subject_der, &request.parts.public_key_der);
    let to_sign = der::sequence(&parts);
    let signature = der::bit_string(&key.sign(&to_sign)?);
    let certificate = STANDARD.encode(der::sequence(&[&to_sign, algorithm, &signature]));
    let lines = certificate.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line) + "\n");
    Ok(format!("-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n", lines.collect::<String>()))
}

fn params(common_name: &str, organization: Option<&str>, now: Timestamp, lifetime: SignedDuration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.distinguished_name.push(DnType::CommonName, common_name);
    set_validity(&mut params, now, lifetime);
    params
}

fn set_validity(params: &mut CertificateParams, now: Timestamp, lifetime: SignedDuration) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |time: Timestamp| epoch + std::time::Duration::from_secs(time.as_second().unsigned_abs());
    params.not_before = at(now - BACKDATE);
    params.not_after = at(now + lifetime);
}

fn key_usage(usage: &str) -> Option<KeyUsagePurpose> {
    Some(match usage {
        "signing" | "digital signature" => KeyUsagePurpose::DigitalSignature,
        "content commitment" => KeyUsagePurpose::ContentCommitment,
        "key encipherment" => KeyUsagePurpose::KeyEncipherment,
        "key agreement" => KeyUsagePurpose::KeyAgreement,
        "data encipherment" => KeyUsagePurpose::DataEncipherment,
        "cert sign" => KeyUsagePurpose::KeyCertSign,
        "crl sign" => KeyUsagePurpose::CrlSign,
        "encipher only" => KeyUsagePurpose::EncipherOnly,
        "decipher only" => KeyUsagePurpose::DecipherOnly,
        _ => return None,
    })
}

fn extended_key_usage(usage: &str) -> Option<ExtendedKeyUsagePurpose> {
    Some(match usage {
        "any" => ExtendedKeyUsagePurpose::Any,
        "server auth" => ExtendedKeyUsagePurpose::ServerAuth,
        "client auth" => ExtendedKeyUsagePurpose::ClientAuth,
        "code signing" => ExtendedKeyUsagePurpose::CodeSigning,
        "email protection" | "s/mime" => ExtendedKeyUsagePurpose::EmailProtection,
        "timestamping" => ExtendedKeyUsagePurpose::TimeStamping,
        "ocsp signing" => ExtendedKeyUsagePurpose::OcspSigning,
        "ipsec end system" => ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 5]),
        "ipsec tunnel" => ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 6]),
        "ipsec user" => ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 7]),
        "microsoft sgc" => ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 1, 4, 1, 311, 10, 3, 3]),
        "netscape sgc" => ExtendedKeyUsagePurpose::Other(vec![2, 16, 840, 1, 113_730, 4, 1]),
        _ => return None,
    })
}

/// When the first certificate in the PEM ends.
pub fn expires_at(certificate_pem: &str) -> Result<Timestamp, PkiError> {
    parsed(certificate_pem, |certificate| Timestamp::from_second(certificate.validity().not_after.timestamp()).unwrap_or(Timestamp::MAX))
}

/// The DNS names and IP addresses that the first certificate in the PEM is for.
pub fn names(certificate_pem: &str) -> Result<Vec<String>, PkiError> {
    parsed(certificate_pem, |certificate| {
        let Ok(Some(alternatives)) = certificate.subject_alternative_name() else { return Vec::new() };
        alternatives.value.general_names.iter().filter_map(name_text).collect()
    })
}

fn name_text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_string()),
        GeneralName::IPAddress(bytes) => match <[u8; 4]>::try_from(*bytes) {
            Ok(four) => Some(Ipv4Addr::from(four).to_string()),
            Err(_) => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| Ipv6Addr::from(bytes).to_string()),
        },
        _ => None,
    }
}

fn parsed<T>(pem: &str, read: impl FnOnce(&x509_parser::certificate::X509Certificate<'_>) -> T) -> Result<T, PkiError> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).map_err(|_| PkiError::Parse("the text"))?;
    let certificate = pem.parse_x509().map_err(|_| PkiError::Parse("the PEM block"))?;
    Ok(read(&certificate))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-05-01T10:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_leaf_names_its_servers_and_its_end() {
        let authority = Authority::new("test-ca", now()).unwrap();
        let names_wanted = ["kubernetes.default".to_string(), "10.96.0.1".into(), "::1".into()];
        let lifetime = SignedDuration::from_hours(24);
        let leaf = Leaf { common_name: "apiserver", organization: None, names: &names_wanted, usage: Usage::Server, lifetime };
        let issued = authority.issue(&leaf, now()).unwrap();
        assert_eq!(names(&issued.certificate_pem).unwrap(), names_wanted);
        assert_eq!(expires_at(&issued.certificate_pem).unwrap(), now() + lifetime);
        assert!(!format!("{issued:?}").contains("PRIVATE KEY"));
    }

    fn request(organizations: &[&str], names: &[&str]) -> Request {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "alice");
        // A name keeps one value of each kind: the second has its kind by number.
        for (organization, kind) in organizations.iter().zip([DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])]) {
            params.distinguished_name.push(kind, *organization);
        }
        Request::parse(params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap().as_bytes()).unwrap()
    }

    #[test]
    fn a_request_keeps_its_subject_and_gets_the_usages_asked_for() {
        let authority = Authority::new("test-ca", now()).unwrap();
        let request = request(&["team", "crew"], &["a.example", "10.0.0.1"]);
        assert_eq!((&*request.common_name, &request.organizations[..]), ("alice", &["team".to_string(), "crew".into()][..]));
        assert_eq!((request.dns_names, request.ip_addresses), (1, 1));
        let signed = authority.sign_request(&request, &["digital signature", "client auth"], SignedDuration::from_hours(1), now()).unwrap();
        assert_eq!(names(&signed).unwrap(), ["a.example", "10.0.0.1"]);
        let (_, authority_pem) = x509_parser::pem::parse_x509_pem(authority.certificate_pem().as_bytes()).unwrap();
        let authority = authority_pem.parse_x509().unwrap();
        parsed(&signed, |certificate| {
            assert_eq!(certificate.subject().to_string(), "CN=alice, O=team, O=crew");
            assert_eq!(certificate.public_key().raw, request.parts.public_key_der);
            certificate.verify_signature(Some(authority.public_key())).unwrap();
            let usages = certificate.extended_key_usage().unwrap().unwrap().value;
            assert!(usages.client_auth && !usages.server_auth);
            assert!(certificate.key_usage().unwrap().unwrap().value.digital_signature());
            assert!(!certificate.is_ca());
        })
        .unwrap();
    }

    #[test]
    fn lifetimes_are_cut_as_upstream_cuts_them() {
        let authority = Authority::new("test-ca", now()).unwrap();
        let request = request(&[], &[]);
        let ends = |lifetime, now| expires_at(&authority.sign_request(&request, &["client auth"], lifetime, now).unwrap()).unwrap();
        let (short, long) = (SignedDuration::from_hours(1), SignedDuration::from_hours(24));
        assert_eq!(ends(short, now()), now() + short);
        assert_eq!(ends(long, now()), now() + long - BACKDATE);
        let end = now() + AUTHORITY_LIFETIME;
        assert_eq!(ends(long, end - short), end);
        assert!(matches!(authority.sign_request(&request, &[], long, end), Err(PkiError::Expired(at)) if at == end));
    }

    #[test]
    fn a_request_must_be_one() {
        let refused = |pem: &str| Request::parse(pem.as_bytes()).unwrap_err().to_string();
        assert_eq!(refused("hello"), "PEM block type must be CERTIFICATE REQUEST");
        assert_eq!(refused(Authority::new("test-ca", now()).unwrap().certificate_pem()), "PEM block type must be CERTIFICATE REQUEST");
    }
}
