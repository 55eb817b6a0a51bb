//! Who may do what, put together for one server: authentication, authorization, tokens, reviews.

use crate::admission::{SignerPermission, UserInfo};
use crate::auth::authn::{Authenticator, StaticTokens, TokenAuthenticator};
use crate::auth::authz::{Authorization, Authorizer, AuthzAttributes, Decision, Mode};
use crate::auth::jwt::JwtAuthenticators;
use crate::auth::reviews::Reviews;
use crate::auth::tokens::{KeyError, ServiceAccountTokens, TokenConfig};
use crate::reader::Reader;
use std::sync::Arc;

/// The issuer of tokens, as upstream's default.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// What the caller decides about security.
pub struct SecurityConfig {
    /// As in `--authorization-mode`.
    pub authorization: Vec<Mode>,
    /// As in `--token-auth-file`.
    pub static_tokens: Option<StaticTokens>,
    /// Signs service account tokens.
    pub signing_key_pem: String,
    /// Where clients reach this server: `https://host:port`.
    pub url: String,
}

pub(crate) struct Security {
    pub authenticator: Arc<Authenticator>,
    pub authorization: Arc<Authorization>,
    pub tokens: Arc<ServiceAccountTokens>,
    pub reviews: Reviews,
    pub jwt: Arc<JwtAuthenticators>,
}

impl Security {
    pub fn new(config: SecurityConfig, reader: Arc<dyn Reader>) -> Result<Self, KeyError> {
        let audiences = vec![ISSUER.to_string()];
        let tokens = Arc::new(ServiceAccountTokens::new(
            TokenConfig {
                issuers: vec![ISSUER.into()],
                audiences: audiences.clone(),
                signing_key_pem: config.signing_key_pem,
                verifying_keys_pem: Vec::new(),
                jwks_uri: format!("{}/openid/v1/jwks", config.url),
            },
            reader.clone(),
        )?);
        let jwt = Arc::new(JwtAuthenticators::new(audiences.clone()));
        let mut ways: Vec<Arc<dyn TokenAuthenticator>> = vec![tokens.clone(), jwt.clone()];
        if let Some(static_tokens) = config.static_tokens {
            ways.insert(0, Arc::new(static_tokens));
        }
        let authenticator = Arc::new(Authenticator::new(ways, audiences, true));
        let authorization = Arc::new(Authorization::new(config.authorization, reader));
        let reviews = Reviews::new(authenticator.clone(), authorization.clone());
        Ok(Self { authenticator, authorization, tokens, reviews, jwt })
    }
}

/// Whether a user may act for a signer of certificates, by its name or as one of its domain.
pub(crate) fn signer_permission(authorization: Arc<Authorization>) -> SignerPermission {
    Arc::new(move |user: &UserInfo, verb: &str, signer: &str| {
        let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
        [signer, &domain].into_iter().any(|name| {
            let asked = AuthzAttributes { name, ..AuthzAttributes::resource(user, verb, "certificates.k8s.io", "signers") };
            matches!(authorization.authorize(&asked), Decision::Allow(_))
        })
    })
}
