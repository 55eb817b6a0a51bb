//! ResourceQuotas: what of each quota is in use. Admission charges what is made; this controller
//! counts anew when something goes, changes, or the quota itself changes.

mod compute;
mod scopes;
mod usage;

use crate::kit::discovery;
use crate::kit::{exec, metadata, pods};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::manager::{Mapping, map};
use sublet_runtime::resources::{
    CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, PODS, REPLICATION_CONTROLLERS, RESOURCE_CLAIMS, RESOURCE_QUOTAS, SECRETS, SERVICES,
};
use sublet_runtime::{Change, ClientError, Controller, Ctx, Key, ListOptions, Outcome, Reconciler};
use usage::ResourceList;

/// How often objects are counted that no local copy tells about.
const RECOUNT: Duration = Duration::from_secs(10);
/// Until a status that somebody else gave other limits is set right.
const DRIFT: Duration = Duration::from_secs(30);
/// Before the name in the key of a quota whose status drifted.
const DRIFTED: char = '~';

pub(crate) fn controller() -> Controller {
    let mut controller = Controller::new("resourcequota-controller", Quotas).watches(RESOURCE_QUOTAS, quota_keys);
    for gvr in [PODS, SERVICES, PERSISTENT_VOLUME_CLAIMS, CONFIG_MAPS, REPLICATION_CONTROLLERS] {
        let group_resource = gvr.group_resource();
        controller = controller.watches(gvr, move |change, mapping| concerned(&group_resource, change, mapping));
    }
    controller
}

/// Admission writes the status of quotas with every request; only the spec calls for counting.
fn quota_keys(change: &Change, mapping: &Mapping) -> Vec<Key> {
    let mut keys = match (&change.old, &change.new) {
        (Some(old), Some(new)) if old.pointer("/spec") == new.pointer("/spec") => {
            let drifted = new.pointer("/status/hard") != new.pointer("/spec/hard");
            if drifted { vec![Key::new(new.namespace(), format!("{DRIFTED}{}", new.name()))] } else { Vec::new() }
        }
        (_, None) => Vec::new(),
        _ => map::itself(change, mapping),
    };
    if change.is_delete() {
        // Quotas count quotas.
        keys.extend(concerned("resourcequotas", change, mapping));
    }
    keys
}

/// The quotas that a change gives something back to.
fn concerned(group_resource: &str, change: &Change, mapping: &Mapping) -> Vec<Key> {
    if !gives_back(group_resource, change) {
        return Vec::new();
    }
    let quotas = mapping.informer(&RESOURCE_QUOTAS).list(Some(change.object().namespace()));
    let counts = |quota: &Value| quota.object_at("/spec/hard").is_some_and(|hard| hard.keys().any(|n| usage::counts(group_resource, n)));
    quotas.iter().filter(|q| counts(q)).map(|q| Key::of(q)).collect()
}

fn gives_back(group_resource: &str, change: &Change) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return change.is_delete() };
    let differs = |paths: &[&str]| paths.iter().any(|p| old.pointer(p) != new.pointer(p));
    match group_resource {
        "pods" => {
            (pods::is_terminal(new) && !pods::is_terminal(old))
                || differs(&["/spec/containers", "/spec/resources", "/spec/activeDeadlineSeconds", "/status/qosClass"])
        }
        "services" => differs(&["/spec/type", "/spec/ports", "/spec/allocateLoadBalancerNodePorts"]),
        "persistentvolumeclaims" => differs(&[
            "/spec/resources",
            "/status/allocatedResources",
            "/spec/volumeAttributesClassName",
            "/status/currentVolumeAttributesClassName",
        ]),
        _ => false,
    }
}

struct Quotas;

#[async_trait]
impl Reconciler for Quotas {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        if let Some(name) = key.name.strip_prefix(DRIFTED) {
            ctx.queue().add_after(Key::new(&key.namespace, name), DRIFT);
            return Outcome::Done;
        }
        let Some(quota) = ctx.informer(&RESOURCE_QUOTAS).get_key(key) else { return Outcome::Done };
        sync(ctx, &quota).await.unwrap_or_else(Outcome::from)
    }
}

async fn sync(ctx: &Ctx, quota: &Value) -> Result<Outcome, ClientError> {
    let names: Vec<String> = quota.object_at("/spec/hard").into_iter().flatten().map(|(name, _)| name.clone()).collect();
    let mut used: ResourceList =
        names.iter().filter_map(|name| Some((name.clone(), usage::quantity(&quota["status"]["used"][name])?))).collect();
    let mut recount = false;
    for (gvr, of_resource) in by_resource(ctx, &names).await? {
        let group_resource = gvr.group_resource();
        let mut sum: ResourceList = of_resource.into_iter().map(|name| (name, usage::zero())).collect();
        let (objects, live) = objects(ctx, &gvr, quota.namespace()).await?;
        recount |= live;
        let now = ctx.clock.now();
        for object in objects.iter().filter(|o| scopes::contain(&group_resource, quota, o)) {
            usage::add(&mut sum, &usage::of(&group_resource, object, now));
        }
        used.extend(sum);
    }
    let hard = quota.pointer("/spec/hard").cloned().unwrap_or(json!({}));
    let is_same = quota.pointer("/status/hard") == Some(&hard) && usage::read(&quota["status"]["used"]) == used;
    if !is_same {
        let written: serde_json::Map<String, Value> = used.iter().map(|(name, q)| (name.clone(), json!(q.to_string()))).collect();
        exec::put_status(ctx, &RESOURCE_QUOTAS, quota, json!({"hard": hard, "used": written})).await?;
    }
    Ok(if recount { Outcome::After(RECOUNT) } else { Outcome::Done })
}

/// The resources whose objects count, each with the names of the quota that they count for.
async fn by_resource(ctx: &Ctx, names: &[String]) -> Result<Vec<(Gvr, BTreeSet<String>)>, ClientError> {
    let mut all: Vec<(Gvr, BTreeSet<String>)> = Vec::new();
    let known = usage::known();
    let is_known = |name: &str| known.iter().any(|gvr| usage::counts(&gvr.group_resource(), name));
    let served = if names.iter().any(|n| n.starts_with("count/") && !is_known(n)) {
        discovery::discover(&ctx.client).await?.resources
    } else {
        Vec::new()
    };
    let others = served.into_iter().filter(|r| r.namespaced && r.has_verb("list") && r.has_verb("create")).map(|r| r.gvr);
    for gvr in known.iter().cloned().chain(others.filter(|g| !known.contains(g))) {
        let group_resource = gvr.group_resource();
        let counted: BTreeSet<String> = names.iter().filter(|n| usage::counts(&group_resource, n)).cloned().collect();
        if !counted.is_empty() {
            all.push((gvr, counted));
        }
    }
    Ok(all)
}

/// The objects of a namespace, and whether they had to be asked for: where nobody holds a copy, the
/// metadata of most is enough to count.
async fn objects(ctx: &Ctx, gvr: &Gvr, namespace: &str) -> Result<(Vec<Arc<Value>>, bool), ClientError> {
    if let Some(informer) = ctx.cached(gvr).filter(|i| i.is_synced()) {
        let is_watched = usage::known().contains(gvr) && ![SECRETS, RESOURCE_CLAIMS].contains(gvr);
        return Ok((informer.list(Some(namespace)), !is_watched));
    }
    if *gvr == RESOURCE_CLAIMS {
        // What they ask for counts as well.
        let live = ctx.client.list(gvr, namespace, &ListOptions::default()).await?;
        return Ok((live.items.into_iter().map(Arc::new).collect(), true));
    }
    Ok((metadata::list(&ctx.client, gvr, namespace).await?.into_iter().map(Arc::new).collect(), true))
}
