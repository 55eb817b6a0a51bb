//! The wire format: varints, tags, length-delimited fields.

use super::ProtobufError;

pub const VARINT: u8 = 0;
pub const FIXED64: u8 = 1;
pub const BYTES: u8 = 2;
const GROUP_START: u8 = 3;
const GROUP_END: u8 = 4;
const FIXED32: u8 = 5;

/// Groups inside groups in unknown fields.
const GROUPS_DEPTH_MAX: usize = 64;

/// Reads fields from a message.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next field's number and wire type.
    pub fn tag(&mut self) -> Result<(u32, u8), ProtobufError> {
        let key = self.varint()?;
        let (number, wire_type) = ((key >> 3) as u32, (key & 7) as u8);
        match i32::try_from(number) {
            Ok(number) if number > 0 => Ok((number as u32, wire_type)),
            _ => Err(ProtobufError::new(format!("proto: illegal tag {} (wire type {wire_type})", number as i32))),
        }
    }

    pub fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0;
        for (at, byte) in self.rest.iter().enumerate() {
            if at == 10 {
                return Err(ProtobufError::new("proto: integer overflow"));
            }
            value |= u64::from(byte & 0x7f) << (7 * at as u32).min(63);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[at + 1..];
                return Ok(value);
            }
        }
        Err(end())
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], ProtobufError> {
        let length = self.varint()?;
        let length = usize::try_from(length).map_err(|_| end())?;
        self.take(length)
    }

    pub fn fixed64(&mut self) -> Result<u64, ProtobufError> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(end)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Passes over the value of an unknown field.
    pub fn skip(&mut self, wire_type: u8) -> Result<(), ProtobufError> {
        let mut depth = 0;
        let mut wire_type = wire_type;
        loop {
            match wire_type {
                VARINT => drop(self.varint()?),
                FIXED64 => drop(self.take(8)?),
                BYTES => drop(self.bytes()?),
                GROUP_START if depth < GROUPS_DEPTH_MAX => depth += 1,
                GROUP_END if depth == 0 => return Err(ProtobufError::new("proto: unexpected end of group")),
                GROUP_END => depth -= 1,
                FIXED32 => drop(self.take(4)?),
                other => return Err(ProtobufError::new(format!("proto: illegal wireType {other}"))),
            }
            if depth == 0 {
                return Ok(());
            }
            wire_type = self.tag()?.1;
        }
    }
}

fn end() -> ProtobufError {
    ProtobufError::new("unexpected EOF")
}

pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub fn put_tag(out: &mut Vec<u8>, number: u32, wire_type: u8) {
    put_varint(out, u64::from(number) << 3 | u64::from(wire_type));
}

pub fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_tag(out, number, BYTES);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub fn put_int(out: &mut Vec<u8>, number: u32, value: i64) {
    put_tag(out, number, VARINT);
    put_varint(out, value as u64);
}

/// Where a nested message began.
pub struct Open(usize);

/// Begins a nested message, whose length is known when it is written.
pub fn open(out: &mut Vec<u8>, number: u32) -> Open {
    put_tag(out, number, BYTES);
    // Most are short; the others are moved to make room for a longer length.
    out.push(0);
    Open(out.len())
}

pub fn close(out: &mut Vec<u8>, Open(start): Open) {
    let length = out.len() - start;
    if length < 0x80 {
        out[start - 1] = length as u8;
    } else {
        let mut prefix = Vec::with_capacity(10);
        put_varint(&mut prefix, length as u64);
        out.splice(start - 1..start, prefix);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_every_size_read_back() {
        for length in [0, 1, 127, 128, 16_383, 16_384, 300_000] {
            let mut out = Vec::new();
            let nested = open(&mut out, 5);
            out.resize(out.len() + length, 7);
            close(&mut out, nested);
            let mut reader = Reader::new(&out);
            assert_eq!(reader.tag(), Ok((5, BYTES)));
            assert_eq!(reader.bytes().map(<[u8]>::len), Ok(length));
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn broken_bytes_are_refused() {
        let check = |bytes: &[u8], expected: &str| {
            let mut reader = Reader::new(bytes);
            let error = reader.tag().and_then(|(_, wire_type)| reader.skip(wire_type)).unwrap_err();
            assert_eq!(error.why, expected, "{bytes:?}");
        };
        check(&[0x80], "unexpected EOF");
        check(&[0x0a, 0x05, 1], "unexpected EOF");
        check(&[0x00], "proto: illegal tag 0 (wire type 0)");
        check(&[0x0c], "proto: unexpected end of group");
        check(&[0x0f], "proto: illegal wireType 7");
        check(&[0xff; 12], "proto: integer overflow");
        check(&[0x0b; 100], "proto: illegal wireType 3");
        let mut reader = Reader::new(&[0x0b, 0x08, 1, 0x0c, 0x10, 2]);
        assert_eq!(reader.tag().and_then(|(_, wire_type)| reader.skip(wire_type)), Ok(()));
        assert_eq!(reader.tag(), Ok((2, VARINT)));
    }
}
