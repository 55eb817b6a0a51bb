//! Workload controllers: `apps`, and replication controllers of the core group.

pub(super) mod daemon_set;
pub(super) mod deployment;
pub(super) mod replica_set;
pub(super) mod stateful_set;

use super::Strategy;

pub(super) const CONTROLLER_REVISION: Strategy = Strategy::PLAIN;
