//! The loop of the simulated kubelets: one step per changed pod, one status patch per step.

use super::container::Role;
use super::node::{FAIL_ANNOTATION, Nodes, SimulatedNode};
use super::references::{references, volume_trouble};
use super::resize::Room;
use super::step::{self, Memory, Observed, Plan};
use super::{admission, behaviour, references::config_trouble};
use crate::events::EventSink;
use crate::quantity::milli_of;
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::resources::{CONFIG_MAPS, NODES, PERSISTENT_VOLUME_CLAIMS, PODS, SECRETS};
use sublet_runtime::{
    Change, ClientError, Controller, Ctx, DeleteOptions, Informer, Key, Manager, Outcome, Patch, PatchOptions, Reconciler, Scope,
};
use tokio::sync::OnceCell;

const WORKERS: usize = 16;
/// Steps of one pod in a row, before other pods get their turn.
const STEPS_MAX: usize = 6;
/// Files that scripts made in volumes; beyond it all are forgotten.
const FILES_MAX: usize = 100_000;
const BY_NODE: &str = "host-node";

/// Adds the kubelet loop to the manager.
pub(crate) fn add(manager: &mut Manager, nodes: &Arc<Nodes>, events: EventSink) {
    let waiters = Arc::new(Waiters::default());
    let agent = Agent { nodes: nodes.clone(), events, waiters: waiters.clone(), state: Mutex::default(), claimed: OnceCell::new() };
    let informer = manager.informers().informer(&PODS, &Scope::default()).0;
    informer.add_index(BY_NODE, |pod| pod.str_at("/spec/nodeName").map(str::to_string).into_iter().collect());
    let on_pod = {
        let nodes = nodes.clone();
        move |change: &Change, _: &_| pod_keys(&nodes, change)
    };
    let woken = |waiters: Arc<Waiters>, gvr: Gvr| move |change: &Change, _: &_| waiters.take(&gvr, change);
    let controller = Controller::new("kubelet", agent)
        .watches(PODS, on_pod)
        .watches(CONFIG_MAPS, woken(waiters.clone(), CONFIG_MAPS))
        .watches(SECRETS, woken(waiters.clone(), SECRETS))
        .watches(PERSISTENT_VOLUME_CLAIMS, woken(waiters, PERSISTENT_VOLUME_CLAIMS))
        .reads(NODES)
        .workers(WORKERS);
    manager.add(controller);
}

fn pod_keys(nodes: &Nodes, change: &Change) -> Vec<Key> {
    let pod = change.object();
    let Some(node) = pod.str_at("/spec/nodeName").and_then(|name| nodes.get(name)) else { return Vec::new() };
    if change.is_delete() {
        node.network.lock().expect("no holder panics").release(pod.uid());
    }
    vec![change.key()]
}

/// Pods that wait for config maps, secrets or claims.
#[derive(Default)]
struct Waiters {
    /// Guards who waits for what.
    waiting: Mutex<HashMap<(String, String, String), HashSet<Key>>>,
}

impl Waiters {
    fn add(&self, key: &Key, pod: &Value) {
        let mut waiting = self.waiting.lock().expect("no holder panics");
        for (gvr, name) in references(pod) {
            waiting.entry((gvr.resource.to_string(), key.namespace.clone(), name)).or_default().insert(key.clone());
        }
    }

    fn forget(&self, key: &Key) {
        let mut waiting = self.waiting.lock().expect("no holder panics");
        waiting.retain(|_, keys| {
            keys.remove(key);
            !keys.is_empty()
        });
    }

    fn take(&self, gvr: &Gvr, change: &Change) -> Vec<Key> {
        let mut waiting = self.waiting.lock().expect("no holder panics");
        if waiting.is_empty() {
            return Vec::new();
        }
        let object = change.key();
        waiting.remove(&(gvr.resource.to_string(), object.namespace, object.name)).into_iter().flatten().collect()
    }
}

struct Agent {
    nodes: Arc<Nodes>,
    events: EventSink,
    waiters: Arc<Waiters>,
    /// Guards what is remembered of pods and files between steps.
    state: Mutex<State>,
    /// Set once the addresses of pods from before a restart are claimed.
    claimed: OnceCell<()>,
}

#[derive(Default)]
struct State {
    pods: HashMap<Key, Remembered>,
    files: HashMap<String, String>,
}

#[derive(Default)]
struct Remembered {
    uid: String,
    memory: Memory,
    /// The pod as our last write left it, until the informer has caught up.
    newest: Option<Arc<Value>>,
}

#[async_trait]
impl Reconciler for Agent {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let pods = ctx.informer(&PODS);
        self.claimed.get_or_init(|| async { self.claim_addresses(&pods) }).await;
        let Some(pod) = pods.get_key(key) else {
            self.forget(key);
            return Outcome::Done;
        };
        let Some(node) = pod.str_at("/spec/nodeName").and_then(|name| self.nodes.get(name)).cloned() else { return Outcome::Done };
        if ctx.informer(&NODES).get("", &node.name).is_some_and(|n| n.annotation(FAIL_ANNOTATION) == Some("true")) {
            return Outcome::After(Duration::from_secs(self.nodes.config.timings.lease_renew));
        }
        let mut remembered = self.recall(key, &pod);
        let outcome = self.drive(ctx, key, &node, pod, &mut remembered).await;
        self.state.lock().expect("no holder panics").pods.insert(key.clone(), remembered);
        outcome.unwrap_or_else(|error| if error.is_not_found() { Outcome::Done } else { error.into() })
    }
}

impl Agent {
    /// Steps the pod until it has nothing to do now.
    async fn drive(
        &self,
        ctx: &Ctx,
        key: &Key,
        node: &SimulatedNode,
        pod: Arc<Value>,
        remembered: &mut Remembered,
    ) -> Result<Outcome, ClientError> {
        let mut pod = newest(pod, remembered);
        for _ in 0..STEPS_MAX {
            if step::is_terminal(&pod) && !pod.is_deleting() {
                node.network.lock().expect("no holder panics").release(pod.uid());
                if pod.i64_at("/status/observedGeneration").unwrap_or(0) == pod.generation() {
                    return Ok(Outcome::Done);
                }
            }
            let plan = self.step(ctx, key, node, &pod, &mut remembered.memory);
            for notice in &plan.events {
                self.events.record(&pod, "kubelet", &node.name, notice);
            }
            if let Some(patch) = status_patch(&pod, &plan.status) {
                let patched = ctx
                    .client
                    .patch(&PODS, &key.namespace, &key.name, "status", &Patch::Strategic(patch), &PatchOptions::default())
                    .await?;
                pod = Arc::new(patched);
                remembered.newest = Some(pod.clone());
            }
            if plan.gone {
                return self.finish(ctx, key, &pod).await;
            }
            match plan.wake_at {
                None => return Ok(Outcome::Done),
                Some(at) => {
                    let now = self.nodes.config.clock.now();
                    let millis = at.saturating_mul(1000).saturating_sub(now.as_millisecond());
                    if millis > 0 {
                        return Ok(Outcome::After(Duration::from_millis(millis.unsigned_abs())));
                    }
                }
            }
        }
        Ok(Outcome::After(Duration::from_millis(100)))
    }

    async fn finish(&self, ctx: &Ctx, key: &Key, pod: &Value) -> Result<Outcome, ClientError> {
        // Finalizers keep an object whose grace is over; it needs no second delete.
        if pod.i64_at("/metadata/deletionGracePeriodSeconds") != Some(0) || pod.finalizers().is_empty() {
            ctx.client.delete_if_exists(&PODS, &key.namespace, &key.name, &DeleteOptions::now().uid(pod.uid())).await?;
        }
        Ok(Outcome::Done)
    }

    fn step(&self, ctx: &Ctx, key: &Key, node: &SimulatedNode, pod: &Value, memory: &mut Memory) -> Plan {
        let lookup = |gvr: &Gvr, name: &str| ctx.informer(gvr).get(&key.namespace, name);
        let address = if pod.bool_at("/spec/hostNetwork") == Some(true) || step::is_terminal(pod) {
            Some(node.address)
        } else {
            node.network.lock().expect("no holder panics").address(pod.uid())
        };
        let file_key = |container: &Value, path: &str| file_key(pod, &node.name, container, path);
        let read =
            |container: &Value, path: &str| self.state.lock().expect("no holder panics").files.get(&file_key(container, path)).cloned();
        let config_trouble = |container: &Value| config_trouble(pod, container, &lookup);
        let pods = ctx.informer(&PODS);
        let nodes = ctx.informer(&NODES);
        let admit = || nodes.get("", &node.name).and_then(|n| admission::refuse(pod, &n, &pods.by_index(BY_NODE, &node.name)));
        let room = || room(&pods, nodes.get("", &node.name).as_deref(), &node.name);
        let observed = Observed {
            pod,
            node_address: node.address,
            address,
            volume_trouble: volume_trouble(pod, &lookup),
            config_trouble: &config_trouble,
            read: &read,
            admit: &admit,
            room: &room,
            timings: &self.nodes.config.timings,
            now: self.nodes.config.clock.now().as_second(),
        };
        let plan = step::step(&observed, memory);
        if plan.events.iter().any(|e| e.warning) {
            self.waiters.add(key, pod);
        }
        self.keep_files(pod, &node.name, &plan);
        plan
    }

    fn keep_files(&self, pod: &Value, node: &str, plan: &Plan) {
        if plan.files.is_empty() {
            return;
        }
        let mut state = self.state.lock().expect("no holder panics");
        if state.files.len() > FILES_MAX {
            state.files.clear();
        }
        for (name, path, content) in &plan.files {
            let lists = ["/spec/initContainers", "/spec/containers"];
            let container = lists.iter().flat_map(|l| pod.array_at(l)).find(|c| behaviour::container_name(c) == name);
            if let Some(container) = container {
                state.files.insert(file_key(pod, node, container, path), content.clone());
            }
        }
    }

    fn recall(&self, key: &Key, pod: &Value) -> Remembered {
        let known = self.state.lock().expect("no holder panics").pods.remove(key);
        known.filter(|r| r.uid == pod.uid()).unwrap_or_else(|| Remembered { uid: pod.uid().into(), ..Remembered::default() })
    }

    fn forget(&self, key: &Key) {
        self.waiters.forget(key);
        let mut state = self.state.lock().expect("no holder panics");
        if let Some(remembered) = state.pods.remove(key)
            && !state.files.is_empty()
        {
            state.files.retain(|file, _| !file.starts_with(&remembered.uid));
        }
    }

    /// Pods keep the addresses that they had before a restart.
    fn claim_addresses(&self, pods: &Informer) {
        for pod in pods.list(None) {
            let Some(node) = pod.str_at("/spec/nodeName").and_then(|name| self.nodes.get(name)) else { continue };
            if let Some(address) = pod.str_at("/status/podIP").and_then(|ip| ip.parse::<IpAddr>().ok())
                && !step::is_terminal(&pod)
            {
                node.network.lock().expect("no holder panics").claim(pod.uid(), address);
            }
        }
    }
}

/// The later of the informer's copy and the one that our last write returned.
fn newest(seen: Arc<Value>, remembered: &mut Remembered) -> Arc<Value> {
    let version = |pod: &Value| pod.resource_version().parse::<u64>().unwrap_or(0);
    match &remembered.newest {
        Some(written) if version(written) > version(&seen) => written.clone(),
        _ => {
            remembered.newest = None;
            seen
        }
    }
}

/// Where a file of a container lives: in one of its volumes, or in the container itself.
fn file_key(pod: &Value, node: &str, container: &Value, path: &str) -> String {
    let mounts = container.array_at("/volumeMounts");
    let inside = |m: &&Value| {
        m["mountPath"].as_str().is_some_and(|p| path.strip_prefix(p.trim_end_matches('/')).is_some_and(|r| r.starts_with('/')))
    };
    let mount = mounts.iter().filter(inside).max_by_key(|m| m["mountPath"].as_str().map_or(0, str::len));
    let uid = pod.uid();
    let Some(mount) = mount else { return format!("{uid}/{}/{path}", behaviour::container_name(container)) };
    let rest = path.strip_prefix(mount["mountPath"].as_str().unwrap_or_default()).unwrap_or(path);
    let name = mount["name"].as_str().unwrap_or_default();
    let volume = pod.array_at("/spec/volumes").iter().find(|v| v["name"] == name);
    if let Some(host) = volume.and_then(|v| v.str_at("/hostPath/path")) {
        return format!("host:{node}/{host}/{rest}");
    }
    if let Some(claim) = volume.and_then(|v| super::references::claim_name(pod, v)) {
        return format!("claim:{}/{claim}/{rest}", pod.namespace());
    }
    format!("{uid}:{name}/{rest}")
}

fn room(pods: &Informer, node: Option<&Value>, name: &str) -> Room {
    let mut room = Room::default();
    let Some(node) = node else { return room };
    (room.cpu, room.memory) = (milli_of(&node["status"]["allocatable"]["cpu"]), milli_of(&node["status"]["allocatable"]["memory"]));
    (room.free_cpu, room.free_memory) = (room.cpu, room.memory);
    for pod in pods.by_index(BY_NODE, name).iter().filter(|p| !step::is_terminal(p)) {
        for (spec, role) in [("/spec/containers", Role::App), ("/spec/initContainers", Role::Sidecar)] {
            for container in pod.array_at(spec).iter().filter(|c| role == Role::App || c["restartPolicy"] == "Always") {
                let lists = ["/status/containerStatuses", "/status/initContainerStatuses"];
                let status = lists.iter().flat_map(|l| pod.array_at(l)).find(|s| s["name"] == container["name"]);
                let requests = status.and_then(|s| s.get("allocatedResources")).unwrap_or(&container["resources"]["requests"]);
                room.free_cpu -= milli_of(&requests["cpu"]);
                room.free_memory -= milli_of(&requests["memory"]);
            }
        }
    }
    room
}

/// The strategic merge patch from the status of `pod` to `new`; `None` when they are equal.
fn status_patch(pod: &Value, new: &Value) -> Option<Value> {
    let empty = Map::new();
    let old = pod["status"].as_object().unwrap_or(&empty);
    let new = new.as_object()?;
    let mut patch = Map::new();
    for (key, value) in new {
        if key == "conditions" {
            let changed = changed_conditions(pod.array_at("/status/conditions"), value.as_array().map_or(&[], Vec::as_slice));
            if !changed.is_empty() {
                patch.insert(key.clone(), Value::Array(changed));
            }
        } else if old.get(key) != Some(value) {
            patch.insert(key.clone(), value.clone());
        }
    }
    for key in old.keys().filter(|k| !new.contains_key(*k)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then(|| json!({"metadata": {"uid": pod.uid()}, "status": patch}))
}

/// Conditions that others write at the same time stay out of the patch.
fn changed_conditions(old: &[Value], new: &[Value]) -> Vec<Value> {
    let mut changed = Vec::new();
    for condition in new {
        match old.iter().find(|o| o["type"] == condition["type"]) {
            Some(o) if same_condition(o, condition) => {}
            Some(o) => {
                let mut condition = condition.clone();
                // A merge keeps what the patch does not name.
                for key in ["reason", "message"] {
                    if o.get(key).is_some() && condition.get(key).is_none() {
                        condition[key] = Value::Null;
                    }
                }
                changed.push(condition);
            }
            None => changed.push(condition.clone()),
        }
    }
    let gone = old.iter().filter(|o| !new.iter().any(|n| n["type"] == o["type"]));
    changed.extend(gone.map(|o| json!({"$patch": "delete", "type": o["type"]})));
    changed
}

fn same_condition(a: &Value, b: &Value) -> bool {
    ["status", "reason", "message", "lastTransitionTime", "observedGeneration"].iter().all(|key| a.get(*key) == b.get(*key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_hold_what_changed() {
        let pod = json!({"metadata": {"uid": "u"}, "status": {"phase": "Pending", "qosClass": "BestEffort", "message": "x", "conditions": [
            {"type": "Ready", "status": "False", "reason": "R"}, {"type": "Other", "status": "True"}, {"type": "Gone", "status": "True"}]}});
        let new = json!({"phase": "Running", "qosClass": "BestEffort", "conditions": [
            {"type": "Ready", "status": "True"}, {"type": "Other", "status": "True"}]});
        assert_eq!(
            status_patch(&pod, &new),
            Some(json!({"metadata": {"uid": "u"}, "status": {"phase": "Running", "message": null, "conditions": [
                {"type": "Ready", "status": "True", "reason": null}, {"$patch": "delete", "type": "Gone"}]}}))
        );
        assert_eq!(status_patch(&pod, &pod["status"]), None);
    }

    #[test]
    fn files_belong_to_their_volumes() {
        let pod = json!({"metadata": {"uid": "u", "namespace": "n", "name": "p"}, "spec": {"volumes": [
            {"name": "e", "emptyDir": {}}, {"name": "h", "hostPath": {"path": "/tmp"}}, {"name": "c", "persistentVolumeClaim": {"claimName": "k"}}]}});
        let container = json!({"name": "c", "volumeMounts": [
            {"name": "e", "mountPath": "/data"}, {"name": "h", "mountPath": "/data/host"}, {"name": "c", "mountPath": "/claim"}]});
        for (path, key) in [
            ("/data/a", "u:e//a"),
            ("/data/host/a", "host:n1//tmp//a"),
            ("/claim/a", "claim:n/k//a"),
            ("/tmp/a", "u/c//tmp/a"),
            ("/database", "u/c//database"),
        ] {
            assert_eq!(file_key(&pod, "n1", &container, path), key);
        }
    }
}
