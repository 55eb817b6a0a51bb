//! Ingresses, network policies and the tables of service addresses.

mod addresses;
mod ingress;
mod policy;

pub(super) use addresses::{IP_ADDRESS, SERVICE_CIDR};
pub(super) use ingress::{INGRESS, INGRESS_CLASS};
pub(super) use policy::NETWORK_POLICY;
