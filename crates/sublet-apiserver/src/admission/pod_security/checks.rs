//! The checks of pods and since which version they hold, in upstream's order.

use super::level::{Level, LevelVersion};
use super::{containers, pod};
use serde_json::Value;

/// Why a pod does not fit, and the particulars.
pub(super) struct Finding {
    pub reason: String,
    pub detail: String,
}

/// A pod or the template of one.
#[derive(Clone, Copy)]
pub(super) struct Pod<'a> {
    pub metadata: &'a Value,
    pub spec: &'a Value,
}

pub(super) type Check = fn(Pod<'_>, u32) -> Option<Finding>;

struct Rule {
    level: Level,
    /// The first minor version in which the check exists.
    since: u32,
    /// From this version on a stricter check takes its place at the restricted level.
    replaced: Option<u32>,
    check: Check,
}

const NEWEST: u32 = 37;

const fn baseline(since: u32, check: Check) -> Rule {
    Rule { level: Level::Baseline, since, replaced: None, check }
}

const fn replaced(from: u32, check: Check) -> Rule {
    Rule { level: Level::Baseline, since: 0, replaced: Some(from), check }
}

const fn restricted(since: u32, check: Check) -> Rule {
    Rule { level: Level::Restricted, since, replaced: None, check }
}

const RULES: [Rule; 19] = [
    baseline(0, pod::app_armor),
    replaced(22, containers::capabilities),
    baseline(0, pod::host_namespaces),
    replaced(0, pod::host_paths),
    baseline(0, containers::host_ports),
    baseline(34, containers::hosts),
    baseline(0, containers::privileged),
    replaced(35, containers::proc_mount),
    baseline(0, containers::se_linux),
    replaced(19, containers::seccomp),
    baseline(0, pod::sysctls),
    baseline(0, containers::host_process),
    restricted(8, containers::escalation),
    restricted(22, containers::capabilities_strict),
    restricted(35, containers::proc_mount_strict),
    restricted(0, pod::volumes),
    restricted(0, containers::non_root),
    restricted(23, containers::user),
    restricted(19, containers::seccomp_strict),
];

/// What of the pod the level does not allow.
pub(super) fn evaluate(at: LevelVersion, pod: Pod<'_>) -> Vec<Finding> {
    let version = at.version.unwrap_or(NEWEST).min(NEWEST);
    let holds = |rule: &&Rule| {
        rule.level <= at.level
            && rule.since <= version
            && !(at.level == Level::Restricted && rule.replaced.is_some_and(|from| version >= from))
    };
    if at.level == Level::Privileged {
        return Vec::new();
    }
    RULES.iter().filter(holds).filter_map(|rule| (rule.check)(pod, version)).collect()
}

/// `reason (detail), reason (detail)`
pub(super) fn details(findings: &[Finding]) -> String {
    let texts: Vec<String> = findings
        .iter()
        .map(|finding| if finding.detail.is_empty() { finding.reason.clone() } else { format!("{} ({})", finding.reason, finding.detail) })
        .collect();
    texts.join(", ")
}

pub(super) fn reasons(findings: &[Finding]) -> String {
    findings.iter().map(|finding| finding.reason.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's fixtures, each with what upstream's checks say of it, from the version on in which they say so.
    #[test]
    fn upstreams_fixtures_are_judged_as_upstream_judges_them() {
        let cases: Vec<Value> = serde_json::from_str(include_str!("../../../tests/golden/pod_security.json")).expect("JSON");
        assert!(cases.len() > 300);
        for case in &cases {
            let pod = Pod { metadata: &case["pod"]["metadata"], spec: &case["pod"]["spec"] };
            for (name, level) in [("baseline", Level::Baseline), ("restricted", Level::Restricted)] {
                let mut expected = "";
                for minor in 0..=NEWEST {
                    expected = case[name][format!("v1.{minor}")].as_str().unwrap_or(expected);
                    let ours = details(&evaluate(LevelVersion { level, version: Some(minor) }, pod));
                    assert_eq!(ours, expected, "{} at {name} v1.{minor}", case["name"]);
                }
            }
        }
    }
}
