//! The keys of an issuer: found by discovery, kept for a while, asked for again when a token names one that is not known.

use crate::outgoing::{Outgoing, Place, Target, Trust};
use crate::reader::Reader;
use http::Uri;
use jsonwebtoken::jwk::{Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use sublet_machinery::ObjectExt as _;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Keys of one issuer; what it has beyond them is not looked at.
const KEYS_MAX: usize = 128;
/// How long keys are believed without asking again, so that those which were withdrawn end.
const KEYS_AGE_MAX: Duration = Duration::from_secs(3600);
/// How often an issuer is asked at most, whatever tokens name.
const ASK_INTERVAL: Duration = Duration::from_secs(10);
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// The algorithms of signatures that are known: those of upstream but for ES512.
const ALGORITHMS: [(&str, Algorithm); 8] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
];

pub(super) fn algorithm(name: &str) -> Option<Algorithm> {
    ALGORITHMS.iter().find(|(known, _)| *known == name).map(|(_, algorithm)| *algorithm)
}

/// Where the keys of an issuer come from.
pub(super) struct Keys {
    issuer: String,
    discovery: Target,
    known: RwLock<Known>,
    /// When the issuer was asked last. Held while it is asked, so that it is asked once.
    asked: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Known {
    keys: Arc<Vec<Key>>,
    since: Option<Instant>,
    /// Why there are none.
    problem: String,
}

struct Key {
    id: String,
    decoding: DecodingKey,
}

/// `https://host[:port]/path`.
fn target(url: &str, trust: Trust) -> Result<Target, String> {
    let uri: Uri = url.parse().map_err(|e| format!("{url:?} is no URL: {e}"))?;
    if uri.scheme_str() != Some("https") {
        return Err(format!("{url:?} is no https URL"));
    }
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_string();
    let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_string();
    Ok(Target { place: Place::Url { host, port: uri.port_u16().unwrap_or(443) }, path, trust })
}

impl Keys {
    pub(super) fn new(issuer: &str, discovery_url: &str, authority_pem: &str) -> Result<Self, String> {
        let usual = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let trust = if authority_pem.is_empty() { Trust::System } else { Trust::Bundle(authority_pem.as_bytes().into()) };
        let discovery = target(if discovery_url.is_empty() { &usual } else { discovery_url }, trust)?;
        Ok(Self { issuer: issuer.to_string(), discovery, known: RwLock::default(), asked: Mutex::default() })
    }

    /// Asks the issuer when the key of a token is not known, or was learned long ago.
    pub(super) async fn learn(&self, kid: &str, reader: &dyn Reader, outgoing: &Outgoing) {
        if self.is_fresh(kid) {
            return;
        }
        let mut asked = self.asked.lock().await;
        if self.is_fresh(kid) || asked.is_some_and(|at| at.elapsed() < ASK_INTERVAL) {
            return;
        }
        *asked = Some(Instant::now());
        let learned = self.ask(reader, outgoing).await;
        let mut known = self.known.write().expect("no holder of this lock panics");
        match learned {
            Ok(keys) => *known = Known { keys: Arc::new(keys), since: Some(Instant::now()), problem: String::new() },
            Err(why) => {
                tracing::warn!(issuer = self.issuer, why, "the keys of an issuer of tokens were not found");
                // Those which are known stay good: an issuer that is away for an hour locks nobody out.
                known.problem = why;
            }
        }
    }

    fn is_fresh(&self, kid: &str) -> bool {
        let known = self.known.read().expect("no holder of this lock panics");
        known.since.is_some_and(|since| since.elapsed() < KEYS_AGE_MAX) && (kid.is_empty() || known.keys.iter().any(|key| key.id == kid))
    }

    async fn ask(&self, reader: &dyn Reader, outgoing: &Outgoing) -> Result<Vec<Key>, String> {
        let get = async |target: &Target| {
            let text = outgoing.get(reader, target, ASK_TIMEOUT).await.map_err(|e| e.to_string())?;
            serde_json::from_slice::<Value>(&text).map_err(|e| format!("the answer of {} is no JSON: {e}", target.authority()))
        };
        let document = get(&self.discovery).await?;
        let issuer = document.str_at("/issuer").unwrap_or_default();
        if issuer != self.issuer {
            return Err(format!("oidc: issuer did not match the issuer returned by provider, expected {:?} got {issuer:?}", self.issuer));
        }
        let keys = document.str_at("/jwks_uri").unwrap_or_default();
        let keys = get(&target(keys, self.discovery.trust.clone())?).await?;
        let set: JwkSet = serde_json::from_value(keys).map_err(|e| format!("the keys cannot be read: {e}"))?;
        Ok(set.keys.iter().filter_map(Key::of).take(KEYS_MAX).collect())
    }

    /// Whether one of the keys signed the message.
    pub(super) fn check(&self, kid: &str, message: &str, signature: &str, algorithm: Algorithm) -> Result<(), String> {
        let (keys, problem) = {
            let known = self.known.read().expect("no holder of this lock panics");
            (known.keys.clone(), if known.since.is_none() { known.problem.clone() } else { String::new() })
        };
        if !problem.is_empty() || keys.is_empty() {
            return Err("oidc: authenticator not initialized".into());
        }
        let mut fitting = keys.iter().filter(|key| kid.is_empty() || key.id == kid);
        let signed =
            fitting.any(|key| jsonwebtoken::crypto::verify(signature, message.as_bytes(), &key.decoding, algorithm).unwrap_or(false));
        if signed { Ok(()) } else { Err("oidc: verify token: failed to verify signature: failed to verify id token signature".into()) }
    }
}

impl Key {
    /// Keys of unknown kinds, and those that are for something else, are left out.
    fn of(jwk: &Jwk) -> Option<Self> {
        if matches!(jwk.common.public_key_use, Some(PublicKeyUse::Encryption)) {
            return None;
        }
        Some(Self { id: jwk.common.key_id.clone().unwrap_or_default(), decoding: DecodingKey::from_jwk(jwk).ok()? })
    }
}
