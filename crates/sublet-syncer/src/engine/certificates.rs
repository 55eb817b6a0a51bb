//! Asks the tenant for the certificates of pods, as kubelets do: a key that is made here, a
//! PodCertificateRequest, and what a signer of the tenant answers. Keys of requests under way are in
//! memory alone; after a restart they are made anew, and the pod keeps what it has until then.

use super::syncer::Inner;
use crate::resources::pod::certificate::{self, Outcome};
use crate::translate::TenantKey;
use base64::Engine as _;
use jiff::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, KeyPair, RsaKeySize, SignatureAlgorithm};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{NODES, POD_CERTIFICATE_REQUESTS, SERVICE_ACCOUNTS};
use sublet_runtime::{ClientError, EventKind};
use tokio::time::Instant;

/// How soon a request is looked at again: a part of the time that it is there, within these bounds.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
const PAUSE_PART: u32 = 4;
/// How soon it is tried again when asking failed.
const PAUSE_REFUSED: Duration = Duration::from_secs(10);

/// Certificates of pods that want some: as many entries as there are such pods.
#[derive(Default)]
pub(super) struct Certificates(Mutex<HashMap<TenantKey, OfPod>>);

struct OfPod {
    uid: String,
    sources: HashMap<usize, Source>,
}

/// One source of a pod.
#[derive(Clone, Default)]
struct Source {
    issued: Option<Issued>,
    asked: Option<Asked>,
    /// A refusal is final, as with a kubelet.
    refused: bool,
}

#[derive(Clone)]
struct Issued {
    key: String,
    chain: String,
    refresh_at: Timestamp,
}

#[derive(Clone)]
struct Asked {
    key: String,
    request: String,
    since: Instant,
}

/// What is there of a pod's certificates.
pub(super) struct Found {
    /// Key and text of each file.
    pub files: Vec<(String, String)>,
    /// The sources without a certificate.
    pub missing: Vec<usize>,
    /// When to look again; `None`: there are none to look for.
    pub pause: Option<Duration>,
}

impl Certificates {
    fn lock(&self) -> MutexGuard<'_, HashMap<TenantKey, OfPod>> {
        self.0.lock().expect("no holder panics")
    }

    pub(super) fn forget(&self, key: &TenantKey) {
        self.lock().remove(key);
    }

    fn source(&self, key: &TenantKey, uid: &str, index: usize) -> Source {
        let all = self.lock();
        all.get(key).filter(|pod| pod.uid == uid).and_then(|pod| pod.sources.get(&index)).cloned().unwrap_or_default()
    }

    fn keep(&self, key: &TenantKey, uid: &str, index: usize, source: Source) {
        let mut all = self.lock();
        let pod = all.entry(key.clone()).or_insert_with(|| OfPod { uid: uid.into(), sources: HashMap::new() });
        if pod.uid != uid {
            *pod = OfPod { uid: uid.into(), sources: HashMap::new() };
        }
        pod.sources.insert(index, source);
    }
}

impl Inner {
    /// Takes each certificate of the pod one step further.
    pub(super) async fn certificates(&self, pod: &Value) -> Found {
        let key = &TenantKey::of(pod);
        let mut found = Found { files: Vec::new(), missing: Vec::new(), pause: None };
        for (index, wanted) in certificate::wanted(pod).into_iter().enumerate() {
            let mut source = self.certificates.source(key, pod.uid(), index);
            let pause = match self.step(pod, wanted, &mut source).await {
                Ok(()) => source.pause(self.clock.now()),
                // Tokens in the same Secret do not wait for what a server or a webhook refuses.
                Err(error) => {
                    tracing::warn!(tenant = %self.view.names.tenant().name, pod = %key, %error, "no certificate could be asked for");
                    PAUSE_REFUSED
                }
            };
            match &source.issued {
                Some(issued) => found.files.extend(certificate::data(index, &issued.key, &issued.chain)),
                None => found.missing.push(index),
            }
            self.certificates.keep(key, pod.uid(), index, source);
            found.pause = Some(found.pause.map_or(pause, |earlier| earlier.min(pause)));
        }
        found
    }

    async fn step(&self, pod: &Value, wanted: &Value, source: &mut Source) -> Result<(), ClientError> {
        if let Some(asked) = source.asked.clone() {
            let request = self.tenant_client.get_opt(&POD_CERTIFICATE_REQUESTS, pod.namespace(), &asked.request).await?;
            match request.as_ref().map(certificate::outcome) {
                Some(Outcome::Waiting) => {}
                Some(Outcome::Issued { chain, refresh_at }) => {
                    *source = Source { issued: Some(Issued { key: asked.key, chain, refresh_at }), ..Source::default() };
                }
                Some(Outcome::Refused(reason, message)) => {
                    source.asked = None;
                    source.refused = true;
                    let reason = if reason.is_empty() { "CertificateRefused" } else { &reason };
                    let message = format!("PodCertificateRequest {} was refused: {message}", asked.request);
                    self.events.record(pod, EventKind::Warning, reason, &message).await;
                }
                // Somebody deleted it: another one is made.
                None => source.asked = None,
            }
            return Ok(());
        }
        let is_due = source.issued.as_ref().is_none_or(|issued| issued.refresh_at <= self.clock.now());
        if is_due && !source.refused {
            source.asked = self.ask(pod, wanted).await?;
        }
        Ok(())
    }

    /// `None` as long as the pod has no node, or one that the tenant is not shown.
    async fn ask(&self, pod: &Value, wanted: &Value) -> Result<Option<Asked>, ClientError> {
        let Some(node) = pod.str_at("/spec/nodeName").filter(|node| !node.is_empty()) else { return Ok(None) };
        let account = pod.str_at("/spec/serviceAccountName").unwrap_or("default");
        let Some(node) = self.tenant_client.get_opt(&NODES, "", node).await? else { return Ok(None) };
        let Some(account) = self.tenant_client.get_opt(&SERVICE_ACCOUNTS, pod.namespace(), account).await? else { return Ok(None) };
        let key_type = wanted["keyType"].as_str().unwrap_or_default().to_string();
        // A large key takes a processor for a second.
        let made = tokio::task::spawn_blocking(move || key_and_stub(&key_type)).await;
        let (key, stub) = match made {
            Ok(Ok(made)) => made,
            Ok(Err(error)) => {
                tracing::warn!(pod = pod.name(), %error, "no key could be made for a certificate");
                return Ok(None);
            }
            Err(_) => return Ok(None),
        };
        let request = certificate::request(pod, wanted, account.uid(), node.uid(), &stub);
        let created = self.tenant_client.create(&POD_CERTIFICATE_REQUESTS, &request).await?;
        Ok(Some(Asked { key, request: created.name().into(), since: Instant::now() }))
    }
}

impl Source {
    fn pause(&self, now: Timestamp) -> Duration {
        match (&self.asked, &self.issued) {
            (Some(asked), _) => (asked.since.elapsed() / PAUSE_PART).clamp(PAUSE_MIN, PAUSE_MAX),
            (None, Some(issued)) => issued.refresh_at.duration_since(now).try_into().unwrap_or(Duration::ZERO).max(PAUSE_MIN),
            (None, None) if self.refused => PAUSE_MAX,
            (None, None) => PAUSE_MIN,
        }
    }
}

/// A key as PEM, and a PKCS#10 request in base64 that is signed with it and names nothing.
fn key_and_stub(key_type: &str) -> Result<(String, String), rcgen::Error> {
    let elliptic = |algorithm: &'static SignatureAlgorithm| KeyPair::generate_for(algorithm);
    let rsa = |size| KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, size);
    let key = match key_type {
        "RSA3072" => rsa(RsaKeySize::_3072)?,
        "RSA4096" => rsa(RsaKeySize::_4096)?,
        "ECDSAP256" => elliptic(&rcgen::PKCS_ECDSA_P256_SHA256)?,
        "ECDSAP384" => elliptic(&rcgen::PKCS_ECDSA_P384_SHA384)?,
        "ECDSAP521" => elliptic(&rcgen::PKCS_ECDSA_P521_SHA512)?,
        _ => elliptic(&rcgen::PKCS_ED25519)?,
    };
    let mut nothing = CertificateParams::default();
    nothing.distinguished_name = DistinguishedName::new();
    let stub = nothing.serialize_request(&key)?;
    Ok((key.serialize_pem(), base64::engine::general_purpose::STANDARD.encode(stub.der())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_of_the_kind_that_was_asked() {
        for (key_type, oid) in [("ED25519", [0x2b, 0x65, 0x70].as_slice()), ("ECDSAP384", &[0x2b, 0x81, 0x04, 0x00, 0x22])] {
            let (key, stub) = key_and_stub(key_type).unwrap();
            assert!(key.starts_with("-----BEGIN PRIVATE KEY-----"));
            let der = base64::engine::general_purpose::STANDARD.decode(stub).unwrap();
            assert!(der.windows(oid.len()).any(|part| part == oid), "{key_type}");
            assert!(!der.windows(5).any(|part| part == b"rcgen"), "names nothing");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_looked_at_less_and_less_often() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let asked = Asked { key: String::new(), request: String::new(), since: Instant::now() };
        let source = Source { asked: Some(asked), ..Source::default() };
        assert_eq!(source.pause(now), PAUSE_MIN);
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(source.pause(now), Duration::from_secs(10));
        tokio::time::advance(Duration::from_secs(4000)).await;
        assert_eq!(source.pause(now), PAUSE_MAX);
        let issued = Issued { key: String::new(), chain: String::new(), refresh_at: now + Duration::from_secs(90) };
        assert_eq!(Source { issued: Some(issued), ..Source::default() }.pause(now), Duration::from_secs(90));
    }
}
