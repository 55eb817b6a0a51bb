//! Environment variables and references to fields.

use super::super::super::field::{Errors, Field};
use super::paths::no_backsteps;
use sublet_machinery::names;

/// Which fields of a pod may be referred to.
#[derive(Clone, Copy)]
pub(super) enum FieldPaths {
    Env,
    Volume,
}

impl FieldPaths {
    fn supported(self) -> &'static [&'static str] {
        match self {
            Self::Env => &[
                "metadata.name",
                "metadata.namespace",
                "metadata.uid",
                "spec.nodeName",
                "spec.serviceAccountName",
                "status.hostIP",
                "status.hostIPs",
                "status.podIP",
                "status.podIPs",
            ],
            Self::Volume => &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"],
        }
    }
}

/// Fields that the API knows by these names, whether or not they may be referred to here.
const KNOWN: [&str; 14] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

const RESOURCES: [&str; 6] =
    ["limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"];

pub(super) fn validate(variables: &Field<'_>, errors: &mut Errors) {
    for variable in variables.items() {
        let name = variable.at("name");
        if errors.require(&name) {
            errors.words(&name, names::relaxed_env_var_name);
        }
        if variable.at("valueFrom").is_set() {
            validate_source(&variable, errors);
        }
    }
}

fn validate_source(variable: &Field<'_>, errors: &mut Errors) {
    let source = variable.at("valueFrom");
    let mut count = 0;
    let mut part = |key: &str| {
        let part = source.at(key);
        count += usize::from(part.is_set());
        part
    };
    let (field, resource) = (part("fieldRef"), part("resourceFieldRef"));
    let (config, secret, file) = (part("configMapKeyRef"), part("secretKeyRef"), part("fileKeyRef"));
    if field.is_set() {
        validate_field_ref(&field, FieldPaths::Env, errors);
    }
    if resource.is_set() {
        validate_resource_ref(&resource, false, errors);
    }
    for reference in [config, secret] {
        if reference.is_set() {
            errors.dns_subdomain(&reference.at("name"));
            if errors.require(&reference.at("key")) {
                errors.words(&reference.at("key"), names::config_map_key);
            }
        }
    }
    if file.is_set() {
        validate_file_key(&file, errors);
    }
    if count == 0 {
        errors.add(
            source.invalid_as("", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"),
        );
    } else if !variable.at("value").is_zero() {
        errors.add(source.invalid_as("", "may not be specified when `value` is not empty"));
    } else if count > 1 {
        errors.add(source.invalid_as("", "may not have more than one field specified at a time"));
    }
}

fn validate_file_key(file: &Field<'_>, errors: &mut Errors) {
    if errors.require(&file.at("key")) {
        errors.words(&file.at("key"), names::relaxed_env_var_name);
    }
    if errors.require(&file.at("volumeName")) {
        errors.dns_label(&file.at("volumeName"));
    }
    if errors.require(&file.at("path")) {
        no_backsteps(&file.at("path"), errors);
    }
}

pub(super) fn validate_field_ref(reference: &Field<'_>, paths: FieldPaths, errors: &mut Errors) {
    let path = reference.at("fieldPath");
    if !errors.require(&reference.at("apiVersion")) || !errors.require(&path) {
        return;
    }
    let version = reference.at("apiVersion").text();
    if version != "v1" {
        return errors.add(path.invalid(format!("error converting fieldPath: unsupported pod version: {version}")));
    }
    if let Some((map, key)) = path.text().split_once("['").and_then(|(m, rest)| Some((m, rest.strip_suffix("']")?))) {
        let key = match map {
            "metadata.annotations" => key.to_lowercase(),
            "metadata.labels" => key.to_string(),
            _ => {
                let why = format!("error converting fieldPath: field label does not support subscript: {}", path.text());
                return errors.add(path.invalid(why));
            }
        };
        return errors.extend(names::qualified_name(&key).into_iter().map(|m| reference.invalid_as(key.as_str(), m)));
    }
    let name = if path.text() == "spec.host" { "spec.nodeName" } else { path.text() };
    if !KNOWN.contains(&name) {
        errors.add(path.invalid(format!("error converting fieldPath: field label not supported: {name}")));
    } else if !paths.supported().contains(&name) {
        errors.add(path.unsupported(paths.supported()));
    }
}

pub(super) fn validate_resource_ref(reference: &Field<'_>, volume: bool, errors: &mut Errors) {
    let resource = reference.at("resource");
    let huge = resource.text().starts_with("requests.hugepages-") || resource.text().starts_with("limits.hugepages-");
    if volume && reference.at("containerName").is_zero() {
        errors.add(reference.at("containerName").required(""));
    } else if resource.is_zero() {
        errors.add(resource.required(""));
    } else if !huge && !RESOURCES.contains(&resource.text()) {
        errors.add(resource.unsupported(&RESOURCES));
    }
    validate_divisor(reference, resource.text(), errors);
}

fn validate_divisor(reference: &Field<'_>, resource: &str, errors: &mut Errors) {
    const BYTES: &str = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei";
    let divisor = reference.at("divisor");
    let quantity = divisor.quantity();
    if quantity.is_zero() {
        return;
    }
    let text = quantity.to_string();
    let is_bytes = BYTES.split(", ").any(|unit| unit == text);
    let wrong = match resource.split_once('.').map(|(_, name)| name) {
        Some("cpu") if !matches!(text.as_str(), "1m" | "1") => {
            Some("only divisor's values 1m and 1 are supported with the cpu resource".to_string())
        }
        Some("memory") if !is_bytes => Some(format!("only divisor's values {BYTES} are supported with the memory resource")),
        Some("ephemeral-storage") if !is_bytes => {
            Some(format!("only divisor's values {BYTES} are supported with the local ephemeral storage resource"))
        }
        Some(name) if name.starts_with("hugepages-") && !is_bytes => {
            Some(format!("only divisor's values {BYTES} are supported with the hugepages resource"))
        }
        _ => None,
    };
    errors.extend(wrong.map(|detail| divisor.invalid_as(resource, detail)));
}

pub(super) fn validate_from(sources: &Field<'_>, errors: &mut Errors) {
    for source in sources.items() {
        if !source.at("prefix").is_zero() {
            errors.words(&source.at("prefix"), names::relaxed_env_var_name);
        }
        let mut count = 0;
        for key in ["configMapRef", "secretRef"] {
            let reference = source.at(key);
            if reference.is_set() {
                count += 1;
                let name = reference.at("name");
                if errors.require(&name) {
                    let wrong = names::name_is_dns_subdomain(name.text(), true).into_iter();
                    errors.extend(wrong.map(|m| name.invalid(m)));
                }
            }
        }
        match count {
            0 => errors.add(sources.invalid_as("", "must specify one of: `configMapRef` or `secretRef`")),
            1 => {}
            _ => errors.add(sources.invalid_as("", "may not have more than one field specified at a time")),
        }
    }
}
