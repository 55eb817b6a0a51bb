//! What the journal's bytes mean: frames, each one group of writes of several stores, written at once.
//!
//! A frame counts when its checksum holds, and when it has the generation and the next number of the frame
//! before it: what is left behind it of an earlier use of the same file has others.

use crate::backend::Event;
use bytes::Bytes;
use twox_hash::XxHash64;

/// Checksum of the rest (u64), length of the payload (u32), generation (u64), number (u64), all little endian.
const HEADER_BYTES: usize = 28;
const LENGTH_AT: usize = 8;
const GENERATION_AT: usize = 12;
const NUMBER_AT: usize = 20;

const TAG_STORE: u8 = 1;
const TAG_PUT: u8 = 2;
const TAG_DELETE: u8 = 3;

/// A part of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// From here on the session is that of the store with this name. Comes before its first write in a file.
    Store {
        session: u64,
        name: String,
    },
    Write {
        session: u64,
        event: WriteRecord,
    },
}

/// An [`Event`] as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WriteRecord {
    pub revision: u64,
    pub key: String,
    pub value: Option<Bytes>,
}

impl WriteRecord {
    pub fn into_event(self) -> Event {
        Event { revision: self.revision, key: self.key.into(), value: self.value }
    }
}

/// A frame in the making.
#[derive(Default)]
pub(super) struct FrameWriter {
    bytes: Vec<u8>,
}

impl FrameWriter {
    /// Begins a frame; the memory of the last one is used again.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(HEADER_BYTES, 0);
    }

    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    pub fn store(&mut self, session: u64, name: &str) {
        self.bytes.push(TAG_STORE);
        self.number(session);
        self.text(name.as_bytes());
    }

    pub fn write(&mut self, session: u64, event: &Event) {
        self.bytes.push(if event.value.is_some() { TAG_PUT } else { TAG_DELETE });
        self.number(session);
        self.number(event.revision);
        self.text(event.key.as_bytes());
        if let Some(value) = &event.value {
            self.text(value);
        }
    }

    /// The finished frame.
    pub fn finish(&mut self, generation: u64, number: u64) -> &[u8] {
        let length = u32::try_from(self.bytes.len() - HEADER_BYTES).expect("groups are bounded");
        self.bytes[LENGTH_AT..GENERATION_AT].copy_from_slice(&length.to_le_bytes());
        self.bytes[GENERATION_AT..NUMBER_AT].copy_from_slice(&generation.to_le_bytes());
        self.bytes[NUMBER_AT..HEADER_BYTES].copy_from_slice(&number.to_le_bytes());
        let sum = checksum(&self.bytes[LENGTH_AT..]);
        self.bytes[..LENGTH_AT].copy_from_slice(&sum.to_le_bytes());
        &self.bytes
    }

    fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        let length = u32::try_from(text.len()).expect("keys and values are bounded");
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(text);
    }
}

/// A frame that was read.
#[derive(Debug)]
struct Frame<'a> {
    generation: u64,
    number: u64,
    payload: &'a [u8],
}

/// The frame at the beginning of `bytes`, if there is a whole one.
fn parse(bytes: &[u8]) -> Option<Frame<'_>> {
    let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
    let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    let length = u32::from_le_bytes(header[LENGTH_AT..GENERATION_AT].try_into().expect("four bytes")) as usize;
    let payload = rest.get(..length)?;
    // An empty payload is no frame: a file of zeros must not be one.
    if payload.is_empty() || checksum(&bytes[LENGTH_AT..HEADER_BYTES + length]) != number(0) {
        return None;
    }
    Some(Frame { generation: number(GENERATION_AT), number: number(NUMBER_AT), payload })
}

/// The records of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// Generation and number of its last frame.
    last: Option<(u64, u64)>,
    pub records: Vec<Record>,
}

/// A frame is missing between others: not torn by a loss of power, but damaged.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Damaged;

/// No journal has as many frames: what says so is no frame.
const NUMBER_MAX: u64 = 1 << 48;

/// Reads both files of a journal, in the order in which they were written.
pub(super) fn read_both(files: [&[u8]; 2]) -> Result<[Contents; 2], Damaged> {
    let [one, two] = [read(files[0])?, read(files[1])?];
    for (contents, other, bytes) in [(&one, &two, files[0]), (&two, &one, files[1])] {
        // A file begins anew at its beginning. Torn there, it has frames of an earlier round behind it at most.
        if contents.last.is_none() && has_frame_after(bytes, other.last) {
            return Err(Damaged);
        }
    }
    Ok(if one.last <= two.last { [one, two] } else { [two, one] })
}

/// Reads a file up to its last whole frame.
pub(super) fn read(bytes: &[u8]) -> Result<Contents, Damaged> {
    let Some(first) = parse(bytes) else { return Ok(Contents::default()) };
    let (generation, mut next, mut at) = (first.generation, first.number, 0);
    let mut contents = Contents::default();
    while let Some(frame) = parse(&bytes[at..]).filter(|f| f.generation == generation && f.number == next) {
        records(frame.payload, &mut contents.records).ok_or(Damaged)?;
        at += HEADER_BYTES + frame.payload.len();
        contents.last = Some((generation, next));
        next += 1;
    }
    // A frame is written when the one before it is on disk, so behind a torn one there is none.
    if has_frame_after(&bytes[at..], contents.last) { Err(Damaged) } else { Ok(contents) }
}

/// Whether there is a whole frame anywhere that was written after the last one known; any at all when none is.
fn has_frame_after(bytes: &[u8], last: Option<(u64, u64)>) -> bool {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    (0..bytes.len().saturating_sub(HEADER_BYTES))
        .filter(|at| {
            let found = (number(at + GENERATION_AT), number(at + NUMBER_AT));
            let later = last.is_none_or(|(generation, last)| found.0 == generation && found.1 > last);
            later && (1..NUMBER_MAX).contains(&found.1)
        })
        .any(|at| parse(&bytes[at..]).is_some())
}

fn records(mut payload: &[u8], records: &mut Vec<Record>) -> Option<()> {
    while let Some((tag, rest)) = payload.split_first() {
        payload = rest;
        let session = number(&mut payload)?;
        records.push(match *tag {
            TAG_STORE => Record::Store { session, name: string(&mut payload)? },
            TAG_PUT | TAG_DELETE => {
                let (revision, key) = (number(&mut payload)?, string(&mut payload)?);
                let value = if *tag == TAG_PUT { Some(Bytes::copy_from_slice(text(&mut payload)?)) } else { None };
                Record::Write { session, event: WriteRecord { revision, key, value } }
            }
            _ => return None,
        });
    }
    Some(())
}

fn number(payload: &mut &[u8]) -> Option<u64> {
    let (number, rest) = payload.split_first_chunk::<8>()?;
    *payload = rest;
    Some(u64::from_le_bytes(*number))
}

fn text<'a>(payload: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = payload.split_first_chunk::<4>()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *payload = rest;
    Some(text)
}

fn string(payload: &mut &[u8]) -> Option<String> {
    String::from_utf8(text(payload)?.to_vec()).ok()
}

/// XXH64: fast enough that a group of megabytes is checked in a fraction of a millisecond.
fn checksum(bytes: &[u8]) -> u64 {
    XxHash64::oneshot(0, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(revision: u64, key: &str, value: Option<&str>) -> Event {
        Event { revision, key: key.into(), value: value.map(|v| Bytes::copy_from_slice(v.as_bytes())) }
    }

    /// Frames with the numbers given, and where each ends.
    fn frames(generation: u64, numbers: impl Iterator<Item = u64>) -> (Vec<u8>, Vec<usize>) {
        let (mut writer, mut bytes, mut ends) = (FrameWriter::default(), Vec::new(), Vec::new());
        for number in numbers {
            writer.clear();
            writer.store(7, "a/store");
            writer.write(7, &event(number, "/k", Some("value")));
            writer.write(7, &event(number + 1, "/k", None));
            bytes.extend_from_slice(writer.finish(generation, number));
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    #[test]
    fn checksums_are_those_of_the_algorithm() {
        assert_eq!(checksum(b""), 0xEF46_DB37_51D8_E999);
        assert_eq!(checksum(b"a"), 0xD24E_C4F1_A98C_6E5B);
        assert_eq!(checksum(b"abc"), 0x44BC_2CF5_AD77_0999);
        assert_eq!(checksum(b"Nobody inspects the spammish repetition"), 0xFBCE_A83C_8A37_8BF1);
    }

    #[test]
    fn what_was_written_is_read() {
        let (bytes, _) = frames(3, 5..6);
        let contents = read(&bytes).unwrap();
        let write = |revision, value: Option<&str>| Record::Write {
            session: 7,
            event: WriteRecord { revision, key: "/k".into(), value: value.map(|v| Bytes::copy_from_slice(v.as_bytes())) },
        };
        let store = Record::Store { session: 7, name: "a/store".into() };
        assert_eq!(contents, Contents { last: Some((3, 5)), records: vec![store, write(5, Some("value")), write(6, None)] });
        assert_eq!(read(&[]).unwrap(), Contents::default());
        assert_eq!(read(&[0; 4096]).unwrap(), Contents::default());
    }

    #[test]
    fn a_torn_frame_ends_the_file_at_every_byte() {
        let (old, _) = frames(3, 1..5);
        let (new, ends) = frames(3, 10..13);
        for cut in 1..=new.len() {
            // Behind the cut is what the file held before: nothing, zeros, or frames of an earlier round.
            let rounds = [Vec::new(), vec![0; 500], old.get(cut..).unwrap_or_default().to_vec()];
            for behind in rounds {
                let bytes = [&new[..cut], &behind].concat();
                // What is behind it may happen to be what was cut off.
                let whole = ends.iter().filter(|end| bytes.get(..**end) == Some(&new[..**end])).count();
                let contents = read(&bytes).unwrap();
                assert_eq!(contents.records.len(), whole * 3, "cut at {cut}");
            }
        }
    }

    #[test]
    fn a_hole_is_damage_and_no_end() {
        let (bytes, ends) = frames(3, 1..5);
        for at in 0..ends[2] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            let read = read(&damaged);
            // With its first frame gone the file alone does not tell whether others are of an earlier round.
            assert!(read == Err(Damaged) || at < ends[0] && read == Ok(Contents::default()), "at {at}: {read:?}");
            assert_eq!(read_both([&damaged, &[]]).err(), Some(Damaged), "at {at}");
        }
    }

    #[test]
    fn the_file_that_was_written_last_comes_last_and_may_be_torn() {
        let (first, _) = frames(3, 5..8);
        let (mut second, ends) = frames(3, 8..10);
        let old = frames(3, 1..5).0;
        let last = |files: [&[u8]; 2]| read_both(files).map(|both| both.map(|c| c.last));
        let both = [Some((3, 7)), Some((3, 9))];
        assert_eq!(last([&first, &second]), Ok(both));
        assert_eq!(last([&second, &first]), Ok(both));
        assert_eq!(last([&[], &first]), Ok([None, Some((3, 7))]));
        let torn = [&second[..ends[0] / 2], &old[ends[0] / 2..]].concat();
        assert_eq!(last([&torn, &first]), Ok([None, Some((3, 7))]), "what is behind is of the round before");
        second[3] ^= 1;
        assert_eq!(last([&second, &first]), Err(Damaged), "a frame that came after it is whole");
    }
}
