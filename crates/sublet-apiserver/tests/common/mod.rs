//! An API server in this process, with all admission plugins.

use jiff::Timestamp;
use std::sync::Arc;
use sublet_apiserver::admission;
use sublet_apiserver::auth::authz::Mode;
use sublet_apiserver::auth::bootstrap::BootstrapConfig;
use sublet_apiserver::server::{Config, SecurityConfig, Server};
use sublet_storage::MemoryBackend;

pub async fn server() -> Server {
    let key = rcgen::KeyPair::generate().expect("a key").serialize_pem();
    Server::open(Config {
        backend: Arc::new(MemoryBackend::new()),
        security: SecurityConfig {
            authorization: vec![Mode::Rbac],
            static_tokens: None,
            signing_key_pem: key,
            url: "https://127.0.0.1:6443".into(),
        },
        plugins: Box::new(|permission| {
            admission::default_plugins(&admission::Config { signer_permission: Some(permission), ..Default::default() })
        }),
        bootstrap: BootstrapConfig {
            service_cidrs: vec!["10.96.0.0/16".into()],
            service_ip: "10.96.0.1".parse().expect("an address"),
            addresses: vec!["127.0.0.1".parse().expect("an address")],
            port: 6443,
            client_authority_pem: None,
            front_proxy_authority_pem: None,
            now: Timestamp::UNIX_EPOCH,
        },
        name: "test".into(),
    })
    .await
    .expect("opens")
}
