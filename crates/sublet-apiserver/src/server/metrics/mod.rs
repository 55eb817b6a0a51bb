//! What is counted, with upstream's names and labels. Labels come from closed sets or from what is served, and the
//! number of series is bounded.

mod requests;
mod timings;

pub(super) use requests::Counted;

use super::Server;
use requests::Requests;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use timings::Timings;

/// Kinds that will go some day, and have been asked for.
const DEPRECATED_MAX: usize = 256;

/// What is counted of requests and what they cause.
#[derive(Default)]
pub struct Metrics {
    pub(super) requests: Requests,
    authentication: [AtomicU64; 3],
    /// Guards (group, version, resource, subresource).
    deprecated: Mutex<BTreeSet<[String; 4]>>,
    pub(crate) admission: Timings,
    pub(crate) webhooks: Timings,
}

/// How it went to find out who sent a request.
#[derive(Clone, Copy)]
pub(super) enum Authentication {
    Success,
    Failure,
    Error,
}

const AUTHENTICATION: [&str; 3] = ["success", "failure", "error"];

impl Metrics {
    pub(super) fn authenticated(&self, result: Authentication) {
        self.authentication[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn deprecated(&self, group: &str, version: &str, resource: &str, subresource: &str) {
        let mut known = self.deprecated.lock().expect("no holder of this lock panics");
        if known.len() < DEPRECATED_MAX {
            known.insert([group, version, resource, subresource].map(str::to_string));
        }
    }

    /// The Prometheus text form.
    pub fn render(&self, server: &Server) -> String {
        let mut out = String::new();
        let text = &mut out;
        self.requests.render(text);
        put(text, format_args!("# TYPE authentication_attempts counter"));
        for (result, count) in AUTHENTICATION.iter().zip(&self.authentication) {
            put(text, format_args!("authentication_attempts{{result=\"{result}\"}} {}", count.load(Ordering::Relaxed)));
        }
        put(text, format_args!("# TYPE apiserver_requested_deprecated_apis gauge"));
        for [group, version, resource, subresource] in &*self.deprecated.lock().expect("no holder of this lock panics") {
            let labels = format!("group=\"{group}\",removed_release=\"\",resource=\"{resource}\",subresource=\"{subresource}\"");
            put(text, format_args!("apiserver_requested_deprecated_apis{{{labels},version=\"{version}\"}} 1"));
        }
        self.admission.render(text, "apiserver_admission_step_admission_duration_seconds");
        self.webhooks.render(text, "apiserver_admission_webhook_admission_duration_seconds");
        objects(text, server);
        server.flow().render(text);
        if let Some(auditor) = server.auditor() {
            auditor.render(text);
        }
        out
    }
}

fn objects(text: &mut String, server: &Server) {
    let counts = server.store().counts();
    put(text, format_args!("# TYPE apiserver_storage_objects gauge"));
    for (resource, count) in &counts {
        put(text, format_args!("apiserver_storage_objects{{resource=\"{resource}\"}} {count}"));
    }
    put(text, format_args!("# TYPE apiserver_resource_objects gauge"));
    for (resource, count) in &counts {
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        put(text, format_args!("apiserver_resource_objects{{group=\"{group}\",resource=\"{resource}\"}} {count}"));
    }
    put(text, format_args!("# TYPE apiserver_storage_size_bytes gauge"));
    let size = server.store().backend().size_bytes();
    put(text, format_args!("apiserver_storage_size_bytes{{storage_cluster_id=\"embedded\"}} {size}"));
}

fn put(out: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(out, "{line}").expect("writing to a String");
}

/// A text inside of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
