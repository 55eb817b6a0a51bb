//! Events of the host about copies, told to the tenant about its own objects.

use super::host::{HostCache, HostKind, HostScope};
use super::syncer::Inner;
use crate::resources::{KindId, TO_HOST, TenantView};
use crate::translate::{TenantKey, to_tenant_text, with_tenant_uid};
use futures::StreamExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::EVENTS;
use sublet_runtime::{ClientError, ListOptions, WatchEvent};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Events that wait to be told to one tenant. More are dropped: events are help, no record.
pub(super) const EVENTS_WAITING_MAX: usize = 256;
/// A tenant hears a burst at once and then this many events a second.
const EVENTS_BURST: f64 = 100.0;
const EVENTS_PER_SECOND: f64 = 10.0;
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// An Event in the tenant's terms, ready to be written.
pub(super) struct Told {
    pub event: Value,
}

/// Watches the host's Events from now on and hands each to the tenant it concerns.
pub(super) async fn follow(cache: Arc<HostCache>, cancel: CancellationToken) {
    while !cancel.is_cancelled() {
        let result = tokio::select! {
            result = follow_once(&cache) => result,
            () = cancel.cancelled() => return,
        };
        if let Err(error) = result {
            tracing::debug!(%error, "events of the host cannot be watched, will retry");
        }
        tokio::select! {
            () = tokio::time::sleep(RETRY_PAUSE) => {}
            () = cancel.cancelled() => return,
        }
    }
}

async fn follow_once(cache: &Arc<HostCache>) -> Result<(), ClientError> {
    let namespace = match cache.scope() {
        HostScope::Cluster | HostScope::SharedKinds => "",
        HostScope::Namespace(name) => name,
    };
    // What happened before we looked is old news.
    let options = ListOptions { limit: Some(1), ..ListOptions::default() };
    let mut version = cache.client().list(&EVENTS, namespace, &options).await?.resource_version;
    loop {
        let mut events = cache.client().watch(&EVENTS, namespace, &version, &ListOptions::default()).await?;
        while let Some(event) = events.next().await {
            let object = match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    cache.route_event(&object);
                    object
                }
                WatchEvent::Deleted(object) | WatchEvent::Bookmark(object) => object,
                WatchEvent::Error(error) if error.code == 410 => return Ok(()),
                WatchEvent::Error(error) => return Err(error.into()),
            };
            version = object.resource_version().to_string();
        }
    }
}

impl Inner {
    /// Translates an Event about a copy, or says that it is not for the tenant.
    pub(super) fn translate_event(&self, event: &Value, kind: HostKind, copy: &Value) -> Option<Told> {
        let id = match kind {
            HostKind::Pods => KindId::Pod,
            HostKind::Services => KindId::Service,
            HostKind::PersistentVolumeClaims => KindId::PersistentVolumeClaim,
            HostKind::Ingresses => KindId::Ingress,
            HostKind::VolumeSnapshots => KindId::VolumeSnapshot,
            HostKind::Gateways => KindId::Gateway,
            HostKind::HttpRoutes => KindId::HttpRoute,
            HostKind::GrpcRoutes => KindId::GrpcRoute,
            _ => return None,
        };
        let key = self.view.key_of(id, copy)?;
        let tenant = self.view.tenant.get(id, &key)?;
        let lookup = |name: &str| self.any_key(name);
        let message = to_tenant_text(event.str_at("/message").unwrap_or_default(), copy.namespace(), lookup);
        let message = with_tenant_uid(message, copy, &tenant);
        let mut about = json!({
            "apiVersion": tenant.api_version(), "kind": tenant.kind(), "namespace": key.namespace, "name": key.name,
            "uid": tenant.uid(), "resourceVersion": tenant.resource_version(),
        });
        if about["kind"] == "" {
            about["kind"] = event["involvedObject"]["kind"].clone();
            about["apiVersion"] = json!("v1");
        }
        if let Some(path) = event.str_at("/involvedObject/fieldPath") {
            about["fieldPath"] = json!(path);
        }
        let mut told = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"namespace": key.namespace, "name": event_name(&key.name, event)},
            "involvedObject": about, "message": message,
        });
        for field in [
            "reason",
            "type",
            "count",
            "source",
            "firstTimestamp",
            "lastTimestamp",
            "eventTime",
            "action",
            "reportingComponent",
            "reportingInstance",
            "series",
        ] {
            if !event[field].is_null() {
                told[field] = event[field].clone();
            }
        }
        Some(Told { event: told })
    }

    /// The tenant object behind any host name.
    fn any_key(&self, name: &str) -> Option<TenantKey> {
        [KindId::PodToken].into_iter().chain(TO_HOST.iter().map(|k| k.id)).find_map(|id| self.view.tenant_key(id, name))
    }

    /// Writes what is in the queue, at the pace of one tenant.
    pub(super) async fn tell_events(&self, mut waiting: mpsc::Receiver<Told>) {
        let (mut tokens, mut at) = (EVENTS_BURST, Instant::now());
        while let Some(told) = waiting.recv().await {
            tokens = (tokens + at.elapsed().as_secs_f64() * EVENTS_PER_SECOND).min(EVENTS_BURST);
            at = Instant::now();
            if tokens < 1.0 {
                tokio::time::sleep(Duration::from_secs_f64((1.0 - tokens) / EVENTS_PER_SECOND)).await;
            }
            tokens -= 1.0;
            match self.tell_event(&told.event).await {
                Ok(()) => self.stats.event_told(),
                Err(error) => tracing::debug!(%error, "an event of the host was not told"),
            }
        }
    }

    async fn tell_event(&self, event: &Value) -> Result<(), ClientError> {
        match self.tenant_client.create(&EVENTS, event).await {
            Err(error) if error.is_already_exists() => {
                let mut patch = json!({});
                for field in ["count", "lastTimestamp", "message", "series"] {
                    if !event[field].is_null() {
                        patch[field] = event[field].clone();
                    }
                }
                self.tenant_client.merge_patch(&EVENTS, event.namespace(), event.name(), patch).await.map(drop)
            }
            other => other.map(drop),
        }
    }
}

/// One name for all repeats of a host Event.
fn event_name(object: &str, event: &Value) -> String {
    let hash = format!("{:.16x}", Sha256::digest(event.uid().as_bytes()));
    format!("{}.{hash}", object.get(..object.len().min(230)).unwrap_or("event").trim_end_matches(['-', '.']))
}
