//! Who runs in which process.

pub mod allocator;
pub mod api_server;
pub mod controllers;
pub mod external;
pub mod front;
pub mod health;
pub mod host;
pub mod in_cluster;
pub mod name_server;
pub mod packed;
pub mod placed;
pub mod settings;
pub mod simulated_streams;
pub mod simulated_usage;
pub mod streams;
pub mod tenant;
#[cfg(test)]
pub mod testing;
pub mod transfer;
pub mod usage;

/// How pods reach the API servers of this process: as told, or where it listens.
pub fn tenant_reach(listen: std::net::IpAddr, told: Option<&str>) -> tenant::PodReach {
    // Listening on all addresses names none.
    let own = if listen.is_unspecified() { std::net::IpAddr::from([127, 0, 0, 1]) } else { listen };
    tenant::PodReach::Address(told.map_or_else(|| own.to_string(), str::to_string))
}
