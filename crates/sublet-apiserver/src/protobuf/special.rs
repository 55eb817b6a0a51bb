//! Types whose JSON is not that of their fields: times, quantities, numbers or strings.

use super::ProtobufError;
use super::wire::{BYTES, Reader, VARINT, put_bytes, put_int};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;
use sublet_machinery::Quantity;

/// Seconds of Go's zero time, 1 January of year 1.
const ZERO_TIME_SECONDS: i64 = -62_135_596_800;
const NANOS_PER_MICRO: i32 = 1000;

/// `metav1.Time` (whole seconds) or `MicroTime`; an empty message is the zero time, which JSON shows as null.
pub fn read_time(bytes: &[u8], micro: bool) -> Result<Value, ProtobufError> {
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        match reader.tag()? {
            (1, VARINT) => seconds = reader.varint()? as i64,
            (2, VARINT) => nanos = reader.varint()? as i32,
            (_, wire_type) => reader.skip(wire_type)?,
        }
    }
    let nanos = if micro { nanos - nanos % NANOS_PER_MICRO } else { 0 };
    if bytes.is_empty() || (seconds, nanos) == (ZERO_TIME_SECONDS, 0) {
        return Ok(Value::Null);
    }
    let time = Timestamp::new(seconds, nanos).map_err(|_| ProtobufError::new(format!("time out of range: {seconds} seconds")))?;
    let format = if micro { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Ok(Value::String(time.to_zoned(TimeZone::UTC).strftime(format).to_string()))
}

/// The inside of a time message; nothing for what is no time.
pub fn write_time(out: &mut Vec<u8>, text: &str, micro: bool) {
    let Ok(time) = text.parse::<Timestamp>() else { return };
    let floor = time.as_second() - i64::from(time.subsec_nanosecond() < 0);
    if floor == ZERO_TIME_SECONDS {
        return;
    }
    let nanos = time.subsec_nanosecond().rem_euclid(1_000_000_000);
    put_int(out, 1, floor);
    put_int(out, 2, if micro { i64::from(nanos - nanos % NANOS_PER_MICRO) } else { 0 });
}

pub fn read_quantity(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let mut text = None;
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        match reader.tag()? {
            (1, BYTES) => text = Some(String::from_utf8_lossy(reader.bytes()?)),
            (_, wire_type) => reader.skip(wire_type)?,
        }
    }
    let Some(text) = text else { return Ok("0".into()) };
    Ok(Quantity::canonical(&text).map_err(|e| ProtobufError::new(e.to_string()))?.into())
}

/// The inside of an IntOrString message.
pub fn write_int_or_string(out: &mut Vec<u8>, number: i64, text: Option<&str>) {
    put_int(out, 1, i64::from(text.is_some()));
    put_int(out, 2, number);
    put_bytes(out, 3, text.unwrap_or_default().as_bytes());
}

pub fn read_int_or_string(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let (mut is_string, mut number, mut text) = (0, 0, "".into());
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        match reader.tag()? {
            (1, VARINT) => is_string = reader.varint()?,
            (2, VARINT) => number = reader.varint()? as i32,
            (3, BYTES) => text = String::from_utf8_lossy(reader.bytes()?),
            (_, wire_type) => reader.skip(wire_type)?,
        }
    }
    match is_string {
        0 => Ok(number.into()),
        1 => Ok(text.into()),
        _ => Err(ProtobufError::new("impossible IntOrString.Type")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_back() {
        let check = |text: &str, micro: bool, expected: &str| {
            let mut out = Vec::new();
            write_time(&mut out, text, micro);
            assert_eq!(read_time(&out, micro).unwrap(), expected, "{text}");
        };
        check("2026-02-03T04:05:06Z", false, "2026-02-03T04:05:06Z");
        check("2026-02-03T04:05:06.7Z", false, "2026-02-03T04:05:06Z");
        check("1969-12-31T23:59:58.25Z", true, "1969-12-31T23:59:58.250000Z");
        check("2026-02-03T04:05:06.123456789+01:00", true, "2026-02-03T03:05:06.123456Z");
        assert_eq!(read_time(&[], false).unwrap(), Value::Null);
        let mut out = Vec::new();
        write_time(&mut out, "0001-01-01T00:00:00Z", false);
        assert!(out.is_empty());
        put_int(&mut out, 1, i64::MAX);
        assert!(read_time(&out, false).is_err());
    }

    #[test]
    fn numbers_and_strings_stay_apart() {
        for (number, text) in [(-5, None), (0, Some("25%")), (0, Some(""))] {
            let mut out = Vec::new();
            write_int_or_string(&mut out, number, text);
            let expected = text.map_or_else(|| number.into(), Value::from);
            assert_eq!(read_int_or_string(&out).unwrap(), expected);
        }
        assert_eq!(read_int_or_string(&[]).unwrap(), 0);
        assert!(read_int_or_string(&[8, 2]).is_err());
    }
}
