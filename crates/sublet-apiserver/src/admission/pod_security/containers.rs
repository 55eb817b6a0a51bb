//! Checks of what containers say, alone or with the pod.

use super::checks::{Finding, Pod};
use super::words::{Setters, all_containers, containers, finding, has_own_users, is_windows, plural, quoted, text};
use serde_json::Value;
use std::collections::BTreeSet;

const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The names of containers that are wrong, and the values that make them so.
fn collect<'a>(pod: Pod<'a>, wrong: impl Fn(&'a Value) -> Vec<&'a str>) -> (Vec<&'a str>, BTreeSet<&'a str>) {
    let (mut names, mut values) = (Vec::new(), BTreeSet::new());
    for container in all_containers(pod) {
        let found = wrong(container);
        if !found.is_empty() {
            names.push(text(&container["name"]));
            values.extend(found);
        }
    }
    (names, values)
}

fn names_of<'a>(pod: Pod<'a>, wrong: impl Fn(&'a Value) -> bool) -> Vec<&'a str> {
    all_containers(pod).filter(|container| wrong(container)).map(|container| text(&container["name"])).collect()
}

fn list<'a>(value: &'a Value) -> impl Iterator<Item = &'a str> + use<'a> {
    value.as_array().into_iter().flatten().map(text)
}

pub(super) fn capabilities(pod: Pod<'_>, _: u32) -> Option<Finding> {
    let (names, added) = collect(pod, |container| {
        list(&container["securityContext"]["capabilities"]["add"]).filter(|name| !CAPABILITIES.contains(name)).collect()
    });
    if names.is_empty() {
        return None;
    }
    let detail = format!("{} must not include {} in securityContext.capabilities.add", containers(&names), quoted(&added));
    finding("non-default capabilities", detail)
}

pub(super) fn capabilities_strict(pod: Pod<'_>, version: u32) -> Option<Finding> {
    if version >= 25 && is_windows(pod) {
        return None;
    }
    let keeping = names_of(pod, |container| !list(&container["securityContext"]["capabilities"]["drop"]).any(|name| name == "ALL"));
    let (adding, added) = collect(pod, |container| {
        list(&container["securityContext"]["capabilities"]["add"]).filter(|name| *name != "NET_BIND_SERVICE").collect()
    });
    let mut details = Vec::new();
    if !keeping.is_empty() {
        details.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", containers(&keeping)));
    }
    if !adding.is_empty() {
        details.push(format!("{} must not include {} in securityContext.capabilities.add", containers(&adding), quoted(&added)));
    }
    if details.is_empty() { None } else { finding("unrestricted capabilities", details.join("; ")) }
}

pub(super) fn host_ports(pod: Pod<'_>, _: u32) -> Option<Finding> {
    let (mut names, mut ports) = (Vec::new(), BTreeSet::new());
    for container in all_containers(pod) {
        let used = container["ports"].as_array().into_iter().flatten().filter_map(|port| port["hostPort"].as_i64());
        let used: Vec<String> = used.filter(|port| *port != 0).map(|port| port.to_string()).collect();
        if !used.is_empty() {
            names.push(text(&container["name"]));
            ports.extend(used);
        }
    }
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {}",
        containers(&names),
        plural("uses", "use", names.len()),
        plural("hostPort", "hostPorts", ports.len()),
        ports.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    );
    finding("hostPort", detail)
}

/// Probes and hooks that name a host make the kubelet call it.
pub(super) fn hosts(pod: Pod<'_>, _: u32) -> Option<Finding> {
    let (names, hosts) = collect(pod, |container| {
        let lifecycle = &container["lifecycle"];
        let callers = ["livenessProbe", "readinessProbe", "startupProbe"].map(|probe| &container[probe]);
        let hooks = [&lifecycle["postStart"], &lifecycle["preStop"]];
        let all = callers.into_iter().chain(hooks).flat_map(|caller| [&caller["httpGet"]["host"], &caller["tcpSocket"]["host"]]);
        all.map(text).filter(|host| !host.is_empty()).collect()
    });
    if names.is_empty() {
        return None;
    }
    let names: Vec<&str> = names.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    let detail = format!(
        "{} {} {} {}",
        containers(&names),
        plural("uses", "use", names.len()),
        plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len()),
        quoted(&hosts)
    );
    finding("probe or lifecycle host", detail)
}

pub(super) fn privileged(pod: Pod<'_>, _: u32) -> Option<Finding> {
    let names = names_of(pod, |container| container["securityContext"]["privileged"] == true);
    if names.is_empty() {
        return None;
    }
    finding("privileged", format!("{} must not set securityContext.privileged=true", containers(&names)))
}

pub(super) fn proc_mount(pod: Pod<'_>, version: u32) -> Option<Finding> {
    if version >= 35 && has_own_users(pod) { None } else { proc_mount_strict(pod, version) }
}

pub(super) fn proc_mount_strict(pod: Pod<'_>, _: u32) -> Option<Finding> {
    let (names, kinds) = collect(pod, |container| {
        let kind = &container["securityContext"]["procMount"];
        if kind.is_null() || kind == "Default" { Vec::new() } else { vec![text(kind)] }
    });
    if names.is_empty() {
        return None;
    }
    finding("procMount", format!("{} must not set securityContext.procMount to {}", containers(&names), quoted(&kinds)))
}

pub(super) fn se_linux(pod: Pod<'_>, version: u32) -> Option<Finding> {
    let allowed = |kind: &str| {
        matches!(kind, "" | "container_t" | "container_init_t" | "container_kvm_t") || (version >= 31 && kind == "container_engine_t")
    };
    let options = |context: &Value, key: &str| text(&context["seLinuxOptions"][key]).to_string();
    let setters = Setters::find(pod, |context| {
        let kind = options(context, "type");
        let wrong_kind = !allowed(&kind);
        let wrong = wrong_kind || !options(context, "user").is_empty() || !options(context, "role").is_empty();
        wrong.then(|| if wrong_kind { vec![kind] } else { Vec::new() })
    });
    if setters.is_empty() {
        return None;
    }
    let contexts = || std::iter::once(&pod.spec["securityContext"]).chain(all_containers(pod).map(|c| &c["securityContext"]));
    let mut data = Vec::new();
    if !setters.values.is_empty() {
        data.push(format!("{} {}", plural("type", "types", setters.values.len()), quoted(&setters.values)));
    }
    for key in ["user", "role"].into_iter().filter(|key| contexts().any(|context| !options(context, key).is_empty())) {
        data.push(format!("{key} may not be set"));
    }
    finding("seLinuxOptions", format!("{} set forbidden securityContext.seLinuxOptions: {}", setters.words(), data.join("; ")))
}

fn wrong_seccomp(pod: Pod<'_>) -> Setters<'_> {
    Setters::find(pod, |context| {
        let kind = text(&context["seccompProfile"]["type"]);
        let wrong = context["seccompProfile"].is_object() && !matches!(kind, "Localhost" | "RuntimeDefault");
        wrong.then(|| vec![kind.to_string()])
    })
}

fn seccomp_finding(setters: &Setters<'_>) -> Option<Finding> {
    if setters.is_empty() {
        return None;
    }
    let values = quoted(&setters.values);
    finding("seccompProfile", format!("{} must not set securityContext.seccompProfile.type to {values}", setters.words()))
}

pub(super) fn seccomp(pod: Pod<'_>, version: u32) -> Option<Finding> {
    if version >= 19 { seccomp_finding(&wrong_seccomp(pod)) } else { seccomp_annotations(pod) }
}

fn seccomp_annotations(pod: Pod<'_>) -> Option<Finding> {
    const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    let allowed = |profile: &str| matches!(profile, "runtime/default" | "docker/default") || profile.starts_with("localhost/");
    let of_containers = all_containers(pod).map(|c| format!("container.seccomp.security.alpha.kubernetes.io/{}", text(&c["name"])));
    let wrong: BTreeSet<String> = std::iter::once(POD.to_string())
        .chain(of_containers)
        .filter_map(|key| {
            let profile = pod.metadata["annotations"][&key].as_str()?;
            (!allowed(profile)).then(|| format!("{key}={profile:?}"))
        })
        .collect();
    if wrong.is_empty() {
        return None;
    }
    let shown = wrong.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    finding("seccompProfile", format!("forbidden {} {shown}", plural("annotation", "annotations", wrong.len())))
}

pub(super) fn seccomp_strict(pod: Pod<'_>, version: u32) -> Option<Finding> {
    if version >= 25 && is_windows(pod) {
        return None;
    }
    let setters = wrong_seccomp(pod);
    if !setters.is_empty() {
        return seccomp_finding(&setters);
    }
    let of_pod = pod.spec["securityContext"]["seccompProfile"].is_object();
    let names = names_of(pod, |container| !of_pod && !container["securityContext"]["seccompProfile"].is_object());
    if names.is_empty() {
        return None;
    }
    let wanted = "must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"";
    finding("seccompProfile", format!("pod or {} {wanted}", containers(&names)))
}

pub(super) fn host_process(pod: Pod<'_>, _: u32) -> Option<Finding> {
    let setters = Setters::find(pod, |context| (context["windowsOptions"]["hostProcess"] == true).then(Vec::new));
    if setters.is_empty() {
        return None;
    }
    finding("hostProcess", format!("{} must not set securityContext.windowsOptions.hostProcess=true", setters.words()))
}

pub(super) fn escalation(pod: Pod<'_>, version: u32) -> Option<Finding> {
    if version >= 25 && is_windows(pod) {
        return None;
    }
    let names = names_of(pod, |container| container["securityContext"]["allowPrivilegeEscalation"] != false);
    if names.is_empty() {
        return None;
    }
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", containers(&names));
    finding("allowPrivilegeEscalation != false", detail)
}

pub(super) fn non_root(pod: Pod<'_>, version: u32) -> Option<Finding> {
    const REASON: &str = "runAsNonRoot != true";
    if version >= 35 && has_own_users(pod) {
        return None;
    }
    let setters = Setters::find(pod, |context| (context["runAsNonRoot"] == false).then(Vec::new));
    if !setters.is_empty() {
        return finding(REASON, format!("{} must not set securityContext.runAsNonRoot=false", setters.words()));
    }
    let of_pod = pod.spec["securityContext"]["runAsNonRoot"] == true;
    let names = names_of(pod, |container| !of_pod && container["securityContext"]["runAsNonRoot"].is_null());
    if names.is_empty() {
        return None;
    }
    finding(REASON, format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&names)))
}

pub(super) fn user(pod: Pod<'_>, version: u32) -> Option<Finding> {
    if version >= 35 && has_own_users(pod) {
        return None;
    }
    let setters = Setters::find(pod, |context| (context["runAsUser"] == 0).then(Vec::new));
    if setters.is_empty() {
        return None;
    }
    finding("runAsUser=0", format!("{} must not set runAsUser=0", setters.words()))
}
