//! The streams of a command: standard input and output, and the one that says how it ended. Over a WebSocket they are
//! channels of its messages, over SPDY streams of their own.

use super::spdy::{Event, Spdy, StreamId};
use super::transport::Socket;
use anyhow::{Result, bail};
use futures::{SinkExt, StreamExt};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

/// How long a client may take to close when all was said.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The first byte of a WebSocket message that closes a channel, since version 5 of the protocol.
const CLOSE: u8 = 255;

/// The number is the channel's over WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Channel {
    Stdin = 0,
    Stdout = 1,
    Stderr = 2,
    Error = 3,
    Resize = 4,
}

impl Channel {
    /// By the header `streamtype` of SPDY.
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "stdin" => Self::Stdin,
            "stdout" => Self::Stdout,
            "stderr" => Self::Stderr,
            "error" => Self::Error,
            "resize" => Self::Resize,
            _ => return None,
        })
    }
}

pub enum Channels {
    WebSocket(Box<Socket>),
    Spdy(Box<SpdyChannels>),
}

pub struct SpdyChannels {
    spdy: Spdy,
    open: BTreeMap<Channel, StreamId>,
    input_ended: bool,
}

impl SpdyChannels {
    /// Waits until the client has opened what it asked for.
    pub async fn accept(mut spdy: Spdy, wanted: &[Channel]) -> Result<Self> {
        let mut open = BTreeMap::new();
        let mut input_ended = false;
        while !wanted.iter().all(|channel| open.contains_key(channel)) {
            match spdy.next().await? {
                Some(Event::Opened { id, headers, ended }) => {
                    let name = headers.get("streamtype").map(String::as_str).unwrap_or_default();
                    let Some(channel) = Channel::named(name) else { bail!("a stream of the unknown type {name:?}") };
                    open.insert(channel, id);
                    input_ended |= ended && channel == Channel::Stdin;
                    spdy.reply(id).await?;
                }
                Some(Event::Ping { id }) => spdy.pong(id).await?,
                Some(Event::GoAway) | None => bail!("the client went away"),
                Some(_) => {}
            }
        }
        Ok(Self { spdy, open, input_ended })
    }

    async fn input(&mut self) -> Result<Option<String>> {
        let Some(stdin) = self.open.get(&Channel::Stdin).copied() else { return Ok(None) };
        while !self.input_ended {
            match self.spdy.next().await? {
                Some(Event::Data { id, data, ended }) if id == stdin => {
                    self.input_ended = ended;
                    if !data.is_empty() {
                        return Ok(Some(String::from_utf8_lossy(&data).into_owned()));
                    }
                }
                Some(Event::Reset { id }) if id == stdin => break,
                Some(Event::Ping { id }) => self.spdy.pong(id).await?,
                Some(Event::GoAway) | None => break,
                Some(_) => {}
            }
        }
        self.input_ended = true;
        Ok(None)
    }

    async fn finish(mut self, status: &str) -> Result<()> {
        for (channel, id) in &self.open {
            let last = if *channel == Channel::Error { status } else { "" };
            self.spdy.data(*id, last.as_bytes(), true).await?;
        }
        self.spdy.close().await
    }
}

impl Channels {
    pub async fn send(&mut self, channel: Channel, text: &str) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        match self {
            Self::WebSocket(socket) => {
                let mut message = Vec::with_capacity(text.len() + 1);
                message.push(channel as u8);
                message.extend_from_slice(text.as_bytes());
                socket.send(Message::Binary(message.into())).await?;
            }
            Self::Spdy(channels) => {
                if let Some(id) = channels.open.get(&channel) {
                    channels.spdy.data(*id, text.as_bytes(), false).await?;
                }
            }
        }
        Ok(())
    }

    /// The next piece of standard input; `None` at its end.
    pub async fn input(&mut self) -> Result<Option<String>> {
        let socket = match self {
            Self::WebSocket(socket) => socket,
            Self::Spdy(channels) => return channels.input().await,
        };
        while let Some(message) = socket.next().await {
            match message? {
                Message::Binary(bytes) => match bytes.split_first() {
                    Some((channel, text)) if *channel == Channel::Stdin as u8 => {
                        return Ok(Some(String::from_utf8_lossy(text).into_owned()));
                    }
                    Some((&CLOSE, [channel])) if *channel == Channel::Stdin as u8 => return Ok(None),
                    _ => {}
                },
                Message::Close(_) => return Ok(None),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Says how the command ended, and waits for the client to close.
    pub async fn finish(self, status: &str) -> Result<()> {
        let closed = async {
            match self {
                Self::WebSocket(mut socket) => {
                    let mut message = vec![Channel::Error as u8];
                    message.extend_from_slice(status.as_bytes());
                    socket.send(Message::Binary(message.into())).await?;
                    // Clients take anything but a normal closure for a broken stream.
                    WebSocketStream::close(&mut socket, Some(CloseFrame { code: CloseCode::Normal, reason: "".into() })).await?;
                    while socket.next().await.is_some_and(|m| m.is_ok()) {}
                    Ok(())
                }
                Self::Spdy(channels) => channels.finish(status).await,
            }
        };
        tokio::time::timeout(CLOSE_TIMEOUT, closed).await.unwrap_or(Ok(()))
    }
}
