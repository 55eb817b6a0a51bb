//! Service account tokens: issued on request, bound to objects, proved by signature and by what still exists.

mod claims;
mod keys;
mod request;
mod verify;

pub(crate) use verify::CREDENTIAL_ID;

pub use keys::KeyError;

use crate::reader::Reader;
use claims::Claims;
use jiff::{SignedDuration, Timestamp};
use keys::{SigningKey, VerifyingKey};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use sublet_machinery::ObjectExt;

/// The issuer of tokens that live in Secrets.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// Tokens whose signature was checked lately. What they are bound to is checked on every use.
const VERIFIED_TOKENS_MAX: usize = 2048;

/// Secrets that wait to be marked as used.
const USED_SECRETS_MAX: usize = 1024;

/// The label of a Secret with the day on which its token was used last.
pub(crate) const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";

#[derive(Clone, Debug)]
pub struct TokenConfig {
    /// The first one signs; tokens of all of them are accepted.
    pub issuers: Vec<String>,
    /// Those by which this server is meant; a token for none of them is not for it.
    pub audiences: Vec<String>,
    /// A private key in PEM: P-256 or RSA.
    pub signing_key_pem: String,
    /// Keys of earlier days, public or private, whose tokens are still accepted.
    pub verifying_keys_pem: Vec<String>,
    /// Where clients find the keys: `https://host:port/openid/v1/jwks`.
    pub jwks_uri: String,
}

/// Issues and verifies tokens of one cluster.
pub struct ServiceAccountTokens {
    issuers: Vec<String>,
    audiences: Vec<String>,
    jwks_uri: String,
    signing: SigningKey,
    verifying: Vec<VerifyingKey>,
    reader: Arc<dyn Reader>,
    /// Digest of the token to what it says. Guards moves in memory alone.
    verified: Mutex<HashMap<[u8; 32], Arc<Claims>>>,
    /// Secrets whose token was used and that do not say so yet, by namespace and name. Guards moves in memory alone.
    used: Mutex<HashSet<(String, String)>>,
}

impl ServiceAccountTokens {
    pub fn new(config: TokenConfig, reader: Arc<dyn Reader>) -> Result<Self, KeyError> {
        let signing = SigningKey::from_pem(&config.signing_key_pem)?;
        let mut verifying = vec![signing.verifying_key()?];
        for pem in &config.verifying_keys_pem {
            let key = VerifyingKey::from_pem(pem)?;
            if verifying.iter().all(|known| known.id() != key.id()) {
                verifying.push(key);
            }
        }
        let TokenConfig { issuers, audiences, jwks_uri, .. } = config;
        Ok(Self { issuers, audiences, jwks_uri, signing, verifying, reader, verified: Mutex::default(), used: Mutex::default() })
    }

    /// The audiences that mean this server.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// `/openid/v1/jwks`, served as `application/jwk-set+json`.
    pub fn jwks(&self) -> Value {
        json!({"keys": self.verifying.iter().map(VerifyingKey::jwk).collect::<Vec<_>>()})
    }

    /// `/.well-known/openid-configuration`
    pub fn openid_configuration(&self) -> Value {
        let mut algorithms: Vec<&str> = self.verifying.iter().map(VerifyingKey::algorithm).collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        json!({
            "issuer": self.issuers.first(),
            "jwks_uri": self.jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        })
    }

    /// The token for a Secret of type `kubernetes.io/service-account-token`. It never expires; it is good as
    /// long as the Secret holds it.
    pub fn secret_token(&self, service_account: &Value, secret: &Value) -> Result<String, KeyError> {
        self.signing.sign(&claims::of_secret(service_account, secret))
    }

    /// The Secrets whose tokens were used, to be marked with the day.
    pub fn take_used(&self) -> HashSet<(String, String)> {
        std::mem::take(&mut *self.used.lock().expect("no holder of this lock panics"))
    }

    fn note_use(&self, secret: &Value, now: Timestamp) {
        let day = |at: Timestamp| at.strftime("%Y-%m-%d").to_string();
        let marked = secret.label(LAST_USED).unwrap_or_default();
        // Clocks of API servers differ around midnight.
        if marked == day(now) || marked == day(now + SignedDuration::from_hours(24)) {
            return;
        }
        let mut used = self.used.lock().expect("no holder of this lock panics");
        if used.len() < USED_SECRETS_MAX {
            used.insert((secret.namespace().to_string(), secret.name().to_string()));
        }
    }

    /// What a token says, if one of the keys signed it.
    fn verified(&self, token: &str) -> Result<Arc<Claims>, String> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let cache = || self.verified.lock().expect("no holder of this lock panics");
        if let Some(claims) = cache().get(&digest) {
            return Ok(claims.clone());
        }
        let claims = Arc::new(keys::verify(token, &self.verifying)?);
        let mut cache = cache();
        if cache.len() >= VERIFIED_TOKENS_MAX {
            // Rare, and costs one more check of each signature.
            cache.clear();
        }
        cache.insert(digest, claims.clone());
        Ok(claims)
    }
}

/// Seconds, as Kubernetes writes times.
fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests;
