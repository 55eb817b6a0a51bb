//! Which of the nodes that fit is best: the default scores of 1.37 with their weights.

use super::cluster::NodeInfo;
use super::filter::{Cycle, View};
use super::{interpod, spread};
use serde_json::Value;
use std::sync::Arc;

const SCORE_MAX: i64 = 100;
/// What upstream assumes of pods that ask for nothing, so that they spread as well.
const CPU_ASSUMED: i64 = 100;
const MEMORY_ASSUMED: i64 = 200 << 20;

/// The best node's index. `turn` breaks ties, so that equal nodes are used in turn.
pub(crate) fn best(
    cycle: &Cycle<'_>,
    view: &View<'_>,
    nodes: &[&NodeInfo],
    turn: usize,
    namespaces: &dyn Fn(&str) -> Option<Arc<Value>>,
) -> usize {
    if nodes.len() == 1 {
        return 0;
    }
    let mut totals = vec![0_i64; nodes.len()];
    let mut add = |scores: Vec<i64>, weight: i64| {
        for (total, score) in totals.iter_mut().zip(scores) {
            *total += score * weight;
        }
    };
    add(nodes.iter().map(|n| least_allocated(cycle, n)).collect(), 1);
    add(nodes.iter().map(|n| balanced(cycle, n)).collect(), 1);
    add(reversed(nodes.iter().map(|n| soft_taints(cycle, n)).collect()), 3);
    if !cycle.wishes.preferred_nodes.is_empty() {
        add(scaled(nodes.iter().map(|n| preferred_node(cycle, n)).collect()), 2);
    }
    match spread::penalties(cycle.pod, cycle.wishes, view, nodes) {
        Some(penalties) => add(reversed(penalties), 2),
        // Without constraints the pods of one controller spread all the same.
        None if !cycle.pod.owner.is_empty() => add(reversed(nodes.iter().map(|n| n.siblings(&cycle.pod.owner)).collect()), 2),
        None => {}
    }
    if let Some(scores) = interpod::scores(cycle.pod, view, nodes, namespaces) {
        add(between(scores), 2);
    }
    let top = totals.iter().copied().max().unwrap_or(0);
    let winners: Vec<usize> = (0..nodes.len()).filter(|i| totals[*i] == top).collect();
    winners[turn % winners.len()]
}

fn usage(cycle: &Cycle<'_>, node: &NodeInfo) -> [(i64, i64); 2] {
    let assumed = i64::try_from(node.pods.len()).unwrap_or(0);
    let (wanted, used, all) = (&cycle.pod.requests, &node.requested, &node.allocatable);
    // Pods without requests weigh something as well; the node's own sum leaves them out.
    let floor = |used: i64, each: i64| used.max(assumed * each);
    [
        (floor(used.cpu, CPU_ASSUMED) + wanted.cpu.max(CPU_ASSUMED), all.cpu),
        (floor(used.memory, MEMORY_ASSUMED) + wanted.memory.max(MEMORY_ASSUMED), all.memory),
    ]
}

fn least_allocated(cycle: &Cycle<'_>, node: &NodeInfo) -> i64 {
    let free =
        |(used, all): &(i64, i64)| if *all <= 0 || used > all { 0 } else { (i128::from(all - used) * 100 / i128::from(*all)) as i64 };
    usage(cycle, node).iter().map(free).sum::<i64>() / 2
}

fn balanced(cycle: &Cycle<'_>, node: &NodeInfo) -> i64 {
    let part = |(used, all): (i64, i64)| if all <= 0 { 1.0 } else { (used as f64 / all as f64).min(1.0) };
    let [cpu, memory] = usage(cycle, node);
    ((1.0 - (part(cpu) - part(memory)).abs() / 2.0) * 100.0) as i64
}

fn soft_taints(cycle: &Cycle<'_>, node: &NodeInfo) -> i64 {
    node.taints.iter().filter(|t| t.effect == "PreferNoSchedule" && !cycle.wishes.tolerates(t)).count() as i64
}

fn preferred_node(cycle: &Cycle<'_>, node: &NodeInfo) -> i64 {
    cycle.wishes.preferred_nodes.iter().filter(|(_, term)| term.matches(node.name(), node.labels())).map(|(weight, _)| weight).sum()
}

/// The highest becomes 100.
fn scaled(scores: Vec<i64>) -> Vec<i64> {
    let max = scores.iter().copied().max().unwrap_or(0);
    if max <= 0 { vec![0; scores.len()] } else { scores.iter().map(|s| s.max(&0) * SCORE_MAX / max).collect() }
}

/// The lowest becomes 100, the highest 0.
fn reversed(penalties: Vec<i64>) -> Vec<i64> {
    let max = penalties.iter().copied().filter(|p| *p != i64::MAX).max().unwrap_or(0);
    let score = |p: &i64| match (*p, max) {
        (i64::MAX, _) => 0,
        (_, 0) => SCORE_MAX,
        (p, max) => SCORE_MAX - p * SCORE_MAX / max,
    };
    penalties.iter().map(score).collect()
}

/// Spreads any values over 0 to 100.
fn between(scores: Vec<i64>) -> Vec<i64> {
    let (min, max) = (scores.iter().copied().min().unwrap_or(0), scores.iter().copied().max().unwrap_or(0));
    if min == max { vec![0; scores.len()] } else { scores.iter().map(|s| (s - min) * SCORE_MAX / (max - min)).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_normalized() {
        assert_eq!(scaled(vec![0, 5, 10]), [0, 50, 100]);
        assert_eq!(reversed(vec![0, 5, 10, i64::MAX]), [100, 50, 0, 0]);
        assert_eq!(reversed(vec![0, 0]), [100, 100]);
        assert_eq!(between(vec![-10, 0, 10]), [0, 50, 100]);
    }
}
