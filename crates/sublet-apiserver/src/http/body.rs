//! Request and response bodies.

use bytes::Bytes;
use futures::Stream;
use futures::stream::BoxStream;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use std::pin::Pin;
use std::task::{Context, Poll};
use sublet_machinery::ApiError;

/// The largest request body, as upstream's default.
pub const BODY_BYTES_MAX: usize = 3 << 20;

/// How much of a body that is too large is read and dropped.
const DROPPED_BYTES_MAX: usize = 32 << 20;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A request body that is passed on as it comes.
pub type RequestBody = UnsyncBoxBody<Bytes, BoxError>;

/// A response body: all at once, or a stream for as long as the client listens.
pub enum Body {
    Full(Option<Bytes>),
    Stream(BoxStream<'static, Result<Bytes, BoxError>>),
}

impl Body {
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::Full(if bytes.is_empty() { None } else { Some(bytes) })
    }

    pub fn empty() -> Self {
        Self::Full(None)
    }

    /// The same body, which keeps something until it ends.
    pub(crate) fn holding(self, kept: impl Send + Unpin + 'static) -> Self {
        match self {
            Self::Stream(stream) => Self::stream(Holding { stream, _kept: kept }),
            full => full,
        }
    }

    pub fn stream(stream: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static) -> Self {
        Self::Stream(Box::pin(stream))
    }
}

struct Holding<K> {
    stream: BoxStream<'static, Result<Bytes, BoxError>>,
    _kept: K,
}

impl<K: Unpin> Stream for Holding<K> {
    type Item = Result<Bytes, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.stream.as_mut().poll_next(cx)
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Bodies stay out of logs.
        match self {
            Self::Full(bytes) => write!(f, "Full({} bytes)", bytes.as_ref().map_or(0, Bytes::len)),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Self::Stream(stream) => stream.as_mut().poll_next(cx).map(|item| item.map(|r| r.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// Reads a request body up to the limit. Of a larger one the rest is read too and dropped, up to a second limit: a client
/// that is cut off while it sends does not see the answer. `count` is told of each part that is kept, and may refuse.
pub async fn read<B>(body: B, mut count: impl FnMut(usize) -> Result<(), ApiError>) -> Result<Bytes, ApiError>
where
    B: HttpBody<Data = Bytes> + Send,
    B::Error: Into<BoxError>,
{
    let mut body = std::pin::pin!(body);
    let (mut chunks, mut length): (Vec<Bytes>, usize) = (Vec::new(), 0);
    while length < DROPPED_BYTES_MAX
        && let Some(frame) = body.frame().await
    {
        let frame = frame.map_err(|e| ApiError::bad_request(format!("the request body could not be read: {}", e.into())))?;
        let Ok(chunk) = frame.into_data() else { continue };
        length = length.saturating_add(chunk.len());
        if length <= BODY_BYTES_MAX {
            count(chunk.len())?;
            chunks.push(chunk);
        } else {
            chunks.clear();
        }
    }
    if length > BODY_BYTES_MAX {
        return Err(ApiError::too_large(format!("Request entity too large: limit is {BODY_BYTES_MAX}")));
    }
    Ok(if chunks.len() == 1 { chunks.remove(0) } else { chunks.concat().into() })
}
