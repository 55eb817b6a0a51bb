//! Requests for certificates: which are approved without anybody looking, what the signers of Kubernetes sign, and
//! when requests are forgotten.

mod approve;
mod clean;
mod rules;
mod sign;

pub(crate) use approve::controller as approving;
pub(crate) use clean::{pod_requests as cleaning_pod_requests, requests as cleaning};
pub(crate) use sign::controller as signing;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_pki::{PkiError, Request};

const REQUESTS: Gvr = Gvr::new("certificates.k8s.io", "v1", "certificatesigningrequests");

const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";

/// Its mere presence counts, whatever its status says.
fn has(request: &Value, kind: &str) -> bool {
    request.array_at("/status/conditions").iter().any(|c| c["type"] == kind)
}

fn is_issued(request: &Value) -> bool {
    request.str_at("/status/certificate").is_some_and(|c| !c.is_empty())
}

fn usages(request: &Value) -> Vec<&str> {
    request.array_at("/spec/usages").iter().filter_map(Value::as_str).collect()
}

fn parsed(request: &Value) -> Result<Request, PkiError> {
    Request::parse(&STANDARD.decode(request.str_at("/spec/request").unwrap_or_default()).unwrap_or_default())
}
