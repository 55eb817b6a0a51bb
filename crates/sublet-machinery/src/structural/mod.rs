//! Objects against their schema: reading, pruning, defaulting and validation of values.
//!
//! The order for a request body: [`decode`] or [`decode_typed`] (JSON) or [`yaml_to_json`] before
//! them; for custom resources [`coerce`] (metadata, unknown fields, nulls); then [`default`], and
//! after admission [`validate`]. [`build`] makes the nodes from the schema of a custom resource
//! definition.

mod decode;
mod go;
mod leaf;
mod object_meta;
mod scan;
mod yaml;
#[cfg(test)]
mod testing;

pub use decode::{Decoded, STRICT_ERRORS_MAX, decode, decode_typed};
pub use object_meta::{object_meta_schema, push_object_meta};
pub use scan::{DEPTH_MAX, SyntaxError};
pub use yaml::{YAML_NODES_MAX, YamlDocument, yaml_to_json};
