//! Descriptions of types and fields, kept compressed until a document is made.

use flate2::read::ZlibDecoder;
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;

/// Descriptions by type and field.
#[derive(Debug, Default)]
pub(super) struct Descriptions {
    types: HashMap<String, Described>,
}

#[derive(Debug, Default)]
struct Described {
    description: String,
    fields: HashMap<String, String>,
}

impl Descriptions {
    /// Unpacks what the build collected; without it there are only the fields that all types share.
    pub(super) fn load() -> Self {
        let mut text = String::new();
        match ZlibDecoder::new(COMPRESSED).read_to_string(&mut text) {
            Ok(_) => Self::parse(&text),
            Err(_) => Self::default(),
        }
    }

    fn parse(text: &str) -> Self {
        let mut types: HashMap<String, Described> = HashMap::new();
        let mut current = String::new();
        for line in text.lines() {
            let Some((name, description)) = line.split_once('\t') else { continue };
            let description = unescape(description);
            match name.strip_prefix('=') {
                Some(name) => {
                    current = name.to_string();
                    types.insert(current.clone(), Described { description, fields: HashMap::new() });
                }
                None => {
                    if let Some(of) = types.get_mut(&current) {
                        of.fields.insert(name.to_string(), description);
                    }
                }
            }
        }
        Self { types }
    }

    pub(super) fn of_type(&self, name: &str) -> Option<String> {
        let known = self.types.get(name).map(|t| t.description.clone()).filter(|d| !d.is_empty());
        known.or_else(|| {
            let kind = name.rsplit('.').next()?;
            Some(format!("{kind} is a list of {}", kind.strip_suffix("List").filter(|k| !k.is_empty())?))
        })
    }

    pub(super) fn of_field(&self, type_name: &str, field: &str) -> Option<Cow<'_, str>> {
        if let Some(own) = self.own(type_name, field) {
            return Some(own.into());
        }
        let kind_of_items = type_name.rsplit('.').next().and_then(|kind| kind.strip_suffix("List")).filter(|kind| !kind.is_empty());
        match (field, kind_of_items) {
            ("apiVersion" | "kind", _) => Some(self.shared(field).into()),
            ("object", _) if type_name.ends_with(".WatchEvent") => Some("The object after the change, or before its deletion.".into()),
            ("items", Some(kind)) => Some(format!("List of {}.", plural(kind)).into()),
            ("metadata", Some(_)) => Some(self.shared("list metadata").into()),
            _ => None,
        }
    }

    /// What `apiVersion`, `kind`, `metadata` and `list metadata` are, the same for every type. The source leaves them
    /// out of most types because its types have them by construction.
    pub(super) fn shared(&self, field: &str) -> &str {
        let (type_name, own, fallback) = match field {
            "apiVersion" => (DELETE_OPTIONS, field, "APIVersion defines the versioned schema of this object."),
            "kind" => (DELETE_OPTIONS, field, "Kind says in CamelCase what this object is."),
            "list metadata" => (STATUS, "metadata", "The metadata of the list."),
            _ => (CONFIG_MAP, field, "The metadata of the object."),
        };
        self.own(type_name, own).unwrap_or(fallback)
    }

    fn own(&self, type_name: &str, field: &str) -> Option<&str> {
        self.types.get(type_name)?.fields.get(field).map(String::as_str).filter(|d| !d.is_empty())
    }
}

/// Several of a kind, as the names of resources are made: `services`, `ingresses`, `networkpolicies`.
fn plural(kind: &str) -> String {
    let kind = kind.to_ascii_lowercase();
    match kind.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o']) => format!("{stem}ies"),
        _ if kind == "endpoints" => kind,
        _ if kind.ends_with(['s', 'x']) => format!("{kind}es"),
        _ => format!("{kind}s"),
    }
}

/// The compressed descriptions, to tell builds apart that have others.
pub(crate) fn bytes() -> &'static [u8] {
    COMPRESSED
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some(other) => out.push(other),
                None => {}
            },
            c => out.push(c),
        }
    }
    out
}

const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const CONFIG_MAP: &str = "io.k8s.api.core.v1.ConfigMap";
/// Written by the build script; empty when the source of the descriptions was not there.
const COMPRESSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.z"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_found_by_type_and_field() {
        let parsed = Descriptions::parse("=a.Pod\tA pod\\nis\\\\was.\nspec\tWanted.\n=a.Empty\t\n");
        assert_eq!(parsed.of_type("a.Pod").as_deref(), Some("A pod\nis\\was."));
        assert_eq!(parsed.of_field("a.Pod", "spec").as_deref(), Some("Wanted."));
        assert_eq!(parsed.of_field("a.Pod", "nope"), None);
        assert!(parsed.shared("apiVersion").starts_with("APIVersion defines"));
        assert_eq!(parsed.of_type("a.Empty"), None);
        assert_eq!(parsed.of_type("a.PodList").as_deref(), Some("PodList is a list of Pod"));
        for (list, items) in [
            ("a.ServiceList", "List of services."),
            ("a.IngressList", "List of ingresses."),
            ("a.EndpointsList", "List of endpoints."),
            ("a.NetworkPolicyList", "List of networkpolicies."),
        ] {
            assert_eq!(parsed.of_field(list, "items").as_deref(), Some(items));
        }
    }

    #[test]
    fn what_the_build_collected_can_be_read() {
        // Without the source of the descriptions there are none, and that is no error.
        let descriptions = Descriptions::load();
        if !descriptions.types.is_empty() {
            assert!(descriptions.of_field("io.k8s.api.core.v1.ContainerPort", "hostIP").is_some());
            assert!(descriptions.of_field("io.k8s.api.core.v1.Service", "spec").is_some());
        }
    }
}
