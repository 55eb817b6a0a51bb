//! Pods and pod templates: one set of rules, used by every workload.

pub(crate) mod defaults;
pub(crate) mod prepare;
pub(crate) mod qos;
pub(crate) mod validate;
pub(crate) mod volumes;
pub(crate) mod warnings;

pub use validate::validate_binding;

use super::field::{Errors, Field};
use super::{Grace, Strategy};
use serde_json::Value;

pub(crate) const POD: Strategy = Strategy {
    default: defaults::default_pod,
    prepare_create: prepare::prepare_create,
    prepare_update: prepare::prepare_update,
    prepare_status_update: prepare::prepare_status_update,
    validate: validate::validate,
    validate_create: validate::validate_create,
    validate_update: validate::validate_update,
    validate_status_update: validate::validate_status_update,
    warnings: warnings::of_pod,
    // Whoever updates pods is rarely a person.
    warnings_update: Some(|_, _| Vec::new()),
    fields,
    grace: Grace::Pod,
    ..Strategy::PLAIN
};

/// The `/ephemeralcontainers` subresource.
pub(crate) const POD_EPHEMERAL_CONTAINERS: Strategy =
    Strategy { prepare_update: prepare::prepare_ephemeral_update, validate_update: validate::validate_ephemeral_update, ..POD };

/// The `/resize` subresource.
pub(crate) const POD_RESIZE: Strategy =
    Strategy { prepare_update: prepare::prepare_resize_update, validate_update: validate::validate_resize, ..POD };

pub(crate) const POD_TEMPLATE: Strategy = Strategy {
    default: |object| defaults::default_template(super::edit::ensure(object, "template")),
    validate: |object| Errors::of(|errors| validate::validate_template(&Field::root(object).at("template"), errors)),
    warnings: |object| warnings::of_template(&Field::root(object).at("template")),
    warnings_update: Some(|new, old| warnings::of_changed(new, old, &["template"])),
    generation: true,
    ..Strategy::PLAIN
};

fn fields(pod: &Value) -> Vec<(&'static str, String)> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    vec![
        ("spec.nodeName", text(&spec["nodeName"])),
        ("spec.restartPolicy", text(&spec["restartPolicy"])),
        ("spec.schedulerName", text(&spec["schedulerName"])),
        ("spec.serviceAccountName", text(&spec["serviceAccountName"])),
        ("spec.hostNetwork", spec["hostNetwork"].as_bool().unwrap_or_default().to_string()),
        ("status.phase", text(&status["phase"])),
        ("status.podIP", text(&status["podIPs"][0]["ip"])),
        ("status.nominatedNodeName", text(&status["nominatedNodeName"])),
    ]
}
