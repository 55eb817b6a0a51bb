//! The kinds of `storage.k8s.io`.

mod classes;
mod csi;

pub(super) use classes::{STORAGE_CLASS, VOLUME_ATTRIBUTES_CLASS};
pub(super) use csi::{CSI_DRIVER, CSI_NODE, CSI_STORAGE_CAPACITY, VOLUME_ATTACHMENT};

use super::status::empty_status;
use super::{Strategy, keep_status};

/// Kept for objects whose status is the whole of what `/status` may write.
pub(super) const MIGRATION: Strategy =
    Strategy { prepare_create: empty_status, prepare_update: keep_status, unconditional_update: false, ..Strategy::PLAIN };
