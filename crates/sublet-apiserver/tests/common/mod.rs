//! An API server in this process, with all admission plugins.

use jiff::Timestamp;
use sublet_apiserver::admission;
use sublet_apiserver::server::{Config, Server};

pub async fn server() -> Server {
    let key = rcgen::KeyPair::generate().expect("a key").serialize_pem();
    let plugins = |permission| admission::default_plugins(&admission::Config { signer_permission: Some(permission), ..Default::default() });
    Server::open(Config::in_memory("test", key, Timestamp::UNIX_EPOCH, Box::new(plugins))).await.expect("opens")
}
