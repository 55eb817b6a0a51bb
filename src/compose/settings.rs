//! What the `VirtualCluster` says about its API server beside what it serves: the audit log, and whose tokens it believes.

use anyhow::{Context as _, Result, anyhow};
use serde_json::Value;
use std::path::Path;
use sublet_api::{AuditRules, AuditTarget, VirtualCluster};
use sublet_apiserver::audit::{AuditConfig, LogConfig, LogMode, LogTarget, Policy};
use sublet_apiserver::auth::jwt::AuthenticationConfiguration;
use sublet_apiserver::server::Server;

/// The audit log in a tenant's folder.
const AUDIT_FILE: &str = "audit.log";

/// Settings that an API server takes while it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    audit: Option<AuditRules>,
    authentication: Option<Value>,
}

impl Settings {
    pub fn of(cluster: &VirtualCluster<'_>) -> Self {
        Self { audit: cluster.audit(), authentication: cluster.authentication() }
    }

    /// Puts these in force where they differ from `current`, and remembers them there.
    pub async fn apply(&self, current: &mut Self, server: &Server, dir: &Path) -> Result<()> {
        if self.audit != current.audit {
            let audit = self.audit.as_ref().map(|rules| audit_config(rules, server.name(), dir)).transpose().context("spec.audit")?;
            server.set_audit(audit).await.context("the audit log cannot be opened")?;
            current.audit.clone_from(&self.audit);
        }
        if self.authentication != current.authentication {
            let config = match &self.authentication {
                Some(stated) => AuthenticationConfiguration::parse(&stated.to_string()),
                None => Ok(AuthenticationConfiguration::default()),
            };
            let applied = config.and_then(|config| server.set_authentication(&config));
            applied.map_err(|why| anyhow!(why)).context("spec.authentication")?;
            current.authentication.clone_from(&self.authentication);
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

#[cfg(test)]
mod tests {
    use super::super::testing::World;
    use super::*;
    use serde_json::json;
    use sublet_machinery::Gvr;

    fn settings(spec: Value) -> Settings {
        Settings::of(&VirtualCluster::new(&json!({"metadata": {"name": "alpha"}, "spec": spec})))
    }

    #[tokio::test]
    async fn settings_are_taken_while_it_runs_and_wrong_ones_change_nothing() {
        let world = World::start(|_| http::Response::default()).await;
        let dir = std::env::temp_dir().join(format!("sublet-settings-{}", world.api.address.port()));
        let mut current = Settings::default();
        let audited = json!({"policy": {"rules": [{"level": "Metadata"}]}, "log": {"target": "File"}});
        let wanted = settings(json!({"audit": audited}));
        wanted.apply(&mut current, &world.api.server, &dir).await.unwrap();
        world.api.client("test").get(&Gvr::new("", "v1", "nodes"), "", "node-1").await.unwrap();
        let wrong = settings(json!({"audit": {"policy": {"rules": [{"level": "Much"}]}}}));
        let error = wrong.apply(&mut current, &world.api.server, &dir).await.unwrap_err();
        assert!(format!("{error:#}").starts_with("spec.audit: rules[0].level: Unsupported value: \"Much\""), "{error:#}");
        assert_eq!(current, wanted);
        let wrong = settings(json!({"audit": audited, "authentication": {"jwt": [{"issuer": {"url": "http://x"}}]}}));
        let error = wrong.apply(&mut current, &world.api.server, &dir).await.unwrap_err();
        assert!(format!("{error:#}").contains("URL scheme must be https"), "{error:#}");
        settings(json!({})).apply(&mut current, &world.api.server, &dir).await.unwrap();
        let log = std::fs::read_to_string(dir.join(AUDIT_FILE)).unwrap();
        let event: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        assert_eq!(event["annotations"]["sublet.dev/virtual-cluster"], "alpha");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
