//! Checks of what a pod says as a whole.

use super::checks::{Finding, Pod};
use super::words::{Setters, finding, plural, quoted, text};
use std::collections::BTreeSet;

const SYSCTLS: [(u32, &str); 14] = [
    (0, "kernel.shm_rmid_forced"),
    (0, "net.ipv4.ip_local_port_range"),
    (0, "net.ipv4.tcp_syncookies"),
    (0, "net.ipv4.ping_group_range"),
    (0, "net.ipv4.ip_unprivileged_port_start"),
    (27, "net.ipv4.ip_local_reserved_ports"),
    (29, "net.ipv4.tcp_keepalive_time"),
    (29, "net.ipv4.tcp_fin_timeout"),
    (29, "net.ipv4.tcp_keepalive_intvl"),
    (29, "net.ipv4.tcp_keepalive_probes"),
    (32, "net.ipv4.tcp_rmem"),
    (32, "net.ipv4.tcp_wmem"),
    (37, "net.ipv4.tcp_slow_start_after_idle"),
    (37, "net.ipv4.tcp_notsent_lowat"),
];

const VOLUMES: [&str; 9] =
    ["configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret"];

const OTHER_VOLUMES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

pub(super) fn app_armor(pod: Pod<'_>, _: u32) -> Option<Finding> {
    const NOTE: &str = "container.apparmor.security.beta.kubernetes.io/";
    let setters = Setters::find(pod, |context| {
        let kind = text(&context["appArmorProfile"]["type"]);
        let wrong = context["appArmorProfile"].is_object() && !matches!(kind, "RuntimeDefault" | "Localhost");
        wrong.then(|| vec![kind.to_string()])
    });
    let allowed = |profile: &str| profile.is_empty() || profile == "runtime/default" || profile.starts_with("localhost/");
    let annotations = pod.metadata["annotations"].as_object().into_iter().flatten();
    let mut notes: Vec<String> = annotations
        .filter(|(key, value)| key.starts_with(NOTE) && !allowed(text(value)))
        .map(|(key, value)| format!("{key}={:?}", text(value)))
        .collect();
    notes.sort();
    if setters.is_empty() && notes.is_empty() {
        return None;
    }
    let mut who: Vec<String> = vec![setters.words()];
    who.retain(|words| !words.is_empty());
    if !notes.is_empty() {
        who.push(plural("annotation", "annotations", notes.len()).into());
    }
    let values: Vec<String> = setters.values.into_iter().chain(notes).collect();
    let reason = plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.len());
    finding(reason, format!("{} must not set AppArmor profile type to {}", who.join(" and "), quoted(&values)))
}

pub(super) fn host_namespaces(pod: Pod<'_>, _: u32) -> Option<Finding> {
    let used: Vec<String> =
        ["hostNetwork", "hostPID", "hostIPC"].iter().filter(|key| pod.spec[**key] == true).map(|key| format!("{key}=true")).collect();
    if used.is_empty() { None } else { finding("host namespaces", used.join(", ")) }
}

pub(super) fn host_paths(pod: Pod<'_>, _: u32) -> Option<Finding> {
    let volumes = pod.spec["volumes"].as_array().into_iter().flatten();
    let names: Vec<&str> = volumes.filter(|volume| volume["hostPath"].is_object()).map(|volume| text(&volume["name"])).collect();
    if names.is_empty() {
        return None;
    }
    finding("hostPath volumes", format!("{} {}", plural("volume", "volumes", names.len()), quoted(&names)))
}

pub(super) fn sysctls(pod: Pod<'_>, version: u32) -> Option<Finding> {
    let allowed = |name: &str| SYSCTLS.iter().any(|(since, known)| *since <= version && *known == name);
    let set = pod.spec["securityContext"]["sysctls"].as_array().into_iter().flatten();
    let names: Vec<&str> = set.map(|sysctl| text(&sysctl["name"])).filter(|name| !allowed(name)).collect();
    if names.is_empty() { None } else { finding("forbidden sysctls", names.join(", ")) }
}

pub(super) fn volumes(pod: Pod<'_>, _: u32) -> Option<Finding> {
    let (mut names, mut kinds) = (Vec::new(), BTreeSet::new());
    for volume in pod.spec["volumes"].as_array().into_iter().flatten() {
        let has = |key: &&&str| !volume[**key].is_null();
        if VOLUMES.iter().any(|key| has(&key)) {
            continue;
        }
        names.push(text(&volume["name"]));
        kinds.insert(*OTHER_VOLUMES.iter().find(has).unwrap_or(&"unknown"));
    }
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {} {}",
        plural("volume", "volumes", names.len()),
        quoted(&names),
        plural("uses", "use", names.len()),
        plural("restricted volume type", "restricted volume types", kinds.len()),
        quoted(&kinds)
    );
    finding("restricted volume types", detail)
}
