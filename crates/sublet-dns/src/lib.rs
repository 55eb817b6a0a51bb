//! The name server of a virtual cluster: its Services, endpoints and pods as the Kubernetes DNS
//! specification 1.1.0 has them, and every other name from the servers of the host.
//!
//! Entry types: [`DnsServer`] (one tenant's sockets), [`Zone`] (a question against a [`World`], without
//! IO), [`Upstream`] (the servers that other names are asked from), [`ResolverConfig`].
//!
//! Invariants: answers are computed from the tenant's objects at the time of the question, nothing is
//! copied ahead; a name of the cluster is never asked elsewhere; questions under way, connections and
//! remembered answers are bounded per tenant, so that one tenant's questions are no delay for another.

mod answer;
mod endpoints;
mod memory;
mod question;
mod reply;
mod resolver_config;
mod reverse;
mod server;
mod upstream;
mod world;
mod zone;

pub use answer::{Answer, Code, Outcome};
pub use question::Question;
pub use reply::{Request, Unreadable};
pub use resolver_config::ResolverConfig;
pub use server::{DnsServer, ServerConfig, Sockets};
pub use upstream::{Upstream, UpstreamError};
pub use world::World;
pub use zone::{SERVICE_NAME_LABEL, Zone, ZoneConfig};

/// The wire format, for those who ask questions.
pub use hickory_proto as proto;

/// How long an answer about the cluster may be remembered by a client.
pub const TTL_S: u32 = 5;
