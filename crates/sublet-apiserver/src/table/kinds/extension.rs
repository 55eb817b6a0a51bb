//! The columns of admission configuration, CustomResourceDefinitions and APIServices.

use crate::registry::Column;
use crate::table::columns::{UNSET, age, boolean, condition, created_at, integer, joined, name, string, strings, text, wide};
use serde_json::Value;
use sublet_machinery::ObjectExt;

pub(in crate::table) fn columns(plural: &str) -> Option<Vec<Column>> {
    Some(match plural {
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => {
            vec![name(), integer("Webhooks", "The number of webhooks.", |o, _| o.array_at("/webhooks").len().into()), age()]
        }
        "validatingadmissionpolicies" => {
            policy(integer("Validations", "The number of validations.", |o, _| o.array_at("/spec/validations").len().into()))
        }
        "mutatingadmissionpolicies" => {
            policy(integer("Mutations", "The number of mutations.", |o, _| o.array_at("/spec/mutations").len().into()))
        }
        "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings" => vec![
            name(),
            string("PolicyName", "The policy that is bound.", |o, _| text(o, "/spec/policyName").into()),
            string("ParamRef", "Where parameters come from.", |o, _| param_ref(o).into()),
            age(),
        ],
        "customresourcedefinitions" => definitions(),
        "apiservices" => vec![
            name(),
            string("Service", "The service that serves the version.", |o, _| match o.pointer("/spec/service").filter(|s| s.is_object()) {
                Some(service) => format!("{}/{}", text(service, "/namespace"), text(service, "/name")).into(),
                None => "Local".into(),
            }),
            string("Available", "Whether the version is available.", |o, _| available(o).into()),
            age(),
        ],
        _ => return None,
    })
}

fn policy(rules: Column) -> Vec<Column> {
    let param_kind =
        string("ParamKind", "The kind of the parameters.", |o, _| match o.pointer("/spec/paramKind").filter(|k| k.is_object()) {
            Some(kind) => format!("{}/{}", text(kind, "/apiVersion"), text(kind, "/kind")).into(),
            None => UNSET.into(),
        });
    vec![name(), rules, param_kind, age()]
}

fn param_ref(binding: &Value) -> String {
    let Some(param) = binding.pointer("/spec/paramRef").filter(|p| p.is_object()) else { return UNSET.into() };
    match (text(param, "/namespace"), text(param, "/name")) {
        (_, "") if param["selector"].is_object() => selector_as_go_prints(&param["selector"]),
        (_, "") => UNSET.into(),
        // The parameters may be cluster-scoped; nothing here tells.
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// Upstream prints this selector the way Go prints the generated struct.
fn selector_as_go_prints(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels: String = labels.map(|(k, v)| format!("{k}: {},", v.as_str().unwrap_or_default())).collect();
    let expressions = selector.array_at("/matchExpressions").iter().map(|e| {
        let values: Vec<&str> = strings(e.array_at("/values")).collect();
        format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},", text(e, "/key"), text(e, "/operator"), values.join(" "))
    });
    let expressions: String = expressions.collect();
    format!("&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}")
}

fn definitions() -> Vec<Column> {
    vec![
        name(),
        string("Scope", "Cluster or Namespaced.", |o, _| text(o, "/spec/scope").into()),
        string("Versions", "The versions that are served.", |o, _| {
            let served = o.array_at("/spec/versions").iter().filter(|v| v["served"] == true);
            let mut names: Vec<String> =
                served.map(|v| format!("{}{}", text(v, "/name"), if v["storage"] == true { "(storage)" } else { "" })).collect();
            names.sort();
            names.join(",").into()
        }),
        created_at(),
        wide(string("Group", "The group of the kind.", |o, _| text(o, "/spec/group").into())),
        wide(string("Kind", "The kind that is defined.", |o, _| text(o, "/spec/names/kind").into())),
        wide(string("ShortNames", "Short names of the resource.", |o, _| joined(o.array_at("/spec/names/shortNames"), ",").into())),
        wide(boolean("Established", "Whether the kind is served.", |o, _| {
            (condition(o.array_at("/status/conditions"), "Established") == Some("True")).into()
        })),
    ]
}

fn available(service: &Value) -> String {
    let conditions = service.array_at("/status/conditions");
    let Some(condition) = conditions.iter().find(|c| c["type"] == "Available") else { return "Unknown".into() };
    match (text(condition, "/status"), text(condition, "/reason")) {
        (status @ "True", _) | (status, "") => status.into(),
        (status, reason) => format!("{status} ({reason})"),
    }
}
