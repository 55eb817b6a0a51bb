//! Feeds the graph: one watch per resource, shared with an informer where there is one already.

use super::graph::{ResourceId, parse_uid};
use super::{Shared, enqueue};
use crate::kit::discovery::{self, ApiResource};
use crate::kit::metadata;
use futures::StreamExt;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::client::object_path;
use sublet_runtime::{Client, ClientError, Ctx, WatchEvent, WorkQueue};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(30);
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// The running monitors. Their tasks end with this value.
#[derive(Default)]
pub(super) struct Monitors {
    tasks: JoinSet<()>,
    running: HashMap<Gvr, Monitor>,
    /// Nobody asks what is served before.
    pub(super) pause_until: Option<Instant>,
}

struct Monitor {
    resource: ResourceId,
    task: AbortHandle,
}

/// Events are no dependents of anything and too many to hold.
fn is_monitored(resource: &ApiResource) -> bool {
    let is_event = resource.gvr.resource == "events" && matches!(resource.gvr.group.as_ref(), "" | "events.k8s.io");
    !is_event && ["delete", "list", "watch"].iter().all(|v| resource.has_verb(v))
}

impl Monitors {
    /// Makes the monitors those of the resources that are served now; answers whether some groups
    /// could not be asked.
    pub(super) async fn update(&mut self, ctx: &Ctx, shared: &Arc<Shared>) -> Result<bool, ClientError> {
        while self.tasks.try_join_next().is_some() {}
        let found = discovery::discover(&ctx.client).await?;
        let served: Vec<ApiResource> = found.resources.into_iter().filter(is_monitored).collect();
        let failures = !found.failures.is_empty();
        if !failures {
            let names: HashSet<&Gvr> = served.iter().map(|r| &r.gvr).collect();
            let ended: Vec<Gvr> = self.running.keys().filter(|g| !names.contains(g)).cloned().collect();
            for gvr in ended {
                if let Some(monitor) = self.running.remove(&gvr) {
                    monitor.task.abort();
                    enqueue(ctx.queue(), shared.graph().remove_resource(monitor.resource));
                }
            }
        }
        let fresh: Vec<&ApiResource> = served.iter().filter(|r| !self.running.contains_key(&r.gvr)).collect();
        if !fresh.is_empty() || self.running.is_empty() {
            self.start(ctx, shared, &fresh);
        }
        Ok(failures)
    }

    fn start(&mut self, ctx: &Ctx, shared: &Arc<Shared>, fresh: &[&ApiResource]) {
        let gate = Arc::new(Gate { shared: shared.clone(), queue: ctx.queue().clone() });
        // All kinds are known before the first object is taken in.
        let ids: Vec<ResourceId> = {
            let mut graph = shared.graph();
            graph.set_incomplete();
            fresh.iter().map(|r| graph.add_resource(&r.gvr, &r.kind, r.namespaced)).collect()
        };
        for (resource, id) in fresh.iter().zip(ids) {
            let feed = Feed { resource: id, shared: shared.clone(), queue: ctx.queue().clone() };
            let gate = gate.clone();
            let task = match ctx.cached(&resource.gvr) {
                Some(informer) => self.tasks.spawn(async move {
                    informer.wait_synced().await;
                    informer.on_change(move |change| match &change.new {
                        Some(object) => feed.observe(object),
                        None => feed.remove(change.object()),
                    });
                    drop(gate);
                }),
                None => self.tasks.spawn(follow(feed, resource.gvr.clone(), ctx.client.clone(), gate)),
            };
            self.running.insert(resource.gvr.clone(), Monitor { resource: id, task });
        }
    }
}

/// Held by monitors until they have listed, or failed to: the last one to let go completes the graph.
struct Gate {
    shared: Arc<Shared>,
    queue: WorkQueue,
}

impl Drop for Gate {
    fn drop(&mut self) {
        enqueue(&self.queue, self.shared.graph().set_complete());
    }
}

struct Feed {
    resource: ResourceId,
    shared: Arc<Shared>,
    queue: WorkQueue,
}

impl Feed {
    fn observe(&self, object: &Value) {
        let work = self.shared.graph().observe(self.resource, object);
        enqueue(&self.queue, work);
    }

    fn remove(&self, object: &Value) {
        let work = self.shared.graph().remove(parse_uid(object.uid()));
        enqueue(&self.queue, work);
    }
}

/// Lists and watches the metadata of a resource until the task is aborted.
async fn follow(feed: Feed, gvr: Gvr, client: Client, gate: Arc<Gate>) {
    let mut gate = Some(gate);
    let mut delay = RETRY_FIRST;
    loop {
        let result = async {
            // On the heap while it lasts: nearly all monitors just wait.
            let mut version = Box::pin(relist(&feed, &gvr, &client)).await?;
            gate = None;
            delay = RETRY_FIRST;
            loop {
                let mut events = Box::pin(client.watch_metadata(&gvr, &version)).await?;
                while let Some(event) = events.next().await {
                    let object = match event? {
                        WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                            feed.observe(&object);
                            object
                        }
                        WatchEvent::Deleted(object) => {
                            feed.remove(&object);
                            object
                        }
                        WatchEvent::Bookmark(object) => object,
                        WatchEvent::Error(error) if error.code == 410 => return Ok(()),
                        WatchEvent::Error(error) => return Err(ClientError::from(error)),
                    };
                    version = object.resource_version().to_string();
                }
            }
        }
        .await;
        if let Err(error) = result {
            // The graph must not wait for a resource whose server or conversion is broken.
            gate = None;
            tracing::debug!(%gvr, %error, "cannot follow the resource, will retry");
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(RETRY_MAX);
        }
    }
}

async fn relist(feed: &Feed, gvr: &Gvr, client: &Client) -> Result<String, ClientError> {
    let mut listed = HashSet::new();
    let mut token = String::new();
    loop {
        let page = metadata::list_page(client, gvr, "", &token).await?;
        for object in &page.items {
            listed.insert(parse_uid(object.uid()));
            feed.observe(object);
        }
        if page.continue_token.is_empty() {
            let work = feed.shared.graph().retain(feed.resource, &listed);
            enqueue(&feed.queue, work);
            return Ok(page.resource_version);
        }
        token = page.continue_token;
    }
}

/// The metadata of one object, read live.
pub(super) async fn get_metadata(ctx: &Ctx, gvr: &Gvr, namespace: &str, name: &str) -> Result<Option<Value>, ClientError> {
    match metadata::get(&ctx.client, &object_path(gvr, namespace, name, ""), METADATA).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
