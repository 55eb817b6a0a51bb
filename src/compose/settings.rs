//! What the `VirtualCluster` says about its API server beside what it serves: the audit log.

use anyhow::{Context as _, Result, anyhow};
use std::path::Path;
use sublet_api::{AuditRules, AuditTarget, VirtualCluster};
use sublet_apiserver::audit::{AuditConfig, LogConfig, LogMode, LogTarget, Policy};
use sublet_apiserver::server::Server;

/// The audit log in a tenant's folder.
const AUDIT_FILE: &str = "audit.log";

/// Settings that an API server takes while it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    audit: Option<AuditRules>,
}

impl Settings {
    pub fn of(cluster: &VirtualCluster<'_>) -> Self {
        Self { audit: cluster.audit() }
    }

    /// Puts these in force where they differ from `current`, and remembers them there.
    pub async fn apply(&self, current: &mut Self, server: &Server, dir: &Path) -> Result<()> {
        if self.audit != current.audit {
            let audit = self.audit.as_ref().map(|rules| audit_config(rules, server.name(), dir)).transpose().context("spec.audit")?;
            server.set_audit(audit).await.context("the audit log cannot be opened")?;
            current.audit.clone_from(&self.audit);
        }
        Ok(())
    }
}

fn audit_config(rules: &AuditRules, name: &str, dir: &Path) -> Result<AuditConfig> {
    let policy = Policy::parse(&rules.policy.to_string()).map_err(|why| anyhow!(why))?;
    let log = LogConfig {
        target: match rules.target {
            AuditTarget::Stdout => LogTarget::Stdout,
            AuditTarget::File => LogTarget::File(dir.join(AUDIT_FILE)),
        },
        mode: if rules.blocking { LogMode::Blocking } else { LogMode::Batch },
        bytes_max: rules.megabytes_max << 20,
        backups_max: rules.backups_max,
        age_max: None,
    };
    Ok(AuditConfig { policy, log, annotations: vec![("sublet.dev/virtual-cluster".into(), name.into())] })
}
