//! ConfigMaps that pods use.

use super::manifest::{Field, copied};
use super::{KindId, SyncedKind};
use crate::index;
use crate::translate::TenantKey;

pub const CONFIG_MAP: SyncedKind = SyncedKind {
    fields: &[&FIELDS],
    select: |object, view| view.is_used(index::CONFIG_MAPS, &TenantKey::of(object)),
    slim: true,
    ..SyncedKind::core_v1(KindId::ConfigMap, "ConfigMap", "configmaps")
};

const FIELDS: [Field; 3] = [copied("/data"), copied("/binaryData"), copied("/immutable")];
