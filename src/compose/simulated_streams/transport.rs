//! What SPDY runs over: the connection itself, or a WebSocket that carries its bytes.

use anyhow::Result;
use bytes::{Bytes, BytesMut};
use futures::{SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

pub type Socket = WebSocketStream<TokioIo<Upgraded>>;

const READ_BYTES: usize = 16 << 10;

pub enum Transport {
    Raw(Box<TokioIo<Upgraded>>),
    Tunnel(Box<Socket>),
}

impl Transport {
    /// The next bytes; `None` at the end.
    pub async fn read(&mut self) -> Result<Option<Bytes>> {
        match self {
            Self::Raw(stream) => {
                let mut buffer = BytesMut::with_capacity(READ_BYTES);
                let read = stream.read_buf(&mut buffer).await?;
                Ok((read > 0).then(|| buffer.freeze()))
            }
            Self::Tunnel(socket) => {
                while let Some(message) = socket.next().await {
                    match message? {
                        Message::Binary(bytes) => return Ok(Some(bytes)),
                        Message::Close(_) => break,
                        _ => {}
                    }
                }
                Ok(None)
            }
        }
    }

    pub async fn write(&mut self, bytes: Bytes) -> Result<()> {
        match self {
            Self::Raw(stream) => {
                stream.write_all(&bytes).await?;
                stream.flush().await?;
            }
            Self::Tunnel(socket) => socket.send(Message::Binary(bytes)).await?,
        }
        Ok(())
    }

    /// Says that nothing more will be written.
    pub async fn finish(&mut self) -> Result<()> {
        match self {
            Self::Raw(stream) => stream.shutdown().await?,
            Self::Tunnel(socket) => WebSocketStream::close(socket, None).await?,
        }
        Ok(())
    }
}
