//! Events of the core group and of `events.k8s.io`: one stored kind under two names.

use super::super::Strategy;
use super::super::edit::fill;
use serde_json::{Value, json};

pub(crate) const EVENT: Strategy = Strategy { default, fields, create_on_update: true, ..Strategy::PLAIN };

pub(crate) const EVENTS_EVENT: Strategy = Strategy { default: default_new, ..EVENT };

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
