//! Where a process answers for its health: `/healthz`, `/readyz` and `/metrics`, in plain HTTP.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Probes and collectors are few; more connections wait.
const CONNECTIONS_MAX: usize = 32;
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(10);

/// What a process says of itself.
pub struct Health {
    ready: AtomicBool,
    metrics: Box<dyn Fn() -> String + Send + Sync>,
}

impl Health {
    /// `metrics` renders the text format of Prometheus.
    pub fn new(metrics: impl Fn() -> String + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { ready: AtomicBool::new(false), metrics: Box::new(metrics) })
    }

    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    fn answer(&self, path: &str) -> (StatusCode, &'static str, String) {
        let text = "text/plain; charset=utf-8";
        match path {
            "/healthz" | "/livez" => (StatusCode::OK, text, "ok".into()),
            "/readyz" if self.ready.load(Ordering::Relaxed) => (StatusCode::OK, text, "ok".into()),
            "/readyz" => (StatusCode::SERVICE_UNAVAILABLE, text, "not ready yet".into()),
            "/metrics" => (StatusCode::OK, "text/plain; version=0.0.4", (self.metrics)()),
            _ => (StatusCode::NOT_FOUND, text, "there are /healthz, /readyz and /metrics".into()),
        }
    }
}

/// Serves until cancelled.
pub async fn serve(health: Arc<Health>, address: SocketAddr, cancel: CancellationToken) -> Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = places.clone().acquire_owned().await?;
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::debug!(%error, "a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = cancel.cancelled() => return Ok(()),
        };
        let health = health.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let (status, kind, body) = health.answer(request.uri().path());
                let response = Response::builder().status(status).header(header::CONTENT_TYPE, kind).body(Full::new(Bytes::from(body)));
                async move { Ok::<_, Infallible>(response.unwrap_or_default()) }
            });
            let connection = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
            if let Ok(Err(error)) = tokio::time::timeout(CONNECTION_TIME_MAX, connection).await {
                tracing::debug!(%error, "a probe ended badly");
            }
            drop(place);
        });
    }
}

/// One sample in the text format; names and help are ours, label values are escaped.
pub fn sample(out: &mut String, name: &str, labels: &[(&str, &str)], value: f64) {
    use std::fmt::Write as _;
    let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let labels: Vec<String> = labels.iter().map(|(k, v)| format!("{k}=\"{}\"", escape(v))).collect();
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    let _ = writeln!(out, "{name}{labels} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_told_apart_from_alive() {
        let health = Health::new(|| "up 1\n".into());
        let status = |path: &str| health.answer(path).0.as_u16();
        assert_eq!([status("/healthz"), status("/readyz"), status("/metrics"), status("/")], [200, 503, 200, 404]);
        health.set_ready(true);
        assert_eq!(status("/readyz"), 200);
    }

    #[test]
    fn samples_are_escaped() {
        let mut out = String::new();
        sample(&mut out, "up", &[("name", "a\"b")], 1.0);
        sample(&mut out, "leader", &[], 0.0);
        assert_eq!(out, "up{name=\"a\\\"b\"} 1\nleader 0\n");
    }
}
