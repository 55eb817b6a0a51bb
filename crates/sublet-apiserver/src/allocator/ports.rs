//! The node ports of a Service.

use super::range::PortRange;
use super::service::{health_check_port, node_port, node_ports, wants_node_ports};
use super::{Reservation, invalid};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use sublet_machinery::{ApiError, FieldError, FieldPath, ObjectExt};

/// Ports of a new Service. Entries with the same port number (TCP and UDP) share a node port.
pub(super) fn take_ports(service: &mut Value, ports: &mut PortRange, reservation: &mut Reservation) -> Result<(), ApiError> {
    let wants = wants_node_ports(service);
    let mut by_port: BTreeMap<u64, u64> = BTreeMap::new();
    let all = service.array_at("/spec/ports").to_vec();
    for (i, entry) in all.iter().enumerate() {
        let (port, own) = (entry["port"].as_u64().unwrap_or(0), node_port(entry));
        if own == 0 && !wants {
            continue;
        }
        match by_port.get(&port) {
            Some(shared) if own == *shared => {}
            Some(shared) if own == 0 => service["spec"]["ports"][i]["nodePort"] = json!(shared),
            Some(_) => take_port(service, i, own, ports, reservation)?,
            None => {
                let asked = all.iter().find(|e| e["port"].as_u64() == Some(port) && node_port(e) != 0).map(node_port);
                let number = match asked {
                    Some(number) => {
                        take_port(service, i, number, ports, reservation)?;
                        number
                    }
                    None => take_any_port(ports, reservation)?,
                };
                service["spec"]["ports"][i]["nodePort"] = json!(number);
                by_port.insert(port, number);
            }
        }
    }
    Ok(())
}

pub(super) fn update_ports(service: &mut Value, old: &Value, ports: &mut PortRange, reservation: &mut Reservation) -> Result<(), ApiError> {
    let wants = wants_node_ports(service);
    let old_numbers = node_ports(old);
    let mut seen: Vec<(String, u64)> = Vec::new();
    let mut taken: Vec<u64> = Vec::new();
    for (i, entry) in service.array_at("/spec/ports").to_vec().iter().enumerate() {
        let mut number = node_port(entry);
        if number == 0 && !wants {
            continue;
        }
        if number == 0 {
            number = take_any_port(ports, reservation)?;
            service["spec"]["ports"][i]["nodePort"] = json!(number);
        } else if !old_numbers.contains(&number) && !taken.contains(&number) {
            take_port(service, i, number, ports, reservation)?;
            taken.push(number);
        }
        let protocol = entry["protocol"].as_str().unwrap_or("TCP").to_string();
        if seen.contains(&(protocol.clone(), number)) {
            return Err(ApiError::internal(format!("duplicate nodePort: {{{protocol} {number}}}")));
        }
        seen.push((protocol, number));
    }
    let kept = node_ports(service);
    reservation.released_ports.extend(old_numbers.into_iter().filter(|n| !kept.contains(n)));
    Ok(())
}

fn take_port(service: &Value, index: usize, number: u64, ports: &mut PortRange, reservation: &mut Reservation) -> Result<(), ApiError> {
    ports.take(number).map_err(|why| {
        let path = FieldPath::new("spec.ports").index(index).child("nodePort");
        invalid(service, &[FieldError::invalid(&path, number, why)])
    })?;
    reservation.taken_ports.push(number);
    Ok(())
}

fn take_any_port(ports: &mut PortRange, reservation: &mut Reservation) -> Result<u64, ApiError> {
    let number = ports.take_any().ok_or_else(|| ApiError::internal("failed to allocate a nodePort: range is full"))?;
    reservation.taken_ports.push(number);
    Ok(number)
}

pub(super) fn take_health_check_port(service: &mut Value, ports: &mut PortRange, reservation: &mut Reservation) -> Result<(), ApiError> {
    let asked = health_check_port(service);
    if asked != 0 {
        ports.take(asked).map_err(|why| ApiError::internal(format!("failed to allocate requested HealthCheck NodePort {asked}: {why}")))?;
        reservation.taken_ports.push(asked);
        return Ok(());
    }
    let number = ports.take_any().ok_or_else(|| ApiError::internal("failed to allocate a HealthCheck NodePort 0: range is full"))?;
    reservation.taken_ports.push(number);
    service["spec"]["healthCheckNodePort"] = json!(number);
    Ok(())
}
