//! Ranges of numbers that are handed out: addresses of a network, ports of a span.
//!
//! The lower band of a range is kept for numbers that somebody asks for by value; numbers that the
//! server picks come from the upper band first (as upstream since 1.26).

use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Numbers from zero to `size`, each free or taken. Memory follows what is taken, not the size.
#[derive(Debug)]
struct Numbers {
    size: u64,
    /// Below it lies the band for numbers asked for by value.
    band: u64,
    taken: BTreeSet<u64>,
    random: u64,
}

impl Numbers {
    fn new(size: u64, band: u64, seed: u64) -> Self {
        Self { size, band, taken: BTreeSet::new(), random: seed | 1 }
    }

    fn take(&mut self, number: u64) -> bool {
        self.taken.insert(number)
    }

    /// A free number, from a random place on, the upper band first.
    fn take_any(&mut self) -> Option<u64> {
        let upper = self.free_from(self.band, self.size);
        let number = upper.or_else(|| self.free_from(0, self.band))?;
        self.taken.insert(number);
        Some(number)
    }

    fn free_from(&mut self, low: u64, high: u64) -> Option<u64> {
        if low >= high || self.taken.range(low..high).count() as u64 == high - low {
            return None;
        }
        let start = low + self.next_random() % (high - low);
        (start..high).chain(low..start).find(|n| !self.taken.contains(n))
    }

    /// xorshift: spreads numbers so that a released one does not come back at once.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

/// Service addresses of one network.
#[derive(Debug)]
pub(super) struct AddressRange {
    pub(super) cidr: IpNet,
    numbers: Numbers,
}

impl AddressRange {
    pub(super) fn new(cidr: IpNet, seed: u64) -> Self {
        let cidr = cidr.trunc();
        let host_bits = u32::from(cidr.max_prefix_len() - cidr.prefix_len());
        let all = 1_u128 << host_bits.min(64);
        // Without the network address, and for IPv4 without the broadcast address.
        let unusable = if cidr.addr().is_ipv4() { 2 } else { 1 };
        let size = u64::try_from(all.saturating_sub(unusable)).unwrap_or(u64::MAX);
        let whole = u64::try_from(all).unwrap_or(u64::MAX);
        Self { cidr, numbers: Numbers::new(size, band(whole, 16, 256, 16), seed) }
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.number(address).is_some()
    }

    pub(super) fn take(&mut self, address: IpAddr) -> bool {
        self.number(address).is_some_and(|n| self.numbers.take(n))
    }

    pub(super) fn take_any(&mut self) -> Option<IpAddr> {
        let number = self.numbers.take_any()?;
        Some(match self.cidr.network() {
            IpAddr::V4(base) => IpAddr::V4(Ipv4Addr::from(u32::from(base).wrapping_add(number as u32 + 1))),
            IpAddr::V6(base) => IpAddr::V6(Ipv6Addr::from(u128::from(base) + u128::from(number) + 1)),
        })
    }

    pub(super) fn release(&mut self, address: IpAddr) {
        if let Some(number) = self.number(address) {
            self.numbers.taken.remove(&number);
        }
    }

    pub(super) fn is_taken(&self, address: IpAddr) -> bool {
        self.number(address).is_some_and(|n| self.numbers.taken.contains(&n))
    }

    pub(super) fn clear(&mut self) {
        self.numbers.taken.clear();
    }

    fn number(&self, address: IpAddr) -> Option<u64> {
        let offset = match (self.cidr.network(), address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => u128::from(u32::from(address).checked_sub(u32::from(base))?),
            (IpAddr::V6(base), IpAddr::V6(address)) => u128::from(address).checked_sub(u128::from(base))?,
            _ => return None,
        };
        let number = u64::try_from(offset.checked_sub(1)?).ok()?;
        (number < self.numbers.size).then_some(number)
    }
}

/// Node ports.
#[derive(Debug)]
pub(super) struct PortRange {
    first: u16,
    last: u16,
    numbers: Numbers,
}

impl PortRange {
    pub(super) fn new(first: u16, last: u16, seed: u64) -> Self {
        let size = u64::from(last.saturating_sub(first)) + 1;
        Self { first, last, numbers: Numbers::new(size, band(size, 16, 128, 32), seed) }
    }

    pub(super) fn take(&mut self, port: u64) -> Result<(), String> {
        let number = port.checked_sub(u64::from(self.first)).filter(|n| *n < self.numbers.size);
        match number {
            None => Err(format!("provided port is not in the valid range. The range of valid ports is {}-{}", self.first, self.last)),
            Some(number) if self.numbers.take(number) => Ok(()),
            Some(_) => Err("provided port is already allocated".into()),
        }
    }

    pub(super) fn take_any(&mut self) -> Option<u64> {
        Some(self.numbers.take_any()? + u64::from(self.first))
    }

    pub(super) fn release(&mut self, port: u64) {
        if let Some(number) = port.checked_sub(u64::from(self.first)) {
            self.numbers.taken.remove(&number);
        }
    }

    pub(super) fn clear(&mut self) {
        self.numbers.taken.clear();
    }
}

/// The size of the lower band: `size / step` within bounds; none for tiny ranges.
fn band(size: u64, min: u64, max: u64, step: u64) -> u64 {
    if size <= min { 0 } else { (size / step).clamp(min, max) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(cidr: &str) -> AddressRange {
        AddressRange::new(cidr.parse().unwrap(), 7)
    }

    #[test]
    fn the_lower_band_is_used_last() {
        // As calculateRangeOffset of the ipallocator and the portallocator, 1.37.
        for (cidr, expected) in [
            ("192.168.1.0/24", 16),
            ("192.168.1.0/27", 16),
            ("192.168.1.0/28", 0),
            ("10.96.0.0/16", 256),
            ("10.96.0.0/20", 256),
            ("10.96.0.0/22", 64),
            ("2001:db8::/112", 256),
            ("2001:db8::/64", 256),
        ] {
            assert_eq!(range(cidr).numbers.band, expected, "{cidr}");
        }
        for ((first, last), expected) in [((30000, 32767), 86), ((30000, 30015), 0), ((30000, 30100), 16), ((1, 65535), 128)] {
            assert_eq!(PortRange::new(first, last, 1).numbers.band, expected);
        }
        let mut ports = PortRange::new(30000, 30019, 3);
        let dynamic: BTreeSet<u64> = (0..4).filter_map(|_| ports.take_any()).collect();
        assert_eq!(dynamic, (30016..=30019).collect());
        assert!(ports.take_any().unwrap() < 30016);
    }

    #[test]
    fn network_and_broadcast_addresses_are_never_given() {
        let mut small = range("10.0.0.0/29");
        let mut given: Vec<String> = std::iter::from_fn(|| small.take_any()).map(|a| a.to_string()).collect();
        given.sort();
        assert_eq!(given, ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]);
        assert!(!small.contains("10.0.0.0".parse().unwrap()) && !small.contains("10.0.0.7".parse().unwrap()));
        small.release("10.0.0.3".parse().unwrap());
        assert_eq!(small.take_any().unwrap().to_string(), "10.0.0.3");
        let mut v6 = range("2001:db8::/120");
        assert!(v6.contains("2001:db8::ff".parse().unwrap()) && !v6.contains("2001:db8::".parse().unwrap()));
        assert!(v6.take("2001:db8::1".parse().unwrap()) && !v6.take("2001:db8::1".parse().unwrap()));
        assert!(range("2001:db8::/64").take_any().is_some());
    }

    #[test]
    fn ports_tell_why_they_are_refused() {
        let mut ports = PortRange::new(30000, 32767, 3);
        assert_eq!(ports.take(30080), Ok(()));
        assert_eq!(ports.take(30080).unwrap_err(), "provided port is already allocated");
        let outside = "provided port is not in the valid range. The range of valid ports is 30000-32767";
        assert_eq!((ports.take(80).unwrap_err(), ports.take(32768).unwrap_err()), (outside.to_string(), outside.to_string()));
        ports.release(30080);
        assert_eq!(ports.take(30080), Ok(()));
    }
}
