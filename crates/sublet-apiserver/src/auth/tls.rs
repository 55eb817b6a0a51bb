//! TLS of the server: its own certificate, replaced without a restart, and optional client certificates.
//!
//! As with upstream, the handshake takes any client certificate whose key the client has. Whether it is good is found
//! out afterwards, so that a client with a bad one gets an answer (401) and not a broken connection.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use std::sync::{Arc, RwLock};

/// Sessions that clients may take up again.
const SESSIONS_MAX: usize = 16;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read the {what} in PEM")]
    Pem {
        what: &'static str,
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    #[error("cannot use the server's certificate and key")]
    Serving(#[source] rustls::Error),
    #[error("cannot verify client certificates with this authority")]
    Client(#[from] rustls::client::VerifierBuilderError),
}

/// The certificate that new connections are answered with.
#[derive(Debug)]
pub struct ServingCertificate {
    current: RwLock<Arc<CertifiedKey>>,
}

impl ServingCertificate {
    pub fn new(certificate_pem: &str, key_pem: &str) -> Result<Self, TlsError> {
        Ok(Self { current: RwLock::new(Arc::new(certified_key(certificate_pem, key_pem)?)) })
    }

    /// Connections made from now on get the new one; those that are there go on.
    pub fn replace(&self, certificate_pem: &str, key_pem: &str) -> Result<(), TlsError> {
        let next = Arc::new(certified_key(certificate_pem, key_pem)?);
        *self.current.write().expect("no holder of this lock panics") = next;
        Ok(())
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().expect("no holder of this lock panics").clone())
    }
}

/// How connections are taken, and what is thought of their certificates.
#[derive(Clone, Debug)]
pub struct ServerTls {
    pub config: Arc<ServerConfig>,
    clients: Arc<dyn ClientCertVerifier>,
}

impl ServerTls {
    /// Whether one of the authorities signed the first certificate of a chain, for clients, and for now.
    pub fn is_good(&self, chain: &[CertificateDer<'_>]) -> bool {
        let Some((leaf, intermediates)) = chain.split_first() else { return false };
        match self.clients.verify_client_cert(leaf, intermediates, UnixTime::now()) {
            Ok(_) => true,
            Err(error) => {
                tracing::debug!(%error, "a client certificate was refused");
                false
            }
        }
    }
}

/// Takes every certificate; see the module's documentation.
#[derive(Debug)]
struct Unjudged(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Unjudged {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _leaf: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Clients may come without a certificate; a good one is one that one of the authorities signed.
pub fn server_tls(serving: Arc<ServingCertificate>, client_authorities_pem: &str) -> Result<ServerTls, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    for certificate in certificates(client_authorities_pem, "client authorities")? {
        roots.add(certificate).map_err(TlsError::Serving)?;
    }
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).allow_unauthenticated().build()?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Serving)?
        .with_client_cert_verifier(Arc::new(Unjudged(clients.clone())))
        .with_cert_resolver(serving);
    // Resumption by session is for few clients that come back; the default would set aside 30 KiB per server.
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(ServerTls { config: Arc::new(config), clients })
}

fn certified_key(certificate_pem: &str, key_pem: &str) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(certificate_pem, "server's certificate")?;
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|source| TlsError::Pem { what: "server's key", source })?;
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).map_err(TlsError::Serving)?;
    let certified = CertifiedKey::new(chain, key);
    certified.keys_match().map_err(TlsError::Serving)?;
    Ok(certified)
}

fn certificates(pem: &str, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(|source| TlsError::Pem { what, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::authn::certificate;
    use jiff::{SignedDuration, Timestamp};
    use rustls::{ClientConfig, ClientConnection, ServerConnection};
    use sublet_pki::{Leaf, Pki, PkiConfig, Usage};

    fn pki() -> Pki {
        Pki::new(&PkiConfig { cluster: "test".into(), names: vec!["localhost".into()] }, Timestamp::now()).unwrap()
    }

    fn client_config(pki: &Pki, client: Option<&sublet_pki::CertifiedKey>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pki.authority.certificate_pem().as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        match client {
            None => builder.with_no_client_auth(),
            Some(client) => builder
                .with_client_auth_cert(
                    certificates(&client.certificate_pem, "client").unwrap(),
                    PrivateKeyDer::from_pem_slice(client.key_pem.as_bytes()).unwrap(),
                )
                .unwrap(),
        }
    }

    /// Shakes hands in memory; the client's certificate as the server saw it.
    fn handshake(server: &Arc<ServerConfig>, client: ClientConfig) -> Result<Option<CertificateDer<'static>>, rustls::Error> {
        let mut client = ClientConnection::new(Arc::new(client), "localhost".try_into().unwrap()).unwrap();
        let mut server = ServerConnection::new(server.clone()).unwrap();
        while client.is_handshaking() || server.is_handshaking() || client.wants_write() {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut bytes.as_slice()).unwrap();
            server.process_new_packets()?;
            bytes.clear();
            server.write_tls(&mut bytes).unwrap();
            client.read_tls(&mut bytes.as_slice()).unwrap();
            client.process_new_packets()?;
        }
        Ok(server.peer_certificates().map(|chain| chain[0].clone().into_owned()))
    }

    #[test]
    fn clients_come_with_a_certificate_of_the_authority_or_none() {
        let pki = pki();
        let serving = Arc::new(ServingCertificate::new(&pki.serving.certificate_pem, &pki.serving.key_pem).unwrap());
        let tls = server_tls(serving, pki.authority.certificate_pem()).unwrap();
        let server = &tls.config;
        assert_eq!(handshake(server, client_config(&pki, None)).unwrap(), None);
        let admin = handshake(server, client_config(&pki, Some(&pki.admin))).unwrap().unwrap();
        assert!(tls.is_good(std::slice::from_ref(&admin)));
        let user = certificate::user(&admin).unwrap();
        assert_eq!((user.name.as_str(), user.groups.as_slice()), ("admin", &["system:masters".to_string()][..]));
        assert!(user.extra["authentication.kubernetes.io/credential-id"][0].starts_with("X509SHA256="));
        let stranger = self::pki();
        let admin = handshake(server, client_config(&pki, Some(&stranger.admin))).unwrap().unwrap();
        assert!(!tls.is_good(&[admin]), "it shakes hands and is nobody");
    }

    #[test]
    fn a_replaced_certificate_is_used_from_then_on() {
        let pki = pki();
        let serving = Arc::new(ServingCertificate::new(&pki.serving.certificate_pem, &pki.serving.key_pem).unwrap());
        let server = server_tls(serving.clone(), pki.authority.certificate_pem()).unwrap().config;
        let names = ["elsewhere".to_string()];
        let lifetime = SignedDuration::from_hours(1);
        let leaf = Leaf { common_name: "other", organization: None, names: &names, usage: Usage::Server, lifetime };
        let other = pki.authority.issue(&leaf, Timestamp::now()).unwrap();
        serving.replace(&other.certificate_pem, &other.key_pem).unwrap();
        assert!(handshake(&server, client_config(&pki, None)).is_err(), "it does not name localhost");
        assert!(serving.replace(&other.certificate_pem, &pki.serving.key_pem).is_err(), "the key is another one's");
    }
}
