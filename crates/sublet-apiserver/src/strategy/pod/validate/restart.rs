//! Restart rules, resize policies and files that give environment variables.

use super::super::super::field::{Errors, Field, Seen};
use super::all_containers;
use sublet_machinery::FieldError;

pub(super) const POLICY_MISSING: &str = "must specify restartPolicy when restart rules are used";
const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;

pub(super) fn validate_rules(container: &Field<'_>, errors: &mut Errors) {
    let (policy, rules) = (container.at("restartPolicy"), container.at("restartPolicyRules"));
    if policy.is_set() {
        errors.one_of(&policy, &["Always", "Never", "OnFailure"]);
    } else if rules.is_zero() {
        return;
    } else {
        errors.add(policy.required(POLICY_MISSING));
    }
    if rules.len() > RULES_MAX {
        errors.add(FieldError::too_many(&rules.path, rules.len(), RULES_MAX));
    }
    for rule in rules.items() {
        errors.one_of(&rule.at("action"), &["Restart", "RestartAllContainers"]);
        let codes = rule.at("exitCodes");
        if !codes.is_set() {
            errors.add(codes.required("must be specified"));
            continue;
        }
        errors.one_of(&codes.at("operator"), &["In", "NotIn"]);
        if codes.at("values").len() > EXIT_CODES_MAX {
            errors.add(FieldError::too_many(&codes.at("values").path, codes.at("values").len(), EXIT_CODES_MAX));
        }
    }
}

/// Upstream tells most of these at the list, not at the item.
pub(super) fn validate_resize_policy(policies: &Field<'_>, pod_policy: &str, errors: &mut Errors) {
    let mut seen = Seen::default();
    for policy in policies.items() {
        let resource = Field::new(policy.at("resourceName").value, policies.path.clone());
        let restart = Field::new(policy.at("restartPolicy").value, policies.path.clone());
        if seen.again(resource.text()) {
            errors.add(FieldError::duplicate(&policy.path, resource.text()));
        }
        errors.required_one_of(&resource, &["cpu", "memory"]);
        errors.required_one_of(&restart, &["NotRequired", "RestartContainer"]);
        if pod_policy == "Never" && restart.text() != "NotRequired" {
            errors.add(restart.invalid_as(restart.text(), "must be 'NotRequired' when pod `restartPolicy` is 'Never'"));
        }
    }
}

/// Files that give variables lie in empty directories of the pod.
pub(super) fn validate_file_keys(spec: &Field<'_>, errors: &mut Errors) {
    for container in all_containers(spec) {
        for variable in container.at("env").items() {
            let reference = variable.at("valueFrom").at("fileKeyRef");
            if !reference.is_set() {
                continue;
            }
            let name = reference.at("volumeName");
            match spec.at("volumes").list().iter().find(|v| v["name"].as_str().unwrap_or_default() == name.text()) {
                None => errors.add(FieldError::not_found(&name.path, name.text())),
                Some(volume) if volume["emptyDir"].is_null() => errors.add(name.invalid("referenced volume must be of type emptyDir")),
                Some(_) => {}
            }
        }
    }
}
