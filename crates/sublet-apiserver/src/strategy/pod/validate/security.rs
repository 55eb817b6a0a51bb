//! Security contexts of pods and containers.

use super::super::super::field::{Errors, Field, Seen};
use super::paths::descending;
use super::windows::validate_options;
use regex::Regex;
use std::sync::LazyLock;

const ID_MAX: i64 = i32::MAX as i64;
const SYSCTL_BYTES_MAX: usize = 253;
const SYSCTL_FORMAT: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
const PROFILE_BYTES_MAX: usize = 4095;

pub(super) fn validate_pod(spec: &Field<'_>, errors: &mut Errors) {
    let context = spec.at("securityContext");
    for key in ["fsGroup", "runAsUser", "runAsGroup"] {
        errors.in_range(&context.at(key), 0, ID_MAX);
    }
    context.at("supplementalGroups").items().for_each(|group| errors.in_range(&group, 0, ID_MAX));
    validate_sysctls(spec, &context.at("sysctls"), errors);
    errors.one_of_if_set(&context.at("fsGroupChangePolicy"), &["Always", "OnRootMismatch"]);
    validate_seccomp(&context.at("seccompProfile"), errors);
    validate_options(&context.at("windowsOptions"), errors);
    validate_app_armor(&context.at("appArmorProfile"), errors);
    errors.one_of_if_set(&context.at("supplementalGroupsPolicy"), &["Merge", "Strict"]);
    errors.one_of_if_set(&context.at("seLinuxChangePolicy"), &["MountOption", "Recursive"]);
}

fn validate_sysctls(spec: &Field<'_>, sysctls: &Field<'_>, errors: &mut Errors) {
    static FORMAT: LazyLock<Regex> = LazyLock::new(|| Regex::new(SYSCTL_FORMAT).expect("a fixed expression"));
    let mut seen = Seen::default();
    for sysctl in sysctls.items() {
        let name = sysctl.at("name");
        let again = seen.again(name.text());
        if name.is_zero() {
            errors.add(name.required(""));
        } else if name.len() > SYSCTL_BYTES_MAX || !FORMAT.is_match(name.text()) {
            // The expression as upstream prints it.
            const SHOWN: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            errors.add(name.invalid(format!("must have at most {SYSCTL_BYTES_MAX} characters and match regex {SHOWN}")));
        } else if again {
            errors.add(name.duplicate());
        }
        let dotted = name.text().replace('/', ".");
        let ipc = ["kernel.sem", "kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|p| dotted.starts_with(p));
        if spec.at("hostNetwork").flag() && dotted.starts_with("net.") {
            errors.add(name.invalid("may not be specified when 'hostNetwork' is true"));
        } else if spec.at("hostIPC").flag() && ipc {
            errors.add(name.invalid("may not be specified when 'hostIPC' is true"));
        }
    }
}

pub(super) fn validate_container(context: &Field<'_>, host_users: bool, errors: &mut Errors) {
    if !context.is_set() {
        return;
    }
    for key in ["runAsUser", "runAsGroup"] {
        errors.in_range(&context.at(key), 0, ID_MAX);
    }
    let mount = context.at("procMount");
    errors.one_of_if_set(&mount, &["Default", "Unmasked"]);
    if host_users && mount.text() == "Unmasked" {
        errors.add(mount.invalid("`hostUsers` must be false to use `Unmasked`"));
    }
    validate_seccomp(&context.at("seccompProfile"), errors);
    let escalation = context.at("allowPrivilegeEscalation");
    if escalation.is_set() && !escalation.flag() {
        if context.at("privileged").flag() {
            errors.add(context.invalid("cannot set `allowPrivilegeEscalation` to false and `privileged` to true"));
        }
        for _ in context.at("capabilities").at("add").items().filter(|c| c.text() == "CAP_SYS_ADMIN") {
            errors.add(context.invalid("cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"));
        }
    }
    validate_options(&context.at("windowsOptions"), errors);
    validate_app_armor(&context.at("appArmorProfile"), errors);
}

const PROFILE_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

fn validate_seccomp(profile: &Field<'_>, errors: &mut Errors) {
    if !profile.is_set() {
        return;
    }
    let (kind, local) = (profile.at("type"), profile.at("localhostProfile"));
    if kind.is_zero() {
        errors.add(kind.required("type is required when seccompProfile is set"));
    } else {
        errors.one_of(&kind, &PROFILE_TYPES);
    }
    if kind.text() == "Localhost" {
        if local.is_set() {
            descending(&local, errors);
        } else {
            errors.add(local.required("must be set when seccomp type is Localhost"));
        }
    } else if local.is_set() {
        errors.add(local.invalid_as(profile.value.clone(), "can only be set when seccomp type is Localhost"));
    }
}

pub(super) fn validate_app_armor(profile: &Field<'_>, errors: &mut Errors) {
    if !profile.is_set() {
        return;
    }
    let (kind, local) = (profile.at("type"), profile.at("localhostProfile"));
    match kind.text() {
        "Localhost" => {
            if !local.is_set() || local.is_zero() {
                errors.add(local.required("must be set when AppArmor type is Localhost"));
            } else if local.text().trim() != local.text() {
                errors.add(local.invalid("must not be padded with whitespace"));
            }
            if local.len() > PROFILE_BYTES_MAX {
                errors.add(local.too_long(PROFILE_BYTES_MAX));
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if local.is_set() {
                errors.add(local.invalid("can only be set when AppArmor type is Localhost"));
            }
        }
        "" => errors.add(kind.required("type is required when appArmorProfile is set")),
        _ => errors.add(kind.unsupported(&PROFILE_TYPES)),
    }
}
