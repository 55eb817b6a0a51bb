//! Cluster IPs and node ports of Services.
//!
//! [`ServiceAllocator::allocate`] completes a Service before validation and returns a
//! [`Reservation`]: commit it once the object is stored; dropped, it gives everything back. A dry run
//! drops it. The allocator holds nothing that cannot be rebuilt from the stored Services.

mod families;
mod hook;
mod ports;
mod range;
mod service;

use ipnet::IpNet;
use range::{AddressRange, PortRange};
use serde_json::{Value, json};
use service::{cluster_ips, health_check_port, ip_families, kind, needs_health_check, node_ports};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use sublet_machinery::{ApiError, FieldError, FieldPath, ObjectExt};

/// The ranges that a cluster hands out.
#[derive(Clone, Debug)]
pub struct AllocatorConfig {
    /// One network, or one of each family; the first tells the default family.
    pub service_cidrs: Vec<IpNet>,
    pub node_ports: (u16, u16),
    /// Spreads the numbers; any value will do.
    pub seed: u64,
}

/// Why the ranges make no allocator.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RangeError {
    #[error("no service address range is given")]
    NoRange,
    #[error("the node port range {0}-{1} is empty")]
    NoPorts(u16, u16),
    #[error("shortest allowed prefix length for service CIDR is {min}, got {got}")]
    TooLarge { min: u8, got: u8 },
}

/// Hands out cluster IPs and node ports. Cheap to clone; all clones share the ranges.
#[derive(Clone, Debug)]
pub struct ServiceAllocator {
    /// Guards the ranges; held for plain memory moves only.
    state: Arc<Mutex<State>>,
    families: Arc<[&'static str]>,
}

#[derive(Debug)]
struct State {
    addresses: Vec<AddressRange>,
    ports: PortRange,
    seed: u64,
}

/// What one request took and what it will give up. Dropped without [`Self::commit`], it takes nothing.
#[derive(Debug)]
#[must_use = "dropping a reservation gives its numbers back"]
pub struct Reservation {
    state: Arc<Mutex<State>>,
    taken_addresses: Vec<IpAddr>,
    taken_ports: Vec<u64>,
    released_addresses: Vec<IpAddr>,
    released_ports: Vec<u64>,
}

impl Reservation {
    /// The object is stored: what was taken stays taken, what it gave up is free.
    pub fn commit(mut self) {
        let state = self.state.clone();
        let mut state = lock(&state);
        self.taken_addresses.clear();
        self.taken_ports.clear();
        for address in self.released_addresses.drain(..) {
            state.release_address(address);
        }
        for port in self.released_ports.drain(..) {
            state.ports.release(port);
        }
    }

    /// Addresses that are new with this request, for `IPAddress` objects.
    pub fn taken_addresses(&self) -> &[IpAddr] {
        &self.taken_addresses
    }

    /// Addresses that are free after the commit.
    pub fn released_addresses(&self) -> &[IpAddr] {
        &self.released_addresses
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.taken_addresses.is_empty() && self.taken_ports.is_empty() {
            return;
        }
        let mut state = lock(&self.state);
        for address in &self.taken_addresses {
            state.release_address(*address);
        }
        for port in &self.taken_ports {
            state.ports.release(*port);
        }
    }
}

impl ServiceAllocator {
    pub fn new(config: &AllocatorConfig) -> Result<Self, RangeError> {
        let (first, last) = config.node_ports;
        if first == 0 || first > last {
            return Err(RangeError::NoPorts(first, last));
        }
        let mut families: Vec<&'static str> = Vec::new();
        for cidr in &config.service_cidrs {
            let (family, min) = if cidr.addr().is_ipv4() { (families::IPV4, 8) } else { (families::IPV6, 64) };
            if cidr.prefix_len() < min {
                return Err(RangeError::TooLarge { min, got: cidr.prefix_len() });
            }
            if !families.contains(&family) {
                families.push(family);
            }
        }
        if families.is_empty() {
            return Err(RangeError::NoRange);
        }
        let addresses = config.service_cidrs.iter().map(|cidr| AddressRange::new(*cidr, config.seed)).collect();
        let state = State { addresses, ports: PortRange::new(first, last, config.seed.rotate_left(17)), seed: config.seed };
        Ok(Self { state: Arc::new(Mutex::new(state)), families: families.into() })
    }

    /// One more network of a family that the cluster has (a ServiceCIDR object).
    pub fn add_range(&self, cidr: IpNet) {
        let mut state = lock(&self.state);
        if !state.addresses.iter().any(|r| r.cidr == cidr.trunc()) {
            let range = AddressRange::new(cidr, state.seed);
            state.addresses.push(range);
        }
    }

    /// No new addresses from this network; those in use stay known to nobody but their Services.
    pub fn remove_range(&self, cidr: IpNet) {
        lock(&self.state).addresses.retain(|r| r.cidr != cidr.trunc());
    }

    /// Forgets everything and takes what the stored Services have.
    pub fn rebuild<'s>(&self, services: impl IntoIterator<Item = &'s Value>) {
        let mut state = lock(&self.state);
        state.addresses.iter_mut().for_each(AddressRange::clear);
        state.ports.clear();
        for service in services {
            for address in held_addresses(service) {
                state.take_address(address);
            }
            for port in held_ports(service) {
                // Two ports of one Service may share a number.
                let _ = state.ports.take(port);
            }
        }
    }

    /// Takes what a stored Service has, as seen from a watch of another replica.
    pub fn observe(&self, service: &Value) {
        let mut state = lock(&self.state);
        for address in held_addresses(service) {
            state.take_address(address);
        }
        for port in held_ports(service) {
            let _ = state.ports.take(port);
        }
    }

    /// A Service is gone.
    pub fn release(&self, service: &Value) {
        let mut state = lock(&self.state);
        for address in held_addresses(service) {
            state.release_address(address);
        }
        for port in held_ports(service) {
            state.ports.release(port);
        }
    }

    pub fn is_taken(&self, address: IpAddr) -> bool {
        lock(&self.state).addresses.iter().any(|r| r.is_taken(address))
    }

    /// Completes `service` with addresses, families and ports. Runs before strategy and validation,
    /// on create (`old` is none) and update.
    pub fn allocate(&self, service: &mut Value, old: Option<&Value>) -> Result<Reservation, ApiError> {
        if !service["spec"].is_object() {
            service["spec"] = json!({});
        }
        if let Some(old) = old {
            service::keep_allocated(service, old);
        }
        service::sync_cluster_ips(service, old);
        families::fill(service, old, &self.families).map_err(|errors| invalid(service, &errors))?;
        let mut reservation = Reservation {
            state: self.state.clone(),
            taken_addresses: Vec::new(),
            taken_ports: Vec::new(),
            released_addresses: Vec::new(),
            released_ports: Vec::new(),
        };
        self.allocate_addresses(service, old, &mut reservation)?;
        self.allocate_ports(service, old, &mut reservation)?;
        Ok(reservation)
    }

    fn allocate_addresses(&self, service: &mut Value, old: Option<&Value>, reservation: &mut Reservation) -> Result<(), ApiError> {
        let Some(old) = old.filter(|old| kind(old) != "ExternalName") else {
            return self.take_addresses(service, 0, reservation);
        };
        if families::is_settled_dual_stack(service, Some(old)) || service::is_headless(old) {
            return Ok(());
        }
        if kind(service) == "ExternalName" {
            reservation.released_addresses = held_addresses(old);
            return Ok(());
        }
        match (ip_families(old).len(), ip_families(service).len()) {
            (1, 2) => self.take_addresses(service, 1, reservation),
            (2, 1) => {
                reservation.released_addresses = held_addresses(old).into_iter().skip(1).collect();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Addresses for the families from index `from` on.
    fn take_addresses(&self, service: &mut Value, from: usize, reservation: &mut Reservation) -> Result<(), ApiError> {
        if kind(service) == "ExternalName" || service::is_headless(service) {
            return Ok(());
        }
        let mut ips = cluster_ips(service);
        let families = ip_families(service);
        let mut state = lock(&self.state);
        for (i, family) in families.iter().enumerate().skip(from) {
            let taken = match ips.get(i).filter(|ip| !ip.is_empty()) {
                Some(ip) => state.take_named(ip).map_err(|why| {
                    let path = FieldPath::new("spec.clusterIPs");
                    let detail = format!("failed to allocate IP {ip}: {why}");
                    invalid(service, &[FieldError::invalid(&path, service["spec"]["clusterIPs"].clone(), detail)])
                })?,
                None => state.take_any(family).ok_or_else(|| {
                    ApiError::internal(format!("failed to allocate a serviceIP for Service \"{}\": range is full", service.name()))
                })?,
            };
            reservation.taken_addresses.push(taken);
            if i < ips.len() {
                if ips[i].is_empty() {
                    ips[i] = taken.to_string();
                }
            } else {
                ips.push(taken.to_string());
            }
        }
        drop(state);
        service["spec"]["clusterIP"] = ips.first().map_or(Value::Null, |ip| json!(ip));
        service["spec"]["clusterIPs"] = json!(ips);
        Ok(())
    }

    fn allocate_ports(&self, service: &mut Value, old: Option<&Value>, reservation: &mut Reservation) -> Result<(), ApiError> {
        let mut state = lock(&self.state);
        let range = &mut state.ports;
        match old {
            None if service::has_node_ports(service) => ports::take_ports(service, range, reservation)?,
            None => {}
            Some(old) if service::has_node_ports(service) => ports::update_ports(service, old, range, reservation)?,
            Some(old) if service::has_node_ports(old) => reservation.released_ports.extend(node_ports(old)),
            Some(_) => {}
        }
        let (needed, needs) = (old.is_some_and(needs_health_check), needs_health_check(service));
        if !needed && needs {
            ports::take_health_check_port(service, range, reservation)?;
        } else if let Some(old) = old.filter(|_| needed && !needs) {
            reservation.released_ports.push(health_check_port(old));
        }
        Ok(())
    }
}

impl State {
    fn take_address(&mut self, address: IpAddr) -> bool {
        self.addresses.iter_mut().any(|r| r.take(address))
    }

    fn release_address(&mut self, address: IpAddr) {
        self.addresses.iter_mut().for_each(|r| r.release(address));
    }

    fn take_named(&mut self, ip: &str) -> Result<IpAddr, &'static str> {
        let address: IpAddr = ip.parse().map_err(|_| "not an IP address")?;
        if !self.addresses.iter().any(|r| r.contains(address)) {
            return Err("the provided network does not match the current range");
        }
        // Ranges may overlap: an address that one of them gave is taken in all.
        if self.addresses.iter().any(|r| r.is_taken(address)) || !self.take_address(address) {
            return Err("provided IP is already allocated");
        }
        Ok(address)
    }

    fn take_any(&mut self, family: &str) -> Option<IpAddr> {
        let mut index = 0;
        while index < self.addresses.len() {
            let range = &mut self.addresses[index];
            if (range.cidr.addr().is_ipv4()) != (family == families::IPV4) {
                index += 1;
                continue;
            }
            let Some(address) = range.take_any() else {
                index += 1;
                continue;
            };
            let elsewhere = self.addresses.iter().enumerate().any(|(i, r)| i != index && r.is_taken(address));
            if !elsewhere {
                return Some(address);
            }
        }
        None
    }
}

fn held_addresses(service: &Value) -> Vec<IpAddr> {
    if kind(service) == "ExternalName" {
        return Vec::new();
    }
    cluster_ips(service).iter().filter_map(|ip| ip.parse().ok()).collect()
}

fn held_ports(service: &Value) -> Vec<u64> {
    let mut ports = node_ports(service);
    if needs_health_check(service) {
        ports.push(health_check_port(service));
    }
    ports
}

fn invalid(service: &Value, errors: &[FieldError]) -> ApiError {
    ApiError::invalid("", "Service", service.name(), errors)
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("no holder of this lock panics")
}

#[cfg(test)]
mod tests;
