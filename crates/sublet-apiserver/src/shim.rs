use crate::admission::UserInfo;
use crate::reader::Reader;
use serde_json::{Value, json};
use sublet_machinery::ApiError;
pub struct Authenticator;
pub struct TokenIssuer;
pub struct Credentials<'a> {
    pub certificate: Option<&'a [u8]>,
    pub headers: &'a http::HeaderMap,
}
impl Authenticator {
    pub fn authenticate(&self, _: &Credentials, _: &dyn Reader) -> Result<UserInfo, ApiError> {
        Ok(UserInfo { name: "admin".into(), groups: vec!["system:masters".into(), "system:authenticated".into()], ..Default::default() })
    }
    pub fn impersonate<F>(&self, u: UserInfo, _: &http::HeaderMap, _: F) -> Result<UserInfo, ApiError> {
        Ok(u)
    }
}
impl TokenIssuer {
    pub fn discovery_document(&self) -> Value {
        json!({})
    }
    pub fn jwks(&self) -> Value {
        json!({})
    }
}
pub mod openapi {
    use crate::http::*;
    use crate::registry::Snapshot;
    pub fn serve(_: &str, _: &Query, _: &http::HeaderMap, _: &Snapshot) -> Option<Result<HttpResponse, sublet_machinery::ApiError>> {
        None
    }
}
impl crate::server::Server {
    pub(crate) fn is_review(&self, _: &crate::registry::Resource) -> bool {
        false
    }
    pub(crate) fn review(&self, _: &crate::rest::ResourceRequest<'_>) -> Result<crate::http::HttpResponse, ApiError> {
        Err(ApiError::no_such_path())
    }
    pub(crate) fn issue_token(&self, _: &Value, _: Value) -> Result<Value, ApiError> {
        Err(ApiError::no_such_path())
    }
    pub(crate) fn authorizer(&self) -> &crate::auth::authz::Authorization {
        self.authorization()
    }
}
pub fn tls(pki: &sublet_pki::Pki) -> rustls::ServerConfig {
    use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    use std::sync::Arc;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pki.authority.certificate_pem().as_bytes()).unwrap()).unwrap();
    let v = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .unwrap();
    let mut c = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(v)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(pki.serving.certificate_pem.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(pki.serving.key_pem.as_bytes()).unwrap(),
        )
        .unwrap();
    c.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    c
}
