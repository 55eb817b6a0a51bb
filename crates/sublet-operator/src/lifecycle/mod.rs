//! The steps from a `VirtualCluster` to a ready cluster, and back to nothing.

mod steps;

use crate::control_planes::{ControlPlanes, PlaneStatus, Tenant};
use crate::secrets::OwnSecrets;
use crate::{StepError, kubeconfig, pki_secret};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use steps::Progress;
use sublet_api::condition;
use sublet_api::{FINALIZER, Mode, VirtualCluster, marks};
use sublet_machinery::ObjectExt;
use sublet_pki::Pki;
use sublet_runtime::manager::map;
use sublet_runtime::resources::{NAMESPACES, SECRETS, VIRTUAL_CLUSTERS};
use sublet_runtime::{Controller, Ctx, EventKind, Informer, Key, Outcome, Reconciler};

/// How often usage figures of a ready cluster are brought up to date.
const USAGE_INTERVAL: Duration = Duration::from_secs(30);
/// How often something that takes time is looked at.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Keys that are held for repair; the clusters of one operator are fewer.
const HELD_PKI_MAX: usize = 10_000;

/// The controller of `VirtualCluster` objects, for a manager of the host.
pub fn controller(planes: Arc<dyn ControlPlanes>) -> Controller {
    Controller::new("virtual-cluster", Lifecycle { planes, held: Mutex::default(), secrets: OwnSecrets::default() })
        .watches(VIRTUAL_CLUSTERS, map::itself)
        .watches(NAMESPACES, |change, mapping| {
            let clusters = mapping.informer(&VIRTUAL_CLUSTERS).list(Some(change.object().name()));
            clusters.iter().map(|c| Key::of(c)).collect()
        })
        .workers(8)
}

struct Lifecycle {
    planes: Arc<dyn ControlPlanes>,
    /// Guards the keys of running control planes by tenant UID, so that a deleted Secret is repaired
    /// with the same keys.
    held: Mutex<HashMap<String, Pki>>,
    secrets: OwnSecrets,
}

#[async_trait]
impl Reconciler for Lifecycle {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let Some(object) = ctx.informer(&VIRTUAL_CLUSTERS).get_key(key) else { return Outcome::Done };
        if object.is_deleting() {
            return self.delete(ctx, &object).await;
        }
        if !object.has_finalizer(FINALIZER) {
            let mut finalizers: Vec<Value> = object.array_at("/metadata/finalizers").to_vec();
            finalizers.push(json!(FINALIZER));
            let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": object.resource_version()}});
            return match ctx.client.merge_patch(&VIRTUAL_CLUSTERS, &key.namespace, &key.name, patch).await {
                // The change comes back as an event and the steps begin.
                Ok(_) => Outcome::Done,
                Err(error) => error.into(),
            };
        }
        self.provision(ctx, &object).await
    }
}

impl Lifecycle {
    async fn provision(&self, ctx: &Ctx, object: &Value) -> Outcome {
        let cluster = VirtualCluster::new(object);
        let mut progress = Progress::default();
        let result = self.steps(ctx, &cluster, &mut progress).await;
        let outcome = match &result {
            Ok(()) => Outcome::After(USAGE_INTERVAL),
            Err(StepError::Waiting { .. }) => Outcome::After(PROGRESS_INTERVAL),
            Err(StepError::Stuck { message, .. }) => Outcome::Stuck(message.clone()),
            Err(_) => Outcome::After(Duration::from_secs(2)),
        };
        if let Err(error) = &result {
            progress.stop(error);
        }
        match self.write_status(ctx, &cluster, &progress).await {
            Ok(()) => outcome,
            Err(error) => error.into(),
        }
    }

    /// The steps in order; each one that is done is noted in `progress`.
    async fn steps(&self, ctx: &Ctx, cluster: &VirtualCluster<'_>, progress: &mut Progress) -> Result<(), StepError> {
        let tenant = Tenant::of(cluster);
        steps::check_supported(cluster, self.planes.offers())?;
        steps::claim_namespace(ctx, cluster).await?;
        progress.done("Claimed", format!("namespace `{}` holds this cluster's objects", cluster.namespace()));

        let mut names = self.planes.names(&tenant).await?;
        names.extend(cluster.kubeconfigs().iter().filter_map(|k| k.host()).map(str::to_string));
        let secrets = self.secrets.of(ctx, cluster.namespace()).await?;
        let live = own_or_foreign(ctx, &secrets, cluster, &pki_secret::secret_name(cluster.name())).await?;
        let held = self.held.lock().expect("no holder of this lock panics").get(cluster.uid()).cloned();
        let pki = pki_secret::ensure(&ctx.client, cluster, live.as_deref(), held, &names, ctx.clock.now()).await?;
        self.hold(cluster.uid(), &pki);
        progress.done("Issued", "certificates and keys are in place".into());

        let endpoint = self.planes.ensure(&tenant, &pki).await?;
        progress.endpoint.clone_from(&endpoint);
        progress.store_identity = self.planes.store_identity(&tenant.uid).await;
        let status = self.planes.status(&tenant.uid).await;
        if !status.serving {
            let message = if status.message.is_empty() { "the API server starts".into() } else { status.message };
            return Err(StepError::Waiting { reason: "Starting", message });
        }
        let at = if endpoint.is_empty() { String::new() } else { format!(" at {endpoint}") };
        progress.done("Serving", format!("the API server answers{at}"));
        progress.plane = status.clone();

        let synced = syncer_step(&status, tenant.paused);
        if let Ok((reason, message)) = &synced {
            progress.done(reason, message.clone());
        }
        let secret = match cluster.external_kubeconfig() {
            Some(given) => given.to_string(),
            None => {
                let live = own_or_foreign(ctx, &secrets, cluster, &kubeconfig::secret_name(cluster.name())).await?;
                let name = kubeconfig::publish(&ctx.client, cluster, live.as_deref(), &pki, &endpoint).await?;
                for wanted in cluster.kubeconfigs() {
                    let live = own_or_foreign(ctx, &secrets, cluster, wanted.secret).await?;
                    kubeconfig::publish_wanted(&ctx.client, cluster, &wanted, live.as_deref(), &pki, &endpoint, ctx.clock.now()).await?;
                }
                kubeconfig::unpublish(&ctx.client, cluster, &secrets.list(Some(cluster.namespace()))).await?;
                name
            }
        };
        progress.secret.clone_from(&secret);
        synced?;
        progress.done("Published", format!("Secret `{secret}` holds the admin kubeconfig"));
        Ok(())
    }

    fn hold(&self, uid: &str, pki: &Pki) {
        let mut held = self.held.lock().expect("no holder of this lock panics");
        if held.len() < HELD_PKI_MAX || held.contains_key(uid) {
            held.insert(uid.to_string(), pki.clone());
        }
    }

    async fn write_status(&self, ctx: &Ctx, cluster: &VirtualCluster<'_>, progress: &Progress) -> Result<(), sublet_runtime::ClientError> {
        let object = cluster.object();
        let now = ctx.clock.rfc3339();
        let mut conditions = object.array_at("/status/conditions").to_vec();
        let was_ready = is_ready(&conditions);
        for wanted in progress.conditions(object.generation()) {
            condition::set(&mut conditions, &wanted.borrow(), &now);
        }
        let mut status = json!({"observedGeneration": object.generation(), "conditions": conditions, "version": cluster.version()});
        if !progress.endpoint.is_empty() {
            status["endpoint"] = json!(progress.endpoint);
        }
        if !progress.secret.is_empty() {
            status["kubeconfigSecret"] = json!(progress.secret);
        }
        let plane = &progress.plane;
        if plane.serving {
            status["usage"] = json!({"pods": plane.pods, "namespaces": plane.namespaces, "objects": plane.objects, "bytes": plane.bytes});
        }
        let mut effective = json!({"mode": mode_name(cluster), "layout": "Single", "weight": cluster.weight()});
        let known = object.pointer("/status/effective/storeIdentity").cloned();
        if let Some(identity) = known.or_else(|| progress.store_identity.as_ref().map(|i| json!(i))) {
            effective["storeIdentity"] = identity;
        }
        status["effective"] = effective;
        let unchanged = status.as_object().into_iter().flatten().all(|(key, value)| object["status"][key] == *value);
        if !unchanged {
            ctx.client.patch_status(&VIRTUAL_CLUSTERS, cluster.namespace(), cluster.name(), json!({"status": status})).await?;
        }
        let now_ready = is_ready(&conditions);
        if now_ready && !was_ready {
            let message = format!(
                "cluster is ready: `kubectl -n {} get secret {} -o jsonpath={{.data.config}}`",
                cluster.namespace(),
                progress.secret
            );
            ctx.events.record(object, EventKind::Normal, "Ready", &message).await;
        } else if was_ready && !now_ready {
            ctx.events.record(object, EventKind::Warning, "NotReady", &progress.message).await;
        }
        Ok(())
    }

    /// Stops the control plane, removes what is on the host, then the store, then lets the object go.
    async fn delete(&self, ctx: &Ctx, object: &Value) -> Outcome {
        if !object.has_finalizer(FINALIZER) {
            return Outcome::Done;
        }
        // What was already let go would get rights in its namespace again, to be taken apart with.
        match ctx.client.get_opt(&VIRTUAL_CLUSTERS, object.namespace(), object.name()).await {
            Ok(live) if live.as_ref().is_some_and(|l| l.uid() == object.uid()) => {}
            Ok(_) => return Outcome::Done,
            Err(error) => return error.into(),
        }
        let cluster = VirtualCluster::new(object);
        match self.teardown(ctx, &cluster).await {
            Ok(()) => {}
            Err(StepError::Client(error)) => return error.into(),
            Err(error) => {
                let mut progress = Progress::default();
                progress.stop(&error);
                return match self.write_deleting(ctx, &cluster, &error.to_string()).await {
                    Ok(()) => Outcome::After(PROGRESS_INTERVAL),
                    Err(error) => error.into(),
                };
            }
        }
        self.held.lock().expect("no holder of this lock panics").remove(cluster.uid());
        let finalizers: Vec<&Value> = object.array_at("/metadata/finalizers").iter().filter(|f| **f != FINALIZER).collect();
        let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": object.resource_version()}});
        match ctx.client.merge_patch(&VIRTUAL_CLUSTERS, object.namespace(), object.name(), patch).await {
            Ok(_) => Outcome::Done,
            Err(error) if error.is_not_found() => Outcome::Done,
            Err(error) => error.into(),
        }
    }

    async fn teardown(&self, ctx: &Ctx, cluster: &VirtualCluster<'_>) -> Result<(), StepError> {
        self.planes.stop(cluster.uid()).await;
        let keep_volumes = cluster.object().str_at("/spec/deletion/volumes") == Some("Retain");
        if let Some(left) = self.planes.remove_host_objects(&Tenant::of(cluster), keep_volumes).await? {
            return Err(StepError::Waiting { reason: "DeletingHostObjects", message: format!("waits for the deletion of {left}") });
        }
        // A namespace that is being deleted takes its Secrets along, and the right to delete them as well.
        if ctx.informer(&NAMESPACES).get("", cluster.namespace()).is_some_and(|n| !n.is_deleting()) {
            delete_secrets(ctx, cluster).await?;
        }
        self.secrets.forget(cluster.namespace());
        self.planes.remove(cluster.uid()).await?;
        steps::release_namespace(ctx, cluster).await
    }

    async fn write_deleting(&self, ctx: &Ctx, cluster: &VirtualCluster<'_>, message: &str) -> Result<(), sublet_runtime::ClientError> {
        let object = cluster.object();
        let mut conditions = object.array_at("/status/conditions").to_vec();
        let wanted = condition::Condition {
            type_: condition::READY,
            status: false,
            reason: "Deleting",
            message,
            observed_generation: object.generation(),
        };
        if condition::set(&mut conditions, &wanted, &ctx.clock.rfc3339()) {
            let patch = json!({"status": {"conditions": conditions}});
            ctx.client.patch_status(&VIRTUAL_CLUSTERS, cluster.namespace(), cluster.name(), patch).await?;
        }
        Ok(())
    }
}

async fn delete_secrets(ctx: &Ctx, cluster: &VirtualCluster<'_>) -> Result<(), StepError> {
    let wanted = cluster.kubeconfigs().into_iter().map(|k| k.secret.to_string());
    for secret in [kubeconfig::secret_name(cluster.name()), pki_secret::secret_name(cluster.name())].into_iter().chain(wanted) {
        let live = ctx.client.get_opt(&SECRETS, cluster.namespace(), &secret).await?;
        if let Some(live) = live.filter(|secret| pki_secret::is_ours(cluster, secret)) {
            let options = sublet_runtime::DeleteOptions::background().uid(live.uid());
            ctx.client.delete_if_exists(&SECRETS, cluster.namespace(), &secret, &options).await?;
        }
    }
    Ok(())
}

/// The Secret of this name: ours is at hand; that there is none, or a foreign one, only the host knows.
async fn own_or_foreign(ctx: &Ctx, own: &Informer, cluster: &VirtualCluster<'_>, name: &str) -> Result<Option<Arc<Value>>, StepError> {
    match own.get(cluster.namespace(), name) {
        Some(live) => Ok(Some(live)),
        None => Ok(ctx.client.get_opt(&SECRETS, cluster.namespace(), name).await?.map(Arc::new)),
    }
}

fn syncer_step(status: &PlaneStatus, paused: bool) -> Result<(&'static str, String), StepError> {
    match (paused, status.synced) {
        (true, _) => Ok(("Paused", "`spec.state` is Paused: the API answers, nothing is synced".into())),
        (false, true) if status.off.is_empty() => Ok(("Synced", "host and tenant are in step".into())),
        (false, true) => Ok(("Synced", format!("host and tenant are in step; off: {}", status.off))),
        (false, false) => Err(StepError::Waiting { reason: "Syncing", message: "the syncer reads both sides".into() }),
    }
}

fn mode_name(cluster: &VirtualCluster<'_>) -> &'static str {
    match cluster.mode() {
        Mode::Packed => "Packed",
        Mode::Dedicated => "Dedicated",
        Mode::External => "External",
    }
}

fn is_ready(conditions: &[Value]) -> bool {
    conditions.iter().any(|c| c["type"] == condition::READY && c["status"] == "True")
}

/// The label by which a namespace tells whose it is.
pub(crate) const CLAIM: &str = marks::VIRTUAL_CLUSTER;
