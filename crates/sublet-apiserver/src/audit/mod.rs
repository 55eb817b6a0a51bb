//! Audit: who did what, as a policy asks for it, in upstream's form.
//!
//! Entry types: [`Auditor`] (a policy and a log), [`Record`] (what is kept of one request until it is answered),
//! [`Policy`], [`LogConfig`].
//!
//! A server without a policy has no auditor, and its requests have no record: they cost nothing. Bodies follow
//! the policy alone, as upstream's do: whoever asks for the bodies of Secrets or token requests finds them in the log.

mod event;
mod file;
mod log;
mod policy;
mod record;

pub use log::{LogConfig, LogMode, LogTarget};
pub use policy::{Level, Policy};
pub(crate) use record::audit_id;
pub use record::{Record, RemoteAddress};

use log::Log;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Requests name themselves by this header, and are told the name by it.
pub const AUDIT_ID: &str = "audit-id";

/// What is audited, and where it goes.
pub struct AuditConfig {
    pub policy: Policy,
    pub log: LogConfig,
    /// Is noted in every event: which of several servers it comes from.
    pub annotations: Vec<(String, String)>,
}

/// A policy and a log.
pub struct Auditor {
    policy: Policy,
    log: Log,
    annotations: Vec<(String, String)>,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    events: AtomicU64,
    /// Requests by the level that they had.
    levels: [AtomicU64; Level::ALL.len()],
}

impl Auditor {
    /// Opens the log; its writer runs until [`Self::close`].
    pub fn open(config: AuditConfig) -> io::Result<Self> {
        let AuditConfig { policy, log, annotations } = config;
        Ok(Self { policy, log: Log::open(log)?, annotations, counters: Counters::default() })
    }

    /// Writes what is waiting, and ends the writer.
    pub async fn close(&self) {
        self.log.close().await;
    }

    /// Upstream's metrics of auditing.
    pub(crate) fn render(&self, out: &mut String) {
        use std::fmt::Write as _;
        let mut put = |line: std::fmt::Arguments<'_>| writeln!(out, "{line}").expect("writing to a String");
        put(format_args!("# TYPE apiserver_audit_event_total counter"));
        put(format_args!("apiserver_audit_event_total {}", self.counters.events.load(Ordering::Relaxed)));
        put(format_args!("# TYPE apiserver_audit_level_total counter"));
        for ((_, name), count) in Level::ALL.iter().zip(&self.counters.levels) {
            put(format_args!("apiserver_audit_level_total{{level=\"{name}\"}} {}", count.load(Ordering::Relaxed)));
        }
        put(format_args!("# TYPE apiserver_audit_error_total counter"));
        put(format_args!("apiserver_audit_error_total{{plugin=\"log\"}} {}", self.log.lost()));
    }
}
