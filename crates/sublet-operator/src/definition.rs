//! Installs the `VirtualCluster` kind on the host.

use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::CUSTOM_RESOURCE_DEFINITIONS;
use sublet_runtime::{Client, ClientError};

const ESTABLISHED_TIMEOUT: Duration = Duration::from_secs(30);

/// Applies the CRD and waits until it is served.
pub async fn ensure_definition(host: &Client) -> Result<(), ClientError> {
    let definition = sublet_api::virtual_cluster_crd();
    host.apply(&CUSTOM_RESOURCE_DEFINITIONS, &definition).await?;
    let deadline = tokio::time::Instant::now() + ESTABLISHED_TIMEOUT;
    loop {
        let live = host.get(&CUSTOM_RESOURCE_DEFINITIONS, "", definition.name()).await?;
        let established = live.is_condition_true("Established");
        if established || tokio::time::Instant::now() >= deadline {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
