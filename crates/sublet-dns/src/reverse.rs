//! Names of addresses.
//!
//! The tenant's objects have no order by address, so a table is made when somebody asks, and made anew
//! when objects have changed since and it is older than answers live.

use crate::endpoints;
use crate::world::World;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use sublet_machinery::ObjectExt;

/// Addresses in one table; more Services and endpoints than that have no reverse names.
const ADDRESSES_MAX: usize = 100_000;
const NAMES_PER_ADDRESS_MAX: usize = 16;
const AGE_MIN: Duration = Duration::from_secs(crate::TTL_S as u64);

/// Names below the cluster's domain by address.
#[derive(Default)]
pub struct Table {
    names: HashMap<IpAddr, Vec<String>>,
    made: Option<(Instant, u64)>,
}

impl Table {
    /// Names of an address, as `web-0.web.prod.svc`.
    pub fn names(&mut self, address: IpAddr, world: &dyn World, now: Instant) -> Vec<String> {
        let revision = world.revision();
        let is_fresh = self.made.is_some_and(|(at, seen)| seen == revision || now.duration_since(at) < AGE_MIN);
        if !is_fresh {
            self.names = make(world);
            self.made = Some((now, revision));
        }
        self.names.get(&address).cloned().unwrap_or_default()
    }
}

fn make(world: &dyn World) -> HashMap<IpAddr, Vec<String>> {
    let mut names: HashMap<IpAddr, Vec<String>> = HashMap::new();
    // The name of a Service counts before those of endpoints.
    for service in world.services() {
        for address in addresses_of(&service) {
            if names.len() < ADDRESSES_MAX {
                names.insert(address, vec![format!("{}.{}.svc", service.name(), service.namespace())]);
            }
        }
    }
    let of_services = names.len();
    for slice in world.all_slices() {
        let Some(service) = slice.label(crate::zone::SERVICE_NAME_LABEL) else { continue };
        for endpoint in slice.array_at("/endpoints") {
            for address in endpoint.array_at("/addresses").iter().filter_map(|a| a.as_str()?.parse().ok()) {
                let name = format!("{}.{service}.{}.svc", endpoints::host(endpoint, address), slice.namespace());
                let is_full = names.len() >= ADDRESSES_MAX.max(of_services);
                match names.get_mut(&address) {
                    Some(held) if held.len() < NAMES_PER_ADDRESS_MAX && !held.contains(&name) => held.push(name),
                    Some(_) => {}
                    None if !is_full => _ = names.insert(address, vec![name]),
                    None => {}
                }
            }
        }
    }
    names
}

/// The cluster IPs of a Service.
pub fn addresses_of(service: &serde_json::Value) -> Vec<IpAddr> {
    let mut all: Vec<IpAddr> = service.array_at("/spec/clusterIPs").iter().filter_map(|a| a.as_str()?.parse().ok()).collect();
    if all.is_empty() {
        all.extend(service.str_at("/spec/clusterIP").and_then(|a| a.parse::<IpAddr>().ok()));
    }
    all
}

/// The address behind a name of `in-addr.arpa` or `ip6.arpa`, given as labels.
pub fn address(labels: &[String]) -> Option<IpAddr> {
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    match labels.as_slice() {
        [parts @ .., "in-addr", "arpa"] if parts.len() == 4 => {
            let text = parts.iter().rev().copied().collect::<Vec<_>>().join(".");
            text.parse().ok().map(IpAddr::V4)
        }
        [digits @ .., "ip6", "arpa"] if digits.len() == 32 && digits.iter().all(|d| d.len() == 1) => {
            let hex: String = digits.iter().rev().copied().collect();
            u128::from_str_radix(&hex, 16).ok().map(|bits| IpAddr::V6(bits.into()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::question::labels_of;

    #[test]
    fn reverse_names_are_addresses() {
        let check =
            |name: &str, expected: Option<&str>| assert_eq!(address(&labels_of(name)), expected.map(|e| e.parse().unwrap()), "{name}");
        check("3.2.1.10.in-addr.arpa", Some("10.1.2.3"));
        check("1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa", Some("2001:db8::1"));
        check("2.1.10.in-addr.arpa", None);
        check("300.2.1.10.in-addr.arpa", None);
        check("x.0.0.0.ip6.arpa", None);
        check("arpa", None);
    }
}
