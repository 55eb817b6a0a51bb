//! What turns an API server into a whole cluster without machines: simulated nodes, a scheduler and a
//! volume provisioner.
//!
//! Entry: [`add_all`] adds the controllers to a manager and returns the [`Tasks`] that run beside it.
//!
//! Invariants: pods, nodes and volumes are reported, never made real; everything that must survive a
//! restart stands in the API objects.

pub mod config;
mod events;
mod kubelet;
mod quantity;
mod scheduler;
mod selector;
mod volumes;

pub use config::{HostConfig, Timings};
pub use kubelet::{ANNOTATION_PREFIX, FAIL_ANNOTATION};
pub use kubelet::{Executed, LogRequest, SimulatedShell, is_interactive, simulated_log, stream_container};
pub use kubelet::{simulated_node_usage, simulated_page, simulated_pod_usage};
pub use volumes::{DEFAULT_CLASS, PROVISIONER};

use std::sync::Arc;
use sublet_runtime::resources::NODES;
use sublet_runtime::{Client, Informer, Manager, Scope};
use tokio_util::sync::CancellationToken;

/// The loops that do not fit a controller's queue. Run them beside [`Manager::run`].
pub struct Tasks {
    nodes: Arc<kubelet::Nodes>,
    node_informer: Arc<Informer>,
    scheduler: scheduler::Scheduler,
    events: events::EventWriter,
}

/// Adds everything to the manager of the host's API server.
pub fn add_all(manager: &mut Manager, config: &HostConfig) -> Tasks {
    let nodes = Arc::new(kubelet::Nodes::new(config));
    let (sink, events) = events::channel(config.clock.clone());
    kubelet::add(manager, &nodes, sink.clone());
    volumes::add(manager, sink.clone(), config.clock.clone());
    let scheduler = scheduler::Scheduler::new(manager, sink, config.clock.clone());
    let node_informer = manager.informers().informer(&NODES, &Scope::default()).0;
    Tasks { nodes, node_informer, scheduler, events }
}

impl Tasks {
    /// Runs until cancelled.
    pub async fn run(self, client: Client, cancel: CancellationToken) {
        tokio::join!(
            self.nodes.run(client.clone(), self.node_informer, cancel.clone()),
            self.scheduler.run(client.clone(), cancel.clone()),
            volumes::ensure_class(client.clone(), cancel.clone()),
            self.events.run(client.with_field_manager("kubelet"), cancel.clone()),
        );
    }
}
