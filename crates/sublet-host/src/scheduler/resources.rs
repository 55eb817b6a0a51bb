//! What pods ask for and nodes offer.

use crate::quantity::milli_of;
use serde_json::Value;
use sublet_machinery::ObjectExt;

/// Amounts: CPU in thousandths, the rest in units. Rare resources stand in a short sorted list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    pub(crate) cpu: i64,
    pub(crate) memory: i64,
    pub(crate) storage: i64,
    pub(crate) others: Vec<(String, i64)>,
}

impl Resources {
    pub(crate) fn parse(list: &Value) -> Self {
        let mut parsed = Self::default();
        for (name, amount) in list.as_object().into_iter().flatten() {
            let milli = milli_of(amount);
            let units = milli.saturating_add(999).div_euclid(1000);
            match name.as_str() {
                "cpu" => parsed.cpu = milli,
                "memory" => parsed.memory = units,
                "ephemeral-storage" => parsed.storage = units,
                "pods" => {}
                _ => parsed.others.push((name.clone(), units)),
            }
        }
        parsed
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.combine(other, |a, b| a.saturating_add(b));
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        self.combine(other, |a, b| a.saturating_sub(b));
    }

    fn max(&mut self, other: &Self) {
        self.combine(other, i64::max);
    }

    fn combine(&mut self, other: &Self, with: impl Fn(i64, i64) -> i64) {
        self.cpu = with(self.cpu, other.cpu);
        self.memory = with(self.memory, other.memory);
        self.storage = with(self.storage, other.storage);
        for (name, amount) in &other.others {
            match self.others.iter_mut().find(|(n, _)| n == name) {
                Some((_, own)) => *own = with(*own, *amount),
                None => self.others.push((name.clone(), with(0, *amount))),
            }
        }
    }

    pub(crate) fn other(&self, name: &str) -> i64 {
        self.others.iter().find(|(n, _)| n == name).map_or(0, |(_, amount)| *amount)
    }
}

/// The request of a whole pod: app containers and sidecars together, or the hungriest moment of the
/// init phase, plus overhead. Pod-level requests win.
pub(crate) fn pod_requests(pod: &Value) -> Resources {
    let mut total = Resources::default();
    for container in pod.array_at("/spec/containers") {
        total.add(&container_requests(pod, container, "/status/containerStatuses"));
    }
    let mut sidecars = Resources::default();
    let mut init_peak = Resources::default();
    for container in pod.array_at("/spec/initContainers") {
        let own = container_requests(pod, container, "/status/initContainerStatuses");
        if container["restartPolicy"] == "Always" {
            sidecars.add(&own);
            init_peak.max(&sidecars);
        } else {
            let mut moment = sidecars.clone();
            moment.add(&own);
            init_peak.max(&moment);
        }
    }
    total.add(&sidecars);
    total.max(&init_peak);
    if let Some(own) = pod.pointer("/spec/resources/requests").filter(|r| r.is_object()) {
        let own = Resources::parse(own);
        if own.cpu > 0 {
            total.cpu = own.cpu;
        }
        if own.memory > 0 {
            total.memory = own.memory;
        }
        for (name, amount) in own.others {
            total.others.retain(|(n, _)| *n != name);
            total.others.push((name, amount));
        }
    }
    total.add(&Resources::parse(&pod["spec"]["overhead"]));
    total
}

/// During a resize, the larger of what is wanted and what is allocated counts.
fn container_requests(pod: &Value, container: &Value, statuses: &str) -> Resources {
    let mut wanted = Resources::parse(&container["resources"]["requests"]);
    let allocated = pod.array_at(statuses).iter().find(|s| s["name"] == container["name"]).and_then(|s| s.get("allocatedResources"));
    if let Some(allocated) = allocated {
        wanted.max(&Resources::parse(allocated));
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(spec: Value, cpu: i64, memory: i64) {
        let requests = pod_requests(&json!({"spec": spec}));
        assert_eq!((requests.cpu, requests.memory), (cpu, memory), "{spec}");
    }

    fn container(cpu: &str, memory: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    #[test]
    fn init_containers_sidecars_and_overhead_count() {
        let sidecar = |cpu: &str| json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu, "memory": "1"}}});
        check(json!({"containers": [container("1", "10"), container("500m", "5")]}), 1500, 15);
        check(json!({"containers": [container("1", "10")], "initContainers": [container("2", "5")]}), 2000, 10);
        check(json!({"containers": [container("1", "10")], "initContainers": [sidecar("1"), container("2", "5")]}), 3000, 11);
        check(json!({"containers": [container("1", "10")], "initContainers": [container("1", "5"), sidecar("1")]}), 2000, 11);
        check(json!({"containers": [container("1", "10")], "overhead": {"cpu": "250m"}}), 1250, 10);
        check(json!({"containers": [container("1", "10")], "resources": {"requests": {"cpu": "4"}}}), 4000, 10);
    }

    #[test]
    fn other_resources_are_kept_by_name() {
        let mut a = Resources::parse(&json!({"x.io/gpu": "2", "cpu": "1"}));
        a.add(&Resources::parse(&json!({"x.io/gpu": "1", "hugepages-2Mi": "2Mi"})));
        assert_eq!((a.other("x.io/gpu"), a.other("hugepages-2Mi"), a.other("none")), (3, 2 << 20, 0));
    }
}
