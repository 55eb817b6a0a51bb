//! Which shard gets a new tenant, and which of its ports.

use crate::install::{API_PORTS, DNS_PORT_OFFSET};
use sublet_api::Placement;

/// A pod that can run control planes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardPod {
    pub name: String,
    pub ready: bool,
}

/// The least loaded shard, those that are ready first, and its lowest free port. `None` when all are full.
pub fn choose<'a>(shards: &[ShardPod], taken: impl Iterator<Item = &'a Placement> + Clone) -> Option<(String, u16)> {
    let load = |name: &str| taken.clone().filter(|p| p.pod == name).count();
    let mut order: Vec<_> = shards.iter().map(|s| (!s.ready, load(&s.name), &s.name)).collect();
    order.sort();
    order.into_iter().find_map(|(_, _, name)| {
        let used: std::collections::BTreeSet<u16> = taken.clone().filter(|p| p.pod == *name).map(|p| p.api_port).collect();
        (API_PORTS.0..=API_PORTS.1).find(|port| !used.contains(port)).map(|port| (name.clone(), port))
    })
}

/// The port of the name server that goes with a port of an API server.
pub fn dns_port(api_port: u16) -> u16 {
    api_port + DNS_PORT_OFFSET
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(pod: &str, api_port: u16) -> Placement {
        Placement { pod: pod.into(), api_port, dns_port: dns_port(api_port), address: String::new(), keys: String::new(), from: None }
    }

    fn shard(name: &str, ready: bool) -> ShardPod {
        ShardPod { name: name.into(), ready }
    }

    #[test]
    fn tenants_go_where_there_is_room() {
        let both = [shard("s-0", true), shard("s-1", true)];
        let check = |shards: &[ShardPod], taken: &[Placement]| choose(shards, taken.iter());
        assert_eq!(check(&both, &[]), Some(("s-0".into(), 20_000)));
        assert_eq!(check(&both, &[placed("s-0", 20_000)]), Some(("s-1".into(), 20_000)));
        assert_eq!(check(&both, &[placed("s-0", 20_000), placed("s-1", 20_001)]), Some(("s-0".into(), 20_001)));
        // A gap is filled, and a shard that is not there is the last choice.
        assert_eq!(check(&both[..1], &[placed("s-0", 20_001)]), Some(("s-0".into(), 20_000)));
        assert_eq!(check(&[shard("s-0", false), shard("s-1", true)], &[placed("s-1", 20_000)]), Some(("s-1".into(), 20_001)));
        assert_eq!(check(&[], &[]), None);
        let full: Vec<Placement> = (API_PORTS.0..=API_PORTS.1).map(|p| placed("s-0", p)).collect();
        assert_eq!(check(&both[..1], &full), None);
    }
}
