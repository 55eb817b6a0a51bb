//! The flags of `sublet apiserver` for the audit log, named as kube-apiserver's.

use anyhow::{Context as _, Result, anyhow};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::time::Duration;
use sublet_apiserver::audit::{AuditConfig, LogConfig, LogMode, LogTarget, Policy};

/// What a maximum of zero means, as in kube-apiserver.
const MEGABYTES_MAX: u64 = 100;

#[derive(Args)]
pub struct AuditArguments {
    /// What to write to the audit log: a Policy of audit.k8s.io/v1
    #[arg(long, requires = "audit_log_path", value_name = "FILE")]
    audit_policy_file: Option<PathBuf>,
    /// Where the audit log goes; `-` is standard output
    #[arg(long, requires = "audit_policy_file", value_name = "FILE")]
    audit_log_path: Option<PathBuf>,
    /// Megabytes after which the file is set aside; 0 means 100
    #[arg(long, default_value_t = 0, value_name = "MEGABYTES")]
    audit_log_maxsize: u64,
    /// How many files that were set aside are kept; 0 keeps all
    #[arg(long, default_value_t = 0, value_name = "FILES")]
    audit_log_maxbackup: usize,
    /// For how many days files that were set aside are kept; 0 keeps them
    #[arg(long, default_value_t = 0, value_name = "DAYS")]
    audit_log_maxage: u64,
    /// What happens when events come too fast: requests wait (blocking), or events are lost and counted (batch)
    #[arg(long, value_enum, default_value = "blocking")]
    audit_log_mode: Mode,
}

#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    Blocking,
    Batch,
}

impl AuditArguments {
    pub fn config(&self) -> Result<Option<AuditConfig>> {
        let (Some(policy), Some(path)) = (&self.audit_policy_file, &self.audit_log_path) else { return Ok(None) };
        let text = std::fs::read_to_string(policy).with_context(|| format!("--audit-policy-file: cannot read {}", policy.display()))?;
        let policy =
            Policy::parse(&text).map_err(|why| anyhow!(why)).with_context(|| format!("--audit-policy-file: {}", policy.display()))?;
        let log = LogConfig {
            target: if path == Path::new("-") { LogTarget::Stdout } else { LogTarget::File(path.clone()) },
            mode: match self.audit_log_mode {
                Mode::Blocking => LogMode::Blocking,
                Mode::Batch => LogMode::Batch,
            },
            bytes_max: if self.audit_log_maxsize == 0 { MEGABYTES_MAX } else { self.audit_log_maxsize } << 20,
            backups_max: self.audit_log_maxbackup,
            age_max: (self.audit_log_maxage > 0).then(|| Duration::from_hours(24 * self.audit_log_maxage)),
        };
        Ok(Some(AuditConfig { policy, log, annotations: Vec::new() }))
    }
}
