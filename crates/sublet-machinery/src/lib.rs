//! The pure part of Kubernetes: objects as JSON, resource names, errors, schemas, selectors, patches.
//!
//! Entry types: [`ObjectExt`] (metadata of a JSON object), [`Gvr`]/[`Gvk`] (names of resources and
//! kinds), [`ApiError`] (what a client sees as `Status`), [`Schema`] (the one structural form for
//! built-in and custom kinds).
//!
//! Invariants: no IO, no clock, no async. Everything is a function of its arguments.

pub mod apply;
pub mod claims;
pub mod error;
pub mod metadata;
pub mod names;
pub mod object;
pub mod patch;
pub mod pattern;
pub mod quantity;
pub mod resource;
pub mod schema;
pub mod selector;
pub mod structural;

pub use error::{ApiError, Cause, FieldError, FieldErrorKind, FieldPath, Reason};
pub use object::{NamespacedName, ObjectExt};
pub use quantity::Quantity;
pub use resource::{Gvk, Gvr};
pub use schema::{ListType, MapType, Node, NodeId, PatchStrategy, Schema, SchemaNode, Table, ValueType};
pub use selector::{FieldSelector, Selector};
