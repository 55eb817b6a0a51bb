//! What simulated pods and nodes use: figures that look like those of real ones, and stay with their pod.

use crate::quantity;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;

/// Of what a container asks for, it uses between these parts, in percent.
const PERCENT_MIN: u64 = 20;
const PERCENT_SPAN: u64 = 50;
/// What a container uses that asks for nothing.
const CPU_MILLI_IDLE: u64 = 1;
const CPU_MILLI_IDLE_SPAN: u64 = 9;
const MEMORY_IDLE: u64 = 4 << 20;
const MEMORY_IDLE_SPAN: u64 = 28 << 20;
/// What a node needs for itself.
const NODE_CPU_MILLI: u64 = 120;
const NODE_MEMORY: u64 = 900 << 20;
const WINDOW: &str = "15s";

/// `containers`, `timestamp` and `window` of a `PodMetrics`; `None` unless the pod runs.
pub fn simulated_pod_usage(pod: &Value, now: &str) -> Option<Value> {
    let containers: Vec<Value> = used(pod)?.map(|(name, cpu, memory)| json!({"name": name, "usage": quantities(cpu, memory)})).collect();
    Some(json!({"timestamp": now, "window": WINDOW, "containers": containers}))
}

/// `usage`, `timestamp` and `window` of a `NodeMetrics`: that of its pods and its own.
pub fn simulated_node_usage<'p>(node: &Value, pods: impl Iterator<Item = &'p Value>, now: &str) -> Value {
    let on_node = pods.filter(|pod| pod.str_at("/spec/nodeName") == Some(node.name()));
    let start = (NODE_CPU_MILLI, NODE_MEMORY);
    let (cpu, memory) = on_node.filter_map(used).flatten().fold(start, |(cpu, memory), (_, c, m)| (cpu + c, memory + m));
    json!({"timestamp": now, "window": WINDOW, "usage": quantities(cpu, memory)})
}

/// Each running container with its thousandths of a CPU and bytes of memory.
fn used(pod: &Value) -> Option<impl Iterator<Item = (&str, u64, u64)>> {
    if pod.str_at("/status/phase") != Some("Running") {
        return None;
    }
    let running = pod.array_at("/status/containerStatuses").iter().filter(|s| s.pointer("/state/running").is_some());
    let names: Vec<&str> = running.filter_map(|s| s["name"].as_str()).collect();
    let containers = pod.array_at("/spec/containers").iter().filter_map(|c| Some((c["name"].as_str()?, c)));
    Some(containers.filter(move |(name, _)| names.contains(name)).map(|(name, container)| {
        let chance = chance(pod.uid(), name);
        let requested = |resource: &str| {
            let text = container.pointer(&format!("/resources/requests/{resource}")).and_then(Value::as_str)?;
            quantity::milli(text).and_then(|milli| u64::try_from(milli).ok()).filter(|milli| *milli > 0)
        };
        let part = |amount: u64, chance: u64| amount / 100 * (PERCENT_MIN + chance % PERCENT_SPAN);
        let cpu = requested("cpu").map_or(CPU_MILLI_IDLE + chance % CPU_MILLI_IDLE_SPAN, |milli| part(milli.max(100), chance).max(1));
        let memory = requested("memory").map_or(MEMORY_IDLE + chance % MEMORY_IDLE_SPAN, |milli| part(milli / 1000, chance >> 8));
        (name, cpu, memory)
    }))
}

fn quantities(cpu_milli: u64, memory: u64) -> Value {
    json!({"cpu": format!("{cpu_milli}m"), "memory": format!("{}Ki", memory >> 10)})
}

/// The same for the same container, and different between them (FNV-1a).
fn chance(uid: &str, name: &str) -> u64 {
    uid.bytes().chain(name.bytes()).fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)) >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(phase: &str, requests: Value) -> Value {
        json!({
            "metadata": {"name": "p", "uid": "u-1"},
            "spec": {"nodeName": "n", "containers": [{"name": "a", "resources": {"requests": requests}}, {"name": "waits"}]},
            "status": {"phase": phase, "containerStatuses": [{"name": "a", "state": {"running": {}}}, {"name": "waits", "state": {"waiting": {}}}]},
        })
    }

    #[test]
    fn running_containers_use_a_part_of_what_they_ask_for() {
        assert_eq!(simulated_pod_usage(&pod("Pending", json!({})), "t"), None);
        let usage = simulated_pod_usage(&pod("Running", json!({"cpu": "2", "memory": "1Gi"})), "t").unwrap();
        assert_eq!((usage["containers"].as_array().unwrap().len(), usage["timestamp"].as_str()), (1, Some("t")));
        let amount = |pointer: &str| quantity::milli(usage.pointer(pointer).unwrap().as_str().unwrap()).unwrap();
        let (cpu, memory) = (amount("/containers/0/usage/cpu"), amount("/containers/0/usage/memory") / 1000);
        assert!((400..1400).contains(&cpu) && (200 << 20..720 << 20).contains(&memory), "{usage}");
    }

    #[test]
    fn a_node_uses_what_its_pods_use_and_something_of_its_own() {
        let pods = [pod("Running", json!({"cpu": "1"})), pod("Failed", json!({"cpu": "9"}))];
        let cpu = |node: &str| {
            let usage = simulated_node_usage(&json!({"metadata": {"name": node}}), pods.iter(), "t");
            quantity::milli(usage["usage"]["cpu"].as_str().unwrap()).unwrap()
        };
        assert_eq!(cpu("other"), i128::from(NODE_CPU_MILLI));
        assert!((320..820).contains(&cpu("n")));
    }
}
