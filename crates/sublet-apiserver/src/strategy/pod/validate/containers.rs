//! Containers of the three kinds.

use super::super::super::field::{Errors, Field, Seen};
use super::volumes::Volumes;
use super::{env, ephemeral, handlers, mounts, resources, restart, security};
use std::collections::BTreeSet;
use sublet_machinery::names;

/// What a container may refer to.
pub(super) struct Context<'a, 'v> {
    pub spec: &'a Field<'v>,
    pub volumes: &'a Volumes<'v>,
    pub claim_names: &'a BTreeSet<String>,
}

pub(super) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

impl Context<'_, '_> {
    pub fn validate_main(&self, errors: &mut Errors) {
        let list = self.spec.at("containers");
        if list.is_zero() {
            return errors.add(list.required(""));
        }
        let mut seen = Seen::default();
        for container in list.items() {
            self.validate_common(&container, errors);
            if seen.again(container.at("name").text()) {
                errors.add(container.at("name").duplicate());
            }
            self.validate_lifecycle(&container, errors);
            handlers::validate_probes(&container, errors);
            restart::validate_rules(&container, errors);
        }
        host_port_conflicts(&list, list.items(), errors);
    }

    pub fn validate_init(&self, errors: &mut Errors) {
        let list = self.spec.at("initContainers");
        let mut seen = Seen::default();
        for container in self.spec.at("containers").items() {
            seen.again(container.at("name").text());
        }
        for container in list.items() {
            self.validate_common(&container, errors);
            let (policy, rules) = (container.at("restartPolicy"), container.at("restartPolicyRules"));
            if policy.is_set() {
                restart::validate_rules(&container, errors);
            } else if !rules.is_zero() {
                errors.add(policy.required(restart::POLICY_MISSING));
            }
            let name = container.at("name");
            if seen.has(name.text()) {
                errors.add(name.duplicate());
            } else if !name.is_zero() {
                seen.again(name.text());
            }
            host_port_conflicts(&list, std::iter::once(container.clone()), errors);
            if policy.text() == "Always" {
                self.validate_lifecycle(&container, errors);
                handlers::validate_probes(&container, errors);
                continue;
            }
            for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if container.at(key).is_set() {
                    errors.add(container.at(key).forbidden("may not be set for init containers without restartPolicy=Always"));
                }
            }
            for rule in container.at("resizePolicy").items().filter(|r| r.at("restartPolicy").text() == "RestartContainer") {
                let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                errors.add(rule.at("restartPolicy").invalid(detail));
            }
        }
    }

    pub fn validate_ephemeral(&self, errors: &mut Errors) {
        let (mut others, mut all) = (Seen::default(), Seen::default());
        for list in ["containers", "initContainers"] {
            for container in self.spec.at(list).items() {
                others.again(container.at("name").text());
                all.again(container.at("name").text());
            }
        }
        for container in self.spec.at("ephemeralContainers").items() {
            self.validate_common(&container, errors);
            validate_image_spaces(&container, errors);
            if all.again(container.at("name").text()) {
                errors.add(container.at("name").duplicate());
            }
            let target = container.at("targetContainerName");
            if !target.is_zero() && !others.has(target.text()) {
                errors.add(target.not_found());
            }
            ephemeral::validate_fields(&container, errors);
        }
    }

    fn validate_lifecycle(&self, container: &Field<'_>, errors: &mut Errors) {
        if container.at("lifecycle").is_set() {
            handlers::validate_lifecycle(&container.at("lifecycle"), self.spec.at("terminationGracePeriodSeconds").value, errors);
        }
    }

    fn validate_common(&self, container: &Field<'_>, errors: &mut Errors) {
        let name = container.at("name");
        if errors.require(&name) {
            errors.dns_label(&name);
        }
        errors.require(&container.at("image"));
        errors.required_one_of(&container.at("terminationMessagePolicy"), &["File", "FallbackToLogsOnError"]);
        validate_ports(&container.at("ports"), errors);
        env::validate(&container.at("env"), errors);
        env::validate_from(&container.at("envFrom"), errors);
        mounts::validate_mounts(container, self.volumes, errors);
        mounts::validate_devices(container, self.volumes, errors);
        errors.required_one_of(&container.at("imagePullPolicy"), &["Always", "IfNotPresent", "Never"]);
        resources::validate_container(&container.at("resources"), self.claim_names, errors);
        restart::validate_resize_policy(&container.at("resizePolicy"), self.spec.at("restartPolicy").text(), errors);
        let host_users = !self.spec.at("hostUsers").is_set() || self.spec.at("hostUsers").flag();
        security::validate_container(&container.at("securityContext"), host_users, errors);
    }
}

fn validate_ports(ports: &Field<'_>, errors: &mut Errors) {
    let mut seen = Seen::default();
    for port in ports.items() {
        let name = port.at("name");
        if !name.is_zero() {
            let wrong = names::port_name(name.text());
            if !wrong.is_empty() {
                errors.extend(wrong.into_iter().map(|m| name.invalid(m)));
            } else if seen.again(name.text()) {
                errors.add(name.duplicate());
            }
        }
        if errors.require(&port.at("containerPort")) {
            errors.port_number(&port.at("containerPort"));
        }
        if !port.at("hostPort").is_zero() {
            errors.port_number(&port.at("hostPort"));
        }
        errors.required_one_of(&port.at("protocol"), &PROTOCOLS);
    }
}

/// No two ports of these containers take the same port of the host.
fn host_port_conflicts<'v>(list: &Field<'_>, containers: impl Iterator<Item = Field<'v>>, errors: &mut Errors) {
    let mut seen = Seen::default();
    for (index, container) in containers.enumerate() {
        // A single init container is told at index 0, as upstream does.
        let ports = Field::new(container.at("ports").value, list.path.index(index).child("ports"));
        for port in ports.items().filter(|p| p.at("hostPort").int() != 0) {
            let key = format!("{}/{}/{}", port.at("protocol").text(), port.at("hostIP").text(), port.at("hostPort").int());
            if seen.again(key.clone()) {
                errors.add(sublet_machinery::FieldError::duplicate(&port.at("hostPort").path, key));
            }
        }
    }
}

pub(super) fn validate_image_spaces(container: &Field<'_>, errors: &mut Errors) {
    let image = container.at("image");
    if image.text().trim().len() != image.len() {
        errors.add(image.invalid("must not have leading or trailing whitespace"));
    }
}
