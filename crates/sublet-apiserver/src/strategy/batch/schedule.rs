//! Schedules and time zones of cron jobs.

use super::super::field::{Errors, Field};
use crate::http::query::no_number;

pub(super) fn validate_schedule(field: &Field<'_>, errors: &mut Errors) {
    let schedule = field.text();
    if let Err(why) = check(schedule) {
        errors.add(field.invalid(why));
    }
}

/// Five fields or a word like `@daily` (as robfig/cron reads them), with its words for what is wrong.
fn check(schedule: &str) -> Result<(), String> {
    let mut schedule = schedule;
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        let Some((zone, rest)) = schedule.split_once(' ') else {
            return Err("invalid schedule format: runtime error: slice bounds out of range [:-1]".into());
        };
        let name = zone.split_once('=').map_or("", |(_, name)| name);
        if !is_known_zone(name) {
            return Err(format!("provided bad location {name}: unknown time zone {name}"));
        }
        schedule = rest.trim();
    }
    if schedule.starts_with('@') {
        return check_word(schedule);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != 5 {
        let shown: Vec<&str> = fields.clone();
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), shown.join(" ")));
    }
    const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
    let bounds: [(i64, i64, &[&str]); 5] = [(0, 59, &[]), (0, 23, &[]), (1, 31, &[]), (1, 12, &MONTHS), (0, 6, &DAYS)];
    for (field, (low, high, names)) in fields.iter().zip(bounds) {
        for part in field.split(',').filter(|part| !part.is_empty()) {
            check_range(part, low, high, names)?;
        }
    }
    Ok(())
}

fn check_word(word: &str) -> Result<(), String> {
    match word {
        "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
        _ => match word.strip_prefix("@every ") {
            Some(duration) if is_duration(duration) => Ok(()),
            Some(duration) => Err(format!("failed to parse duration {word}: time: invalid duration {duration:?}")),
            None => Err(format!("unrecognized descriptor: {word}")),
        },
    }
}

fn check_range(part: &str, low: i64, high: i64, names: &[&str]) -> Result<(), String> {
    let pieces: Vec<&str> = part.split('/').collect();
    let ends: Vec<&str> = pieces[0].split('-').collect();
    let single = ends.len() == 1;
    let number = |text: &str| -> Result<i64, String> {
        if let Some(index) = names.iter().position(|name| text.eq_ignore_ascii_case(name)) {
            return Ok(low + i64::try_from(index).unwrap_or(0));
        }
        let value: i64 = text.parse().map_err(|error| format!("failed to parse int from {text}: {}", no_number("Atoi", text, &error)))?;
        if value < 0 { Err(format!("negative number ({value}) not allowed: {text}")) } else { Ok(value) }
    };
    let (start, mut end) = if ends[0] == "*" || ends[0] == "?" {
        (low, high)
    } else {
        let start = number(ends[0])?;
        match ends.len() {
            1 => (start, start),
            2 => (start, number(ends[1])?),
            _ => return Err(format!("too many hyphens: {part}")),
        }
    };
    let step = match pieces.len() {
        1 => 1,
        2 => {
            if single {
                end = high;
            }
            number(pieces[1])?
        }
        _ => return Err(format!("too many slashes: {part}")),
    };
    if start < low {
        return Err(format!("beginning of range ({start}) below minimum ({low}): {part}"));
    }
    if end > high {
        return Err(format!("end of range ({end}) above maximum ({high}): {part}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {part}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {part}"));
    }
    Ok(())
}

/// Go's durations: `1h30m`, `0.5s`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let unit = rest[digits..].find(|c: char| c.is_ascii_digit() || c == '.').map_or(rest.len(), |n| digits + n);
        if digits == 0 || !matches!(&rest[digits..unit], "ns" | "us" | "µs" | "ms" | "s" | "m" | "h") {
            return false;
        }
        rest = &rest[unit..];
    }
    true
}

pub(super) fn validate_time_zone(zone: &Field<'_>, errors: &mut Errors) {
    if !zone.is_set() {
        return;
    }
    let name = zone.text();
    if name.is_empty() {
        return errors.add(zone.invalid("timeZone must be nil or non-empty string"));
    }
    let well_formed = |part: &str| {
        part != "."
            && part != ".."
            && !part.starts_with('-')
            && (1..=14).contains(&part.len())
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_+".contains(&b))
    };
    if !name.split('/').all(well_formed) {
        return errors.add(zone.invalid(format!("unknown time zone {name}")));
    }
    if name.eq_ignore_ascii_case("local") {
        errors.add(zone.invalid("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"));
    }
    if !is_known_zone(name) {
        errors.add(zone.invalid(format!("unknown time zone {name}")));
    }
}

fn is_known_zone(name: &str) -> bool {
    matches!(name, "UTC" | "Local") || jiff::tz::db().get(name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_read_as_upstream_reads_them() {
        for good in ["* * * * *", "*/5 0-6 1,15 jan-mar MON", "@daily", "@every 1h30m", "0 0 ? * 0", "5/15 * * * *"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("error", "expected exactly 5 fields, found 1: [error]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"),
            ("@foo", "unrecognized descriptor: @foo"),
        ] {
            assert_eq!(check(bad), Err(why.to_string()), "{bad}");
        }
    }
}
