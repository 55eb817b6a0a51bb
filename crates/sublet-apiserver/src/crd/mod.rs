//! CustomResourceDefinitions: from a definition to rows that serve its objects.
//!
//! What a server does with them, all of it synchronous and within one commit each, so that a path is
//! served as soon as the reply to the create is out:
//!
//! - **create, update**: the strategy of the kind ([`DEFINITION`]) defaults, prepares and validates.
//!   After the commit, [`accept`] gives the status to write (nothing to write when it gives none); with
//!   that status, [`rows`] gives the rows for `Registry::set_custom`. Names may have become free, so
//!   `accept` is then asked again for the other definitions of the group.
//! - **delete**: the first delete writes [`begin_delete`]; [`rows`] of that object take no creates. Then
//!   [`cleanup_plan`] says step by step what to do until the finalizer is off. When the object is gone,
//!   the rows go (`set_custom` with none) and `accept` is asked for the others of the group.
//! - **start**: [`rows`] for every stored definition.

mod cleanup;
mod conversion;
mod names;
mod objects;
mod prepare;
mod rows;
mod rules;
mod strategy;
mod taken;
pub(crate) mod validate;
mod view;

pub use cleanup::{CLEANUP_FINALIZER, Cleanup, begin_delete, cleanup_failed, cleanup_plan};
pub use conversion::Conversion;
pub(crate) use conversion::kind_text;
pub use names::accept;
pub use objects::{
    cannot_handle, convert, default_object, read, validate_create, validate_status_update as validate_object_status_update,
    validate_update as validate_object_update,
};
pub use prepare::{default, prepare, prepare_status_update};
pub use rows::{compare_versions, row, rows};
pub use rules::{Rules, Verdict};
pub use strategy::{DEFINITION, strategy};
pub use taken::{Names, NamesInForce};
pub use validate::{validate, validate_status_update, validate_update, warnings};
pub use view::{is_served, is_terminating};
