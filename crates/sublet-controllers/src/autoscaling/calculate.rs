//! How many replicas a metric asks for: upstream's replica calculator, as pure functions.

use crate::kit::{pods, time};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use sublet_machinery::{ObjectExt, Quantity};

/// The most that a count of replicas can be.
const REPLICAS_MAX: f64 = i32::MAX as f64;

/// How far from the target a ratio may be without anything being done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tolerances {
    pub(super) down: f64,
    pub(super) up: f64,
}

impl Tolerances {
    fn hold(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

/// What one pod uses, in thousandths.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sample {
    pub(super) value: i64,
    pub(super) at: Option<Timestamp>,
    pub(super) window: SignedDuration,
}

/// Samples by the names of their pods.
pub(super) type Samples = BTreeMap<String, Sample>;

/// What a metric asks for, with the usage that it found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    pub(super) replicas: i64,
    /// The average, or the whole for metrics that are none of pods.
    pub(super) usage: i64,
    /// In hundredths of what is requested.
    pub(super) utilization: Option<i64>,
}

/// The pods and the rules by which they are judged.
pub(super) struct Subject<'a> {
    pub(super) pods: &'a [Arc<Value>],
    /// What `spec.replicas` of the target says.
    pub(super) current: i64,
    pub(super) tolerances: Tolerances,
    pub(super) now: Timestamp,
    /// Pods use more while they start than later.
    pub(super) initialization: SignedDuration,
    pub(super) readiness_delay: SignedDuration,
}

/// What there is to reach.
pub(super) enum Target<'a> {
    /// A share of the requests, which are by the names of pods.
    Utilization { percent: i64, requests: &'a BTreeMap<String, i64> },
    /// A usage of each pod.
    Average(i64),
}

struct Groups {
    ready: i64,
    unready: BTreeSet<String>,
    missing: BTreeSet<String>,
    ignored: BTreeSet<String>,
}

impl Subject<'_> {
    /// From what each pod uses. `resource` is empty for metrics that are none of resources.
    pub(super) fn of_pods(&self, mut samples: Samples, target: &Target<'_>, resource: &str) -> Result<Proposal, String> {
        let groups = self.group(&samples, resource);
        samples.retain(|name, _| !groups.ignored.contains(name) && !groups.unready.contains(name));
        if samples.is_empty() {
            return Err("did not receive metrics for targeted pods (pods might be unready)".into());
        }
        let (ratio, utilization, usage) = target.ratio(&samples)?;
        let propose = |replicas| Ok(Proposal { replicas, usage, utilization });
        let up_with_unready = !groups.unready.is_empty() && ratio > 1.0;
        if !up_with_unready && groups.missing.is_empty() {
            return propose(if self.tolerances.hold(ratio) { self.current } else { ceil(ratio * float(groups.ready)) });
        }
        // Whatever is not known speaks against the change.
        for name in groups.missing {
            if ratio < 1.0 {
                samples.insert(name.clone(), Sample { value: target.full(&name), ..Sample::default() });
            } else if ratio > 1.0 {
                samples.insert(name, Sample::default());
            }
        }
        if up_with_unready {
            samples.extend(groups.unready.into_iter().map(|name| (name, Sample::default())));
        }
        let (new_ratio, _, _) = target.ratio(&samples)?;
        let turns = (ratio < 1.0 && new_ratio > 1.0) || (ratio > 1.0 && new_ratio < 1.0);
        if self.tolerances.hold(new_ratio) || turns {
            return propose(self.current);
        }
        let replicas = ceil(new_ratio * float(i64::try_from(samples.len()).unwrap_or(i64::MAX)));
        let contradicts = (new_ratio < 1.0 && replicas > self.current) || (new_ratio > 1.0 && replicas < self.current);
        propose(if contradicts { self.current } else { replicas })
    }

    /// From one number about the whole, and what it is to be.
    pub(super) fn of_whole(&self, usage: i64, target: i64) -> Proposal {
        let ratio = float(usage) / float(target);
        let replicas = if self.current == 0 {
            ceil(ratio)
        } else if self.tolerances.hold(ratio) {
            self.current
        } else {
            let ready = self.pods.iter().filter(|p| pods::phase(p) == "Running" && pods::is_ready(p)).count();
            ceil(ratio * float(i64::try_from(ready).unwrap_or(i64::MAX)))
        };
        Proposal { replicas, usage, utilization: None }
    }

    /// From one number about the whole, and the part of it that a pod is to have. `replicas` are those there are.
    pub(super) fn of_shares(&self, usage: i64, target: i64, replicas: i64) -> Proposal {
        let ratio = float(usage) / (float(target) * float(replicas));
        let wanted = if self.tolerances.hold(ratio) { replicas } else { ceil(float(usage) / float(target)) };
        let share =
            if usage == i64::MAX || replicas == 0 { usage } else { usage.div_euclid(replicas) + i64::from(usage.rem_euclid(replicas) > 0) };
        Proposal { replicas: wanted, usage: share, utilization: None }
    }

    fn group(&self, samples: &Samples, resource: &str) -> Groups {
        let mut groups = Groups { ready: 0, unready: BTreeSet::new(), missing: BTreeSet::new(), ignored: BTreeSet::new() };
        for pod in self.pods {
            let name = pod.name().to_string();
            match (pods::phase(pod), samples.get(&name)) {
                _ if pod.is_deleting() => _ = groups.ignored.insert(name),
                ("Failed", _) => _ = groups.ignored.insert(name),
                ("Pending", _) => _ = groups.unready.insert(name),
                (_, None) => _ = groups.missing.insert(name),
                (_, Some(sample)) if resource == "cpu" && self.is_starting(pod, sample) => _ = groups.unready.insert(name),
                _ => groups.ready += 1,
            }
        }
        groups
    }

    /// What the pod uses of the processor says nothing yet about its work.
    fn is_starting(&self, pod: &Value, sample: &Sample) -> bool {
        let (Some(ready), Some(started)) = (pod.condition("Ready"), time::at(pod, "/status/startTime")) else { return true };
        let is_unready = ready["status"] == "False";
        let changed = time::at(ready, "/lastTransitionTime").unwrap_or(Timestamp::UNIX_EPOCH);
        if started + self.initialization > self.now {
            // A whole window since it became ready is needed.
            return is_unready || sample.at.unwrap_or(Timestamp::UNIX_EPOCH) < changed + sample.window;
        }
        // It has never been ready.
        is_unready && started + self.readiness_delay > changed
    }
}

impl Target<'_> {
    /// The usage over what it is to be, the utilization, and the average usage.
    fn ratio(&self, samples: &Samples) -> Result<(f64, Option<i64>, i64), String> {
        match self {
            Self::Average(target) => {
                let usage = samples.values().map(|s| s.value).sum::<i64>() / i64::try_from(samples.len()).unwrap_or(i64::MAX).max(1);
                Ok((float(usage) / float(*target), None, usage))
            }
            Self::Utilization { percent, requests } => {
                let known: Vec<(i64, i64)> = samples.iter().filter_map(|(name, s)| Some((s.value, *requests.get(name)?))).collect();
                let (used, requested) = known.iter().fold((0, 0), |(used, requested), (u, r)| (used + u, requested + r));
                if requested == 0 {
                    return Err("no metrics returned matched known pods".into());
                }
                let utilization = used * 100 / requested;
                Ok((float(utilization) / float(*percent), Some(utilization), used / i64::try_from(known.len()).unwrap_or(i64::MAX)))
            }
        }
    }

    /// What a pod counts for that is not heard of while others use little.
    fn full(&self, name: &str) -> i64 {
        match self {
            Self::Average(target) => *target,
            Self::Utilization { percent, requests } => requests.get(name).copied().unwrap_or_default() * percent.max(&100) / 100,
        }
    }
}

/// What each pod requests of a resource, in thousandths: of the pod as a whole when it says so, or of its containers,
/// or of one of them.
pub(super) fn requests(pods: &[Arc<Value>], container: &str, resource: &str) -> Result<BTreeMap<String, i64>, String> {
    pods.iter().map(|pod| Ok((pod.name().to_string(), request(pod, container, resource)?))).collect()
}

fn request(pod: &Value, container: &str, resource: &str) -> Result<i64, String> {
    let amount = |resources: &Value| Quantity::from_json(resources.get("requests")?.get(resource)?).ok().map(|q| q.milli_value());
    let whole = &pod["spec"]["resources"];
    let is_whole = whole["requests"].as_object().is_some_and(|r| !r.is_empty()) && container.is_empty();
    if let Some(amount) = amount(whole).filter(|_| is_whole) {
        return Ok(amount);
    }
    let sidecars = pod.array_at("/spec/initContainers").iter().filter(|c| c["restartPolicy"] == "Always");
    let all = pod.array_at("/spec/containers").iter().chain(sidecars);
    let mut counted = all.filter(|c| container.is_empty() || c["name"] == container).peekable();
    if counted.peek().is_none() && !container.is_empty() {
        return Err(format!("container {container} not found in Pod {}", pod.name()));
    }
    if is_whole {
        let amounts: Vec<i64> = counted.filter_map(|c| amount(&c["resources"])).collect();
        return match amounts[..] {
            [] => Err(format!("missing pod-level request for {resource} in Pod {}", pod.name())),
            _ => Ok(amounts.iter().sum()),
        };
    }
    let missing =
        |c: &Value| format!("missing request for {resource} in container {} of Pod {}", c["name"].as_str().unwrap_or_default(), pod.name());
    counted.map(|c| amount(&c["resources"]).ok_or_else(|| missing(c))).sum()
}

#[expect(clippy::cast_precision_loss, reason = "counts and thousandths, of which the first digits matter")]
fn float(value: i64) -> f64 {
    value as f64
}

#[expect(clippy::cast_possible_truncation, reason = "held in the range of replicas")]
fn ceil(value: f64) -> i64 {
    value.ceil().clamp(0.0, REPLICAS_MAX) as i64
}

#[cfg(test)]
#[path = "calculate_tests.rs"]
mod tests;
