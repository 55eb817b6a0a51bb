//! Certificates of a pod's projected volumes: kubelets ask for them by PodCertificateRequests, which
//! signers of the tenant see only when they are the tenant's. See `engine/certificates.rs`.

use jiff::Timestamp;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

/// The certificate sources of a pod, in the order of its volumes.
pub fn wanted(pod: &Value) -> Vec<&Value> {
    let sources = pod.array_at("/spec/volumes").iter().flat_map(|volume| volume.array_at("/projected/sources"));
    sources.map(|source| &source["podCertificate"]).filter(|certificate| certificate.is_object()).collect()
}

/// The beginning of the keys of one source.
pub fn data_key(index: usize) -> String {
    format!("certificate-{index}")
}

/// The files that the source asks for: its field with the path, and the end of the key.
const FILES: [(&str, &str); 3] = [("credentialBundlePath", "-bundle"), ("keyPath", "-key"), ("certificateChainPath", "-chain")];

pub fn is_key_of(key: &str, index: usize) -> bool {
    key.strip_prefix(&*data_key(index)).is_some_and(|end| FILES.iter().any(|(_, e)| *e == end))
}

/// Where the source wants its files, as items of a Secret.
pub fn items(index: usize, source: &Value) -> Vec<Value> {
    let paths = FILES.iter().filter(|(field, _)| source[*field].as_str().is_some_and(|path| !path.is_empty()));
    paths.map(|(field, end)| json!({"key": data_key(index) + end, "path": source[*field]})).collect()
}

/// What is in those files, by key.
pub fn data(index: usize, key: &str, chain: &str) -> Vec<(String, String)> {
    let texts = [format!("{key}{chain}"), key.to_string(), chain.to_string()];
    FILES.iter().map(|(_, end)| data_key(index) + end).zip(texts).collect()
}

/// The request of a kubelet: `stub` proves that we have the key, and says nothing else.
pub fn request(pod: &Value, source: &Value, account_uid: &str, node_uid: &str, stub: &str) -> Value {
    let mut spec = json!({
        "signerName": source["signerName"],
        "podName": pod.name(), "podUID": pod.uid(),
        "serviceAccountName": pod["spec"]["serviceAccountName"], "serviceAccountUID": account_uid,
        "nodeName": pod["spec"]["nodeName"], "nodeUID": node_uid,
        "stubPKCS10Request": stub,
    });
    for (from, to) in [("maxExpirationSeconds", "maxExpirationSeconds"), ("userAnnotations", "unverifiedUserAnnotations")] {
        if !source[from].is_null() {
            spec[to] = source[from].clone();
        }
    }
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "PodCertificateRequest",
        "metadata": {
            "namespace": pod.namespace(), "generateName": "req-",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": pod.name(), "uid": pod.uid()}],
        },
        "spec": spec,
    })
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Waiting,
    Issued {
        chain: String,
        refresh_at: Timestamp,
    },
    /// Reason and message, for the pod's owner.
    Refused(String, String),
}

pub fn outcome(request: &Value) -> Outcome {
    for condition in request.array_at("/status/conditions") {
        let text = |field: &str| condition[field].as_str().unwrap_or_default().to_string();
        match condition["type"].as_str() {
            Some("Denied" | "Failed") => return Outcome::Refused(text("reason"), text("message")),
            Some("Issued") => {
                let chain = request.str_at("/status/certificateChain").unwrap_or_default().to_string();
                let refresh_at = request.str_at("/status/beginRefreshAt").and_then(|at| at.parse().ok()).unwrap_or(Timestamp::MAX);
                return Outcome::Issued { chain, refresh_at };
            }
            _ => {}
        }
    }
    Outcome::Waiting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_what_a_kubelet_would() {
        let source =
            json!({"signerName": "x/y", "keyType": "ED25519", "credentialBundlePath": "both.pem", "userAnnotations": {"x/a": "b"}});
        let pod = json!({
            "metadata": {"namespace": "n", "name": "p", "uid": "u"},
            "spec": {"serviceAccountName": "sa", "nodeName": "node-1", "volumes": [{"projected": {"sources": [{"podCertificate": source}]}}]},
        });
        let source = wanted(&pod)[0];
        let request = request(&pod, source, "sa-uid", "node-uid", "AAAA");
        let expected = json!({
            "signerName": "x/y", "podName": "p", "podUID": "u", "serviceAccountName": "sa", "serviceAccountUID": "sa-uid",
            "nodeName": "node-1", "nodeUID": "node-uid", "stubPKCS10Request": "AAAA", "unverifiedUserAnnotations": {"x/a": "b"},
        });
        assert_eq!(request["spec"], expected);
        assert_eq!(items(0, source), [json!({"key": "certificate-0-bundle", "path": "both.pem"})]);
        assert_eq!(data(0, "K", "C")[0], ("certificate-0-bundle".to_string(), "KC".to_string()));
    }

    #[test]
    fn outcomes_are_told_by_conditions() {
        let with = |condition: &str| {
            let conditions = json!([{"type": condition, "reason": "R", "message": "M"}]);
            outcome(&json!({"status": {"conditions": conditions, "certificateChain": "C", "beginRefreshAt": "2026-01-01T00:00:00Z"}}))
        };
        assert_eq!(outcome(&json!({})), Outcome::Waiting);
        assert_eq!(with("Denied"), Outcome::Refused("R".into(), "M".into()));
        assert_eq!(with("Issued"), Outcome::Issued { chain: "C".into(), refresh_at: "2026-01-01T00:00:00Z".parse().unwrap() });
    }
}
