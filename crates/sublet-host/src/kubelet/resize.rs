//! Resizing a running container in place: its spec asks for other resources than those in force.

use super::container::{Container, Role};
use super::step::{Observed, Plan};
use crate::events::Notice;
use crate::quantity::milli_of;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

/// What the node offers in all and what its pods leave free, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    pub(crate) cpu: i64,
    pub(crate) memory: i64,
    pub(crate) free_cpu: i64,
    pub(crate) free_memory: i64,
}

/// Why a resize cannot happen now.
enum Refusal {
    Infeasible(String),
    Deferred(String),
}

/// Puts wanted resources in force. True: the container must restart for it.
pub(crate) fn advance(container: &mut Container<'_>, observed: &Observed<'_>, plan: &mut Plan) -> bool {
    if !wants_resize(container) || refusal(container, observed).is_some() {
        return false;
    }
    let wanted = wanted(container).clone();
    let restart = container.spec.array_at("/resizePolicy").iter().any(|policy| {
        let resource = policy["resourceName"].as_str().unwrap_or_default();
        let differs = ["requests", "limits"].iter().any(|f| container.resources[*f][resource] != wanted[*f][resource]);
        policy["restartPolicy"] == "RestartContainer" && differs
    });
    container.resources = wanted.clone();
    let containers = json!([{"name": container.name(), "resources": wanted}]);
    let message = format!("Pod resize completed: {}", json!({"containers": containers, "generation": observed.pod.generation()}));
    plan.events.push(Notice::normal("ResizeCompleted", message));
    restart
}

/// Adds or removes the condition that tells of a resize that waits.
pub(crate) fn conditions(containers: &[Container<'_>], observed: &Observed<'_>, all: &mut Vec<Value>) {
    let old = all.iter().position(|c| c["type"] == "PodResizePending").map(|at| all.remove(at));
    all.retain(|c| c["type"] != "PodResizeInProgress");
    let refused = containers.iter().filter(|c| c.is_running() && wants_resize(c)).find_map(|c| refusal(c, observed));
    let Some(refused) = refused else { return };
    let (reason, message) = match refused {
        Refusal::Infeasible(message) => ("Infeasible", message),
        Refusal::Deferred(message) => ("Deferred", message),
    };
    let since = old.filter(|o| o["reason"] == reason).map(|o| o["lastTransitionTime"].clone());
    all.push(json!({
        "type": "PodResizePending", "status": "True", "reason": reason, "message": message, "lastProbeTime": null,
        "observedGeneration": observed.pod.generation(),
        "lastTransitionTime": since.unwrap_or_else(|| json!(super::container::rfc3339(observed.now))),
    }));
}

fn wants_resize(container: &Container<'_>) -> bool {
    matches!(container.role, Role::App | Role::Sidecar)
        && container.image == container.spec_image()
        && *wanted(container) != container.resources
}

fn wanted<'p>(container: &Container<'p>) -> &'p Value {
    static NONE: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| json!({}));
    container.spec.get("resources").unwrap_or(&NONE)
}

fn refusal(container: &Container<'_>, observed: &Observed<'_>) -> Option<Refusal> {
    let request = |resource: &str| milli_of(&wanted(container)["requests"][resource]);
    let growth = |resource: &str| request(resource) - milli_of(&container.resources["requests"][resource]);
    if growth("cpu") <= 0 && growth("memory") <= 0 {
        return None;
    }
    let room = (observed.room)();
    for (resource, capacity, free) in [("cpu", room.cpu, room.free_cpu), ("memory", room.memory, room.free_memory)] {
        if growth(resource) <= 0 {
            continue;
        }
        let shown = if resource == "cpu" { request(resource) } else { request(resource) / 1000 };
        let shown_capacity = if resource == "cpu" { capacity } else { capacity / 1000 };
        if request(resource) > capacity {
            let message = format!("Node didn't have enough capacity: {resource}, requested: {shown}, capacity: {shown_capacity}");
            return Some(Refusal::Infeasible(message));
        }
        if growth(resource) > free {
            let used = shown_capacity - if resource == "cpu" { free } else { free / 1000 };
            let message =
                format!("Node didn't have enough resource: {resource}, requested: {shown}, used: {used}, capacity: {shown_capacity}");
            return Some(Refusal::Deferred(message));
        }
    }
    None
}
