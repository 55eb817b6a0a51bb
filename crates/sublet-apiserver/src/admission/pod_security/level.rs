//! What the labels of a namespace ask for.

use serde_json::Value;
use std::fmt;
use sublet_machinery::{FieldError, FieldPath, ObjectExt};

/// In the order of strictness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    #[default]
    Privileged,
    Baseline,
    Restricted,
}

/// A minor version; `None` is the newest.
pub(super) type Version = Option<u32>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LevelVersion {
    pub level: Level,
    pub version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub enforce: LevelVersion,
    pub audit: LevelVersion,
    pub warn: LevelVersion,
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        match self.version {
            Some(minor) => write!(f, "{level}:v1.{minor}"),
            None => write!(f, "{level}:latest"),
        }
    }
}

const ANYTHING: LevelVersion = LevelVersion { level: Level::Privileged, version: None };

/// The policy, and the labels that say nothing known. Such a level stands for the strictest one when it is about
/// enforcement and for the loosest otherwise; such a version stands for the newest.
pub(super) fn read(namespace: &Value) -> (Policy, Vec<FieldError>) {
    let mut labels = Labels { namespace, errors: Vec::new() };
    let (enforce_level, enforce_version) = labels.mode("enforce");
    let (audit_level, audit_version) = labels.mode("audit");
    let (warn_level, warn_version) = labels.mode("warn");
    let part = |level: Option<Option<Level>>, version: Option<Option<Version>>, otherwise: Level| LevelVersion {
        level: level.map_or(Level::Privileged, |level| level.unwrap_or(otherwise)),
        version: version.flatten().flatten(),
    };
    let enforce = part(enforce_level, enforce_version, Level::Restricted);
    let audit = part(audit_level, audit_version, Level::Privileged);
    let mut warn = part(warn_level, warn_version, Level::Privileged);
    // Who enforces and does not say what to warn of is warned of what would be refused.
    if warn_level.is_none() && enforce_level.flatten().is_some() && enforce.level > warn.level {
        warn.level = enforce.level;
        if warn_version.is_none() {
            warn.version = enforce.version;
        }
    }
    (Policy { enforce, audit, warn }, labels.errors)
}

impl Policy {
    /// What is enforced and warned of where nothing below `least` is allowed.
    pub fn at_least(mut self, least: Level) -> Self {
        for part in [&mut self.enforce, &mut self.warn] {
            if part.level < least {
                *part = LevelVersion { level: least, version: None };
            }
        }
        self
    }

    pub fn is_anything_allowed(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|part| part.level == ANYTHING.level)
    }
}

struct Labels<'a> {
    namespace: &'a Value,
    errors: Vec<FieldError>,
}

impl Labels<'_> {
    /// Level and version: not given, given and wrong, or read.
    fn mode(&mut self, mode: &str) -> (Option<Option<Level>>, Option<Option<Version>>) {
        let level = self.label(mode, parse_level, "must be one of privileged, baseline, restricted");
        let version = self.label(&format!("{mode}-version"), parse_version, "must be \"latest\" or \"v1.x\"");
        (level, version)
    }

    fn label<T>(&mut self, name: &str, parse: fn(&str) -> Option<T>, expected: &str) -> Option<Option<T>> {
        let key = format!("pod-security.kubernetes.io/{name}");
        let text = self.namespace.label(&key)?;
        let read = parse(text);
        if read.is_none() {
            self.errors.push(FieldError::invalid(&FieldPath::new("metadata.labels").key(&key), text, expected));
        }
        Some(read)
    }
}

fn parse_level(text: &str) -> Option<Level> {
    match text {
        "privileged" => Some(Level::Privileged),
        "baseline" => Some(Level::Baseline),
        "restricted" => Some(Level::Restricted),
        _ => None,
    }
}

fn parse_version(text: &str) -> Option<Version> {
    if text == "latest" {
        return Some(None);
    }
    let minor = text.strip_prefix("v1.")?;
    let plain = minor.bytes().all(|b| b.is_ascii_digit()) && (minor == "0" || !minor.starts_with('0'));
    if plain { minor.parse().ok().map(Some) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn policy(labels: &[(&str, &str)]) -> (String, usize) {
        let labels: serde_json::Map<_, _> = labels.iter().map(|(k, v)| (format!("pod-security.kubernetes.io/{k}"), json!(v))).collect();
        let (policy, errors) = read(&json!({"metadata": {"labels": labels}}));
        (format!("{} {} {}", policy.enforce, policy.audit, policy.warn), errors.len())
    }

    #[test]
    fn labels_are_read_as_upstream_reads_them() {
        let cases: [(&[(&str, &str)], &str, usize); 7] = [
            (&[], "privileged:latest privileged:latest privileged:latest", 0),
            (&[("enforce", "baseline")], "baseline:latest privileged:latest baseline:latest", 0),
            (&[("enforce", "baseline"), ("enforce-version", "v1.22")], "baseline:v1.22 privileged:latest baseline:v1.22", 0),
            (&[("enforce", "restricted"), ("warn", "baseline")], "restricted:latest privileged:latest baseline:latest", 0),
            (&[("enforce", "foo"), ("audit", "foo"), ("warn", "foo")], "restricted:latest privileged:latest privileged:latest", 3),
            (&[("enforce", "baseline"), ("warn-version", "v1.5")], "baseline:latest privileged:latest baseline:v1.5", 0),
            (&[("audit-version", "v1.01"), ("warn-version", "1.2")], "privileged:latest privileged:latest privileged:latest", 2),
        ];
        for (labels, expected, errors) in cases {
            assert_eq!(policy(labels), (expected.to_string(), errors), "{labels:?}");
        }
    }
}
