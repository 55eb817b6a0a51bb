//! Simulated nodes: node objects that stay ready, and pods bound to them that go through their life
//! as a kubelet would report it. No container ever runs.

mod admission;
mod agent;
mod behaviour;
mod conditions;
pub(crate) mod container;
mod end;
mod network;
mod node;
mod page;
mod references;
mod resize;
mod shell;
mod start;
mod step;
mod streams;
mod usage;

pub(crate) use agent::add;
pub use behaviour::ANNOTATION_PREFIX;
pub use node::FAIL_ANNOTATION;
pub(crate) use node::Nodes;
pub use page::simulated_page;
pub(crate) use references::claim_name;
pub use streams::{Executed, LogRequest, SimulatedShell, is_interactive, simulated_log, stream_container};
pub use usage::{simulated_node_usage, simulated_pod_usage};
