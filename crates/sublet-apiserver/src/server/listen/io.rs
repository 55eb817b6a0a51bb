//! What stands between a connection and its socket, and between an answer and its connection.

use super::connections::{Connection, Request};
use crate::http::body::{Body, BoxError};
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use sublet_share::{Share, Spent};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop;

/// Bytes that count as one step of a task. A task has 128 steps until it lets others go on: without this, small frames fill a turn
/// with a hundred thousand of them.
const READ_UNIT_BYTES: usize = 1 << 10;

/// A socket that notes when its peer sends, and whether it takes what is written.
pub(super) struct Noted {
    pub socket: TcpStream,
    pub connection: Arc<Connection>,
}

impl Noted {
    fn note<T>(&self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.connection.wrote(written.is_pending());
        written
    }
}

impl AsyncRead for Noted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(cx, buf);
        let bytes = buf.filled().len() - before;
        if bytes > 0 {
            self.connection.read();
        }
        for _ in 0..bytes / READ_UNIT_BYTES {
            match coop::poll_proceed(cx) {
                Poll::Ready(step) => step.made_progress(),
                Poll::Pending => break,
            }
        }
        read
    }
}

impl AsyncWrite for Noted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.note(written)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// Bytes of an answer that are handed over at once. HTTP/2 takes all that it is given, whether the client has room or not.
const CHUNK_BYTES: usize = 64 << 10;

/// An answer's body, with what is held until it is sent.
pub(super) struct Held {
    body: Body,
    /// What is left of the part of the body that is being handed over.
    rest: Bytes,
    request: Request,
    _spent: Option<Arc<Spent>>,
}

impl Held {
    pub fn new(body: Body, request: Request, spent: Option<Arc<Spent>>) -> Self {
        Self { body, rest: Bytes::new(), request, _spent: spent }
    }
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if this.rest.is_empty() {
            match Pin::new(&mut this.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                other => {
                    this.request.handed_over(false);
                    return other;
                }
            }
        }
        let length = this.rest.len().min(CHUNK_BYTES);
        // Whoever does not ask for more has no room for this.
        this.request.handed_over(true);
        Poll::Ready(Some(Ok(Frame::data(this.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, mut hint) = (self.rest.len() as u64, self.body.size_hint());
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

/// Runs the streams of HTTP/2 in the turns of their tenant.
#[derive(Clone)]
pub(super) struct ShareExecutor(pub Share);

impl<F> hyper::rt::Executor<F> for ShareExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        tokio::spawn(self.0.run(task));
    }
}
