//! The kinds of the core group, except pods and replication controllers.

pub(super) mod config;
pub(super) mod endpoints;
pub(super) mod event;
pub(super) mod namespace;
pub(super) mod node;
pub(super) mod quota;
pub(super) mod service;
pub(super) mod service_account;
pub(super) mod volume;
