//! The downward API: a pod reads about itself as it is in the tenant. The host pod carries what
//! differs in annotations, and field paths lead there.

use crate::translate::host_meta_key;
use serde_json::{Map, Value};
use sublet_api::marks;
use sublet_machinery::ObjectExt;

/// A tenant field path as one of the host pod.
pub(super) fn host_path(path: &str) -> String {
    let annotation = |key: &str| format!("metadata.annotations['{key}']");
    match path {
        "metadata.name" => annotation(marks::NAME),
        "metadata.uid" => annotation(marks::UID),
        "metadata.namespace" => format!("metadata.labels['{}']", marks::NAMESPACE),
        "metadata.labels" => annotation(marks::POD_LABELS),
        "metadata.annotations" => annotation(marks::POD_ANNOTATIONS),
        "spec.serviceAccountName" => annotation(marks::SERVICE_ACCOUNT),
        _ => match keyed(path) {
            Some((map, key)) => format!("{map}['{}']", host_meta_key(key)),
            None => path.to_string(),
        },
    }
}

/// `metadata.labels['key']` in its parts.
fn keyed(path: &str) -> Option<(&str, &str)> {
    let (map, key) = path.split_once("['")?;
    Some((map, key.strip_suffix("']")?))
}

/// Writes the annotations that volumes of the pod read; see [`host_path`]. They follow the tenant's
/// labels and annotations, and a kubelet refreshes the files.
pub(super) fn carry(host: &mut Value, tenant: &Value) {
    if reads(tenant, "metadata.labels") {
        host.set_annotation(marks::POD_LABELS, &format_map(tenant.labels()));
    }
    if reads(tenant, "metadata.annotations") {
        host.set_annotation(marks::POD_ANNOTATIONS, &format_map(tenant.annotations()));
    }
}

fn reads(pod: &Value, path: &str) -> bool {
    pod["spec"].array_at("/volumes").iter().any(|volume| {
        let direct = volume.array_at("/downwardAPI/items").iter();
        let projected = volume.array_at("/projected/sources").iter().flat_map(|s| s.array_at("/downwardAPI/items"));
        direct.chain(projected).any(|item| item.str_at("/fieldRef/fieldPath") == Some(path))
    })
}

/// As a kubelet formats a map: a line `key="value"` for each entry, sorted.
fn format_map(map: Option<&Map<String, Value>>) -> String {
    let lines: Vec<String> =
        map.into_iter().flatten().map(|(key, value)| format!("{key}={}", go_quoted(value.as_str().unwrap_or_default()))).collect();
    lines.join("\n")
}

/// Go's `%q`: a string literal in which unprintable characters are escaped.
fn go_quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_to_what_the_tenant_means() {
        for (tenant, host) in [
            ("metadata.name", "metadata.annotations['sublet.dev/name']"),
            ("metadata.namespace", "metadata.labels['sublet.dev/namespace']"),
            ("metadata.labels['app']", "metadata.labels['app']"),
            ("metadata.annotations['sublet.dev/x']", "metadata.annotations['n.sublet.dev/x']"),
            ("status.podIP", "status.podIP"),
            ("spec.nodeName", "spec.nodeName"),
        ] {
            assert_eq!(host_path(tenant), host);
        }
    }

    #[test]
    fn maps_are_written_as_kubelets_write_them() {
        let pod = json!({"metadata": {"labels": {"b": "x\"y", "a": "1\n"}}});
        assert_eq!(format_map(pod.labels()), "a=\"1\\n\"\nb=\"x\\\"y\"");
    }
}
