//! Events of the core group and of `events.k8s.io`: one stored kind under two names.

use super::super::edit::{fill, is_zero};
use super::super::field::{Errors, Field, IMMUTABLE};
use super::super::{NameRule, Strategy};
use serde_json::{Value, json};
use sublet_machinery::{FieldError, FieldPath, ObjectExt};

pub(crate) const EVENT: Strategy = Strategy {
    default,
    validate: |event| Errors::of(|errors| validate(event, &OLD, errors)),
    fields,
    create_on_update: true,
    name_rule: NameRule::PathSegment,
    ..Strategy::PLAIN
};

pub(crate) const EVENTS_EVENT: Strategy = Strategy {
    default: default_new,
    validate: |event| Errors::of(|errors| validate(event, &NEW, errors)),
    validate_create: validate_new,
    validate_update: validate_new_update,
    field_named: field_named_new,
    name_rule: NameRule::DnsSubdomain,
    ..EVENT
};

/// The fields of a version that have another name in the other one.
struct Names {
    about: &'static str,
    message: &'static str,
    controller: &'static str,
    /// What errors call the controller.
    controller_shown: &'static str,
}

const OLD: Names =
    Names { about: "involvedObject", message: "message", controller: "reportingComponent", controller_shown: "reportingComponent" };
const NEW: Names =
    Names { about: "regarding", message: "note", controller: "reportingController", controller_shown: "reportingController" };

const WORD_BYTES_MAX: usize = 128;
const MESSAGE_BYTES_MAX: usize = 1024;

fn default(event: &mut Value) {
    fill(event, "source", json!({}));
    for time in ["firstTimestamp", "lastTimestamp", "eventTime"] {
        fill(event, time, Value::Null);
    }
    for text in ["reportingComponent", "reportingInstance"] {
        fill(event, text, "");
    }
}

fn default_new(event: &mut Value) {
    for part in ["deprecatedSource", "regarding"] {
        fill(event, part, json!({}));
    }
    for time in ["deprecatedFirstTimestamp", "deprecatedLastTimestamp", "eventTime"] {
        fill(event, time, Value::Null);
    }
}

/// The names of the core kind serve both.
fn fields(event: &Value) -> Vec<(&'static str, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let either = |a: &str, b: &str| if event[a].is_null() { text(&event[b]) } else { text(&event[a]) };
    let about = if event["involvedObject"].is_object() { &event["involvedObject"] } else { &event["regarding"] };
    let controller = either("reportingComponent", "reportingController");
    let component = text(&event["source"]["component"]) + &text(&event["deprecatedSource"]["component"]);
    vec![
        ("involvedObject.kind", text(&about["kind"])),
        ("involvedObject.namespace", text(&about["namespace"])),
        ("involvedObject.name", text(&about["name"])),
        ("involvedObject.uid", text(&about["uid"])),
        ("involvedObject.apiVersion", text(&about["apiVersion"])),
        ("involvedObject.resourceVersion", text(&about["resourceVersion"])),
        ("involvedObject.fieldPath", text(&about["fieldPath"])),
        ("reason", text(&event["reason"])),
        ("source", if component.is_empty() { controller.clone() } else { component }),
        ("reportingComponent", controller),
        ("type", text(&event["type"])),
    ]
}

/// The newer version has names of its own, and does not know those of the core version that it has others for.
fn field_named_new(name: &str) -> &str {
    match name {
        "regarding.kind" => "involvedObject.kind",
        "regarding.namespace" => "involvedObject.namespace",
        "regarding.name" => "involvedObject.name",
        "regarding.uid" => "involvedObject.uid",
        "regarding.apiVersion" => "involvedObject.apiVersion",
        "regarding.resourceVersion" => "involvedObject.resourceVersion",
        "regarding.fieldPath" => "involvedObject.fieldPath",
        "reportingController" => "reportingComponent",
        "reason" | "type" | "metadata.name" | "metadata.namespace" => name,
        _ => "",
    }
}

/// Errors call fields by the names of the core version.
fn validate(event: &Value, names: &Names, errors: &mut Errors) {
    let root = Field::root(event);
    let about = root.at(names.about);
    let namespace = Field::new(&event[names.about]["namespace"], FieldPath::new("involvedObject.namespace"));
    let home = event.namespace();
    const MISMATCH: &str = "does not match event.namespace";
    if is_zero(&event["eventTime"]) {
        let fits = if namespace.is_zero() { home.is_empty() || home == "default" } else { namespace.text() == home };
        if !fits {
            errors.add(namespace.invalid_as(namespace.text(), MISMATCH));
        }
        return;
    }
    if about.at("namespace").is_zero() && home != "default" && home != "kube-system" {
        errors.add(namespace.invalid_as("", MISMATCH));
    }
    let controller = root.at_as(names.controller, names.controller_shown);
    errors.require(&controller);
    errors.qualified_name(&controller);
    for key in ["reportingInstance", "action", "reason"] {
        errors.require(&root.at(key));
        validate_length(&root.at(key), WORD_BYTES_MAX, errors);
    }
    validate_length(&root.at_as(names.message, "message"), MESSAGE_BYTES_MAX, errors);
}

fn validate_length(field: &Field<'_>, bytes_max: usize, errors: &mut Errors) {
    if field.len() > bytes_max {
        errors.add(field.invalid_as("", format!("can have at most {bytes_max} characters")));
    }
}

fn validate_series(event: &Value, errors: &mut Errors) {
    if event["series"].is_null() {
        return;
    }
    if event["series"]["count"].as_i64().unwrap_or_default() < 2 {
        errors.add(FieldError::invalid(&FieldPath::new("series.count"), "", "should be at least 2"));
    }
    if is_zero(&event["series"]["lastObservedTime"]) {
        errors.add(FieldError::required(&FieldPath::new("series.lastObservedTime"), ""));
    }
}

fn validate_new(event: &Value) -> Vec<FieldError> {
    const UNSET: &str = "needs to be unset";
    let root = Field::root(event);
    Errors::of(|errors| {
        validate_series(event, errors);
        errors.require(&root.at("eventTime"));
        let kind = root.at("type");
        if !matches!(kind.text(), "Normal" | "Warning") {
            errors.add(kind.invalid_as("", format!("has invalid value: {}", kind.text())));
        }
        for (key, shown) in
            [("deprecatedFirstTimestamp", "firstTimestamp"), ("deprecatedLastTimestamp", "lastTimestamp"), ("deprecatedCount", "count")]
        {
            if !root.at(key).is_zero() {
                errors.add(root.at_as(key, shown).invalid_as("", UNSET));
            }
        }
        let source = root.at("deprecatedSource");
        if !source.at("component").is_zero() || !source.at("host").is_zero() {
            errors.add(root.at("source").invalid_as("", UNSET));
        }
    })
}

fn validate_new_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let root = Field::root(new);
    Errors::of(|errors| {
        if new["series"] != old["series"] {
            validate_series(new, errors);
        }
        for (key, shown) in [
            ("regarding", "involvedObject"),
            ("reason", "reason"),
            ("note", "message"),
            ("deprecatedSource", "source"),
            ("deprecatedFirstTimestamp", "firstTimestamp"),
            ("deprecatedLastTimestamp", "lastTimestamp"),
            ("deprecatedCount", "count"),
            ("type", "type"),
            ("eventTime", "eventTime"),
            ("action", "action"),
            ("related", "related"),
            ("reportingController", "reportingController"),
            ("reportingInstance", "reportingInstance"),
        ] {
            let field = root.at_as(key, shown);
            let is_same = field.value == &old[key] || field.is_zero() && is_zero(&old[key]);
            if !is_same {
                // The path is that of the older form, so that nobody knows there what a missing text is.
                let shown = if field.value.is_null() && old[key].is_string() { Value::from("") } else { field.value.clone() };
                errors.add(field.invalid_as(shown, IMMUTABLE));
            }
        }
    })
}
