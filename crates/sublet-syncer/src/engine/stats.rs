//! What a syncer did, in numbers. The labels are few and fixed.

use super::plan::Action;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one tenant, since its start.
#[derive(Debug, Default)]
pub struct Stats {
    host_writes: AtomicU64,
    host_deletes: AtomicU64,
    tenant_writes: AtomicU64,
    tenant_deletes: AtomicU64,
    refusals: AtomicU64,
    failures: AtomicU64,
    patrols: AtomicU64,
    repairs: AtomicU64,
    events_told: AtomicU64,
    events_dropped: AtomicU64,
    tokens_issued: AtomicU64,
}

/// [`Stats`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatsSnapshot {
    pub host_writes: u64,
    pub host_deletes: u64,
    pub tenant_writes: u64,
    pub tenant_deletes: u64,
    /// Answers of the host that its owner was told of.
    pub refusals: u64,
    /// Rounds that ended in an error and were tried again.
    pub failures: u64,
    pub patrols: u64,
    /// Keys that a patrol found out of step.
    pub repairs: u64,
    pub events_told: u64,
    pub events_dropped: u64,
    pub tokens_issued: u64,
}

macro_rules! counters {
    ($($method:ident $field:ident)*) => {
        $(pub(super) fn $method(&self) {
            self.$field.fetch_add(1, Ordering::Relaxed);
        })*

        pub fn snapshot(&self) -> StatsSnapshot {
            StatsSnapshot { $($field: self.$field.load(Ordering::Relaxed)),* }
        }
    };
}

impl Stats {
    counters! {
        host_write host_writes
        host_delete host_deletes
        tenant_write tenant_writes
        tenant_delete tenant_deletes
        refusal refusals
        failure failures
        patrol patrols
        repair repairs
        event_told events_told
        event_dropped events_dropped
        token_issued tokens_issued
    }

    pub(super) fn count(&self, action: &Action) {
        match action {
            Action::CreateHost { .. } | Action::ApplyHost { .. } | Action::PatchHost { .. } | Action::ApplyHostStatus { .. } => {
                self.host_write()
            }
            Action::DeleteHost { .. } => self.host_delete(),
            Action::BindTenant { .. } | Action::PatchTenant { .. } | Action::PatchTenantStatus { .. } => self.tenant_write(),
            Action::DeleteTenant { .. } => self.tenant_delete(),
        }
    }
}
