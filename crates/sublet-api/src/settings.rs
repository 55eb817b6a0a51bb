//! What a tenant's API server is told beside what it serves: `spec.audit` and `spec.authentication`.

use serde_json::{Map, Value, json};

/// Where the audit log of a tenant goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditTarget {
    /// Of the process that runs the control plane, where others may write as well.
    #[default]
    Stdout,
    /// `audit.log` beside the tenant's store.
    File,
}

/// `spec.audit`, with its defaults; nothing without a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRules {
    /// A Policy of `audit.k8s.io/v1`.
    pub policy: Value,
    pub target: AuditTarget,
    pub megabytes_max: u64,
    pub backups_max: usize,
    /// Requests wait for the log, where others have events lost that come too fast.
    pub blocking: bool,
}

impl AuditRules {
    pub(crate) fn of(audit: &Value) -> Option<Self> {
        let policy = completed(&audit["policy"], "audit.k8s.io/v1", "Policy")?;
        let log = &audit["log"];
        Some(Self {
            policy,
            target: if log["target"] == "File" { AuditTarget::File } else { AuditTarget::Stdout },
            megabytes_max: log["maxSizeMB"].as_u64().unwrap_or(100),
            backups_max: log["maxBackups"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(3),
            blocking: log["mode"] != "Batch",
        })
    }
}

/// A configuration with the type that it may leave out; nothing when it says nothing.
pub(crate) fn completed(stated: &Value, api_version: &str, kind: &str) -> Option<Value> {
    let stated = stated.as_object().filter(|stated| !stated.is_empty())?;
    let mut whole = Map::from_iter([("apiVersion".to_string(), json!(api_version)), ("kind".to_string(), json!(kind))]);
    whole.extend(stated.clone());
    Some(Value::Object(whole))
}

/// The schema of `spec.audit`.
pub(crate) fn audit_schema() -> Value {
    json!({
        "type": "object",
        "description": "What requests to the tenant's API server are written down, and where. Without a policy nothing is.",
        "properties": {
            "policy": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "description": "A Policy of audit.k8s.io/v1; apiVersion and kind may be left out."},
            "log": {
                "type": "object",
                "properties": {
                    "target": {"type": "string", "default": "Stdout", "enum": ["Stdout", "File"],
                        "description": "Stdout: of the pod that runs the control plane, each event with the annotation sublet.dev/virtual-cluster; File: audit.log beside the tenant's store."},
                    "mode": {"type": "string", "default": "Blocking", "enum": ["Blocking", "Batch"],
                        "description": "When events come faster than they are written, requests wait (Blocking), or events are lost and counted (Batch)."},
                    "maxSizeMB": {"type": "integer", "format": "int32", "default": 100, "minimum": 1, "maximum": 10240,
                        "description": "A file of this size is set aside."},
                    "maxBackups": {"type": "integer", "format": "int32", "default": 3, "minimum": 1, "maximum": 100,
                        "description": "How many files that were set aside are kept."},
                },
            },
        },
    })
}

/// The schema of `spec.authentication`.
pub(crate) fn authentication_schema() -> Value {
    json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "description": "An AuthenticationConfiguration of apiserver.config.k8s.io/v1 (jwt, anonymous); apiVersion and kind may be left out.",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_log_without_a_policy() {
        assert_eq!(AuditRules::of(&json!({"log": {"target": "File"}})), None);
        let rules =
            AuditRules::of(&json!({"policy": {"rules": [{"level": "Metadata"}]}, "log": {"target": "File", "mode": "Batch"}})).unwrap();
        assert_eq!(rules.policy, json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}));
        assert_eq!((rules.target, rules.megabytes_max, rules.backups_max, rules.blocking), (AuditTarget::File, 100, 3, false));
    }
}
