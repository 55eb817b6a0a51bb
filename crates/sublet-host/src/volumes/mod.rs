//! Simulated storage: a default class, volumes for claims, binding, growth and reclaim.

mod claim;
pub(crate) mod matcher;
mod provision;
mod volume;
mod writer;

use crate::events::EventSink;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES};
use sublet_runtime::{Change, Client, Clock, Controller, Ctx, Key, Manager, Outcome, Reconciler, Scope};
use tokio_util::sync::CancellationToken;

/// The provisioner whose classes the host serves.
pub const PROVISIONER: &str = "sublet.dev/simulated";
/// The class that claims get which name none.
pub const DEFAULT_CLASS: &str = "standard";
const DEFAULT_CLASS_ANNOTATION: &str = "storageclass.kubernetes.io/is-default-class";
const COMPONENT: &str = "persistentvolume-controller";
const BY_CLASS: &str = "host-pending-class";
const RETRY: Duration = Duration::from_millis(500);

/// Adds the volume loop to the manager.
pub(crate) fn add(manager: &mut Manager, events: EventSink, clock: Clock) {
    let claims = manager.informers().informer(&PERSISTENT_VOLUME_CLAIMS, &Scope::default()).0;
    claims.add_index(BY_CLASS, |claim| {
        let pending = claim.str_at("/status/phase") != Some("Bound");
        if pending { vec![matcher::class(claim).to_string()] } else { Vec::new() }
    });
    let controller = Controller::new("persistentvolume-binder", Binder { events, clock })
        .watches(PERSISTENT_VOLUME_CLAIMS, |change: &Change, _| {
            let mut keys = vec![change.key()];
            // A claim that went leaves its volume behind.
            let volume = change.object().str_at("/spec/volumeName").filter(|v| !v.is_empty());
            keys.extend(volume.map(|v| Key::new("", v)));
            keys
        })
        .watches(PERSISTENT_VOLUMES, |change: &Change, mapping| {
            let volume = change.object();
            let mut keys = vec![change.key()];
            if let Some(claim) = volume.str_at("/spec/claimRef/name") {
                keys.push(Key::new(volume.str_at("/spec/claimRef/namespace").unwrap_or_default(), claim));
            } else {
                let waiting = mapping.informer(&PERSISTENT_VOLUME_CLAIMS).by_index(BY_CLASS, matcher::class(volume));
                keys.extend(waiting.iter().map(|c| Key::of(c)));
            }
            keys
        })
        .watches(STORAGE_CLASSES, |change: &Change, mapping| {
            let claims = mapping.informer(&PERSISTENT_VOLUME_CLAIMS);
            let mut waiting = claims.by_index(BY_CLASS, &change.key().name);
            if change.object().annotation(DEFAULT_CLASS_ANNOTATION) == Some("true") {
                waiting.extend(claims.by_index(BY_CLASS, ""));
            }
            waiting.iter().map(|c| Key::of(c)).collect()
        })
        .reads(NODES)
        // One after the other: two claims must not race for one volume.
        .workers(1);
    manager.add(controller);
}

/// Creates the default class; an existing one is left as it is.
pub(crate) async fn ensure_class(client: Client, cancel: CancellationToken) {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": DEFAULT_CLASS, "annotations": {DEFAULT_CLASS_ANNOTATION: "true"}},
        "provisioner": PROVISIONER, "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true,
    });
    loop {
        match client.create(&STORAGE_CLASSES, &class).await {
            Ok(_) => return,
            Err(error) if error.is_already_exists() => return,
            Err(error) => tracing::warn!(%error, "cannot create the default storage class yet"),
        }
        tokio::select! {
            () = tokio::time::sleep(RETRY) => {}
            () = cancel.cancelled() => return,
        }
    }
}

struct Binder {
    events: EventSink,
    clock: Clock,
}

#[async_trait]
impl Reconciler for Binder {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let writer = writer::Writer { ctx, events: &self.events, clock: &self.clock };
        let result = if key.namespace.is_empty() {
            match ctx.informer(&PERSISTENT_VOLUMES).get_key(key) {
                Some(volume) => volume::sync(&writer, &volume).await,
                None => Ok(()),
            }
        } else {
            match ctx.informer(&PERSISTENT_VOLUME_CLAIMS).get_key(key) {
                Some(claim) => claim::sync(&writer, &claim).await,
                None => Ok(()),
            }
        };
        match result {
            Ok(()) => Outcome::Done,
            Err(error) if error.is_not_found() => Outcome::Done,
            Err(error) => error.into(),
        }
    }
}

/// The class that claims without one get: the newest of the default ones.
fn default_class(ctx: &Ctx) -> Option<std::sync::Arc<Value>> {
    let classes = ctx.informer(&STORAGE_CLASSES).list(None);
    let default = classes.into_iter().filter(|c| c.annotation(DEFAULT_CLASS_ANNOTATION) == Some("true"));
    default
        .max_by_key(|c| (c.str_at("/metadata/creationTimestamp").unwrap_or_default().to_string(), std::cmp::Reverse(c.name().to_string())))
}
