//! The side of a shard: runs the control planes that the operator placed in this pod, and says how they
//! are.
//!
//! Operator and shard talk through the status of the `VirtualCluster` alone: `status.controlPlane` is the
//! operator's word, `status.plane` the shard's. Either may be gone for a while; the other finds the last
//! word again.

use crate::control_planes::{ControlPlaneError, ControlPlanes, PlaneStatus, Tenant};
use crate::pki_secret;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use sublet_api::{Mode, Phase, Placement, VirtualCluster};
use sublet_machinery::ObjectExt;
use sublet_pki::Pki;
use sublet_runtime::manager::map;
use sublet_runtime::resources::{SECRETS, VIRTUAL_CLUSTERS};
use sublet_runtime::{ClientError, Controller, Ctx, Key, Outcome, Reconciler};

/// How often figures of a running control plane are told.
const USAGE_INTERVAL: Duration = Duration::from_secs(30);
/// How often something that takes time is looked at.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);
/// A tenant that moves is away meanwhile.
const FETCH_INTERVAL: Duration = Duration::from_millis(200);
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// The controller of one shard. `pod` is the name by which the operator knows it.
pub fn shard_controller(planes: Arc<dyn ControlPlanes>, pod: &str) -> Controller {
    let shard = Shard { planes, pod: pod.to_string(), held: Mutex::default() };
    Controller::new("sublet-shard", shard).watches(VIRTUAL_CLUSTERS, map::itself).starts_with(sweep_key()).workers(8)
}

/// Stands for the look at what an earlier life of this pod left behind.
fn sweep_key() -> Key {
    Key::new("", "sweep")
}

struct Shard {
    planes: Arc<dyn ControlPlanes>,
    pod: String,
    /// Guards what runs here, by the key of its object; held for map moves only.
    held: Mutex<HashMap<Key, Held>>,
}

#[derive(Clone)]
struct Held {
    uid: String,
    /// The keys in use and their digest.
    keys: Option<(String, Pki)>,
    /// Its deletion was seen, so its store goes with it.
    condemned: bool,
    /// Its store is held for another pod.
    offered: bool,
}

#[async_trait]
impl Reconciler for Shard {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        if *key == sweep_key() {
            self.sweep(ctx).await;
            return Outcome::Done;
        }
        let object = ctx.informer(&VIRTUAL_CLUSTERS).get_key(key);
        let held = self.held(key);
        if let Some(held) = &held
            && object.as_ref().is_none_or(|o| o.uid() != held.uid)
            && let Err(error) = self.gone(key, held).await
        {
            tracing::error!(%key, %error, "the store of a deleted virtual cluster cannot be removed");
        }
        let Some(object) = object else { return Outcome::Done };
        let cluster = VirtualCluster::new(&object);
        let Some(placement) = cluster.placement().filter(|p| p.pod == self.pod) else {
            return self.elsewhere(ctx, key, &cluster, held).await.unwrap_or_else(Outcome::from);
        };
        let told =
            if object.is_deleting() { self.condemn(ctx, key, &cluster).await } else { self.run(ctx, key, &cluster, &placement).await };
        told.unwrap_or_else(Outcome::from)
    }
}

impl Shard {
    fn held(&self, key: &Key) -> Option<Held> {
        self.held.lock().expect("no holder of this lock panics").get(key).cloned()
    }

    fn hold(&self, key: &Key, held: Held) {
        self.held.lock().expect("no holder of this lock panics").insert(key.clone(), held);
    }

    fn forget(&self, key: &Key) {
        self.held.lock().expect("no holder of this lock panics").remove(key);
    }

    /// The object is not there any more.
    async fn gone(&self, key: &Key, held: &Held) -> Result<(), ControlPlaneError> {
        self.forget(key);
        if held.condemned {
            return self.planes.remove(&held.uid).await;
        }
        // Nobody asked for a deletion that we saw; what is kept can be deleted later.
        tracing::warn!(%key, uid = held.uid, "the virtual cluster vanished; its store is kept");
        self.planes.leave(&held.uid).await;
        Ok(())
    }

    /// The control plane runs in another pod, or is to.
    async fn elsewhere(&self, ctx: &Ctx, key: &Key, cluster: &VirtualCluster<'_>, held: Option<Held>) -> Result<Outcome, ClientError> {
        let uid = cluster.uid();
        let placement = cluster.placement();
        if let Some(placement) = placement.filter(|p| p.from.as_ref().is_some_and(|f| f.pod == self.pod)) {
            if cluster.object().is_deleting() {
                self.planes.leave(uid).await;
                self.planes.condemn(uid).await;
                self.hold(key, Held { uid: uid.to_string(), keys: None, condemned: true, offered: false });
                return Ok(Outcome::Done);
            }
            if held.is_some_and(|h| h.offered) {
                return Ok(Outcome::Done);
            }
            let pki = match self.read_keys(ctx, cluster, &placement).await? {
                Ok(pki) => pki,
                Err(_) => return Ok(Outcome::After(RETRY_INTERVAL)),
            };
            if let Err(error) = self.planes.offer(&Tenant::of(cluster), &pki).await {
                tracing::warn!(%key, %error, "the store cannot be offered, will retry");
                return Ok(Outcome::After(RETRY_INTERVAL));
            }
            self.hold(key, Held { uid: uid.to_string(), keys: None, condemned: false, offered: true });
            return Ok(Outcome::Done);
        }
        let Some(held) = held else { return Ok(Outcome::Done) };
        self.forget(key);
        // Our copy of a store goes only when another pod is known to use the same one.
        if held.offered && in_use(cluster) {
            if let Err(error) = self.planes.remove(uid).await {
                tracing::error!(%key, %error, "the store that moved away cannot be removed");
            }
        } else {
            self.planes.leave(uid).await;
        }
        Ok(Outcome::Done)
    }

    async fn sweep(&self, ctx: &Ctx) {
        let all = ctx.informer(&VIRTUAL_CLUSTERS).list(None);
        let known: HashSet<String> = all.iter().map(|c| c.uid().to_string()).collect();
        let away = |object: &Arc<Value>| {
            let cluster = VirtualCluster::new(object);
            let settled = cluster.placement().is_some_and(|p| p.pod != self.pod && p.from.is_none());
            (settled && in_use(&cluster)).then(|| cluster.uid().to_string())
        };
        let elsewhere: HashSet<String> = all.iter().filter_map(away).collect();
        self.planes.sweep(&known, &elsewhere).await;
    }

    /// From now on nothing is written to the host, and the store may go when the object is gone.
    async fn condemn(&self, ctx: &Ctx, key: &Key, cluster: &VirtualCluster<'_>) -> Result<Outcome, ClientError> {
        let uid = cluster.uid().to_string();
        self.planes.stop(&uid).await;
        self.planes.condemn(&uid).await;
        self.hold(key, Held { uid, keys: None, condemned: true, offered: false });
        self.tell(ctx, cluster, Phase::Stopped, &PlaneStatus::default(), None).await?;
        Ok(Outcome::Done)
    }

    async fn run(&self, ctx: &Ctx, key: &Key, cluster: &VirtualCluster<'_>, placement: &Placement) -> Result<Outcome, ClientError> {
        let reached = !placement.address.is_empty() || cluster.mode() == Mode::External;
        if placement.keys.is_empty() || !reached {
            return Ok(Outcome::Done);
        }
        let keys = self.held(key).and_then(|h| h.keys).filter(|(digest, _)| *digest == placement.keys);
        let pki = match keys {
            Some((_, pki)) => pki,
            None => match self.read_keys(ctx, cluster, placement).await? {
                Ok(pki) => pki,
                Err(message) => return self.wait(ctx, cluster, &message).await,
            },
        };
        let (uid, keys) = (cluster.uid().to_string(), Some((placement.keys.clone(), pki.clone())));
        self.hold(key, Held { uid, keys, condemned: false, offered: false });
        let tenant = Tenant::of(cluster);
        if let Some(from) = &placement.from
            && let Err(error) = self.planes.fetch(&tenant, &pki, from).await
        {
            // The other pod closes it first, in a moment.
            tracing::debug!(%key, %error, "the store cannot be fetched yet");
            self.wait(ctx, cluster, &format!("waits for the store from pod `{}`", from.pod)).await?;
            return Ok(Outcome::After(FETCH_INTERVAL));
        }
        if let Err(error) = self.planes.ensure(&tenant, &pki).await {
            let phase = if matches!(error, ControlPlaneError::WrongStore(_)) { Phase::WrongStore } else { Phase::Failed };
            let status = PlaneStatus { message: error.to_string(), ..PlaneStatus::default() };
            self.tell(ctx, cluster, phase, &status, None).await?;
            return Ok(Outcome::After(RETRY_INTERVAL));
        }
        let status = self.planes.status(&tenant.uid).await;
        let identity = self.planes.store_identity(&tenant.uid).await;
        let phase = if status.serving { Phase::Serving } else { Phase::Starting };
        self.tell(ctx, cluster, phase, &status, identity).await?;
        let settled = status.serving && (status.synced || tenant.paused);
        Ok(Outcome::After(if settled { USAGE_INTERVAL } else { PROGRESS_INTERVAL }))
    }

    /// The keys that the operator means, or why they cannot be had yet.
    async fn read_keys(&self, ctx: &Ctx, cluster: &VirtualCluster<'_>, placement: &Placement) -> Result<Result<Pki, String>, ClientError> {
        let name = pki_secret::secret_name(cluster.name());
        let Some(secret) = ctx.client.get_opt(&SECRETS, cluster.namespace(), &name).await? else {
            return Ok(Err(format!("waits for Secret `{name}`")));
        };
        Ok(match pki_secret::read(&secret, cluster) {
            Ok(pki) if pki_secret::digest(&pki) == placement.keys => Ok(pki),
            Ok(_) => Err(format!("Secret `{name}` is not the one that the operator means yet")),
            Err(error) => Err(error.to_string()),
        })
    }

    async fn wait(&self, ctx: &Ctx, cluster: &VirtualCluster<'_>, message: &str) -> Result<Outcome, ClientError> {
        let status = PlaneStatus { message: message.to_string(), ..PlaneStatus::default() };
        self.tell(ctx, cluster, Phase::Starting, &status, None).await?;
        Ok(Outcome::After(RETRY_INTERVAL))
    }

    /// Writes what differs from what was told before.
    async fn tell(
        &self,
        ctx: &Ctx,
        cluster: &VirtualCluster<'_>,
        phase: Phase,
        status: &PlaneStatus,
        identity: Option<String>,
    ) -> Result<(), ClientError> {
        let before = &cluster.object()["status"]["plane"];
        let identity = identity.map_or_else(|| before["storeIdentity"].clone(), Value::from);
        let mut plane = json!({
            "pod": self.pod, "phase": phase.name(), "synced": status.synced, "message": status.message, "off": status.off,
            "pods": status.pods, "namespaces": status.namespaces, "objects": status.objects, "bytes": status.bytes,
        });
        if !identity.is_null() {
            plane["storeIdentity"] = identity;
        }
        if plane == *before {
            return Ok(());
        }
        let patch = json!({"metadata": {"uid": cluster.uid()}, "status": {"plane": plane}});
        match ctx.client.patch_status(&VIRTUAL_CLUSTERS, cluster.namespace(), cluster.name(), patch).await {
            Err(error) if error.is_not_found() => Ok(()),
            other => other.map(drop),
        }
    }
}

/// Whether the pod in charge uses the store that the cluster has always had.
fn in_use(cluster: &VirtualCluster<'_>) -> bool {
    let known = cluster.object().str_at("/status/effective/storeIdentity");
    cluster.report().is_some_and(|r| r.phase == Phase::Serving && r.store_identity.is_some() && r.store_identity.as_deref() == known)
}
