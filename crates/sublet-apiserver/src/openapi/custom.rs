//! The types of custom resources, as schemas of either OpenAPI version.

use super::descriptions::Descriptions;
use super::nodes;
use super::types::wrap_reference;
use super::{Version, names, reference};
use crate::facts::OBJECT_META;
use crate::registry::Resource;
use serde_json::{Map, Value, json};

/// What all schemas of a document need.
pub(super) struct Writer<'a> {
    pub version: Version,
    pub descriptions: &'a Descriptions,
}

impl Writer<'_> {
    /// The types of a custom resource: its kind and its list.
    pub(super) fn types(&self, row: &Resource) -> [(String, Value); 2] {
        [(names::kind_type(row), self.kind(row)), (names::list_type(row), self.list(row))]
    }

    fn kind(&self, row: &Resource) -> Value {
        let root = row.schema.node();
        // What version 2 cannot say it does not say at all.
        let open = self.version == Version::V2 && root.preserve_unknown;
        let mut schema = if open { Map::new() } else { nodes::root(root, self) };
        if !open {
            self.insert_type_meta(schema.entry("properties").or_insert_with(|| json!({})));
        }
        schema.insert("type".into(), "object".into());
        schema.insert("x-kubernetes-group-version-kind".into(), gvk(row, &row.kind));
        Value::Object(schema)
    }

    fn list(&self, row: &Resource) -> Value {
        let mut properties = json!({
            "items": {
                "description": format!("The {} of the list.", row.plural),
                "type": "array",
                "items": { "$ref": reference(&names::kind_type(row), self.version) },
            },
        });
        self.insert_type_meta(&mut properties);
        properties["metadata"] = self.reference_to(LIST_META, "list metadata");
        json!({
            "description": format!("{} is a list of {}", row.list_kind, row.kind),
            "type": "object",
            "required": ["items"],
            "properties": properties,
            "x-kubernetes-group-version-kind": gvk(row, &row.list_kind),
        })
    }

    /// apiVersion, kind and metadata, as every object has them.
    pub(super) fn insert_type_meta(&self, properties: &mut Value) {
        for field in ["apiVersion", "kind"] {
            properties[field] = json!({ "type": "string", "description": self.descriptions.shared(field) });
        }
        properties["metadata"] = self.reference_to(OBJECT_META, "metadata");
    }

    fn reference_to(&self, of: &str, described_as: &str) -> Value {
        let mut schema = Map::new();
        schema.insert("description".into(), self.descriptions.shared(described_as).into());
        schema.insert("$ref".into(), reference(of, self.version).into());
        wrap_reference(schema, self.version)
    }
}

fn gvk(row: &Resource, kind: &str) -> Value {
    json!([{ "group": row.group, "version": row.version, "kind": kind }])
}

const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
