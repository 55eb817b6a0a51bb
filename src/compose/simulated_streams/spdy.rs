//! SPDY/3.1 as Kubernetes' clients speak it: frames, and headers that are compressed with a dictionary. What it has
//! for browsers (priorities, settings, credentials, push) is passed over; its windows are too, as its Go
//! implementation does, so that the connection below is what holds a fast side back.

use super::transport::Transport;
use anyhow::{Context as _, Result, bail, ensure};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use std::collections::BTreeMap;

/// The largest frame that is read. Clients write up to 32 KiB at a time.
const FRAME_BYTES_MAX: usize = 1 << 20;
/// Headers of one stream, unpacked.
const HEADER_BYTES_MAX: usize = 32 << 10;

const VERSION: u16 = 3;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GO_AWAY: u16 = 7;
const FIN: u8 = 1;
const CONTROL: u32 = 1 << 31;

pub type StreamId = u32;

/// What the other side sends.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Opened {
        id: StreamId,
        headers: BTreeMap<String, String>,
        ended: bool,
    },
    Data {
        id: StreamId,
        data: Bytes,
        ended: bool,
    },
    Reset {
        id: StreamId,
    },
    Ping {
        id: u32,
    },
    GoAway,
    /// Of no concern here.
    Other,
}

/// One connection, as the server of it.
pub struct Spdy {
    transport: Transport,
    frames: Frames,
    deflate: Compress,
}

impl Spdy {
    pub fn new(transport: Transport) -> Result<Self> {
        let mut deflate = Compress::new(Compression::default(), true);
        deflate.set_dictionary(&dictionary()).context("zlib does not take the dictionary")?;
        Ok(Self { transport, frames: Frames::default(), deflate })
    }

    /// The next frame; `None` at the end. May be dropped while it waits: nothing is lost.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.frames.parse()? {
                return Ok(Some(event));
            }
            match self.transport.read().await? {
                Some(bytes) => self.frames.read.extend_from_slice(&bytes),
                None => return Ok(None),
            }
        }
    }

    /// Says yes to a stream.
    pub async fn reply(&mut self, id: StreamId) -> Result<()> {
        // No headers: a count of zero.
        let before = self.deflate.total_in();
        let mut packed = Vec::with_capacity(64);
        self.deflate.compress_vec(&0u32.to_be_bytes(), &mut packed, FlushCompress::Sync).context("headers cannot be packed")?;
        ensure!(self.deflate.total_in() - before == 4, "headers cannot be packed");
        let mut body = BytesMut::new();
        body.put_u32(id);
        body.extend_from_slice(&packed);
        self.frame(SYN_REPLY, 0, &body).await
    }

    pub async fn data(&mut self, id: StreamId, data: &[u8], ended: bool) -> Result<()> {
        let mut frame = BytesMut::with_capacity(8 + data.len());
        frame.put_u32(id);
        frame.put_u32(u32::from(if ended { FIN } else { 0 }) << 24 | u32::try_from(data.len())?);
        frame.extend_from_slice(data);
        self.transport.write(frame.freeze()).await
    }

    pub async fn pong(&mut self, id: u32) -> Result<()> {
        self.frame(PING, 0, &id.to_be_bytes()).await
    }

    /// Reads what still comes until the other side closes.
    pub async fn close(mut self) -> Result<()> {
        self.transport.finish().await?;
        while self.transport.read().await?.is_some() {}
        Ok(())
    }

    async fn frame(&mut self, kind: u16, flags: u8, body: &[u8]) -> Result<()> {
        let mut frame = BytesMut::with_capacity(8 + body.len());
        frame.put_u32(CONTROL | u32::from(VERSION) << 16 | u32::from(kind));
        frame.put_u32(u32::from(flags) << 24 | u32::try_from(body.len())?);
        frame.extend_from_slice(body);
        self.transport.write(frame.freeze()).await
    }
}

/// What was read, up to the frame that is not complete yet.
struct Frames {
    read: BytesMut,
    inflate: Decompress,
}

impl Default for Frames {
    fn default() -> Self {
        Self { read: BytesMut::new(), inflate: Decompress::new(true) }
    }
}

impl Frames {
    fn parse(&mut self) -> Result<Option<Event>> {
        let Some(mut head) = self.read.get(..8) else { return Ok(None) };
        let (first, second) = (head.get_u32(), head.get_u32());
        let (flags, length) = ((second >> 24) as u8, (second & 0x00ff_ffff) as usize);
        ensure!(length <= FRAME_BYTES_MAX, "a frame of {length} bytes");
        if self.read.len() < 8 + length {
            return Ok(None);
        }
        self.read.advance(8);
        let body = self.read.split_to(length).freeze();
        let ended = flags & FIN != 0;
        if first & CONTROL == 0 {
            return Ok(Some(Event::Data { id: first, data: body, ended }));
        }
        ensure!((first >> 16) as u16 & 0x7fff == VERSION, "another version of SPDY");
        self.control(first as u16, body, ended).map(Some)
    }

    fn control(&mut self, kind: u16, mut body: Bytes, ended: bool) -> Result<Event> {
        let number = |body: &mut Bytes| body.try_get_u32().context("a frame is too short");
        Ok(match kind {
            SYN_STREAM => {
                let id = number(&mut body)? & !CONTROL;
                ensure!(body.len() >= 6, "a frame is too short");
                body.advance(6);
                Event::Opened { id, headers: self.headers(&body)?, ended }
            }
            RST_STREAM => Event::Reset { id: number(&mut body)? & !CONTROL },
            PING => Event::Ping { id: number(&mut body)? },
            GO_AWAY => Event::GoAway,
            _ => Event::Other,
        })
    }

    fn headers(&mut self, packed: &[u8]) -> Result<BTreeMap<String, String>> {
        let mut block = Bytes::from(self.unpack(packed)?);
        let count = block.try_get_u32().context("headers end too early")?;
        let mut headers = BTreeMap::new();
        for _ in 0..count {
            let mut text = || {
                let length = block.try_get_u32().context("headers end too early")? as usize;
                ensure!(length <= block.len(), "headers end too early");
                anyhow::Ok(String::from_utf8_lossy(&block.split_to(length)).into_owned())
            };
            let (name, value) = (text()?, text()?);
            headers.insert(name, value);
        }
        Ok(headers)
    }

    fn unpack(&mut self, mut packed: &[u8]) -> Result<Vec<u8>> {
        let mut block = Vec::with_capacity(HEADER_BYTES_MAX);
        while !packed.is_empty() {
            let before = self.inflate.total_in();
            let status = self.inflate.decompress_vec(packed, &mut block, FlushDecompress::Sync);
            packed = &packed[usize::try_from(self.inflate.total_in() - before)?..];
            match status {
                Ok(Status::Ok) if !packed.is_empty() && block.len() < HEADER_BYTES_MAX => {}
                Ok(Status::Ok | Status::BufError) if packed.is_empty() => break,
                Ok(_) => bail!("headers are too long"),
                Err(error) if error.needs_dictionary().is_some() => {
                    self.inflate.set_dictionary(&dictionary()).context("headers are packed with another dictionary")?;
                }
                Err(error) => return Err(error).context("headers cannot be unpacked"),
            }
        }
        Ok(block)
    }
}

/// What headers are packed with, as the protocol has it: words with their lengths, and a text.
fn dictionary() -> Vec<u8> {
    const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
        accept-ranges age allow authorization cache-control connection content-base content-encoding content-language \
        content-length content-location content-md5 content-range content-type date etag expect expires from host \
        if-match if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
        proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
        user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie \
        keep-alive origin";
    const TEXT: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
        203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized\
        403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable\
        Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT\
        chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,\
        text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";
    let mut dictionary = Vec::new();
    for word in WORDS.split_whitespace() {
        let word = word.replace('_', " ");
        dictionary.put_u32(u32::try_from(word.len()).unwrap_or_default());
        dictionary.extend_from_slice(word.as_bytes());
    }
    dictionary.extend_from_slice(TEXT.as_bytes());
    dictionary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_the_protocols() {
        let dictionary = dictionary();
        // Its checksum is what clients name it by.
        let mut deflate = Compress::new(Compression::default(), true);
        assert_eq!((dictionary.len(), deflate.set_dictionary(&dictionary).unwrap()), (1423, 0xe3c6_a7c2));
    }

    /// A client's frames for two streams, whose headers share one compressor, and data.
    fn frames() -> Vec<u8> {
        let mut deflate = Compress::new(Compression::default(), true);
        deflate.set_dictionary(&dictionary()).unwrap();
        let mut out = BytesMut::new();
        for (id, kind) in [(1, "error"), (3, "data")] {
            let mut block = BytesMut::new();
            block.put_u32(2);
            for text in ["streamtype", kind, "port", "8080"] {
                block.put_u32(text.len() as u32);
                block.extend_from_slice(text.as_bytes());
            }
            let mut packed = Vec::with_capacity(1024);
            deflate.compress_vec(&block, &mut packed, FlushCompress::Sync).unwrap();
            out.put_u32(CONTROL | u32::from(VERSION) << 16 | u32::from(SYN_STREAM));
            out.put_u32(10 + packed.len() as u32);
            out.put_u32(id);
            out.put_bytes(0, 6);
            out.extend_from_slice(&packed);
        }
        out.put_u32(3);
        out.put_u32(u32::from(FIN) << 24 | 5);
        out.extend_from_slice(b"hello");
        out.to_vec()
    }

    fn read(bytes: &[u8], piece: usize) -> Result<Vec<Event>> {
        let (mut frames, mut events) = (Frames::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            frames.read.extend_from_slice(piece);
            while let Some(event) = frames.parse()? {
                events.push(event);
            }
        }
        Ok(events)
    }

    #[test]
    fn frames_are_read_however_they_arrive() {
        let opened = |id, kind: &str| {
            let headers = [("port", "8080"), ("streamtype", kind)].map(|(k, v)| (k.to_string(), v.to_string()));
            Event::Opened { id, headers: headers.into(), ended: false }
        };
        let expected = [opened(1, "error"), opened(3, "data"), Event::Data { id: 3, data: Bytes::from_static(b"hello"), ended: true }];
        for piece in [1, 3, 8, 1000] {
            assert_eq!(read(&frames(), piece).unwrap(), expected, "in pieces of {piece}");
        }
    }

    /// Whatever a client sends, it costs no more than the bounds say, and nothing breaks.
    #[test]
    fn wrong_frames_end_the_connection() {
        let whole = frames();
        for at in 0..whole.len() {
            let mut broken = whole.clone();
            broken[at] ^= 0x55;
            let _ = read(&broken, 1000);
        }
        assert!(read(&[0, 0, 0, 1, 0, 0xff, 0xff, 0xff], 8).is_err(), "a frame that is too long");
        assert!(read(&[0x80, 2, 0, 1, 0, 0, 0, 0], 8).is_err(), "another version");
        let mut strangers = sublet_fuzz::Mutator::new(1, &[&whole[..], &[0x80, 3, 0, 1, 0, 0, 0, 10], &[0, 0, 0, 1, 1, 0, 0, 0]]);
        for _ in 0..20_000 {
            let _ = read(&strangers.next_input(), 1000);
        }
        let mut deflate = Compress::new(Compression::best(), true);
        deflate.set_dictionary(&dictionary()).unwrap();
        let mut packed = Vec::with_capacity(1 << 20);
        deflate.compress_vec(&vec![0; 8 << 20], &mut packed, FlushCompress::Sync).unwrap();
        assert!(Frames::default().unpack(&packed).is_err(), "headers that unpack to megabytes");
    }
}
