//! Maps the objects of a tenant to a host namespace, and what the host makes of them back.
//!
//! Entry types: [`Syncer`] (one tenant), [`HostCache`] (the host, shared by the tenants of a process),
//! [`resources::SyncedKind`] (a row per kind), [`engine::HostWriter`] (the only way to write to a host).
//!
//! Invariants: the tenant is the source of truth for what it wrote, the host for status and allocated
//! fields; only [`translate`] turns a name of one side into one of the other; nothing is deleted
//! before both sides were seen in full and a live read confirmed it; foreign objects are not touched.

pub mod engine;
pub mod index;
pub mod resources;
pub mod translate;

pub use engine::SyncRules;
pub use engine::allocator::{Allocation, HostServiceAllocator};
pub use engine::host::{HostCache, HostHandle, HostScope};
pub use engine::stats::StatsSnapshot;
pub use engine::syncer::{Layout, Syncer, SyncerConfig, SyncerStatus};
pub use engine::teardown::{Leftover, remove_copies};
pub use resources::PodConfig;
pub use translate::TenantIdentity;
