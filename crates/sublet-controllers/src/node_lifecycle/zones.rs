//! How many nodes of a zone may be emptied in a time: when much is silent at once, rather we have lost sight.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;
use sublet_machinery::ObjectExt;

/// Between two nodes of a zone that are emptied, and while much of the zone is silent.
const INTERVAL: SignedDuration = SignedDuration::from_secs(10);
const INTERVAL_WHEN_DISRUPTED: SignedDuration = SignedDuration::from_secs(100);
/// A disrupted zone up to this size is left alone.
const LARGE_ZONE_NODES: usize = 50;
/// The share of silent nodes that makes a zone disrupted.
const UNHEALTHY_SHARE: f64 = 0.55;
const UNHEALTHY_NODES_MIN: usize = 3;

const REGION: &str = "topology.kubernetes.io/region";
const ZONE: &str = "topology.kubernetes.io/zone";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Normal,
    Partial,
    /// No node speaks.
    Full,
}

/// Region and zone of a node.
pub(super) type Zone = (String, String);

pub(super) fn of(node: &Value) -> Zone {
    let label = |key| node.label(key).unwrap_or_default().to_string();
    (label(REGION), label(ZONE))
}

/// The state of a zone from whether each of its nodes is ready.
fn state(ready: &[bool]) -> State {
    let not_ready = ready.iter().filter(|r| !**r).count();
    #[expect(clippy::cast_precision_loss, reason = "nodes are few")]
    let share = not_ready as f64 / ready.len().max(1) as f64;
    match not_ready {
        0 => State::Normal,
        n if n == ready.len() => State::Full,
        n if n >= UNHEALTHY_NODES_MIN && share >= UNHEALTHY_SHARE => State::Partial,
        _ => State::Normal,
    }
}

/// When the next node may be emptied; without an interval none may.
#[derive(Debug)]
struct Limit {
    interval: Option<SignedDuration>,
    next: Timestamp,
}

impl Limit {
    fn take(&mut self, now: Timestamp) -> bool {
        let Some(interval) = self.interval.filter(|_| self.next <= now) else { return false };
        self.next = now + interval;
        true
    }
}

/// What a look at all zones leads to beyond new rates.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    None,
    /// Nothing speaks any more, so it is us who cannot hear: no node is to be emptied.
    LostSight,
    /// Somebody speaks again: every node gets its grace anew.
    SeesAgain,
}

#[derive(Debug, Default)]
pub(super) struct Zones {
    all: BTreeMap<Zone, (Option<State>, Limit)>,
}

impl Zones {
    /// Takes in who is ready where.
    pub(super) fn update(&mut self, ready: &BTreeMap<Zone, Vec<bool>>, now: Timestamp) -> Turn {
        self.all.retain(|zone, _| ready.contains_key(zone));
        for zone in ready.keys() {
            self.all.entry(zone.clone()).or_insert_with(|| (None, Limit { interval: Some(INTERVAL), next: now }));
        }
        let was_lost = !self.all.is_empty() && self.all.values().all(|(state, _)| *state == Some(State::Full));
        let is_lost = !ready.is_empty() && ready.values().all(|r| state(r) == State::Full);
        for (zone, (known, limit)) in &mut self.all {
            let nodes = &ready[zone];
            let new = state(nodes);
            *known = Some(new);
            limit.interval = match new {
                _ if is_lost => None,
                State::Normal | State::Full => Some(INTERVAL),
                State::Partial if nodes.len() > LARGE_ZONE_NODES => Some(INTERVAL_WHEN_DISRUPTED),
                State::Partial => None,
            };
        }
        match (was_lost, is_lost) {
            (false, true) => Turn::LostSight,
            (true, false) => Turn::SeesAgain,
            _ => Turn::None,
        }
    }

    /// Whether one more node of the zone may be emptied now.
    pub(super) fn may_empty(&mut self, zone: &Zone, now: Timestamp) -> bool {
        self.all.get_mut(zone).is_some_and(|(_, limit)| limit.take(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    fn nodes(ready: usize, silent: usize) -> Vec<bool> {
        [vec![true; ready], vec![false; silent]].concat()
    }

    fn named(zones: &[(&str, Vec<bool>)]) -> BTreeMap<Zone, Vec<bool>> {
        zones.iter().map(|(name, ready)| ((String::new(), (*name).to_string()), ready.clone())).collect()
    }

    #[test]
    fn a_zone_is_disrupted_by_many_silent_nodes() {
        assert_eq!(state(&nodes(3, 0)), State::Normal);
        assert_eq!(state(&nodes(0, 1)), State::Full);
        assert_eq!(state(&nodes(1, 2)), State::Normal, "two are not many");
        assert_eq!(state(&nodes(2, 3)), State::Partial);
        assert_eq!(state(&nodes(4, 3)), State::Normal);
    }

    #[test]
    fn nodes_are_emptied_one_in_ten_seconds() {
        let mut zones = Zones::default();
        let zone = (String::new(), "a".to_string());
        assert_eq!(zones.update(&named(&[("a", nodes(9, 2))]), at(0)), Turn::None);
        let emptied: Vec<i64> = (0..40).filter(|s| zones.may_empty(&zone, at(*s))).collect();
        assert_eq!(emptied, [0, 10, 20, 30]);
        zones.update(&named(&[("a", nodes(9, 20))]), at(40));
        assert!((40..200).all(|s| !zones.may_empty(&zone, at(s))), "a small disrupted zone is left alone");
        zones.update(&named(&[("a", nodes(30, 70))]), at(200));
        let emptied = (200..600).filter(|s| zones.may_empty(&zone, at(*s))).count();
        assert!((3..=5).contains(&emptied), "{emptied}");
    }

    #[test]
    fn when_nothing_speaks_nothing_is_emptied() {
        let mut zones = Zones::default();
        let zone = (String::new(), "a".to_string());
        zones.update(&named(&[("a", nodes(2, 0)), ("b", nodes(1, 0))]), at(0));
        assert_eq!(zones.update(&named(&[("a", nodes(0, 2)), ("b", nodes(1, 0))]), at(60)), Turn::None);
        assert!(zones.may_empty(&zone, at(60)), "the other zone shows that we can hear");
        assert_eq!(zones.update(&named(&[("a", nodes(0, 2)), ("b", nodes(0, 1))]), at(70)), Turn::LostSight);
        assert!(!zones.may_empty(&zone, at(100)));
        assert_eq!(zones.update(&named(&[("a", nodes(0, 2)), ("b", nodes(0, 1))]), at(110)), Turn::None);
        assert_eq!(zones.update(&named(&[("a", nodes(0, 2)), ("b", nodes(1, 0))]), at(120)), Turn::SeesAgain);
        assert!(zones.may_empty(&zone, at(140)));
    }
}
