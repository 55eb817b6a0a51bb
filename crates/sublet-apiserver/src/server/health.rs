//! Whether the server is well.

use crate::http::Query;
use crate::http::respond::{self, HttpResponse};
use http::StatusCode;
use std::fmt::Write as _;

/// What is checked, under upstream's names. There each stands for something that starts on its own after the server; here
/// all of it is done before the first request is answered.
const CHECKS: &[&str] = &[
    "ping",
    "log",
    "etcd",
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/bootstrap-controller",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/storage-readiness",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
];
/// Checked by `/readyz` alone.
const READY_CHECKS: &[&str] = &["informer-sync", "shutdown"];

/// The answer under a path of health; `None` under any other.
pub(super) fn answer(path: &str, query: &Query) -> Option<HttpResponse> {
    let (endpoint, check) = match path.trim_start_matches('/').split_once('/') {
        Some((endpoint, check)) => (endpoint, check),
        None => (path.trim_start_matches('/'), ""),
    };
    let more: &[&str] = match endpoint {
        "healthz" | "livez" => &[],
        "readyz" => READY_CHECKS,
        _ => return None,
    };
    let mut checks = CHECKS.iter().chain(more);
    if !check.is_empty() {
        let known = checks.any(|known| *known == check);
        return Some(if known { respond::text(StatusCode::OK, "ok") } else { respond::no_such_page() });
    }
    if !query.has("verbose") {
        return Some(respond::text(StatusCode::OK, "ok"));
    }
    let mut lines = String::new();
    for check in checks {
        writeln!(lines, "[+]{check} ok").expect("text can be written");
    }
    Some(respond::text(StatusCode::OK, format!("{lines}{endpoint} check passed\n")))
}
