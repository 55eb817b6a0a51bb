//! The host's API as streams need it: requests pass as they come, bodies are not collected, connections are
//! handed over after an upgrade.

use anyhow::{Context as _, Result};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt as _;
use sublet_apiserver::http::body::{BoxError, RequestBody};
use tower::util::BoxCloneSyncService;
use tower::{BoxError as TowerError, ServiceBuilder, ServiceExt as _};

/// A client for the host. Cheap to clone.
#[derive(Clone)]
pub struct HostApi(BoxCloneSyncService<Request<RequestBody>, Response<Incoming>, BoxError>);

impl HostApi {
    /// With the credentials of a kubeconfig or of the pod's service account.
    pub fn new(config: &kube::Config) -> Result<Self> {
        let connector = config.rustls_https_connector().context("cannot make a client for streams")?;
        let client: Client<_, RequestBody> = Client::builder(TokioExecutor::new()).build(connector);
        let stack = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer().context("cannot make a client for streams")?)
            .map_err(TowerError::from)
            .service(client);
        Ok(Self(BoxCloneSyncService::new(stack.map_err(Into::into))))
    }

    pub fn send(&self, request: Request<RequestBody>) -> BoxFuture<'static, Result<Response<Incoming>, BoxError>> {
        self.0.clone().oneshot(request).boxed()
    }
}
