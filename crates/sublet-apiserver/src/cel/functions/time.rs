//! Timestamps and durations.

use super::super::eval::{Evaluated, failed};
use super::super::value::Val;
use jiff::civil::DateTime;

const SECOND: i64 = 1_000_000_000;

pub(super) fn call<'v>(function: &str, is_member: bool, args: &[Val<'v>]) -> Option<Evaluated<'v>> {
    let overflow = || failed("timestamp overflow");
    Some(match (function, args) {
        ("_+_", [Val::Timestamp(at), Val::Duration(nanos)] | [Val::Duration(nanos), Val::Timestamp(at)]) => {
            at.plus(*nanos).map(Val::Timestamp).ok_or_else(overflow)
        }
        ("_-_", [Val::Timestamp(at), Val::Duration(nanos)]) => at.minus(*nanos).map(Val::Timestamp).ok_or_else(overflow),
        ("_-_", [Val::Timestamp(a), Val::Timestamp(b)]) => i64::try_from(a.nanos() - b.nanos()).map(Val::Duration).map_err(|_| overflow()),
        ("_+_", [Val::Duration(a), Val::Duration(b)]) => a.checked_add(*b).map(Val::Duration).ok_or_else(|| failed("duration overflow")),
        ("_-_", [Val::Duration(a), Val::Duration(b)]) => a.checked_sub(*b).map(Val::Duration).ok_or_else(|| failed("duration overflow")),
        (_, [Val::Duration(nanos)]) if is_member => part_of_duration(function, *nanos)?,
        (_, [Val::Timestamp(at)]) if is_member => part(function, at.civil(0)?)?,
        (_, [Val::Timestamp(at), Val::String(zone)]) if is_member => match offset_of(zone.as_str()) {
            Some(offset) => part(function, at.civil(offset)?)?,
            None => Err(failed(format!("unknown time zone {}", zone.as_str()))),
        },
        _ => return None,
    })
}

fn part<'v>(function: &str, at: DateTime) -> Option<Evaluated<'v>> {
    let value = match function {
        "getFullYear" => i64::from(at.year()),
        "getMonth" => i64::from(at.month()) - 1,
        "getDayOfYear" => i64::from(at.date().day_of_year()) - 1,
        "getDayOfMonth" => i64::from(at.day()) - 1,
        "getDate" => i64::from(at.day()),
        "getDayOfWeek" => i64::from(at.weekday().to_sunday_zero_offset()),
        "getHours" => i64::from(at.hour()),
        "getMinutes" => i64::from(at.minute()),
        "getSeconds" => i64::from(at.second()),
        "getMilliseconds" => i64::from(at.millisecond()),
        _ => return None,
    };
    Some(Ok(Val::Int(value)))
}

fn part_of_duration<'v>(function: &str, nanos: i64) -> Option<Evaluated<'v>> {
    let unit = match function {
        "getHours" => 3600 * SECOND,
        "getMinutes" => 60 * SECOND,
        "getSeconds" => SECOND,
        "getMilliseconds" => SECOND / 1000,
        _ => return None,
    };
    Some(Ok(Val::Int(nanos / unit)))
}

/// A fixed offset (`-08:00`) or `UTC`; names of places need a database that is not carried.
fn offset_of(text: &str) -> Option<i32> {
    if text.is_empty() || text == "UTC" {
        return Some(0);
    }
    let (hours, minutes) = text.split_once(':')?;
    let negative = hours.starts_with('-');
    let (hours, minutes): (i32, i32) = (hours.trim_start_matches(['-', '+']).parse().ok()?, minutes.parse().ok()?);
    let seconds = hours * 3600 + minutes * 60;
    (seconds.abs() <= 24 * 3600).then_some(if negative { -seconds } else { seconds })
}

/// `3600s`, `1.5s`: how CEL writes durations.
pub(super) fn duration_text(nanos: i64) -> String {
    let (whole, fraction) = (nanos / SECOND, (nanos % SECOND).unsigned_abs());
    if fraction == 0 {
        return format!("{whole}s");
    }
    let sign = if nanos < 0 { "-" } else { "" };
    let digits = format!("{fraction:09}");
    format!("{sign}{}.{}s", whole.unsigned_abs(), digits.trim_end_matches('0'))
}
