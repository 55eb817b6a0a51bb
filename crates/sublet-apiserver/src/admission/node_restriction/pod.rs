//! A node and the pods that run on it, with their tokens and certificates.

use super::{Checked, Refusal, is_granted, refuse, unexpected, verb};
use crate::admission::{Attributes, Operation};
use crate::reader::Writer;
use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::{ApiError, ObjectExt as _};

const MIRROR: &str = "kubernetes.io/config.mirror";
/// Volumes of a pod for which its node asks the API.
const API_VOLUMES: [(&str, &str); 7] = [
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];
const API_SOURCES: [(&str, &str); 5] = [
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

pub(super) fn check(
    node: &str,
    subresource: &str,
    operation: Operation,
    attributes: &Attributes<'_>,
    store: &Arc<dyn Writer>,
    (new, old): (&Value, &Value),
) -> Checked {
    match (subresource, operation) {
        ("", Operation::Create) => mirror(node, new, store),
        ("", Operation::Delete) => match runs_on(&*found(store, attributes.namespace, attributes.name)?, node) {
            true => Ok(()),
            false => refuse(format!("node {node:?} can only delete pods with spec.nodeName set to itself")),
        },
        ("", operation) => refuse(format!("{}, node {node:?} can only create and delete mirror pods", unexpected(operation))),
        ("status", Operation::Update) => status(node, new, old),
        ("status", operation) => refuse(unexpected(operation)),
        ("eviction", Operation::Create) => {
            let name = Some(attributes.name).filter(|n| !n.is_empty()).unwrap_or(new.name());
            match name {
                "" => refuse("could not determine pod from request data"),
                name if runs_on(&*found(store, attributes.namespace, name)?, node) => Ok(()),
                _ => refuse(format!("node {node} can only evict pods with spec.nodeName set to itself")),
            }
        }
        ("eviction", operation) => refuse(format!("unexpected operation {}", verb(operation))),
        (other, _) => refuse(format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed")),
    }
}

fn found(store: &Arc<dyn Writer>, namespace: &str, name: &str) -> Result<Arc<Value>, Refusal> {
    store.get("pods", namespace, name).ok_or_else(|| Refusal::Missing(ApiError::not_found("", "pods", name)))
}

fn runs_on(pod: &Value, node: &str) -> bool {
    pod.str_at("/spec/nodeName") == Some(node)
}

/// What a node runs by itself it may show, as its own and nobody else's.
fn mirror(node: &str, pod: &Value, store: &Arc<dyn Writer>) -> Checked {
    if pod.annotation(MIRROR).is_none() {
        return refuse(format!("pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"));
    }
    if !runs_on(pod, node) {
        return refuse(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
    }
    let owner = match pod.array_at("/metadata/ownerReferences") {
        [owner] => owner,
        [] => return refuse(format!("node {node:?} can only create pods with an owner reference set to itself")),
        _ => return refuse(format!("node {node:?} can only create pods with a single owner reference set to itself")),
    };
    if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != node {
        return refuse(format!("node {node:?} can only create pods with an owner reference set to itself"));
    }
    if owner["controller"] != true {
        return refuse(format!("node {node:?} can only create pods with a controller owner reference set to itself"));
    }
    if owner["blockOwnerDeletion"] == true {
        return refuse(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
    }
    let own = store.get("nodes", "", node).ok_or_else(|| Refusal::Missing(ApiError::not_found("", "nodes", node)))?;
    let uid = owner["uid"].as_str().unwrap_or_default();
    if uid != own.uid() {
        return refuse(format!("node {node} UID mismatch: expected {uid} got {}", own.uid()));
    }
    match api_reference(pod) {
        Some(resource) => refuse(format!("node {node:?} can not create pods that reference {resource}")),
        None => Ok(()),
    }
}

/// What a pod needs of the API.
fn api_reference(pod: &Value) -> Option<&'static str> {
    let spec = &pod["spec"];
    let has = |value: &Value, key: &str| !value[key].is_null();
    if spec["serviceAccountName"].as_str().is_some_and(|name| !name.is_empty()) {
        return Some("serviceaccounts");
    }
    let containers =
        || ["containers", "initContainers", "ephemeralContainers"].into_iter().flat_map(|list| spec[list].as_array().into_iter().flatten());
    let from = |reference: &str, key: &str| {
        containers().any(|container| {
            let whole = container["envFrom"].as_array().into_iter().flatten().any(|e| has(e, reference));
            whole || container["env"].as_array().into_iter().flatten().any(|e| has(&e["valueFrom"], key))
        })
    };
    if !pod.array_at("/spec/imagePullSecrets").is_empty() || from("secretRef", "secretKeyRef") {
        return Some("secrets");
    }
    if from("configMapRef", "configMapKeyRef") {
        return Some("configmaps");
    }
    if !pod.array_at("/spec/resourceClaims").is_empty() {
        return Some("resourceclaims");
    }
    let of_volume = |volume: &Value| {
        let direct = API_VOLUMES.iter().find(|(key, _)| has(volume, key));
        let sources = volume["projected"]["sources"].as_array().into_iter().flatten();
        direct
            .or_else(|| sources.into_iter().find_map(|source| API_SOURCES.iter().find(|(key, _)| has(source, key))))
            .map(|(_, what)| *what)
    };
    pod.array_at("/spec/volumes").iter().find_map(of_volume)
}

fn status(node: &str, new: &Value, old: &Value) -> Checked {
    if !runs_on(old, node) {
        return refuse(format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself"));
    }
    let differs = |pointer: &str| {
        let of = |pod: &Value| pod.pointer(pointer).filter(|v| !crate::strategy::edit::is_zero(v)).cloned();
        of(new) != of(old)
    };
    for (pointer, why) in [
        ("/metadata/labels", "cannot update labels through pod status"),
        ("/status/resourceClaimStatuses", "cannot update resource claim statues"),
        ("/status/extendedResourceClaimStatus", "cannot update extended resource claim status"),
        ("/status/nodeAllocatableResourceClaimStatuses", "cannot update node allocatable resource claim statuses"),
    ] {
        if differs(pointer) {
            return refuse(format!("node {node:?} {why}"));
        }
    }
    Ok(())
}

/// Tokens are for pods of the node, with the audiences that they want.
pub(super) fn token(node: &str, attributes: &Attributes<'_>, request: &Value, store: &Arc<dyn Writer>) -> Checked {
    let bound = &request["spec"]["boundObjectRef"];
    let text = |key: &str| bound[key].as_str().unwrap_or_default();
    if text("apiVersion") != "v1" || text("kind") != "Pod" || text("name").is_empty() {
        return refuse("node requested token not bound to a pod");
    }
    if text("uid").is_empty() {
        return refuse("node requested token with a pod binding without a uid");
    }
    let pod = found(store, attributes.namespace, text("name"))?;
    if text("uid") != pod.uid() {
        return refuse(format!(
            "the UID in the bound object reference ({}) does not match the UID in record. The object might have been deleted and then recreated",
            text("uid")
        ));
    }
    if !runs_on(&pod, node) {
        return refuse("node requested token bound to a pod scheduled on a different node");
    }
    let audience = match request.array_at("/spec/audiences") {
        [] => "",
        [one] => one.as_str().unwrap_or_default(),
        _ => return refuse("node may only request 0 or 1 audiences"),
    };
    if wants_audience(&pod, audience, store)
        || is_granted(attributes, store, "request-serviceaccounts-token-audience", audience, attributes.name)
    {
        return Ok(());
    }
    refuse(format!("{} is not authorized to request tokens for audience {audience:?}", attributes.user.name))
}

/// By a projected volume, or by a volume whose driver asks for it.
fn wants_audience(pod: &Value, audience: &str, store: &Arc<dyn Writer>) -> bool {
    let is_it = |value: &Value| value.as_str().unwrap_or_default() == audience;
    let driver_of_claim = |claim: &str| {
        let claim = store.get("persistentvolumeclaims", pod.namespace(), claim)?;
        let volume = store.get("persistentvolumes", "", claim.str_at("/spec/volumeName")?)?;
        volume.str_at("/spec/csi/driver").map(str::to_string)
    };
    pod.array_at("/spec/volumes").iter().any(|volume| {
        let mut sources = volume["projected"]["sources"].as_array().into_iter().flatten();
        if sources.any(|source| source["serviceAccountToken"].is_object() && is_it(&source["serviceAccountToken"]["audience"])) {
            return true;
        }
        let driver = match (&volume["csi"], &volume["persistentVolumeClaim"], &volume["ephemeral"]) {
            (csi, ..) if csi.is_object() => csi["driver"].as_str().map(str::to_string),
            (_, claim, _) if claim.is_object() => claim["claimName"].as_str().and_then(driver_of_claim),
            (_, _, ephemeral) if ephemeral.is_object() => {
                driver_of_claim(&format!("{}-{}", pod.name(), volume["name"].as_str().unwrap_or_default()))
            }
            _ => None,
        };
        let driver = driver.and_then(|name| store.get("csidrivers.storage.k8s.io", "", &name));
        driver.is_some_and(|driver| driver.array_at("/spec/tokenRequests").iter().any(|request| is_it(&request["audience"])))
    })
}

/// Certificates are for pods of the node, by signers that they name.
pub(super) fn certificate(
    node: &str,
    subresource: &str,
    operation: Operation,
    attributes: &Attributes<'_>,
    request: &Value,
    store: &Arc<dyn Writer>,
) -> Checked {
    if operation != Operation::Create {
        return refuse(format!("unexpected operation {}", verb(operation)));
    }
    if !subresource.is_empty() {
        return refuse(format!("unexpected subresource {subresource}"));
    }
    let spec = |key: &str| request["spec"][key].as_str().unwrap_or_default();
    if spec("nodeName") != node {
        return refuse(format!("PodCertificateRequest.Spec.NodeName={:?}, which is not the requesting node {node:?}", spec("nodeName")));
    }
    let key = format!("{}/{}", attributes.namespace, spec("podName"));
    // What may be true in a moment is no refusal: kubelets try again.
    let not_yet = |why: String| Err(Refusal::Missing(ApiError::internal(why)));
    let Some(own) = store.get("nodes", "", node) else {
        return not_yet(format!("while retrieving node {node:?} named in the PodCertificateRequest"));
    };
    if own.uid() != spec("nodeUID") {
        return not_yet(format!(
            "PodCertificateRequest for pod {key:?} names node UID {:?}, inconsistent with the running node ({:?})",
            spec("nodeUID"),
            own.uid()
        ));
    }
    let Some(pod) = store.get("pods", attributes.namespace, spec("podName")) else {
        return not_yet(format!("while retrieving pod {key:?} named in the PodCertificateRequest"));
    };
    if pod.uid() != spec("podUID") {
        return not_yet(format!(
            "PodCertificateRequest for pod {key:?} contains pod UID ({:?}) which differs from running pod {:?}",
            spec("podUID"),
            pod.uid()
        ));
    }
    if !runs_on(&pod, node) {
        return refuse(format!("pod {key:?} is not running on node {node:?} named in the PodCertificateRequest"));
    }
    if pod.annotation(MIRROR).is_some() {
        return refuse(format!("pod {key:?} is a mirror pod"));
    }
    let account = pod.str_at("/spec/serviceAccountName").unwrap_or_default();
    if spec("serviceAccountName") != account {
        return refuse(format!(
            "PodCertificateRequest for pod {key:?} contains serviceAccountName ({:?}) that differs from running pod ({account:?})",
            spec("serviceAccountName")
        ));
    }
    match store.get("serviceaccounts", attributes.namespace, account) {
        None => return not_yet(format!("while retrieving service account {account:?} named in the PodCertificateRequest")),
        Some(found) if found.uid() != spec("serviceAccountUID") => {
            return not_yet(format!(
                "PodCertificateRequest for pod {key:?} names service account UID {:?}, which differs from the running one",
                spec("serviceAccountUID")
            ));
        }
        Some(_) => {}
    }
    let signer = spec("signerName");
    let sources = pod.array_at("/spec/volumes").iter().flat_map(|v| v["projected"]["sources"].as_array().into_iter().flatten());
    if sources.into_iter().any(|source| source["podCertificate"]["signerName"] == signer) {
        return Ok(());
    }
    let granted = is_granted(attributes, store, "request-serviceaccounts-podcertificate-signer", &signer.replace('/', ":"), account);
    if granted { Ok(()) } else { refuse(format!("pod {key:?} does not mount a podCertificate projected volume for signer {signer:?}")) }
}
