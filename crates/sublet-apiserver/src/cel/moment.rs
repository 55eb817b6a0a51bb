//! Points in time as Go reads and writes them: years 1 to 9999, with the offset that was written.

use jiff::civil::DateTime;
use jiff::{SignedDuration, ToSpan};
use std::fmt;

const SECOND: i128 = 1_000_000_000;
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
/// The first second of year 1, and the first one after year 9999.
const FIRST: i128 = -62_135_596_800 * SECOND;
const END: i128 = 253_402_300_800 * SECOND;

/// Two moments are the same however far from Greenwich they were written down.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Since 1970.
    nanos: i128,
    offset_seconds: i32,
}

impl PartialEq for Moment {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Moment {
    pub(super) fn new(nanos: i128, offset_seconds: i32) -> Option<Self> {
        (FIRST..END).contains(&nanos).then_some(Self { nanos, offset_seconds })
    }

    pub(super) fn of_civil(at: DateTime, offset_seconds: i32) -> Option<Self> {
        let local = at.duration_since(EPOCH).as_nanos();
        Self::new(local - i128::from(offset_seconds) * SECOND, offset_seconds)
    }

    pub(super) fn nanos(self) -> i128 {
        self.nanos
    }

    pub(super) fn seconds(self) -> i64 {
        self.nanos.div_euclid(SECOND) as i64
    }

    pub(super) fn plus(self, nanos: i64) -> Option<Self> {
        Self::new(self.nanos + i128::from(nanos), self.offset_seconds)
    }

    pub(super) fn minus(self, nanos: i64) -> Option<Self> {
        Self::new(self.nanos - i128::from(nanos), self.offset_seconds)
    }

    /// What clocks and calendars show where the offset is in force.
    pub(super) fn civil(self, offset_seconds: i32) -> Option<DateTime> {
        let seconds = self.seconds() + i64::from(offset_seconds);
        let day = EPOCH.checked_add(SignedDuration::from_secs(seconds)).ok()?;
        day.checked_add((self.nanos.rem_euclid(SECOND) as i64).nanoseconds()).ok()
    }

    /// RFC 3339 as Go's parser takes it: hours may have one digit, fractions may follow a comma.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut cursor = Cursor(text.as_bytes());
        let year = cursor.number(4)?;
        let month = cursor.after(b'-')?.number(2)?;
        let day = cursor.after(b'-')?.number(2)?;
        cursor.after(b'T')?;
        let hour = cursor.number(2).or_else(|| cursor.number(1))?;
        let minute = cursor.after(b':')?.number(2)?;
        let second = cursor.after(b':')?.number(2)?;
        let nanos = cursor.fraction()?;
        let offset_seconds = cursor.offset()?;
        // Leap seconds do not exist.
        if second > 59 || !cursor.0.is_empty() {
            return None;
        }
        let small = |n: i32| i8::try_from(n).ok();
        let at = DateTime::new(year as i16, small(month)?, small(day)?, small(hour)?, small(minute)?, small(second)?, nanos).ok()?;
        Self::of_civil(at, offset_seconds)
    }
}

struct Cursor<'t>(&'t [u8]);

impl Cursor<'_> {
    fn after(&mut self, wanted: u8) -> Option<&mut Self> {
        let (first, rest) = self.0.split_first()?;
        if *first != wanted {
            return None;
        }
        self.0 = rest;
        Some(self)
    }

    fn number(&mut self, digits: usize) -> Option<i32> {
        let (number, rest) = self.0.split_at_checked(digits)?;
        if !number.iter().all(u8::is_ascii_digit) {
            return None;
        }
        self.0 = rest;
        Some(number.iter().fold(0, |n, digit| n * 10 + i32::from(digit - b'0')))
    }

    /// Nanoseconds; finer parts are dropped.
    fn fraction(&mut self) -> Option<i32> {
        if !matches!(self.0.first(), Some(b'.' | b',')) {
            return Some(0);
        }
        let digits = self.0[1..].iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        let nanos = (0..9).fold(0, |n, at| n * 10 + if at < digits { i32::from(self.0[1 + at] - b'0') } else { 0 });
        self.0 = &self.0[1 + digits..];
        Some(nanos)
    }

    fn offset(&mut self) -> Option<i32> {
        let sign = match self.0.first()? {
            b'Z' => {
                self.0 = &self.0[1..];
                return Some(0);
            }
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        self.0 = &self.0[1..];
        let hours = self.number(2)?;
        let minutes = self.after(b':')?.number(2)?;
        (hours <= 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // At the ends of time the local year may have no name; Greenwich's always has one.
        let (at, offset) = match self.civil(self.offset_seconds) {
            Some(at) => (at, self.offset_seconds),
            None => (self.civil(0).unwrap_or(EPOCH), 0),
        };
        write!(f, "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", at.year(), at.month(), at.day(), at.hour(), at.minute(), at.second())?;
        let nanos = at.subsec_nanosecond();
        if nanos != 0 {
            write!(f, ".{}", format!("{nanos:09}").trim_end_matches('0'))?;
        }
        if offset == 0 {
            return f.write_str("Z");
        }
        let sign = if offset < 0 { '-' } else { '+' };
        let minutes = offset.abs() / 60;
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::Moment;

    #[test]
    fn moments_are_read_and_written_as_go_does() {
        let cases = [
            ("2020-01-02T03:04:05Z", "2020-01-02T03:04:05Z"),
            ("2020-01-02T3:04:05,120Z", "2020-01-02T03:04:05.12Z"),
            ("2020-01-02T03:04:05.1234567891234-07:30", "2020-01-02T03:04:05.123456789-07:30"),
            ("2020-01-02T03:04:05+24:00", "2020-01-02T03:04:05+24:00"),
            ("2020-01-02T03:04:05+00:00", "2020-01-02T03:04:05Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999999999Z"),
        ];
        for (text, shown) in cases {
            assert_eq!(Moment::parse(text).map(|m| m.to_string()).as_deref(), Some(shown), "{text}");
        }
    }

    #[test]
    fn what_is_no_moment() {
        for text in [
            "",
            "2020-01-02",
            "2020-01-02t03:04:05Z",
            "2020-01-02 03:04:05Z",
            "2020-01-02T03:04:05z",
            "2020-01-02T03:04:05",
            "2020-01-02T03:04:60Z",
            "2020-01-02T24:04:00Z",
            "2020-02-30T03:04:05Z",
            "2020-01-02T03:04:05.Z",
            "2020-01-02T03:04:05+25:00",
            "2020-01-02T03:04:05+01:60",
            "2020-01-02T03:04:05Z ",
            "0000-01-02T03:04:05Z",
            "0001-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59-05:00",
        ] {
            assert_eq!(Moment::parse(text), None, "{text}");
        }
    }

    #[test]
    fn time_ends() {
        let last = Moment::parse("9999-12-31T23:59:59Z").unwrap();
        assert_eq!(last.plus(1_000_000_000), None);
        assert_eq!(last.minus(1).map(|m| m.to_string()).as_deref(), Some("9999-12-31T23:59:58.999999999Z"));
        let far = Moment::parse("9999-12-31T23:59:59+01:00").unwrap().plus(3_600_000_000_000).unwrap();
        assert_eq!(far.to_string(), "9999-12-31T23:59:59Z");
    }
}
