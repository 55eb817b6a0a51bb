//! What the server serves, from its aggregated discovery documents.

use super::metadata;
use serde_json::Value;
use std::collections::BTreeMap;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::{Client, ClientError};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiResource {
    pub(crate) gvr: Gvr,
    pub(crate) kind: String,
    pub(crate) namespaced: bool,
    pub(crate) verbs: Vec<String>,
}

impl ApiResource {
    pub(crate) fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }
}

/// Each resource once, in the version that its group prefers and serves it in.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Discovered {
    pub(crate) resources: Vec<ApiResource>,
    /// `group/version: why` of versions that could not be asked.
    pub(crate) failures: Vec<String>,
}

pub(crate) async fn discover(client: &Client) -> Result<Discovered, ClientError> {
    let mut found = Discovered::default();
    for root in ["/api", "/apis"] {
        let document = metadata::get(client, root, AGGREGATED).await?;
        if document.kind() != "APIGroupDiscoveryList" {
            return Err(ClientError::Decode(format!("{root} answers no aggregated discovery")));
        }
        read(&document, &mut found);
    }
    Ok(found)
}

fn read(document: &Value, found: &mut Discovered) {
    for group in document.array_at("/items") {
        let mut resources: BTreeMap<String, ApiResource> = BTreeMap::new();
        for version in group.array_at("/versions") {
            let name = version["version"].as_str().unwrap_or_default();
            if version["freshness"] == "Stale" {
                let gv = if group.name().is_empty() { name.to_string() } else { format!("{}/{name}", group.name()) };
                found.failures.push(format!("{gv}: stale GroupVersion discovery: {gv}"));
            }
            for resource in version.array_at("/resources") {
                let plural = resource["resource"].as_str().unwrap_or_default();
                // Versions come in the order of preference.
                resources.entry(plural.to_string()).or_insert_with(|| ApiResource {
                    gvr: Gvr::owned(group.name(), name, plural),
                    kind: resource.str_at("/responseKind/kind").unwrap_or_default().to_string(),
                    namespaced: resource["scope"] == "Namespaced",
                    verbs: resource.array_at("/verbs").iter().filter_map(|v| v.as_str().map(str::to_string)).collect(),
                });
            }
        }
        found.resources.extend(resources.into_values());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_resource_comes_in_its_preferred_version() {
        let resource =
            |name: &str| json!({"resource": name, "responseKind": {"kind": "K"}, "scope": "Namespaced", "verbs": ["list", "delete"]});
        let document = json!({"items": [{"metadata": {"name": "g"}, "versions": [
            {"version": "v2", "freshness": "Current", "resources": [resource("a")]},
            {"version": "v1", "freshness": "Stale", "resources": [resource("a"), resource("b")]},
        ]}]});
        let mut found = Discovered::default();
        read(&document, &mut found);
        let names: Vec<String> = found.resources.iter().map(|r| r.gvr.to_string()).collect();
        assert_eq!(names, ["g/v2, Resource=a", "g/v1, Resource=b"]);
        assert_eq!(found.failures, ["g/v1: stale GroupVersion discovery: g/v1"]);
    }
}
