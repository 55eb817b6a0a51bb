//! The controllers of one API server, as tasks.

use sublet_controllers::ControllersConfig;
use sublet_runtime::{Client, Clock, Manager};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Starts the built-in controllers; `extend` may add more to the same manager.
pub fn start(client: Client, config: &ControllersConfig, extend: impl FnOnce(&mut Manager), cancel: CancellationToken) -> JoinHandle<()> {
    let mut manager = Manager::new(client, Clock::System);
    sublet_controllers::add_all(&mut manager, config);
    extend(&mut manager);
    tokio::spawn(manager.run(cancel))
}

/// The name of this machine, as its kernel knows it.
pub fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "localhost".into(), |name| name.trim().to_string())
}
