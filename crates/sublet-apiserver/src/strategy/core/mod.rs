//! The kinds of the core group, except pods and replication controllers.

pub(super) mod config;
pub(super) mod endpoint_slice;
pub(super) mod endpoints;
pub(super) mod event;
mod limits;
pub(super) mod namespace;
pub(super) mod node;
pub(super) mod quota;
pub(super) mod service;
pub(super) mod service_account;
mod service_rules;
pub(super) mod volume;
mod volume_rules;
