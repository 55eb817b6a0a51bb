//! Cluster IPs and node ports of a tenant's Services come from the host, before the tenant's API
//! server commits: the number in its reply is the one that works.

use super::pending::Hold;
use super::plan::finished;
use super::syncer::{Inner, Syncer};
use super::{ItemKey, WriteError};
use crate::resources::KindId;
use crate::resources::service::{self, SERVICE};
use crate::translate::{HostKey, TenantKey, to_tenant_text};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use sublet_api::marks;
use sublet_machinery::{ApiError, ObjectExt};
use sublet_runtime::ClientError;

/// Tries to get the copy of a deleted Service of the same name out of the way.
const STALE_TRIES_MAX: u32 = 5;
const STALE_PAUSE: Duration = Duration::from_millis(20);

/// What the tenant's API server asks before it commits a Service.
#[derive(Clone)]
pub struct HostServiceAllocator {
    inner: Arc<Inner>,
}

/// What the host gave. Dropped before it is committed, it is given back by the engine.
#[derive(Debug, Default)]
pub struct Allocation {
    /// The fields of `spec` to be stored with the Service, as a merge patch; empty when the host had nothing to give.
    pub spec: Map<String, Value>,
    hold: Option<Hold>,
    /// The copy that was made, by its UID.
    made: Option<(TenantKey, String)>,
}

impl Syncer {
    pub fn service_allocator(&self) -> HostServiceAllocator {
        HostServiceAllocator { inner: self.inner.clone() }
    }
}

impl HostServiceAllocator {
    /// To be called with a new Service as it will be stored (its UID set), after validation. An error
    /// is the host's refusal in the tenant's names, to be given to the client.
    pub async fn allocate_create(&self, service: &Value, dry_run: bool) -> Result<Allocation, ApiError> {
        let key = TenantKey::of(service);
        if service::is_api_service(&key) || service.str_at("/spec/type") == Some("ExternalName") {
            return Ok(Allocation::default());
        }
        let desired = self.desired(service)?;
        let hold = (!dry_run).then(|| Hold::new(&self.inner, &key, None));
        self.made(key, service, &desired, hold).await
    }

    /// To be called with a changed Service before the commit. Asks the host only when the change is
    /// about something that the host gives.
    pub async fn allocate_update(&self, service: &Value, old: &Value, dry_run: bool) -> Result<Allocation, ApiError> {
        let key = TenantKey::of(service);
        if service::is_api_service(&key) || service["spec"] == old["spec"] {
            return Ok(Allocation::default());
        }
        // A change that can never go down is refused while somebody listens.
        let desired = self.desired(service)?;
        if !needs_host(service, old) {
            return Ok(Allocation::default());
        }
        let hold = (!dry_run).then(|| Hold::new(&self.inner, &key, Some(old)));
        let (mut tries, mut restored) = (0, false);
        loop {
            match self.update(&key, old, &desired, dry_run).await {
                // The engine was writing an earlier change.
                Err(WriteError::Changed(_)) if tries < STALE_TRIES_MAX => {}
                // The copy has what another write asked for: one on its way, or one that failed a moment ago.
                Err(WriteError::Refused(_)) if tries < STALE_TRIES_MAX && self.is_behind(&key, hold.as_ref()) => {}
                Err(WriteError::Refused(_)) if !restored && self.restore(&key, old).await? => {
                    restored = true;
                    continue;
                }
                Err(error) => return Err(self.told(&key, error)),
                Ok(Some(written)) => {
                    self.expect(&key, &written, hold.is_none());
                    return Ok(Allocation { spec: allocated_fields(service, &written), hold, made: None });
                }
                // Not there: it is on its way, or the host lost it.
                Ok(None) => return self.made(key, service, &desired, hold).await,
            }
            tries += 1;
            tokio::time::sleep(STALE_PAUSE).await;
        }
    }

    /// The engine waits until it sees what is on the host.
    fn expect(&self, key: &TenantKey, written: &Value, dry_run: bool) {
        if !dry_run {
            self.inner.expect_host(&ItemKey::new(KindId::Service, key.clone()), written);
        }
    }

    /// Whether an earlier write of this Service is still on its way.
    fn is_behind(&self, key: &TenantKey, hold: Option<&Hold>) -> bool {
        self.inner.pending.has_open_before(key, hold.map_or(u64::MAX, Hold::number))
    }

    /// Gives back on the host what a failed write got, if the copy has anything that `old` does not say, which is
    /// what the tenant's object still is; whether it was so.
    async fn restore(&self, key: &TenantKey, old: &Value) -> Result<bool, ApiError> {
        let host_key = self.host_key(key);
        let services = SERVICE.gvr();
        let (copy, current) = tokio::join!(
            self.inner.writer.client().get_opt(&services, &host_key.namespace, &host_key.name),
            self.inner.tenant_client.get_opt(&services, &key.namespace, &key.name),
        );
        let told = |error: ClientError| self.told(key, error.into());
        let (Some(copy), Some(current)) = (copy.map_err(told)?, current.map_err(told)?) else { return Ok(false) };
        if current.resource_version() != old.resource_version() || !needs_host(&copy, old) {
            return Ok(false);
        }
        let restored = self.update(key, old, &self.desired(old)?, false).await.map_err(|e| self.told(key, e))?;
        Ok(restored.is_some())
    }

    /// Changes the copy on the host; `None` when there is none.
    async fn update(&self, key: &TenantKey, old: &Value, desired: &Value, dry_run: bool) -> Result<Option<Value>, WriteError> {
        let host_key = self.host_key(key);
        let live = self.inner.writer.client().get_opt(&SERVICE.gvr(), &host_key.namespace, &host_key.name).await?;
        let Some(live) = live.filter(|l| l.annotation(marks::UID) == Some(old.uid())) else { return Ok(None) };
        let written = match dry_run {
            true => self.inner.writer.apply_dry_run(&SERVICE, desired, live.uid()).await,
            false => self.inner.writer.apply(&SERVICE, desired, live.uid(), true).await,
        }?;
        Ok(Some(written))
    }

    /// The tenant's write was committed.
    pub fn committed(&self, allocation: Allocation) {
        if let Some(hold) = allocation.hold {
            hold.committed();
        }
    }

    /// The tenant's write failed: the host forgets what it gave. What cannot be undone now is undone by the engine,
    /// which finds a copy that is not as the tenant's object, or without one.
    pub async fn undo(&self, allocation: Allocation) {
        drop(allocation.hold);
        if let Some((key, uid)) = allocation.made
            && let Err(error) = self.inner.writer.delete(&SERVICE.gvr(), &self.host_key(&key), &uid, None).await
        {
            tracing::debug!(%key, %error, "an allocated service is left to the engine");
            self.inner.queue.add(ItemKey::new(KindId::Service, key));
        }
    }

    /// A copy made for a write under way; for a trial without a `hold`.
    async fn made(&self, key: TenantKey, service: &Value, desired: &Value, hold: Option<Hold>) -> Result<Allocation, ApiError> {
        let created = self.create(&key, desired, hold.is_none()).await?;
        self.expect(&key, &created, hold.is_none());
        let spec = allocated_fields(service, &created);
        let made = hold.is_some().then(|| (key, created.uid().into()));
        Ok(Allocation { spec, hold, made })
    }

    async fn create(&self, key: &TenantKey, desired: &Value, dry_run: bool) -> Result<Value, ApiError> {
        let mut tries = 0;
        loop {
            let result = match dry_run {
                true => self.inner.writer.create_dry_run(&SERVICE.gvr(), desired).await,
                false => self.inner.writer.create(&SERVICE.gvr(), desired).await,
            };
            match result {
                Err(WriteError::Exists) if tries < STALE_TRIES_MAX => {
                    tries += 1;
                    if let Some(present) = self.clear_stale(key, desired, dry_run).await? {
                        return Ok(present);
                    }
                    tokio::time::sleep(STALE_PAUSE).await;
                }
                // The number that is asked for may be that of an earlier Service of this name.
                Err(WriteError::Refused(_)) if tries < STALE_TRIES_MAX && self.has_stale(key, desired) => {
                    tries += 1;
                    if let Some(present) = self.clear_stale(key, desired, dry_run).await? {
                        return Ok(present);
                    }
                    tokio::time::sleep(STALE_PAUSE).await;
                }
                other => return other.map_err(|e| self.told(key, e)),
            }
        }
    }

    /// Whether the copy of an earlier Service of the name was there a moment ago.
    fn has_stale(&self, key: &TenantKey, desired: &Value) -> bool {
        let copy = self.inner.view.copy_of(KindId::Service, key);
        copy.is_some_and(|copy| copy.annotation(marks::UID) != desired.annotation(marks::UID))
    }

    /// Makes way for a new Service: the copy of an earlier one of the name goes, a copy of this very
    /// one is taken as it is, and a stranger's Service is a refusal.
    async fn clear_stale(&self, key: &TenantKey, desired: &Value, dry_run: bool) -> Result<Option<Value>, ApiError> {
        let host_key = self.host_key(key);
        let client = self.inner.writer.client();
        let live = client.get_opt(&SERVICE.gvr(), &host_key.namespace, &host_key.name).await.map_err(|e| self.told(key, e.into()))?;
        let Some(live) = live else { return Ok(None) };
        if self.inner.view.key_of(KindId::Service, &live).as_ref() != Some(key) {
            return Err(ApiError::forbidden("", "services", &key.name, "the host has a Service of its own in its place"));
        }
        // Still alive in the tenant: its store says "already exists" better than we could.
        let earlier = self.inner.tenant_client.get_opt(&SERVICE.gvr(), &key.namespace, &key.name).await;
        let alive = earlier.map_err(|e| self.told(key, e.into()))?.is_some();
        if alive || dry_run || live.annotation(marks::UID) == desired.annotation(marks::UID) {
            return Ok(Some(live));
        }
        self.inner.writer.delete(&SERVICE.gvr(), &host_key, live.uid(), None).await.map_err(|e| self.told(key, e))?;
        Ok(None)
    }

    fn desired(&self, service: &Value) -> Result<Value, ApiError> {
        finished(&SERVICE, service, &self.inner.translation())
            .map_err(|refusal| ApiError::forbidden("", "services", service.name(), refusal.to_string()))
    }

    fn host_key(&self, key: &TenantKey) -> HostKey {
        self.inner.view.names.host_key(key, SERVICE.name_bytes_max)
    }

    /// The host's answer in the tenant's words.
    fn told(&self, key: &TenantKey, error: WriteError) -> ApiError {
        let own = self.host_key(key);
        let text = |text: &str| to_tenant_text(text, &own.namespace, |name| (name == own.name).then(|| key.clone()));
        let api = match error {
            WriteError::Refused(api) => Some(api),
            WriteError::Changed(ClientError::Api(api)) | WriteError::Failed(ClientError::Api(api)) => Some(api),
            WriteError::Exists => None,
            other => return ApiError::unavailable(format!("the host does not answer: {other}")),
        };
        match api {
            Some(mut api) => {
                api.message = text(&api.message);
                api.name.clone_from(&key.name);
                for cause in &mut api.causes {
                    cause.message = text(&cause.message);
                }
                api
            }
            None => ApiError::unavailable("an earlier service of this name is still on its way out; try again"),
        }
    }
}

/// Whether the write is about a value that the host gives.
fn needs_host(service: &Value, old: &Value) -> bool {
    let kind = service.str_at("/spec/type").unwrap_or("ClusterIP");
    if kind == "ExternalName" {
        return false;
    }
    if service["spec"]["type"] != old["spec"]["type"] {
        return true;
    }
    let node_ports =
        |s: &Value| -> Vec<Value> { s.array_at("/spec/ports").iter().map(|p| json!([p["port"], p["protocol"], p["nodePort"]])).collect() };
    ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort", "externalTrafficPolicy"]
        .iter()
        .any(|f| service["spec"][*f] != old["spec"][*f])
        || kind != "ClusterIP" && node_ports(service) != node_ports(old)
}

/// The allocated fields of the host's Service, for the tenant's.
fn allocated_fields(service: &Value, host: &Value) -> Map<String, Value> {
    let mut fields = Map::new();
    for field in service::ALLOCATED {
        let value = &host["spec"][field];
        if !value.is_null() {
            fields.insert(field.into(), value.clone());
        }
    }
    if let Some(ports) = service::ports_with_node_ports(service, host) {
        fields.insert("ports".into(), ports);
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_host_gives_is_asked_of_it() {
        let service =
            |kind: &str, port: i64| json!({"spec": {"type": kind, "clusterIP": "1.2.3.4", "ports": [{"port": 80, "nodePort": port}]}});
        let check = |new: Value, old: Value, expected: bool| assert_eq!(needs_host(&new, &old), expected, "{new} {old}");
        check(service("ClusterIP", 0), service("ClusterIP", 0), false);
        check(service("NodePort", 0), service("ClusterIP", 0), true);
        check(service("NodePort", 30001), service("NodePort", 30000), true);
        check(service("NodePort", 30000), service("NodePort", 30000), false);
        check(service("ExternalName", 0), service("NodePort", 30000), false);
    }

    #[test]
    fn the_reply_carries_the_hosts_numbers() {
        let service = json!({"spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        let host = json!({"spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 80, "nodePort": 31000}], "selector": {"x": "y"}}});
        let fields = Value::Object(allocated_fields(&service, &host));
        assert_eq!(fields, json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 80, "nodePort": 31000}]}));
    }
}
