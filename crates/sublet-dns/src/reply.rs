//! Requests and replies on the wire.

use crate::answer::{Answer, Code};
use crate::question::Question;
use hickory_proto::ProtoError;
use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode, emit_message_parts};
use hickory_proto::rr::{DNSClass, Record, RecordType};
use hickory_proto::serialize::binary::BinEncoder;

const HEADER_BYTES: usize = 12;
/// What a client without EDNS takes by UDP.
const UDP_BYTES_PLAIN: u16 = 512;
/// What fits in one packet on every path; more is asked again by TCP.
pub const UDP_BYTES_MAX: u16 = 1232;
/// An OPT record without options.
const OPT_BYTES: u16 = 11;

/// A question as it came in.
#[derive(Debug)]
pub struct Request {
    pub question: Question,
    metadata: Metadata,
    query: Query,
    /// The client's payload size, when it speaks EDNS.
    payload: Option<u16>,
    /// Signatures are wanted.
    pub dnssec_ok: bool,
}

/// What is sent back, apart from what depends on the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub code: ResponseCode,
    pub is_authoritative: bool,
    pub answers: Vec<Record>,
    pub authorities: Vec<Record>,
    pub additionals: Vec<Record>,
}

/// Why a packet is no question.
#[derive(Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Too short, or itself a reply: never answered, so that two servers do not talk to each other.
    Ignored,
    Refused(Vec<u8>),
}

impl Request {
    pub fn read(packet: &[u8]) -> Result<Self, Unreadable> {
        let Some(header) = packet.get(..HEADER_BYTES) else { return Err(Unreadable::Ignored) };
        if header[2] & 0x80 != 0 {
            return Err(Unreadable::Ignored);
        }
        let refuse = |code: ResponseCode| Unreadable::Refused(bare(header, code));
        if header[2] & 0x78 != 0 {
            return Err(refuse(ResponseCode::NotImp));
        }
        // Before decoding: counts are only claims.
        if header[4..6] != [0, 1] {
            return Err(refuse(ResponseCode::FormErr));
        }
        let message = Message::from_vec(packet).map_err(|_| refuse(ResponseCode::FormErr))?;
        let Some(query) = message.queries.first().cloned() else { return Err(refuse(ResponseCode::FormErr)) };
        let is_transfer = matches!(query.query_type(), RecordType::AXFR | RecordType::IXFR);
        if query.query_class() != DNSClass::IN || is_transfer {
            return Err(refuse(ResponseCode::Refused));
        }
        let edns = message.edns.as_ref();
        let request = Self {
            question: Question::new(query.name().clone(), query.query_type()),
            metadata: message.metadata,
            query,
            payload: edns.map(Edns::max_payload),
            dnssec_ok: edns.is_some_and(|e| e.flags().dnssec_ok),
        };
        if edns.is_some_and(|e| e.version() > 0) {
            let reply = request.encode(&Reply::failure(ResponseCode::BADVERS), UDP_BYTES_PLAIN.into(), 0);
            return Err(reply.map_or(Unreadable::Ignored, Unreadable::Refused));
        }
        Ok(request)
    }

    pub fn checking_disabled(&self) -> bool {
        self.metadata.checking_disabled
    }

    /// What the client takes by UDP.
    pub fn udp_bytes(&self) -> usize {
        self.payload.map_or(UDP_BYTES_PLAIN, |p| p.clamp(UDP_BYTES_PLAIN, UDP_BYTES_MAX)).into()
    }

    /// The reply in at most `bytes_max`, truncated if it must be. Addresses begin with the one after
    /// `turn`, so that clients that take the first are spread.
    pub fn encode(&self, reply: &Reply, bytes_max: usize, turn: usize) -> Result<Vec<u8>, ProtoError> {
        let full = self.emit(reply, bytes_max, turn, true)?;
        // Additional records are a courtesy: leaving them out is no truncation.
        if is_truncated(&full) && !reply.additionals.is_empty() { self.emit(reply, bytes_max, turn, false) } else { Ok(full) }
    }

    fn emit(&self, reply: &Reply, bytes_max: usize, turn: usize, with_additionals: bool) -> Result<Vec<u8>, ProtoError> {
        let mut metadata = Metadata::response_from_request(&self.metadata);
        metadata.authoritative = reply.is_authoritative;
        metadata.recursion_available = true;
        metadata.response_code = reply.code;
        let bytes_max = u16::try_from(bytes_max).unwrap_or(u16::MAX);
        let mut buffer = Vec::with_capacity(UDP_BYTES_PLAIN.into());
        let mut encoder = BinEncoder::new(&mut buffer);
        encoder.set_max_size(bytes_max - if self.payload.is_some() { OPT_BYTES } else { 0 });
        let skip = if reply.rotates() { turn % reply.answers.len() } else { 0 };
        let additionals: &[Record] = if with_additionals { &reply.additionals } else { &[] };
        emit_message_parts(
            &metadata,
            &mut std::iter::once(&self.query),
            &mut reply.answers.iter().cycle().skip(skip).take(reply.answers.len()),
            &mut reply.authorities.iter(),
            &mut additionals.iter(),
            None,
            None,
            &mut encoder,
        )?;
        // What is left of a record that did not fit.
        encoder.trim();
        if self.payload.is_some() {
            append_opt(&mut buffer, reply.code, self.dnssec_ok);
        }
        Ok(buffer)
    }
}

impl Reply {
    pub fn failure(code: ResponseCode) -> Self {
        Self { code, is_authoritative: false, answers: Vec::new(), authorities: Vec::new(), additionals: Vec::new() }
    }

    /// An answer about the cluster; `authority` stands for what is not there.
    pub fn cluster(answer: Answer, authority: impl FnOnce() -> Record) -> Self {
        let code = match answer.code {
            Code::Exists => ResponseCode::NoError,
            Code::NoName => ResponseCode::NXDomain,
        };
        let authorities = if answer.records.is_empty() { vec![authority()] } else { Vec::new() };
        Self { code, is_authoritative: true, answers: answer.records, authorities, additionals: answer.additional }
    }

    /// What another server said; nothing of it lives longer than `ttl_max_s`.
    pub fn forwarded(message: Message, ttl_max_s: u32) -> Self {
        let mut reply = Self {
            code: message.metadata.response_code,
            is_authoritative: false,
            answers: message.answers,
            authorities: message.authorities,
            additionals: message.additionals,
        };
        for record in reply.all_mut() {
            record.ttl = record.ttl.min(ttl_max_s);
        }
        reply
    }

    pub fn len(&self) -> usize {
        self.answers.len() + self.authorities.len() + self.additionals.len()
    }

    /// How long all of it holds; nothing for failures and for what says nothing of its time.
    pub fn lifetime_s(&self) -> u32 {
        if !matches!(self.code, ResponseCode::NoError | ResponseCode::NXDomain) {
            return 0;
        }
        self.answers.iter().chain(&self.authorities).chain(&self.additionals).map(|r| r.ttl).min().unwrap_or(0)
    }

    /// The same, `seconds` later.
    pub fn aged(&self, seconds: u32) -> Self {
        let mut aged = self.clone();
        for record in aged.all_mut() {
            record.ttl = record.ttl.saturating_sub(seconds);
        }
        aged
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Record> {
        self.answers.iter_mut().chain(&mut self.authorities).chain(&mut self.additionals)
    }

    /// The order of an alias and its target means something, that of addresses does not.
    fn rotates(&self) -> bool {
        let is_address = |r: &Record| matches!(r.record_type(), RecordType::A | RecordType::AAAA);
        self.is_authoritative && self.answers.len() > 1 && self.answers.iter().all(is_address)
    }
}

fn is_truncated(packet: &[u8]) -> bool {
    packet.get(2).is_some_and(|b| b & 0x02 != 0)
}

/// A header that refuses, for packets that are not understood.
fn bare(header: &[u8], code: ResponseCode) -> Vec<u8> {
    let mut reply = vec![0; HEADER_BYTES];
    reply[..2].copy_from_slice(&header[..2]);
    reply[2] = 0x80 | (header[2] & 0x79);
    reply[3] = code.low();
    reply
}

/// Room was left for it: a truncated reply must have it as well.
fn append_opt(packet: &mut Vec<u8>, code: ResponseCode, dnssec_ok: bool) {
    let [size_high, size_low] = UDP_BYTES_MAX.to_be_bytes();
    packet.extend([0, 0, 41, size_high, size_low, code.high(), 0, if dnssec_ok { 0x80 } else { 0 }, 0, 0, 0]);
    let count = u16::from_be_bytes([packet[10], packet[11]]) + 1;
    packet[10..12].copy_from_slice(&count.to_be_bytes());
}

/// The question that goes to another server.
pub fn query_for(question: &Question, dnssec_ok: bool, checking_disabled: bool, id: u16) -> Message {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.metadata.checking_disabled = checking_disabled;
    message.add_query(Query::query(question.name.clone(), question.kind));
    let mut edns = Edns::new();
    edns.set_max_payload(UDP_BYTES_MAX).set_version(0).set_dnssec_ok(dnssec_ok);
    message.set_edns(edns);
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::rr::rdata::A;
    use hickory_proto::rr::{Name, RData};
    use proptest::prelude::*;

    fn packet(name: &str, kind: RecordType, payload: Option<u16>) -> Vec<u8> {
        let mut message = query_for(&Question::new(Name::from_ascii(name).unwrap(), kind), false, false, 7);
        match payload {
            Some(payload) => _ = message.edns.as_mut().unwrap().set_max_payload(payload),
            None => message.edns = None,
        }
        message.to_vec().unwrap()
    }

    fn many(count: u8) -> Reply {
        let owner = Name::from_ascii("web.prod.svc.cluster.local.").unwrap();
        let answers = (0..count).map(|n| Record::from_rdata(owner.clone(), 5, RData::A(A::new(10, 0, 0, n)))).collect();
        Reply { is_authoritative: true, answers, ..Reply::failure(ResponseCode::NoError) }
    }

    #[test]
    fn replies_fit_what_the_client_takes() {
        for (payload, expected) in [(None, 512), (Some(100), 512), (Some(900), 900), (Some(4096), 1232)] {
            let request = Request::read(&packet("web.prod.svc.cluster.local.", RecordType::A, payload)).unwrap();
            assert_eq!(request.udp_bytes(), expected);
            let sent = request.encode(&many(200), request.udp_bytes(), 0).unwrap();
            let read = Message::from_vec(&sent).unwrap();
            assert!(sent.len() <= expected && read.metadata.truncation && !read.answers.is_empty());
            assert_eq!(read.edns.is_some(), payload.is_some());
            let whole = Message::from_vec(&request.encode(&many(200), usize::from(u16::MAX), 0).unwrap()).unwrap();
            assert!(!whole.metadata.truncation && whole.answers.len() == 200);
        }
    }

    #[test]
    fn additional_records_are_left_out_rather_than_truncated() {
        let request = Request::read(&packet("web.prod.svc.cluster.local.", RecordType::SRV, None)).unwrap();
        let reply = Reply { additionals: many(200).answers, ..many(3) };
        let read = Message::from_vec(&request.encode(&reply, 512, 0).unwrap()).unwrap();
        assert!(!read.metadata.truncation && read.answers.len() == 3 && read.additionals.is_empty());
    }

    #[test]
    fn the_first_address_takes_turns() {
        let request = Request::read(&packet("web.prod.svc.cluster.local.", RecordType::A, None)).unwrap();
        let first = |turn| Message::from_vec(&request.encode(&many(3), 512, turn).unwrap()).unwrap().answers[0].data.clone();
        assert_eq!([first(0), first(1), first(5)], [0, 1, 2].map(|n| RData::A(A::new(10, 0, 0, n))));
    }

    #[test]
    fn what_is_no_question_is_refused() {
        let code = |packet: &[u8]| match Request::read(packet) {
            Err(Unreadable::Refused(reply)) => Some(u16::from(Message::from_vec(&reply).unwrap().metadata.response_code)),
            _ => None,
        };
        let good = packet("a.example.", RecordType::A, None);
        let changed = |at: usize, value: u8| {
            let mut packet = good.clone();
            packet[at] = value;
            packet
        };
        assert_eq!(code(&changed(2, 0x28)), Some(ResponseCode::NotImp.into()));
        assert_eq!(code(&changed(5, 2)), Some(ResponseCode::FormErr.into()));
        assert_eq!(code(&good[..good.len() - 1]), Some(ResponseCode::FormErr.into()));
        assert_eq!(code(&changed(good.len() - 1, 3)), Some(ResponseCode::Refused.into()));
        assert_eq!(code(&packet("a.example.", RecordType::AXFR, None)), Some(ResponseCode::Refused.into()));
        assert_eq!(Request::read(&changed(2, 0x80)).unwrap_err(), Unreadable::Ignored);
        assert_eq!(Request::read(&good[..5]).unwrap_err(), Unreadable::Ignored);
        let mut newer = query_for(&Question::new(Name::root(), RecordType::A), false, false, 1);
        newer.edns.as_mut().unwrap().set_version(1);
        assert_eq!(code(&newer.to_vec().unwrap()), Some(16));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 0usize..40) {
            let _ = Request::read(&bytes);
            let mut like = packet("web.prod.svc.cluster.local.", RecordType::A, Some(1232));
            like.truncate(like.len().saturating_sub(cut));
            like.extend(bytes);
            let _ = Request::read(&like);
        }
    }
}
