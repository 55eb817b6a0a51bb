//! Tokens of others: OpenID Connect, as AuthenticationConfiguration or the `--oidc-*` flags tell of it.
//!
//! Entry types: [`AuthenticationConfiguration`] (what is stated), [`JwtAuthenticators`] (what is in force). Deciding is
//! synchronous; the one thing that takes time is asking an issuer for its keys, which [`JwtAuthenticators::prepare`]
//! does before.

mod config;
mod keys;
mod mapping;
mod validate;

pub use config::{
    Anonymous, AnonymousCondition, AuthenticationConfiguration, ClaimMappings, ClaimOrExpression, ClaimValidationRule, ExtraMapping,
    Issuer, JwtAuthenticator, PrefixedClaim, UserValidationRule,
};

use super::authn::{Authenticated, TokenAuthenticator};
use crate::outgoing::Outgoing;
use crate::reader::Reader;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use jiff::{SignedDuration, Timestamp};
use keys::Keys;
use mapping::{Claims, Mapping};
use serde::Deserialize;
use serde_json::Value;
use std::sync::{Arc, RwLock};

/// Tokens that are longer belong to nobody; a header holds less anyhow.
const TOKEN_BYTES_MAX: usize = 64 << 10;
/// Clocks differ: how much too early a token may come.
const NOT_BEFORE_LEEWAY: SignedDuration = SignedDuration::from_mins(5);

/// The issuers in force; replaced as a whole.
#[derive(Default)]
pub(crate) struct JwtAuthenticators {
    current: RwLock<Arc<Current>>,
    /// Those by which this server is meant.
    audiences: Vec<String>,
}

#[derive(Default)]
struct Current {
    issuers: Vec<IssuerRules>,
    anonymous: Option<Anonymous>,
}

struct IssuerRules {
    jwt: JwtAuthenticator,
    mapping: Mapping,
    keys: Keys,
}

impl JwtAuthenticators {
    pub(crate) fn new(audiences: Vec<String>) -> Self {
        Self { current: RwLock::default(), audiences }
    }

    /// From now on these tokens are believed and no others. `own` are issuers that this server is itself.
    pub(crate) fn replace(&self, config: &AuthenticationConfiguration, own: &[String]) -> Result<(), String> {
        let mut issuers = Vec::new();
        for (jwt, mapping) in config.jwt.iter().zip(config.compile(own)?) {
            let Issuer { url, discovery_url, certificate_authority, .. } = &jwt.issuer;
            issuers.push(IssuerRules { keys: Keys::new(url, discovery_url, certificate_authority)?, jwt: jwt.clone(), mapping });
        }
        let current = Current { issuers, anonymous: config.anonymous.clone() };
        *self.current.write().expect("no holder of this lock panics") = Arc::new(current);
        Ok(())
    }

    fn current(&self) -> Arc<Current> {
        self.current.read().expect("no holder of this lock panics").clone()
    }

    /// Whether requests of nobody may go on to this path.
    pub(crate) fn allows_anonymous(&self, path: &str) -> bool {
        match &self.current().anonymous {
            None => true,
            Some(anonymous) => {
                anonymous.enabled
                    && (anonymous.conditions.is_empty() || anonymous.conditions.iter().any(|condition| condition.path == path))
            }
        }
    }

    /// Sees to it that the keys for a token are known, if they can be.
    pub(crate) async fn prepare(&self, token: &str, reader: &dyn Reader, outgoing: &Outgoing) {
        let current = self.current();
        if current.issuers.is_empty() {
            return;
        }
        if let Some(token) = Token::read(token)
            && let Some(issuer) = current.issuers.iter().find(|issuer| issuer.jwt.issuer.url == token.issuer())
        {
            issuer.keys.learn(&token.header.kid, reader, outgoing).await;
        }
    }
}

impl TokenAuthenticator for JwtAuthenticators {
    fn authenticate_token(&self, token: &str, audiences: &[String], now: Timestamp) -> Result<Option<Authenticated>, String> {
        let current = self.current();
        let Some(token) = (if current.issuers.is_empty() { None } else { Token::read(token) }) else { return Ok(None) };
        let Some(issuer) = current.issuers.iter().find(|issuer| issuer.jwt.issuer.url == token.issuer()) else { return Ok(None) };
        // Such tokens know nothing of the audiences of this server: whoever has one is meant for all of them.
        let met: Vec<String> = audiences.iter().filter(|a| self.audiences.contains(a)).cloned().collect();
        if met.is_empty() {
            return Ok(None);
        }
        issuer.user(&token, now).map(|user| Some(Authenticated { user, audiences: met, remark: None }))
    }
}

impl IssuerRules {
    fn user(&self, token: &Token<'_>, now: Timestamp) -> Result<crate::admission::UserInfo, String> {
        let name = token.header.alg.as_str();
        let allowed = self.jwt.algorithms.is_empty() || self.jwt.algorithms.iter().any(|known| known == name);
        let algorithm = keys::algorithm(name)
            .filter(|_| allowed)
            .ok_or_else(|| format!("oidc: verify token: oidc: id token signed with unsupported algorithm, got {name:?}"))?;
        self.keys.check(&token.header.kid, token.message, token.signature, algorithm)?;
        token.check_times(now)?;
        token.check_audience(&self.jwt.issuer.audiences)?;
        Claims::new(&self.jwt, &self.mapping, token.claims.clone()).user()
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
}

/// A token taken apart; nothing in it is proved.
struct Token<'t> {
    header: Header,
    claims: Value,
    /// What is signed.
    message: &'t str,
    signature: &'t str,
}

impl<'t> Token<'t> {
    /// `None` when it is no token of this form.
    fn read(token: &'t str) -> Option<Self> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (message, signature) = token.rsplit_once('.')?;
        let (header, payload) = message.split_once('.').filter(|(_, payload)| !payload.contains('.'))?;
        let header = serde_json::from_slice(&BASE64.decode(header).ok()?).ok()?;
        let claims: Value = serde_json::from_slice(&BASE64.decode(payload).ok()?).ok()?;
        claims.is_object().then_some(Self { header, claims, message, signature })
    }

    fn issuer(&self) -> &str {
        match self.claims["iss"].as_str().unwrap_or_default() {
            // As it was written once.
            "accounts.google.com" => "https://accounts.google.com",
            issuer => issuer,
        }
    }

    fn check_times(&self, now: Timestamp) -> Result<(), String> {
        let seconds = |claim: &str| self.claims[claim].as_f64();
        let expires = seconds("exp").unwrap_or_default();
        if expires < now.as_second() as f64 {
            return Err(format!("oidc: verify token: oidc: token is expired (Token Expiry: {expires})"));
        }
        let latest = (now + NOT_BEFORE_LEEWAY).as_second() as f64;
        match seconds("nbf") {
            Some(not_before) if not_before > latest => {
                Err(format!("oidc: verify token: oidc: current time {now} before the nbf (not before) time: {not_before}"))
            }
            _ => Ok(()),
        }
    }

    fn check_audience(&self, wanted: &[String]) -> Result<(), String> {
        let got: Vec<&str> = match &self.claims["aud"] {
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        if got.iter().any(|audience| wanted.iter().any(|w| w == audience)) {
            return Ok(());
        }
        Err(format!("oidc: verify token: oidc: expected audience in {wanted:?} got {got:?}"))
    }
}

#[cfg(test)]
mod tests;
