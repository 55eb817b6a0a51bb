//! What each kind prints, by the group it belongs to. The rules are those of pkg/printers/internalversion, 1.37.

pub(super) mod cluster;
pub(super) mod core;
pub(super) mod extension;
pub(super) mod network;
pub(super) mod pod;
pub(super) mod storage;
pub(super) mod workloads;
