//! Probes and lifecycle hooks.

use super::super::super::field::{Errors, Field};
use serde_json::Value;
use sublet_machinery::names;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Handlers {
    Probe,
    Hook,
}

pub(super) fn validate_probes(container: &Field<'_>, errors: &mut Errors) {
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.at(kind);
        if !probe.is_set() {
            continue;
        }
        validate_handler(&probe, Handlers::Probe, None, errors);
        for key in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
            errors.non_negative(&probe.at(key));
        }
        let grace = probe.at("terminationGracePeriodSeconds");
        if grace.is_set() && grace.int() <= 0 {
            errors.add(grace.invalid("must be greater than 0"));
        }
        if kind == "readinessProbe" {
            if grace.is_set() {
                errors.add(grace.invalid("must not be set for readinessProbes"));
            }
        } else if probe.at("successThreshold").int() != 1 {
            let threshold = probe.at("successThreshold");
            errors.add(threshold.invalid_as(threshold.int(), "must be 1"));
        }
    }
}

pub(super) fn validate_lifecycle(lifecycle: &Field<'_>, grace: &Value, errors: &mut Errors) {
    for hook in ["postStart", "preStop"] {
        if lifecycle.at(hook).is_set() {
            validate_handler(&lifecycle.at(hook), Handlers::Hook, grace.as_i64(), errors);
        }
    }
}

fn validate_handler(handler: &Field<'_>, kind: Handlers, grace: Option<i64>, errors: &mut Errors) {
    let mut found = false;
    for action in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let known = match kind {
            Handlers::Probe => action != "sleep",
            Handlers::Hook => action != "grpc",
        };
        let field = handler.at(action);
        if !known || !field.is_set() {
            continue;
        }
        if found {
            errors.add(field.forbidden("may not specify more than 1 handler type"));
            continue;
        }
        found = true;
        match action {
            "exec" => {
                errors.require(&field.at("command"));
            }
            "httpGet" => validate_http_get(&field, errors),
            "sleep" => validate_sleep(&field, grace, errors),
            _ => errors.port(&field.at("port")),
        }
    }
    if !found {
        errors.add(handler.required("must specify a handler type"));
    }
}

fn validate_http_get(get: &Field<'_>, errors: &mut Errors) {
    errors.require(&get.at("path"));
    errors.port(&get.at("port"));
    errors.one_of(&get.at("scheme"), &["HTTP", "HTTPS"]);
    let headers = get.at("httpHeaders");
    for header in headers.items() {
        let name = header.at("name").text();
        errors.extend(names::http_header_name(name).into_iter().map(|m| headers.invalid_as(name, m)));
    }
}

fn validate_sleep(sleep: &Field<'_>, grace: Option<i64>, errors: &mut Errors) {
    let seconds = sleep.at("seconds").int();
    if let Some(grace) = grace.filter(|grace| !(0..=*grace).contains(&seconds)) {
        errors.add(sleep.invalid_as(seconds, format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})")));
    }
}
