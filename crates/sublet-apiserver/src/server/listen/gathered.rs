//! Writes of a connection go out together: HTTP/2 asks for a flush after each frame, which would be a record of TLS and a call
//! of the kernel for each of a hundred streams.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are gathered at most.
const GATHERED_BYTES_MAX: usize = 64 << 10;
/// Memory that is kept for the next ones.
const KEPT_BYTES_MAX: usize = 4 << 10;

/// A stream whose written bytes wait until its connection was looked at. Its clones are the same stream.
pub(super) struct Gathered<S>(Arc<Mutex<Inner<S>>>);

struct Inner<S> {
    stream: S,
    waiting: Vec<u8>,
    /// How much of it is written.
    written: usize,
    /// Whether all that was written has left the stream too: TLS keeps some of it while its socket takes nothing.
    is_flushed: bool,
    /// Whether somebody writes out what waits; without, a flush does.
    is_driven: bool,
}

impl<S> Clone for Gathered<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S> Gathered<S> {
    pub fn new(stream: S) -> Self {
        Self(Arc::new(Mutex::new(Inner { stream, waiting: Vec::new(), written: 0, is_flushed: true, is_driven: false })))
    }

    /// Held for steps that never wait.
    fn inner(&self) -> MutexGuard<'_, Inner<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Gathered<S> {
    /// Runs the connection, and writes out what it wrote each time it was looked at. When there are `others` who may have more for
    /// it they come first, once.
    pub async fn drive<T, E: From<io::Error>>(
        &self,
        connection: impl Future<Output = Result<T, E>>,
        others: impl Fn() -> bool,
    ) -> Result<T, E> {
        let mut connection = std::pin::pin!(connection);
        let _driven = Driven::begin(self);
        let mut has_waited = false;
        std::future::poll_fn(|cx| {
            let polled = connection.as_mut().poll(cx);
            let mut inner = self.inner();
            if inner.is_flushed {
                return polled;
            }
            if polled.is_pending() && !has_waited && inner.left() < GATHERED_BYTES_MAX / 2 && others() {
                has_waited = true;
                cx.waker().wake_by_ref();
                return polled;
            }
            has_waited = false;
            match inner.poll_write_out(cx) {
                Poll::Ready(Err(error)) if polled.is_pending() => Poll::Ready(Err(error.into())),
                _ => polled,
            }
        })
        .await
    }
}

/// While it lives, flushes are left to the driver.
struct Driven<'a, S>(&'a Gathered<S>);

impl<'a, S> Driven<'a, S> {
    fn begin(stream: &'a Gathered<S>) -> Self {
        stream.inner().is_driven = true;
        Self(stream)
    }
}

impl<S> Drop for Driven<'_, S> {
    fn drop(&mut self) {
        self.0.inner().is_driven = false;
    }
}

impl<S> Inner<S> {
    fn left(&self) -> usize {
        self.waiting.len() - self.written
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Inner<S> {
    fn poll_write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.left() > 0 {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.waiting[self.written..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        self.written = 0;
        self.waiting.clear();
        self.waiting.shrink_to(KEPT_BYTES_MAX);
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.is_flushed = true;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Gathered<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.inner();
        // The peer answers only what has reached it.
        if !inner.is_driven && !inner.is_flushed {
            let _ = inner.poll_write_out(cx)?;
        }
        Pin::new(&mut inner.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Gathered<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut inner = self.inner();
        let length: usize = bufs.iter().map(|buf| buf.len()).sum();
        let has_no_room = inner.left() + length > GATHERED_BYTES_MAX;
        if has_no_room {
            ready!(inner.poll_write_out(cx))?;
        }
        inner.is_flushed = false;
        if has_no_room && length > GATHERED_BYTES_MAX / 2 {
            return Pin::new(&mut inner.stream).poll_write_vectored(cx, bufs);
        }
        bufs.iter().for_each(|buf| inner.waiting.extend_from_slice(buf));
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.inner();
        if inner.is_driven { Poll::Ready(Ok(())) } else { inner.poll_write_out(cx) }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.inner();
        ready!(inner.poll_write_out(cx))?;
        Pin::new(&mut inner.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A connection that writes three times, flushes each time, and reads an answer.
    async fn three_and_an_answer(mut stream: Gathered<tokio::io::DuplexStream>) -> io::Result<u8> {
        for part in [b"one", b"two", b"six"] {
            stream.write_all(part).await?;
            stream.flush().await?;
        }
        stream.read_u8().await
    }

    #[tokio::test]
    async fn what_is_written_in_one_look_goes_out_after_it() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        let stream = Gathered::new(ours);
        let driving = stream.drive(three_and_an_answer(stream.clone()), || false);
        let peer = async {
            let mut got = [0; 64];
            let read = theirs.read(&mut got).await.unwrap();
            theirs.write_u8(7).await.unwrap();
            String::from_utf8_lossy(&got[..read]).into_owned()
        };
        let (answer, seen) = tokio::join!(driving, peer);
        assert_eq!((answer.unwrap(), seen.as_str()), (7, "onetwosix"));
    }

    #[tokio::test]
    async fn others_come_first_once() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        let stream = Gathered::new(ours);
        let asked = std::cell::Cell::new(0);
        let driving = stream.drive(three_and_an_answer(stream.clone()), || {
            asked.set(asked.get() + 1);
            true
        });
        let peer = async {
            let mut got = [0; 9];
            theirs.read_exact(&mut got).await.unwrap();
            theirs.write_u8(7).await.unwrap();
        };
        let (answer, ()) = tokio::join!(driving, peer);
        assert_eq!((answer.unwrap(), asked.get()), (7, 1));
    }

    /// A peer that takes little at a time gets all of it, in order, and what was written last before the connection was handed on.
    #[tokio::test]
    async fn nothing_is_lost_when_the_driver_ends() {
        let (ours, mut theirs) = tokio::io::duplex(1000);
        let stream = Gathered::new(ours);
        let sent: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
        let writes = async {
            let mut stream = stream.clone();
            for part in sent[..190_000].chunks(777) {
                stream.write_all(part).await?;
                stream.flush().await?;
            }
            io::Result::Ok(())
        };
        let ours = async {
            stream.drive(writes, || false).await.unwrap();
            let mut stream = stream.clone();
            stream.write_all(&sent[190_000..]).await.unwrap();
            stream.read_u8().await.unwrap()
        };
        let peer = async {
            let mut got = vec![0; sent.len()];
            theirs.read_exact(&mut got).await.unwrap();
            theirs.write_u8(9).await.unwrap();
            got
        };
        let (answer, got) = tokio::join!(ours, peer);
        assert!(got == sent);
        assert_eq!(answer, 9);
    }

    /// A stream that takes what is written and keeps it until it is flushed, which it is not at once.
    struct Keeping {
        stream: tokio::io::DuplexStream,
        kept: Vec<u8>,
        is_late: bool,
    }

    impl AsyncRead for Keeping {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for Keeping {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            self.kept.extend_from_slice(buf);
            Poll::Ready(Ok(buf.len()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            if std::mem::take(&mut self.is_late) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let kept = std::mem::take(&mut self.kept);
            assert_eq!(ready!(Pin::new(&mut self.stream).poll_write(cx, &kept))?, kept.len());
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_shutdown(cx)
        }
    }

    #[tokio::test]
    async fn what_the_stream_keeps_is_flushed_when_it_can_be() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        let stream = Gathered::new(Keeping { stream: ours, kept: Vec::new(), is_late: true });
        let mut of_connection = stream.clone();
        let connection = async {
            of_connection.write_all(b"answer").await?;
            of_connection.read_u8().await
        };
        let driving = stream.drive(connection, || false);
        let peer = async {
            let mut got = [0; 6];
            theirs.read_exact(&mut got).await.unwrap();
            theirs.write_u8(7).await.unwrap();
        };
        let both = async { tokio::join!(driving, peer).0.unwrap() };
        assert_eq!(tokio::time::timeout(std::time::Duration::from_secs(20), both).await, Ok(7), "it is flushed at all");
    }

    #[tokio::test]
    async fn a_broken_stream_ends_the_connection() {
        let (ours, theirs) = tokio::io::duplex(64);
        drop(theirs);
        let stream = Gathered::new(ours);
        let mut of_connection = stream.clone();
        let connection = async {
            of_connection.write_all(b"x").await?;
            std::future::pending::<io::Result<()>>().await
        };
        let error = stream.drive(connection, || false).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
