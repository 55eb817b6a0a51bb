//! One engine for all kinds: local copies of both sides, one question per key, one writer.

pub mod allocator;
mod certificates;
mod definition;
pub mod diff;
mod events;
mod execute;
pub mod host;
mod host_kind;
pub mod offers;
mod optional;
pub mod ownership;
mod packed;
mod patrol;
mod pending;
pub mod plan;
mod projected;
pub mod queue;
mod routing;
mod rules;
mod settled;
pub mod show;
pub mod skew;
pub mod stats;
pub mod syncer;
pub mod teardown;
pub mod tenant;
mod tokens;
mod writer;

pub use host_kind::NODE_LEASES;
pub use rules::SyncRules;
pub(crate) use rules::has_labels;
pub use writer::{HostWriter, WriteError};

use crate::resources::KindId;
use crate::translate::TenantKey;
use std::fmt;

/// A unit of work: one object of one kind, named as in the tenant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemKey {
    pub kind: KindId,
    pub key: TenantKey,
}

impl ItemKey {
    pub fn new(kind: KindId, key: TenantKey) -> Self {
        Self { kind, key }
    }
}

impl fmt::Display for ItemKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind, self.key)
    }
}
