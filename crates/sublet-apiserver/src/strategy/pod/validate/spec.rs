//! A pod spec: what holds between its parts.

use super::super::super::field::{Errors, Field};
use super::volumes::Volumes;
use super::{affinity, all_containers, claims, containers, resources, restart, scheduling, security, windows};
use serde_json::Value;
use sublet_machinery::names;

pub(super) struct Spec<'a, 'v> {
    pub spec: &'a Field<'v>,
    /// The pod, where it is one and not a template.
    pub pod: Option<&'v Value>,
}

const NAMESERVERS_MAX: usize = 3;
const SEARCH_PATHS_MAX: usize = 32;
const SEARCH_CHARS_MAX: usize = 2048;

impl Spec<'_, '_> {
    pub fn validate(&self, errors: &mut Errors) {
        let spec = self.spec;
        if !spec.at("terminationGracePeriodSeconds").is_set() {
            errors.add(spec.at("terminationGracePeriodSeconds").required(""));
        }
        let volumes = Volumes::validate(&spec.at("volumes"), self.pod, errors);
        let claim_names = claims::validate(&spec.at("resourceClaims"), self.pod, errors);
        let context = containers::Context { spec, volumes: &volumes, claim_names: &claim_names };
        context.validate_main(errors);
        context.validate_init(errors);
        context.validate_ephemeral(errors);
        resources::validate_pod(spec, &claim_names, errors);
        self.host_network_ports(errors);
        errors.required_one_of(&spec.at("restartPolicy"), &["Always", "OnFailure", "Never"]);
        errors.required_one_of(&spec.at("dnsPolicy"), &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
        errors.labels(&spec.at("nodeSelector"));
        security::validate_pod(spec, errors);
        self.shared_processes(errors);
        affinity::validate(&spec.at("affinity"), errors);
        validate_dns(&spec.at("dnsConfig"), spec.at("dnsPolicy").text(), errors);
        for gate in spec.at("readinessGates").items() {
            errors.qualified_name(&gate.at("conditionType"));
        }
        scheduling::validate_gates(&spec.at("schedulingGates"), errors);
        scheduling::validate_spread(&spec.at("topologySpreadConstraints"), errors);
        windows::validate_host_process(spec, errors);
        self.host_users(errors);
        self.host_name(errors);
        self.names(errors);
        self.numbers_and_lists(errors);
        self.operating_system(errors);
        restart::validate_file_keys(spec, errors);
    }

    /// With the host's network a container port is the host port. Templates may leave the latter out.
    fn host_network_ports(&self, errors: &mut Errors) {
        if !self.spec.at("hostNetwork").flag() {
            return;
        }
        for container in self.spec.at("containers").items() {
            for port in container.at("ports").items() {
                let (host, own) = (port.at("hostPort"), port.at("containerPort"));
                if (self.pod.is_some() || host.int() != 0) && host.int() != own.int() {
                    errors.add(host.invalid_as(host.int(), "must match `containerPort` when `hostNetwork` is true"));
                }
            }
        }
    }

    fn shared_processes(&self, errors: &mut Errors) {
        let share = self.spec.at("shareProcessNamespace");
        if share.flag() && self.spec.at("hostPID").flag() {
            errors.add(share.invalid("ShareProcessNamespace and HostPID cannot both be enabled"));
        }
    }

    /// A user namespace of its own excludes the host's other namespaces.
    fn host_users(&self, errors: &mut Errors) {
        let spec = self.spec;
        if !spec.at("hostUsers").is_set() || spec.at("hostUsers").flag() {
            return;
        }
        for (key, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
            if spec.at(key).flag() {
                errors.add(spec.at_as(key, shown).forbidden("when `hostUsers` is false"));
            }
        }
        for container in all_containers(spec) {
            if !container.at("volumeDevices").is_zero() {
                errors.add(container.at("volumeDevices").forbidden("when `hostUsers` is false"));
            }
        }
    }

    fn host_name(&self, errors: &mut Errors) {
        let name = self.spec.at("hostnameOverride");
        if !name.is_set() {
            return;
        }
        if self.spec.at("setHostnameAsFQDN").flag() {
            errors.add(name.forbidden("may not be specified when setHostnameAsFQDN is true"));
        }
        if self.spec.at("hostNetwork").flag() {
            errors.add(name.forbidden("may not be specified when hostNetwork is true"));
        }
        if name.len() > 64 {
            errors.add(name.too_long(64));
        }
        errors.dns_subdomain(&name);
    }

    fn names(&self, errors: &mut Errors) {
        let spec = self.spec;
        let account = spec.at("serviceAccountName");
        if !account.is_zero() {
            errors.dns_subdomain(&account);
        }
        let old_name = spec.at_as("serviceAccount", "deprecatedServiceAccount");
        if old_name.text() != account.text() {
            errors.add(old_name.invalid_as(old_name.text(), format!("must be the same as serviceAccountName: {:?}", account.text())));
        }
        if !spec.at("nodeName").is_zero() {
            errors.dns_subdomain(&spec.at("nodeName"));
        }
        errors.in_range(&spec.at("activeDeadlineSeconds"), 1, i64::from(i32::MAX));
        for key in ["hostname", "subdomain"] {
            if !spec.at(key).is_zero() {
                errors.dns_label(&spec.at(key));
            }
        }
    }

    fn numbers_and_lists(&self, errors: &mut Errors) {
        let spec = self.spec;
        scheduling::validate_tolerations(&spec.at("tolerations"), errors);
        for alias in spec.at("hostAliases").items() {
            errors.ip(&alias.at("ip"));
            alias.at("hostnames").items().for_each(|name| errors.dns_subdomain(&name));
        }
        if !spec.at("priorityClassName").is_zero() {
            errors.dns_subdomain(&spec.at("priorityClassName"));
        }
        if spec.at("runtimeClassName").is_set() {
            errors.dns_subdomain(&spec.at("runtimeClassName"));
        }
        if spec.at("preemptionPolicy").is_set() {
            errors.required_one_of(&spec.at("preemptionPolicy"), &["PreemptLowerPriority", "Never"]);
        }
        if spec.at("overhead").is_set() {
            resources::validate_overhead(&spec.at("overhead"), errors);
        }
    }

    fn operating_system(&self, errors: &mut Errors) {
        let os = self.spec.at("os");
        if !os.is_set() {
            return;
        }
        match os.at("name").text() {
            "" => errors.add(os.at("name").required("")),
            "linux" => windows::validate_linux(self.spec, errors),
            "windows" => windows::validate_windows(self.spec, errors),
            _ => errors.add(Field::new(os.at("name").value, os.path.clone()).unsupported(&["linux", "windows"])),
        }
    }
}

fn validate_dns(config: &Field<'_>, policy: &str, errors: &mut Errors) {
    let (servers, searches) = (config.at("nameservers"), config.at("searches"));
    if policy == "None" && !config.is_set() {
        return errors.add(config.required("must provide `dnsConfig` when `dnsPolicy` is None"));
    }
    if policy == "None" && servers.is_zero() {
        return errors.add(servers.required("must provide at least one DNS nameserver when `dnsPolicy` is None"));
    }
    if servers.len() > NAMESERVERS_MAX {
        errors.add(servers.invalid(format!("must not have more than {NAMESERVERS_MAX} nameservers")));
    }
    servers.items().for_each(|server| errors.ip(&server));
    if searches.len() > SEARCH_PATHS_MAX {
        errors.add(searches.invalid(format!("must not have more than {SEARCH_PATHS_MAX} search paths")));
    }
    let spaces = searches.len().saturating_sub(1);
    if searches.items().map(|s| s.len()).sum::<usize>() + spaces > SEARCH_CHARS_MAX {
        let detail = format!("must not have more than {SEARCH_CHARS_MAX} characters (including spaces) in the search list");
        errors.add(searches.invalid(detail));
    }
    for search in searches.items().filter(|s| s.text() != ".") {
        let name = search.text().strip_suffix('.').unwrap_or(search.text());
        errors.extend(names::dns_subdomain_with_underscore(name).into_iter().map(|m| search.invalid_as(name, m)));
    }
    for option in config.at("options").items() {
        if option.at("name").is_zero() {
            errors.add(option.required("must not be empty"));
        }
    }
}
