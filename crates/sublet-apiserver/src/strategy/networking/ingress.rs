//! Ingresses and their classes.

use super::super::edit::{child, ensure, fill};
use super::super::field::{Errors, Field};
use super::super::status::keep_spec;
use super::super::{Strategy, keep_status};
use serde_json::{Value, json};
use sublet_machinery::{FieldError, FieldPath, ObjectExt, names};

pub(crate) const INGRESS: Strategy = Strategy {
    default: |object| {
        ensure(object, "spec");
        ensure(ensure(object, "status"), "loadBalancer");
    },
    prepare_create: |object| object["status"] = json!({"loadBalancer": {}}),
    prepare_update: keep_status,
    prepare_status_update: keep_spec,
    validate,
    validate_create,
    validate_status_update: |new, _| validate_status(new),
    warnings,
    warnings_update: Some(|_, _| Vec::new()),
    generation: true,
    ..Strategy::PLAIN
};

pub(crate) const INGRESS_CLASS: Strategy = Strategy {
    default: |object| {
        if let Some(parameters) = child(ensure(object, "spec"), "parameters") {
            fill(parameters, "scope", "Cluster");
        }
    },
    validate: validate_class,
    validate_update: |new, old| {
        let controller = Field::root(new).at("spec").at("controller");
        Errors::of(|errors| errors.immutable(&controller, &old["spec"]["controller"]))
    },
    generation: true,
    ..Strategy::PLAIN
};

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const CONTROLLER_BYTES_MAX: usize = 250;

fn warnings(ingress: &Value) -> Vec<String> {
    if ingress.annotation(CLASS_ANNOTATION).is_some() && ingress["spec"]["ingressClassName"].is_null() {
        return vec![format!("annotation {CLASS_ANNOTATION:?} is deprecated, please use 'spec.ingressClassName' instead")];
    }
    Vec::new()
}

fn validate_create(ingress: &Value) -> Vec<FieldError> {
    match (ingress.annotation(CLASS_ANNOTATION), ingress["spec"]["ingressClassName"].as_str()) {
        (Some(note), Some(class)) if note != class => {
            let path = FieldPath::new("annotations").child(CLASS_ANNOTATION);
            vec![FieldError::invalid(&path, note, "must match `ingressClassName` when both are specified")]
        }
        _ => Vec::new(),
    }
}

fn validate(ingress: &Value) -> Vec<FieldError> {
    let spec = Field::root(ingress).at("spec");
    Errors::of(|errors| {
        if spec.at("rules").is_zero() && !spec.at("defaultBackend").is_set() {
            errors.add(spec.invalid_as(spec.at("rules").value.clone(), "either `defaultBackend` or `rules` must be specified"));
        }
        if spec.at("defaultBackend").is_set() {
            validate_backend(&spec.at("defaultBackend"), errors);
        }
        for rule in spec.at("rules").items() {
            validate_rule(&rule, errors);
        }
        for tls in spec.at("tls").items() {
            for host in tls.at("hosts").items() {
                validate_host(&host, errors);
            }
            if !tls.at("secretName").is_zero() {
                errors.dns_subdomain(&tls.at("secretName"));
            }
        }
        if spec.at("ingressClassName").is_set() {
            errors.dns_subdomain(&spec.at("ingressClassName"));
        }
    })
}

fn validate_host(host: &Field<'_>, errors: &mut Errors) {
    errors.words(host, if host.text().contains('*') { names::wildcard_dns_subdomain } else { names::dns_subdomain });
}

fn validate_rule(rule: &Field<'_>, errors: &mut Errors) {
    let (host, http) = (rule.at("host"), rule.at("http"));
    if !host.is_zero() {
        if names::parse_ip_sloppy(host.text()).is_some() {
            errors.add(host.invalid("must be a DNS name, not an IP address"));
        }
        validate_host(&host, errors);
    }
    if http.is_set() {
        errors.require(&http.at("paths"));
        for path in http.at("paths").items() {
            validate_path(&path, errors);
        }
    }
}

fn validate_path(rule: &Field<'_>, errors: &mut Errors) {
    let (kind, path) = (rule.at("pathType"), rule.at("path"));
    if !kind.is_set() {
        return errors.add(kind.required("pathType must be specified"));
    }
    let text = path.text();
    let exact = matches!(kind.text(), "Exact" | "Prefix");
    if !exact && kind.text() != "ImplementationSpecific" {
        errors.add(kind.unsupported(&["Exact", "ImplementationSpecific", "Prefix"]));
    } else if !text.starts_with('/') && (exact || !text.is_empty()) {
        errors.add(path.invalid_as(text, "must be an absolute path"));
    }
    if exact {
        for part in ["//", "/./", "/../", "%2f", "%2F"].into_iter().filter(|part| text.contains(part)) {
            errors.add(path.invalid(format!("must not contain '{part}'")));
        }
        for end in ["/..", "/."].into_iter().filter(|end| text.ends_with(end)) {
            errors.add(path.invalid(format!("cannot end with '{end}'")));
        }
    }
    validate_backend(&rule.at("backend"), errors);
}

fn validate_backend(backend: &Field<'_>, errors: &mut Errors) {
    let (resource, service) = (backend.at("resource"), backend.at("service"));
    match (resource.is_set(), service.is_set()) {
        (true, true) => errors.add(backend.invalid_as("", "cannot set both resource and service backends")),
        (true, false) => validate_reference(&resource, errors),
        (false, true) => validate_service(backend, &service, errors),
        (false, false) => errors.add(backend.invalid_as("", "resource or service backend is required")),
    }
}

fn validate_service(backend: &Field<'_>, service: &Field<'_>, errors: &mut Errors) {
    if errors.require(&service.at("name")) {
        errors.dns_label(&service.at("name"));
    }
    let (name, number) = (service.at("port").at("name"), service.at("port").at("number"));
    match (name.is_zero(), number.is_zero()) {
        (false, false) => errors.add(backend.invalid_as("", "cannot set both port name & port number")),
        (false, true) => errors.words(&name, names::port_name),
        (true, false) => errors.port_number(&number),
        (true, true) => errors.add(backend.required("port name or number is required")),
    }
}

fn validate_reference(reference: &Field<'_>, errors: &mut Errors) {
    if reference.at("apiGroup").is_set() {
        errors.dns_subdomain(&reference.at("apiGroup"));
    }
    for part in [reference.at("kind"), reference.at("name")] {
        if errors.require(&part) {
            errors.words(&part, names::path_segment);
        }
    }
}

fn validate_status(ingress: &Value) -> Vec<FieldError> {
    let points = Field::root(ingress).at("status").at("loadBalancer").at("ingress");
    Errors::of(|errors| {
        for point in points.items() {
            let (ip, host) = (point.at("ip"), point.at("hostname"));
            if !ip.is_zero() {
                errors.ip(&ip);
            }
            if !host.is_zero() {
                errors.dns_subdomain(&host);
                if names::parse_ip_sloppy(host.text()).is_some() {
                    errors.add(host.invalid("must be a DNS name, not an IP address"));
                }
            }
        }
    })
}

fn validate_class(class: &Value) -> Vec<FieldError> {
    let spec = Field::root(class).at("spec");
    let (controller, parameters) = (spec.at("controller"), spec.at("parameters"));
    Errors::of(|errors| {
        if controller.len() > CONTROLLER_BYTES_MAX {
            errors.add(controller.too_long(CONTROLLER_BYTES_MAX));
        }
        errors.extend(names::domain_prefixed_path(&controller.path, controller.text()));
        if parameters.is_set() {
            validate_reference(&parameters, errors);
            validate_scope(&parameters, errors);
        }
    })
}

fn validate_scope(parameters: &Field<'_>, errors: &mut Errors) {
    let (scope, namespace) = (parameters.at("scope"), parameters.at("namespace"));
    if !scope.is_set() {
        return errors.add(scope.required(""));
    }
    match scope.text() {
        "Namespace" if !namespace.is_set() => errors.add(namespace.required("`parameters.scope` is set to 'Namespace'")),
        "Namespace" => errors.dns_label(&namespace),
        "Cluster" if namespace.is_set() => errors.add(namespace.forbidden("`parameters.scope` is set to 'Cluster'")),
        "Cluster" => {}
        _ => errors.add(scope.unsupported(&["Cluster", "Namespace"])),
    }
}
