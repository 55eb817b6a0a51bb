//! What a node may write: itself, and what belongs to the pods that run on it. As in
//! `plugin/pkg/admission/noderestriction`. Authorization has decided by the path; what is in the object is decided here.

mod node;
mod pod;

use super::certificates::of_subject;
use super::{Attributes, Operation, Plugin};
use crate::auth::authz::{AuthzAttributes, has_group};
use crate::auth::{NODE_LEASES, NODE_PREFIX, NODES};
use crate::reader::Writer;
use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::{ApiError, ObjectExt as _};

pub(super) struct NodeRestriction;

const LEASES: &str = "leases.coordination.k8s.io";
const CSI_NODES: &str = "csinodes.storage.k8s.io";
const SLICES: &str = "resourceslices.resource.k8s.io";
const CERTIFICATES: &str = "certificatesigningrequests.certificates.k8s.io";
const POD_CERTIFICATES: &str = "podcertificaterequests.certificates.k8s.io";
/// Signers of kubelets' own certificates.
const KUBELET_SIGNERS: [&str; 2] = ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];

/// Why a request is refused.
enum Refusal {
    Forbidden(String),
    /// Told as it is: what the request is about is not there.
    Missing(ApiError),
}

type Checked = Result<(), Refusal>;

fn refuse(why: impl Into<String>) -> Checked {
    Err(Refusal::Forbidden(why.into()))
}

#[async_trait]
impl Plugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation != Operation::Connect && has_group(attributes.user, NODES)
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let Some(node) = attributes.user.name.strip_prefix(NODE_PREFIX) else { return Ok(()) };
        let checked = match node {
            "" => refuse(format!("could not determine node from user {:?}", attributes.user.name)),
            node => check(node, attributes, store),
        };
        checked.map_err(|refusal| match refusal {
            Refusal::Forbidden(why) => attributes.forbidden(why),
            Refusal::Missing(error) => error,
        })
    }
}

fn check(node: &str, attributes: &Attributes<'_>, store: &Arc<dyn Writer>) -> Checked {
    let none = Value::Null;
    let (new, old) = (attributes.object.as_ref().unwrap_or(&none), attributes.old.as_deref().unwrap_or(&none));
    let is = |group_resource: &str| attributes.is(group_resource);
    match (attributes.subresource, attributes.operation) {
        (subresource, operation) if is("pods") => pod::check(node, subresource, operation, attributes, store, (new, old)),
        (_, operation) if is("nodes") => node::check(node, attributes.name, operation, (new, old)),
        ("status", Operation::Update) if is("persistentvolumeclaims") => claim_status(node, new, old),
        ("status", operation) if is("persistentvolumeclaims") => refuse(unexpected(operation)),
        _ if is("persistentvolumeclaims") => refuse("may only update PVC status"),
        ("token", Operation::Create) if is("serviceaccounts") => pod::token(node, attributes, new, store),
        (subresource, operation) if is(POD_CERTIFICATES) => pod::certificate(node, subresource, operation, attributes, new, store),
        (_, operation) if is(LEASES) => {
            if attributes.namespace != NODE_LEASES {
                return refuse(format!("can only access leases in the {NODE_LEASES:?} system namespace"));
            }
            own_name(node, attributes, operation, new, "node lease")
        }
        (subresource, operation) if is(CSI_NODES) => {
            own_name(node, attributes, operation, new, "CSINode")?;
            match subresource {
                "status" => refuse("CSIVolumeHealth feature gate is disabled"),
                _ => Ok(()),
            }
        }
        (_, Operation::Create) if is(SLICES) && new.str_at("/spec/nodeName") != Some(node) => {
            refuse("can only create ResourceSlice with the same NodeName as the requesting node")
        }
        (_, Operation::Delete) if is(SLICES) && old.str_at("/spec/nodeName") != Some(node) => {
            refuse("can only delete ResourceSlice with the same NodeName as the requesting node")
        }
        ("", Operation::Create) if is(CERTIFICATES) => certificate(node, new),
        _ => Ok(()),
    }
}

fn unexpected(operation: Operation) -> String {
    format!("unexpected operation {:?}", verb(operation))
}

/// As upstream's operations are written.
fn verb(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    }
}

fn own_name(node: &str, attributes: &Attributes<'_>, operation: Operation, new: &Value, what: &str) -> Checked {
    let name = if operation == Operation::Create { new.name() } else { attributes.name };
    if name == node { Ok(()) } else { refuse(format!("can only access {what} with the same name as the requesting node")) }
}

/// Of a claim's status nodes write how far a resize has come.
fn claim_status(node: &str, new: &Value, old: &Value) -> Checked {
    let rest = |claim: &Value| {
        let mut claim = claim.clone();
        for (parent, keys) in [
            ("/metadata", &["resourceVersion", "managedFields"][..]),
            ("/status", &["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"][..]),
        ] {
            if let Some(map) = claim.pointer_mut(parent).and_then(Value::as_object_mut) {
                map.retain(|key, _| !keys.contains(&key.as_str()));
            }
        }
        claim
    };
    if rest(new) == rest(old) {
        return Ok(());
    }
    refuse(format!("node {node:?} is not allowed to update fields other than status.quantity and status.conditions"))
}

fn certificate(node: &str, new: &Value) -> Checked {
    if !new.str_at("/spec/signerName").is_some_and(|signer| KUBELET_SIGNERS.contains(&signer)) {
        return Ok(());
    }
    let encoded = new.str_at("/spec/request").unwrap_or_default();
    let common_name = of_subject(encoded, |subject| Some(subject.iter_common_name().next()?.as_str().ok()?.to_string()));
    match common_name.ok().flatten() {
        Some(name) if name.strip_prefix(NODE_PREFIX) == Some(node) => Ok(()),
        Some(_) => refuse(format!("can only create a node CSR with CN=system:node:{node}")),
        None => refuse("unable to parse csr: PEM block type must be CERTIFICATE REQUEST"),
    }
}

/// Whether a rule gives the node what none of its pods asks for.
fn is_granted(attributes: &Attributes<'_>, store: &Arc<dyn Writer>, verb: &str, resource: &str, name: &str) -> bool {
    let asked = AuthzAttributes {
        namespace: attributes.namespace,
        name,
        ..AuthzAttributes::resource(attributes.user, verb, &attributes.resource.group, resource)
    };
    store.server().is_some_and(|server| server.authorization().check(&asked).is_ok())
}

#[cfg(test)]
mod tests;
