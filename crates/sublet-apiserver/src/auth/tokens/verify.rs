//! Who a token speaks for, if all it is bound to is still there.

use super::claims::{Bound, Claims, Reference};
use super::{LEGACY_ISSUER, ServiceAccountTokens, keys};
use crate::admission::UserInfo;
use crate::auth::authn::{Authenticated, TokenAuthenticator};
use crate::auth::{service_account_groups, service_account_user, split_service_account};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use sublet_machinery::ObjectExt;

/// Clocks differ, and a pod being deleted still needs its token for a while.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);

const INVALIDATED: &str = "service account token has been invalidated";

const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const NODE_UID: &str = "authentication.kubernetes.io/node-uid";
pub(crate) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Put on a Secret by the controller that tidies up unused tokens.
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

impl TokenAuthenticator for ServiceAccountTokens {
    fn authenticate_token(&self, token: &str, audiences: &[String], now: Timestamp) -> Result<Option<Authenticated>, String> {
        // Tokens of other issuers are for other authenticators.
        let Some(claimed) = keys::unverified(token) else { return Ok(None) };
        if claimed.iss != LEGACY_ISSUER && !self.issuers.contains(&claimed.iss) {
            return Ok(None);
        }
        let claims = self.verified(token)?;
        let meant = claims.aud.as_ref().map_or(&[][..], |aud| aud.list());
        // A token in a Secret names no audience: it is for this server alone.
        let meant = if meant.is_empty() { &self.audiences } else { meant };
        let audiences_met: Vec<String> = audiences.iter().filter(|a| meant.contains(a)).cloned().collect();
        if audiences_met.is_empty() {
            return Err(format!("token audiences {meant:?} is invalid for the target audiences {audiences:?}"));
        }
        let user = match &claims.bound {
            Some(bound) if claims.iss != LEGACY_ISSUER => self.check_bound(&claims, bound, now)?,
            _ => self.check_secret(&claims, token, now)?,
        };
        Ok(Some(Authenticated { user, audiences: audiences_met }))
    }
}

impl ServiceAccountTokens {
    fn check_bound(&self, claims: &Claims, bound: &Bound, now: Timestamp) -> Result<UserInfo, String> {
        check_times(claims, now)?;
        let gone_before = now - LEEWAY;
        let (namespace, account) = (&bound.namespace, &bound.serviceaccount);
        let found = self
            .reader
            .get("serviceaccounts", namespace, &account.name)
            .ok_or_else(|| format!("serviceaccounts {:?} not found", account.name))?;
        if found.uid() != account.uid {
            return Err(format!("service account UID ({}) does not match claim ({})", found.uid(), account.uid));
        }
        if deleted_before(&found, gone_before) {
            return Err(format!("service account {namespace}/{} has been deleted", account.name));
        }
        let mut extra = BTreeMap::new();
        let mut tell = |key: &str, value: &str| {
            if !value.is_empty() {
                extra.insert(key.to_string(), vec![value.to_string()]);
            }
        };
        if let Some(secret) = &bound.secret {
            self.check_reference("secrets", "secret", namespace, secret, gone_before)?;
        }
        if let Some(pod) = &bound.pod {
            let found = self.check_reference("pods", "pod", namespace, pod, gone_before)?;
            tell(POD_NAME, &pod.name);
            tell(POD_UID, &pod.uid);
            // A token for files of a pod can be older than the pod's node, which then never changes.
            if let (None, Some(node)) = (&bound.node, found.str_at("/spec/nodeName")) {
                tell(NODE_NAME, node);
                tell(NODE_UID, self.reader.get("nodes", "", node).as_deref().map(ObjectExt::uid).unwrap_or_default());
            }
        }
        if let Some(node) = &bound.node {
            // Beside a pod the node is information; alone it is what the token is bound to.
            if bound.pod.is_none() {
                self.check_reference("nodes", "node", "", node, gone_before)?;
            }
            tell(NODE_NAME, &node.name);
            tell(NODE_UID, &node.uid);
        }
        if let Some(id) = &claims.jti {
            tell(CREDENTIAL_ID, &format!("JTI={id}"));
        }
        Ok(UserInfo {
            name: service_account_user(namespace, &account.name),
            uid: account.uid.clone(),
            groups: service_account_groups(namespace),
            extra,
        })
    }

    fn check_reference(
        &self,
        resource: &str,
        kind: &str,
        namespace: &str,
        reference: &Reference,
        gone_before: Timestamp,
    ) -> Result<Arc<Value>, String> {
        let found: Arc<Value> = self.reader.get(resource, namespace, &reference.name).ok_or(INVALIDATED)?;
        if found.uid() != reference.uid {
            return Err(format!("{kind} UID ({}) does not match service account {kind} ref claim ({})", found.uid(), reference.uid));
        }
        if deleted_before(&found, gone_before) { Err(INVALIDATED.into()) } else { Ok(found) }
    }

    /// A token in a Secret is good while the Secret holds exactly it.
    fn check_secret(&self, claims: &Claims, token: &str, now: Timestamp) -> Result<UserInfo, String> {
        let (namespace, name) = (&claims.legacy_namespace, &claims.legacy_name);
        if split_service_account(&claims.sub) != Some((namespace, name)) {
            return Err("sub claim is invalid".into());
        }
        let secret = self.reader.get("secrets", namespace, &claims.legacy_secret).ok_or("Token has been invalidated")?;
        if secret.is_deleting() {
            return Err("Token has been invalidated".into());
        }
        let held = secret["data"]["token"].as_str().and_then(|text| BASE64_STANDARD.decode(text).ok()).unwrap_or_default();
        if held != token.as_bytes() {
            return Err("Token does not match server's copy".into());
        }
        let account = self.reader.get("serviceaccounts", namespace, name).ok_or_else(|| format!("serviceaccounts {name:?} not found"))?;
        if account.is_deleting() {
            return Err(format!("ServiceAccount {namespace}/{name} has been deleted"));
        }
        if account.uid() != claims.legacy_uid {
            return Err(format!("ServiceAccount UID ({}) does not match claim ({})", account.uid(), claims.legacy_uid));
        }
        self.note_use(&secret, now);
        if secret.label(INVALID_SINCE).is_some_and(|since| !since.is_empty()) {
            let secret = &claims.legacy_secret;
            return Err(format!(
                "the token in secret {namespace}/{secret} for service account {namespace}/{name} has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the '{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
            ));
        }
        let groups = service_account_groups(namespace);
        Ok(UserInfo { name: claims.sub.clone(), uid: claims.legacy_uid.clone(), groups, extra: BTreeMap::new() })
    }
}

fn check_times(claims: &Claims, now: Timestamp) -> Result<(), String> {
    let (now, leeway) = (now.as_second() as f64, LEEWAY.as_secs_f64());
    if claims.exp.is_some_and(|exp| now - leeway > exp) {
        return Err("service account token has expired".into());
    }
    if claims.nbf.is_some_and(|nbf| now + leeway < nbf) {
        return Err("service account token is not valid yet".into());
    }
    if claims.iat.is_some_and(|iat| now + leeway < iat) {
        return Err("service account token is issued in the future".into());
    }
    Ok(())
}

fn deleted_before(object: &Value, time: Timestamp) -> bool {
    object.str_at("/metadata/deletionTimestamp").and_then(|text| text.parse::<Timestamp>().ok()).is_some_and(|deleted| deleted < time)
}
