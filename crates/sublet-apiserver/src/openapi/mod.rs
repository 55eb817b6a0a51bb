//! OpenAPI documents in versions 2 and 3, made from the rows in force when somebody asks.

mod custom;
mod descriptions;
mod json;
mod names;
mod nodes;
mod operations;
mod parameters;
mod protobuf;
mod roots;
mod types;
mod v2;
mod v3;

pub(crate) use descriptions::bytes as descriptions_bytes;
pub use v2::{write_document as write_v2_document, write_protobuf_document as write_v2_protobuf_document};
pub use v3::{document_names as v3_document_names, has_document as has_v3_document, write_document as write_v3_document};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V2,
    V3,
}

/// How a document refers to a type.
fn reference(name: &str, version: Version) -> String {
    match version {
        Version::V2 => format!("#/definitions/{name}"),
        Version::V3 => format!("#/components/schemas/{name}"),
    }
}

#[cfg(test)]
mod tests;
