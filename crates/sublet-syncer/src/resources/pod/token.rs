//! Service account tokens: a pod's projected tokens are asked from the tenant's API server, and put
//! into one host Secret that lives as long as the pod and is made anew before a token expires. What else
//! kubelets ask for is in the same Secret; see [`super::bundle`].

use crate::resources::{KindId, SyncedKind};
use crate::translate::{NAME_BYTES_MAX_SUBDOMAIN, Names, TenantKey};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

/// The row of the host Secrets; the tenant object behind one is the pod.
pub const POD_TOKEN: SyncedKind = SyncedKind { ..SyncedKind::core_v1(KindId::PodToken, "PodToken", "secrets") };

pub const PURPOSE: &str = "token";
/// What a pod gets that asks for no time.
const SECONDS_DEFAULT: i64 = 3600;
/// As a kubelet: a new token after four fifths of the time, and once a day at the latest.
pub const BETWEEN_MAX: SignedDuration = SignedDuration::from_hours(24);

/// One token that a pod asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Empty: the API server itself.
    pub audience: String,
    pub expiration_seconds: i64,
}

/// The tokens of a pod, in the order of its volumes.
pub fn wanted(pod: &Value) -> Vec<Wanted> {
    pod.array_at("/spec/volumes")
        .iter()
        .flat_map(|volume| volume.array_at("/projected/sources"))
        .map(|source| &source["serviceAccountToken"])
        .filter(|token| token["path"].is_string())
        .map(|token| Wanted {
            audience: token["audience"].as_str().unwrap_or_default().into(),
            expiration_seconds: token["expirationSeconds"].as_i64().unwrap_or(SECONDS_DEFAULT),
        })
        .collect()
}

pub fn secret_name(names: &Names, namespace: &str, pod: &str) -> String {
    names.derived_name(PURPOSE, &TenantKey::new(namespace, pod), NAME_BYTES_MAX_SUBDOMAIN)
}

pub fn data_key(index: usize) -> String {
    format!("token-{index}")
}

/// The TokenRequest for one token, bound to the pod: it ends with it.
pub fn request(pod: &Value, wanted: &Wanted) -> Value {
    let mut spec = json!({
        "expirationSeconds": wanted.expiration_seconds,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod.name(), "uid": pod.uid()},
    });
    spec["audiences"] = if wanted.audience.is_empty() { json!([]) } else { json!([wanted.audience]) };
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
}

/// When a token that was issued now and ends at `expires` is replaced.
pub fn refresh_at(now: Timestamp, expires: Timestamp) -> Timestamp {
    let seconds = expires.duration_since(now).as_secs().max(0);
    now + SignedDuration::from_secs((seconds * 4 / 5).min(BETWEEN_MAX.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audience_and_time_are_those_that_were_asked() {
        let pod = json!({"metadata": {"name": "web", "uid": "u"}, "spec": {"volumes": [
            {"projected": {"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}, {"configMap": {"name": "x"}}]}},
            {"projected": {"sources": [{"serviceAccountToken": {"path": "vault", "audience": "vault", "expirationSeconds": 600}}]}},
        ]}});
        let tokens = wanted(&pod);
        assert_eq!(tokens[1], Wanted { audience: "vault".into(), expiration_seconds: 600 });
        let asked = request(&pod, &tokens[1]);
        assert_eq!(asked["spec"]["audiences"], json!(["vault"]));
        assert_eq!((asked["spec"]["expirationSeconds"].as_i64(), asked["spec"]["boundObjectRef"]["uid"].as_str()), (Some(600), Some("u")));
        assert_eq!(request(&pod, &tokens[0])["spec"]["audiences"], json!([]));
    }

    #[test]
    fn tokens_are_replaced_before_they_end() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let after = |seconds| refresh_at(now, now + SignedDuration::from_secs(seconds)).as_second() - now.as_second();
        assert_eq!((after(600), after(3600), after(1_000_000)), (480, 2880, 24 * 3600));
    }
}
