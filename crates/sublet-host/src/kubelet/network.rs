//! Pod addresses: each node hands them out of its own range and never gives one to two live pods.

use ipnet::IpNet;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The first addresses of a range are the network and the bridge.
const RESERVED: u128 = 2;

/// The pod address range of one node.
#[derive(Debug)]
pub(crate) struct NodeNetwork {
    cidr: IpNet,
    next: u128,
    owners: HashMap<IpAddr, String>,
    addresses: HashMap<String, IpAddr>,
}

impl NodeNetwork {
    pub(crate) fn new(cidr: IpNet) -> Self {
        Self { cidr, next: RESERVED, owners: HashMap::new(), addresses: HashMap::new() }
    }

    pub(crate) fn cidr(&self) -> IpNet {
        self.cidr
    }

    /// The address of the pod; the same one each time until it is released. `None`: the range is full.
    pub(crate) fn address(&mut self, uid: &str) -> Option<IpAddr> {
        if let Some(address) = self.addresses.get(uid) {
            return Some(*address);
        }
        let size = size(self.cidr);
        let usable = size.saturating_sub(RESERVED + 1);
        for _ in 0..usable {
            let offset = self.next;
            // The last address of an IPv4 range is the broadcast address.
            self.next = if offset + 2 >= size { RESERVED } else { offset + 1 };
            let address = nth(self.cidr, offset);
            if !self.owners.contains_key(&address) {
                self.claim(uid, address);
                return Some(address);
            }
        }
        None
    }

    /// Takes an address that a pod is known to have, from the status written before a restart.
    pub(crate) fn claim(&mut self, uid: &str, address: IpAddr) {
        if self.cidr.contains(&address) {
            self.owners.insert(address, uid.to_string());
            self.addresses.insert(uid.to_string(), address);
        }
    }

    pub(crate) fn release(&mut self, uid: &str) {
        if let Some(address) = self.addresses.remove(uid) {
            self.owners.remove(&address);
        }
    }
}

/// The range of the node with this index: the smallest of `/24` or larger that holds its pods, so
/// that many nodes fit.
pub(crate) fn node_range(cidr: IpNet, index: usize, pods: u32) -> Option<IpNet> {
    let bits = cidr.max_prefix_len();
    let needed = 32 - (pods.saturating_mul(2).saturating_add(3)).leading_zeros();
    let host_bits = u8::try_from(needed).ok()?.max(8).min(bits - cidr.prefix_len());
    cidr.subnets(bits - host_bits).ok()?.nth(index)
}

pub(crate) fn nth(cidr: IpNet, offset: u128) -> IpAddr {
    match cidr.network() {
        IpAddr::V4(base) => IpAddr::V4(Ipv4Addr::from(u32::from(base).wrapping_add(offset as u32))),
        IpAddr::V6(base) => IpAddr::V6(Ipv6Addr::from(u128::from(base).wrapping_add(offset))),
    }
}

fn size(cidr: IpNet) -> u128 {
    1_u128.checked_shl(u32::from(cidr.max_prefix_len() - cidr.prefix_len())).unwrap_or(u128::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_unique_stable_and_come_back_late() {
        let mut network = NodeNetwork::new("10.0.0.0/29".parse().unwrap());
        let first = network.address("a").unwrap();
        assert_eq!(first.to_string(), "10.0.0.2");
        assert_eq!(network.address("a"), Some(first));
        network.release("a");
        let others: Vec<String> = ["b", "c", "d", "e"].iter().map(|u| network.address(u).unwrap().to_string()).collect();
        assert_eq!(others, ["10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]);
        assert_eq!(network.address("f"), Some(first));
        assert_eq!(network.address("g"), None);
    }

    #[test]
    fn addresses_known_from_status_are_not_given_again() {
        let mut network = NodeNetwork::new("10.0.0.0/24".parse().unwrap());
        network.claim("old", "10.0.0.2".parse().unwrap());
        network.claim("foreign", "192.168.0.1".parse().unwrap());
        assert_eq!(network.address("new").unwrap().to_string(), "10.0.0.3");
        assert_eq!(network.address("old").unwrap().to_string(), "10.0.0.2");
    }

    #[test]
    fn ranges_grow_with_the_pods_of_a_node() {
        let cidr: IpNet = "10.244.0.0/16".parse().unwrap();
        assert_eq!(node_range(cidr, 1, 110).unwrap().to_string(), "10.244.1.0/24");
        assert_eq!(node_range(cidr, 1, 500).unwrap().to_string(), "10.244.4.0/22");
        assert_eq!(node_range(cidr, 64, 500), None);
    }
}
