//! Whom outgoing calls believe, and what they show of themselves.

use base64::Engine as _;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use x509_parser::prelude::{ASN1Time, FromDer as _, X509Certificate};

/// Configurations kept; all are dropped when one more is wanted.
const CONFIGS_MAX: usize = 128;

/// Where the roots of the system are, on the systems that images are made of.
const SYSTEM_ROOTS: [&str; 3] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Whose certificates are believed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Trust {
    /// The roots of the system.
    System,
    /// Authorities in PEM.
    Bundle(Arc<[u8]>),
    /// Anybody: `insecureSkipTLSVerify` of an APIService.
    Anybody,
}

/// A client certificate with its key.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) certificate_pem: String,
    pub(crate) key_pem: String,
    pub(crate) fingerprint: [u8; 32],
}

#[derive(Debug, Default)]
pub(super) struct Configs {
    /// Made once for the same trust and identity.
    made: Mutex<HashMap<(Trust, Option<[u8; 32]>), Arc<ClientConfig>>>,
}

impl Trust {
    /// From a `caBundle`: PEM in base64.
    pub(crate) fn of_bundle(base64: &str) -> Result<Self, String> {
        if base64.is_empty() {
            return Ok(Self::System);
        }
        let pem = base64::engine::general_purpose::STANDARD.decode(base64).map_err(|e| format!("illegal base64 data: {e}"))?;
        Ok(Self::Bundle(pem.into()))
    }
}

impl Identity {
    pub(crate) fn new(certificate_pem: String, key_pem: String) -> Self {
        let fingerprint = Sha256::digest(certificate_pem.as_bytes()).into();
        Self { certificate_pem, key_pem, fingerprint }
    }
}

impl Configs {
    pub(super) fn get(&self, trust: &Trust, identity: Option<&Arc<Identity>>) -> Result<Arc<ClientConfig>, String> {
        let key = (trust.clone(), identity.map(|i| i.fingerprint));
        let mut made = self.made.lock().expect("no holder of this lock panics");
        if let Some(found) = made.get(&key) {
            return Ok(found.clone());
        }
        let mut config = build(trust, identity.map(|i| &**i))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config = Arc::new(config);
        if made.len() >= CONFIGS_MAX {
            made.clear();
        }
        made.insert(key, config.clone());
        Ok(config)
    }
}

fn build(trust: &Trust, identity: Option<&Identity>) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    let builder = match trust {
        Trust::Anybody => builder.dangerous().with_custom_certificate_verifier(Arc::new(Believing(provider))),
        Trust::System => builder.with_root_certificates(system_roots()),
        Trust::Bundle(pem) => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anchored::new(pem, provider)?)),
    };
    Ok(match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(identity.certificate_pem.as_bytes()).collect();
            let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).map_err(|e| e.to_string())?;
            builder.with_client_auth_cert(chain.map_err(|e| e.to_string())?, key).map_err(|e| e.to_string())?
        }
    })
}

/// TLS as a client, without protocols: `authorities_pem` are believed, or without any, everybody; shows `identity`, a certificate and its key.
pub fn client_tls(authorities_pem: Option<&str>, identity: Option<(&str, &str)>) -> Result<Arc<ClientConfig>, String> {
    let trust = authorities_pem.map_or(Trust::Anybody, |pem| Trust::Bundle(pem.as_bytes().into()));
    let identity = identity.map(|(certificate, key)| Identity::new(certificate.into(), key.into()));
    Ok(Arc::new(build(&trust, identity.as_ref())?))
}

fn roots(pem: &[u8]) -> Option<RootCertStore> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).filter_map(Result::ok));
    (!store.is_empty()).then_some(store)
}

fn system_roots() -> RootCertStore {
    let pem = SYSTEM_ROOTS.iter().find_map(|path| std::fs::read(path).ok());
    pem.and_then(|pem| roots(&pem)).unwrap_or_else(RootCertStore::empty)
}

/// A failed handshake as Go words it.
pub(super) fn shown(error: &std::io::Error, server_name: &str) -> String {
    use rustls::{CertificateError, Error};
    let Some(Error::InvalidCertificate(why)) = error.get_ref().and_then(|e| e.downcast_ref::<Error>()) else {
        return match error.kind() {
            std::io::ErrorKind::UnexpectedEof => "EOF".into(),
            _ => format!("tls: {error}"),
        };
    };
    let why = match why {
        CertificateError::UnknownIssuer => "certificate signed by unknown authority".into(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "certificate has expired or is not yet valid".into(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("certificate is not valid for {server_name}")
        }
        other => other.to_string(),
    };
    format!("tls: failed to verify certificate: x509: {why}")
}

/// Believes what authorities signed and, as Go does, a certificate that is one of them itself: whoever signs their own
/// often says that it is an authority.
#[derive(Debug)]
struct Anchored {
    verifier: Arc<WebPkiServerVerifier>,
    anchors: Vec<CertificateDer<'static>>,
}

impl Anchored {
    fn new(pem: &[u8], provider: Arc<CryptoProvider>) -> Result<Self, String> {
        const NONE: &str = "unable to load root certificates: unable to parse bytes as PEM block";
        let roots = Arc::new(roots(pem).ok_or(NONE)?);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build().map_err(|e| e.to_string())?;
        Ok(Self { verifier, anchors: CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect() })
    }

    fn is_anchor(&self, certificate: &CertificateDer<'_>, now: UnixTime) -> bool {
        let Ok(at) = i64::try_from(now.as_secs()).map_or(Err(()), |secs| ASN1Time::from_timestamp(secs).map_err(drop)) else {
            return false;
        };
        let in_time = || X509Certificate::from_der(certificate).is_ok_and(|(_, parsed)| parsed.validity().is_valid_at(at));
        self.anchors.iter().any(|anchor| anchor == certificate) && in_time()
    }
}

impl ServerCertVerifier for Anchored {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(_) if self.is_anchor(end_entity, now) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// Believes every certificate, and still wants its key.
#[derive(Debug)]
struct Believing(Arc<CryptoProvider>);

impl ServerCertVerifier for Believing {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
