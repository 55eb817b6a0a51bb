//! Bytes between two upgraded connections.

use http::{Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::time::Duration;
use sublet_apiserver::http::{Body, HttpResponse};
use sublet_machinery::ApiError;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Streams of one tenant at a time: each holds two connections and a few buffers.
const STREAMS_MAX: usize = 1000;
/// How long one direction may go on when the other has ended. Upstream cuts both at once.
const HALF_CLOSED_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_AFTER_SECONDS: u32 = 1;

/// The streams of one tenant. What one side does not read, the other cannot write: nothing is collected here.
pub struct Relays {
    slots: Arc<Semaphore>,
    tasks: TaskTracker,
    cancel: CancellationToken,
}

impl Default for Relays {
    fn default() -> Self {
        Self { slots: Arc::new(Semaphore::new(STREAMS_MAX)), tasks: TaskTracker::new(), cancel: CancellationToken::new() }
    }
}

impl Relays {
    pub fn permit(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let permit = self.slots.clone().try_acquire_owned();
        permit.map_err(|_| ApiError::too_many_requests("there are too many streams; try again when some have ended", RETRY_AFTER_SECONDS))
    }

    /// Passes bytes from now on; the answer for the client.
    pub fn start(&self, client_side: OnUpgrade, mut response: Response<Incoming>, permit: OwnedSemaphorePermit) -> HttpResponse {
        let host_side = hyper::upgrade::on(&mut response);
        let cancel = self.cancel.clone();
        self.tasks.spawn(async move {
            let _permit = permit;
            let relayed = async {
                match tokio::try_join!(client_side, host_side) {
                    Ok((client, host)) => relay(TokioIo::new(client), TokioIo::new(host)).await,
                    Err(error) => tracing::debug!(%error, "a stream was not upgraded"),
                }
            };
            tokio::select! {
                () = relayed => {}
                () = cancel.cancelled() => {}
            }
        });
        let mut switched = Response::new(Body::empty());
        *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *switched.headers_mut() = response.headers().clone();
        switched
    }

    pub async fn stop(&self) {
        self.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Until both directions have ended, or one has and the other is slow to follow.
async fn relay(client: impl AsyncRead + AsyncWrite, host: impl AsyncRead + AsyncWrite) {
    let (client_reads, client_writes) = tokio::io::split(client);
    let (host_reads, host_writes) = tokio::io::split(host);
    let (up, down) = (pass(client_reads, host_writes), pass(host_reads, client_writes));
    let (mut up, mut down) = (std::pin::pin!(up), std::pin::pin!(down));
    let cut = tokio::select! {
        () = &mut up => tokio::time::timeout(HALF_CLOSED_TIMEOUT, down).await,
        () = &mut down => tokio::time::timeout(HALF_CLOSED_TIMEOUT, up).await,
    };
    if cut.is_err() {
        tracing::debug!("a stream that was closed on one side was cut");
    }
}

/// One direction, up to its end, which the other side is told of.
async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let ended = async {
        tokio::io::copy(&mut from, &mut to).await?;
        to.shutdown().await
    };
    if let Err(error) = ended.await {
        tracing::debug!(%error, "a stream ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};

    /// What one end may hold that its other end has not read.
    const BUFFER_BYTES: usize = 4 << 10;

    /// The outer ends of a relay: the client's and the host's.
    fn relayed() -> (DuplexStream, DuplexStream) {
        let ((client, inner_client), (host, inner_host)) = (duplex(BUFFER_BYTES), duplex(BUFFER_BYTES));
        tokio::spawn(relay(inner_client, inner_host));
        (client, host)
    }

    /// A client that does not read must not make this process hold what the host sends it.
    #[tokio::test]
    async fn a_slow_reader_holds_the_writer_back() {
        let (mut client, mut host) = relayed();
        let mut written = 0;
        while let Ok(wrote) = tokio::time::timeout(Duration::from_millis(300), host.write(&[7; 1024])).await {
            written += wrote.unwrap();
            assert!(written < 1 << 20, "everything is taken although nobody reads");
        }
        let mut read = vec![0; written];
        client.read_exact(&mut read).await.unwrap();
        assert!(read.iter().all(|b| *b == 7), "what was taken arrives");
    }

    #[tokio::test]
    async fn each_direction_ends_by_itself() {
        let (mut client, mut host) = relayed();
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let mut question = String::new();
        host.read_to_string(&mut question).await.unwrap();
        host.write_all(b"answer").await.unwrap();
        drop(host);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!((question.as_str(), answer.as_str()), ("question", "answer"));
    }

    #[test]
    fn streams_are_counted() {
        let relays = Relays::default();
        let permits: Vec<_> = (0..STREAMS_MAX).map(|_| relays.permit().unwrap()).collect();
        assert_eq!(relays.permit().unwrap_err().code, 429);
        drop(permits);
        assert!(relays.permit().is_ok());
    }
}
