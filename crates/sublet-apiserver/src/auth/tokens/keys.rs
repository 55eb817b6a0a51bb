//! Keys, signatures and the compact form of JSON web tokens.

use super::claims::Claims;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use jsonwebtoken::{Algorithm, DecodingKey};
use rcgen::{KeyPair, PublicKeyData as _, SignatureAlgorithm, SubjectPublicKeyInfo};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::PublicKey;

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("cannot read or use the key of service account tokens")]
    Key(#[from] rcgen::Error),
    #[error("keys of service account tokens are P-256 or RSA")]
    Unsupported,
}

/// Bytes of one of the two numbers of a P-256 signature.
const P256_BYTES: usize = 32;

pub(super) struct SigningKey {
    pair: KeyPair,
    id: String,
    algorithm: &'static str,
}

impl SigningKey {
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let pair = KeyPair::from_pem(pem)?;
        let algorithm = algorithm_name(pair.algorithm())?;
        Ok(Self { id: key_id(&pair.subject_public_key_info()), algorithm, pair })
    }

    pub fn verifying_key(&self) -> Result<VerifyingKey, KeyError> {
        VerifyingKey::from_spki(&self.pair.subject_public_key_info())
    }

    /// A token in compact form.
    pub fn sign(&self, claims: &Value) -> Result<String, KeyError> {
        let header = json!({"alg": self.algorithm, "kid": self.id});
        let message = format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(claims.to_string()));
        let signature = rcgen::SigningKey::sign(&self.pair, message.as_bytes())?;
        let signature = if self.algorithm == "ES256" { fixed_width(&signature).ok_or(KeyError::Unsupported)? } else { signature };
        Ok(format!("{message}.{}", BASE64.encode(signature)))
    }
}

pub(super) struct VerifyingKey {
    id: String,
    algorithm: &'static str,
    decoding: DecodingKey,
    jwk: Value,
}

impl VerifyingKey {
    /// A public key, or the private key that it belongs to.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        match SubjectPublicKeyInfo::from_pem(pem) {
            Ok(public) => Self::from_spki(&public.subject_public_key_info()),
            Err(_) => SigningKey::from_pem(pem)?.verifying_key(),
        }
    }

    fn from_spki(spki: &[u8]) -> Result<Self, KeyError> {
        let id = key_id(spki);
        let (_, info) = x509_parser::x509::SubjectPublicKeyInfo::from_der(spki).map_err(|_| KeyError::Unsupported)?;
        match info.parsed().map_err(|_| KeyError::Unsupported)? {
            PublicKey::EC(point) if point.data().len() == 1 + 2 * P256_BYTES => {
                let (x, y) = point.data()[1..].split_at(P256_BYTES);
                let (x, y) = (BASE64.encode(x), BASE64.encode(y));
                let decoding = DecodingKey::from_ec_components(&x, &y).map_err(|_| KeyError::Unsupported)?;
                let jwk = json!({"use": "sig", "kty": "EC", "kid": id, "crv": "P-256", "alg": "ES256", "x": x, "y": y});
                Ok(Self { id, algorithm: "ES256", decoding, jwk })
            }
            PublicKey::RSA(key) => {
                // DER integers may begin with a zero that is no part of the number.
                let trim = |bytes: &[u8]| bytes.iter().position(|b| *b != 0).map_or(Vec::new(), |at| bytes[at..].to_vec());
                let (modulus, exponent) = (trim(key.modulus), trim(key.exponent));
                let decoding = DecodingKey::from_rsa_raw_components(&modulus, &exponent);
                let (n, e) = (BASE64.encode(modulus), BASE64.encode(exponent));
                Ok(Self {
                    decoding,
                    jwk: json!({"use": "sig", "kty": "RSA", "kid": id, "alg": "RS256", "n": n, "e": e}),
                    id,
                    algorithm: "RS256",
                })
            }
            _ => Err(KeyError::Unsupported),
        }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn algorithm(&self) -> &'static str {
        self.algorithm
    }

    pub fn jwk(&self) -> Value {
        self.jwk.clone()
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
}

/// What an unverified token says: only to find out whose it is.
pub(super) fn unverified(token: &str) -> Option<Claims> {
    let mut parts = token.split('.');
    let (_, payload, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else { return None };
    serde_json::from_slice(&BASE64.decode(payload).ok()?).ok()
}

/// What the token says, if one of the keys signed it.
pub(super) fn verify(token: &str, keys: &[VerifyingKey]) -> Result<Claims, String> {
    let (message, signature) = token.rsplit_once('.').ok_or("the token is not in compact form")?;
    let (header, _) = message.split_once('.').ok_or("the token is not in compact form")?;
    let header: Header =
        BASE64.decode(header).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).ok_or("the token has no readable header")?;
    let mut fitting = keys.iter().filter(|key| key.algorithm == header.alg && (header.kid.is_empty() || header.kid == key.id)).peekable();
    if fitting.peek().is_none() {
        return Err("invalid signature, no keys found".into());
    }
    let signed = fitting.any(|key| {
        let algorithm = if key.algorithm == "ES256" { Algorithm::ES256 } else { Algorithm::RS256 };
        jsonwebtoken::crypto::verify(signature, message.as_bytes(), &key.decoding, algorithm).unwrap_or(false)
    });
    if !signed {
        return Err("the signature of the token is not valid".into());
    }
    unverified(token).ok_or_else(|| "the token has no readable claims".into())
}

/// Digest of the public key, so that the name of a key does not lead to the key.
fn key_id(spki: &[u8]) -> String {
    BASE64.encode(Sha256::digest(spki))
}

fn algorithm_name(algorithm: &SignatureAlgorithm) -> Result<&'static str, KeyError> {
    if *algorithm == rcgen::PKCS_ECDSA_P256_SHA256 {
        Ok("ES256")
    } else if *algorithm == rcgen::PKCS_RSA_SHA256 {
        Ok("RS256")
    } else {
        Err(KeyError::Unsupported)
    }
}

/// A DER signature (a sequence of two integers) as the two numbers side by side.
fn fixed_width(der: &[u8]) -> Option<Vec<u8>> {
    let integer = |bytes: &[u8]| -> Option<(Vec<u8>, usize)> {
        let [0x02, length, rest @ ..] = bytes else { return None };
        let digits = rest.get(..usize::from(*length))?;
        let digits = digits.strip_prefix(&[0]).unwrap_or(digits);
        let mut padded = vec![0; P256_BYTES.checked_sub(digits.len())?];
        padded.extend_from_slice(digits);
        Some((padded, 2 + usize::from(*length)))
    };
    // Both numbers fit into one length byte.
    let [0x30, _, body @ ..] = der else { return None };
    let (mut first, used) = integer(body)?;
    let (second, _) = integer(body.get(used..)?)?;
    first.extend(second);
    Some(first)
}
