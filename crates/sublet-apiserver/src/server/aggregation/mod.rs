//! API servers of the tenant's own behind APIServices: requests for their groups are passed on, and discovery shows
//! what they serve. A server that is away makes its own group unavailable and nothing else.

mod availability;
mod proxy;

use crate::outgoing::{Place, Target, Trust};
use crate::reader::Reader;
use crate::server::Server;
use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::ObjectExt;

const API_SERVICES: &str = "apiservices.apiregistration.k8s.io";

impl Server {
    /// The APIService that takes a path, when that is not this server.
    pub(crate) fn api_service_for(&self, path: &str) -> Option<Arc<Value>> {
        // Its description of itself lies beside its resources.
        let path = path.strip_prefix("/openapi/v3").unwrap_or(path);
        let mut parts = path.strip_prefix("/apis/")?.split('/');
        let (group, version) = (parts.next()?, parts.next()?);
        if group.is_empty() || version.is_empty() {
            return None;
        }
        let snapshot = self.registry().snapshot();
        if !snapshot.external.iter().any(|e| e.group == group && e.version == version) {
            return None;
        }
        self.get(API_SERVICES, "", &format!("{version}.{group}")).filter(|api| api["spec"]["service"].is_object())
    }
}

/// Where the server behind an APIService is.
fn target(api: &Value, path: &str) -> Result<Target, String> {
    let text = |pointer: &str| api.str_at(pointer).unwrap_or_default().to_string();
    let port = api.pointer("/spec/service/port").and_then(Value::as_u64).and_then(|p| u16::try_from(p).ok()).unwrap_or(443);
    let trust = match api.bool_at("/spec/insecureSkipTLSVerify") {
        Some(true) => Trust::Anybody,
        _ => Trust::of_bundle(&text("/spec/caBundle"))?,
    };
    let place = Place::Service { namespace: text("/spec/service/namespace"), name: text("/spec/service/name"), port };
    Ok(Target { place, path: path.to_string(), trust })
}

fn is_available(api: &Value) -> bool {
    api.is_condition_true("Available")
}
