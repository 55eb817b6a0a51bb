//! Windows: options, host processes, and what pods of either system may not set.

use super::super::super::field::{Errors, Field};
use super::all_containers;
use regex::Regex;
use std::sync::LazyLock;
use sublet_machinery::names;

const SPEC_BYTES_MAX: usize = 64 * 1024;
const DOMAIN_BYTES_MAX: usize = 256;
const USER_BYTES_MAX: usize = 104;

pub(super) fn validate_options(options: &Field<'_>, errors: &mut Errors) {
    let (name, spec, user) = (options.at("gmsaCredentialSpecName"), options.at("gmsaCredentialSpec"), options.at("runAsUserName"));
    if name.is_set() {
        errors.words(&name, names::dns_subdomain);
    }
    if spec.is_set() && spec.is_zero() {
        errors.add(spec.invalid("gmsaCredentialSpec cannot be an empty string"));
    } else if spec.len() > SPEC_BYTES_MAX {
        errors.add(spec.invalid("gmsaCredentialSpec size must be under 64 KiB"));
    }
    if user.is_set() {
        validate_user(&user, errors);
    }
}

fn validate_user(name: &Field<'_>, errors: &mut Errors) {
    static NET_BIOS: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r#"^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$"#).expect("a fixed expression"));
    static DNS: LazyLock<Regex> = LazyLock::new(|| {
        let label = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";
        Regex::new(&format!(r"^{label}(?:\.{label})*$")).expect("a fixed expression")
    });
    let mut refuse = |detail: &str| errors.add(name.invalid(format!("runAsUserName{detail}")));
    if name.is_zero() {
        return refuse(" cannot be an empty string");
    }
    if name.text().chars().any(|c| c.is_ascii_control()) {
        return refuse(" cannot contain control characters");
    }
    let parts: Vec<&str> = name.text().split('\\').collect();
    let (domain, user) = match parts.as_slice() {
        [user] => (None, *user),
        [domain, user] => (Some(*domain), *user),
        _ => return refuse(" cannot contain more than one backslash"),
    };
    if domain.is_some_and(|d| d.len() >= DOMAIN_BYTES_MAX) {
        refuse("'s Domain length must be under 256 characters");
    }
    if domain.is_some_and(|d| !NET_BIOS.is_match(d) && !DNS.is_match(d)) {
        refuse("'s Domain doesn't match the NetBios nor the DNS format");
    }
    if user.is_empty() {
        refuse("'s User cannot be empty");
    } else if user.len() > USER_BYTES_MAX {
        refuse("'s User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.chars().all(|c| c == '.' || c == ' ') {
        refuse("'s User cannot contain only periods or spaces");
    }
    if user.contains(|c| r#""/\:;|=,+*?<>@[]"#.contains(c)) {
        refuse(r#"'s User cannot contain the following characters: "/\:;|=,+*?<>@[]"#);
    }
}

/// Either all containers are processes of the host, or none is.
pub(super) fn validate_host_process(spec: &Field<'_>, errors: &mut Errors) {
    let of = |field: &Field<'_>| field.at("securityContext").at("windowsOptions").at("hostProcess").value.as_bool();
    let pod = of(spec);
    let containers = all_containers(spec);
    let mut count = 0;
    for container in &containers {
        let own = of(container);
        if let (Some(pod), Some(own)) = (pod, own)
            && pod != own
        {
            let field = container.at("securityContext").at("windowsOptions").at("hostProcess");
            errors.add(field.invalid(format!("pod hostProcess value must be identical if both are specified, was {pod}")));
        }
        count += usize::from(own.or(pod).unwrap_or_default());
    }
    if count == 0 {
        return;
    }
    if count != containers.len() {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.add(spec.invalid_as("", detail));
    }
    if !spec.at("hostNetwork").flag() {
        errors.add(spec.at("hostNetwork").invalid_as(false, "hostNetwork must be true if pod contains any hostProcess containers"));
    }
}

pub(super) fn validate_linux(spec: &Field<'_>, errors: &mut Errors) {
    for holder in std::iter::once(spec.clone()).chain(all_containers(spec)) {
        let options = holder.at("securityContext").at("windowsOptions");
        if options.is_set() {
            errors.add(options.forbidden("windows options cannot be set for a linux pod"));
        }
    }
}

pub(super) fn validate_windows(spec: &Field<'_>, errors: &mut Errors) {
    const POD: [&str; 11] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "fsGroup",
        "fsGroupChangePolicy",
        "sysctls",
        "runAsUser",
        "runAsGroup",
        "supplementalGroups",
        "supplementalGroupsPolicy",
        "seLinuxChangePolicy",
    ];
    const CONTAINER: [&str; 10] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    let mut refuse = |field: Field<'_>, flag: bool| {
        if if flag { field.flag() } else { field.is_set() } {
            errors.add(field.forbidden("cannot be set for a windows pod"));
        }
    };
    POD.iter().for_each(|key| refuse(spec.at("securityContext").at(key), false));
    refuse(spec.at("hostUsers"), false);
    refuse(spec.at("hostPID"), true);
    refuse(spec.at("hostIPC"), true);
    refuse(spec.at("shareProcessNamespace"), false);
    for container in all_containers(spec) {
        CONTAINER.iter().for_each(|key| refuse(container.at("securityContext").at(key), false));
    }
}
