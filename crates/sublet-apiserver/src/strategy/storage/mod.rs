//! The kinds of `storage.k8s.io`.

mod classes;
mod csi;
mod migration;

pub(super) use classes::{STORAGE_CLASS, VOLUME_ATTRIBUTES_CLASS};
pub(super) use csi::{CSI_DRIVER, CSI_NODE, CSI_STORAGE_CAPACITY, VOLUME_ATTACHMENT};

pub(super) use migration::MIGRATION;
