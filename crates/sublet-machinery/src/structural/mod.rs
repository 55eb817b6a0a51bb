//! Objects against their schema: reading, pruning, defaulting and validation of values.
//!
//! The order for a request body: [`decode`] or [`decode_typed`] (JSON), [`yaml_to_json`] before
//! them; for custom resources [`coerce`] (metadata, unknown fields, nulls); then [`default`], and
//! after admission [`validate`] and [`validate_lists`]. [`build`] makes the nodes from the schema
//! of a custom resource definition.

mod build;
mod coerce;
mod correlate;
mod decode;
mod default;
mod embedded;
pub mod format;
mod go;
mod leaf;
mod lists;
mod object_meta;
mod scan;
#[cfg(test)]
mod testing;
pub mod url;
mod validate;
mod yaml;

pub use build::{build, build_plain};
pub use coerce::{CoerceError, coerce, drop_empty_metadata, prune, prune_value};
pub use correlate::{Correlated, OldItems};
pub use decode::{Decoded, STRICT_ERRORS_MAX, decode, decode_typed};
pub use default::{default, has_defaults, omit_empty};
pub use embedded::validate_embedded;
pub use lists::validate_lists;
pub use object_meta::{object_meta_schema, push_object_meta};
pub use scan::{DEPTH_MAX, SyntaxError};
pub use validate::{validate, validate_required_and_enums, validate_update};
pub use yaml::{YAML_NODES_MAX, YamlDocument, yaml_to_json};
