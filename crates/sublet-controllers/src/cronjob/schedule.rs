//! Cron schedules in a time zone.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::str::FromStr;
use sublet_machinery::ObjectExt;

/// More missed starts than anybody wants to catch up with: a wrong clock, or a long rest.
const MISSED_MANY: i64 = 100;

#[derive(Debug)]
pub(super) enum Schedule {
    Cron(Box<Cron>, TimeZone),
    /// `@every 1h30m`, counted from the last start.
    Every(SignedDuration),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScheduleError {
    UnknownTimeZone(String),
    Unparseable(String),
}

/// The starts that are due.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// The latest one that is not after now.
    pub(super) at: Option<Timestamp>,
    pub(super) many: bool,
}

impl Schedule {
    pub(super) fn of(cronjob: &Value) -> Result<Self, ScheduleError> {
        let zone = time_zone(cronjob).map_err(ScheduleError::UnknownTimeZone)?;
        let text = cronjob.str_at("/spec/schedule").unwrap_or_default();
        // A zone in the schedule itself is an old habit that still works.
        let (zone, text) = match text.strip_prefix("CRON_TZ=").or_else(|| text.strip_prefix("TZ=")).and_then(|t| t.split_once(' ')) {
            Some((name, rest)) => (TimeZone::get(name).map_err(|e| ScheduleError::Unparseable(e.to_string()))?, rest),
            None => (zone, text),
        };
        if let Some(every) = text.trim().strip_prefix("@every ") {
            let every = SignedDuration::from_str(every).map_err(|e| ScheduleError::Unparseable(e.to_string()))?;
            return Ok(Self::Every(every.max(SignedDuration::from_secs(1))));
        }
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        // As upstream's parser reads it: midnight is another word for daily, `?` for any.
        let text = text.trim().replace("@midnight", "@daily").replace('?', "*");
        let cron = parser.parse(&text).map_err(|e| ScheduleError::Unparseable(e.to_string()))?;
        Ok(Self::Cron(Box::new(cron), zone))
    }

    pub(super) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Cron(cron, zone) => cron.find_next_occurrence(&after.to_zoned(zone.clone()), false).ok().map(|z| z.timestamp()),
            Self::Every(every) => after.checked_add(*every).ok(),
        }
    }

    /// The starts after `earliest` up to `now`.
    pub(super) fn due(&self, earliest: Timestamp, now: Timestamp) -> Due {
        let none = Due { at: None, many: false };
        let Some(first) = self.next(earliest).filter(|t| *t <= now) else { return none };
        let Some(second) = self.next(first) else { return Due { at: Some(first), many: false } };
        let interval = second.duration_since(first).as_secs().max(1);
        let missed = now.duration_since(first).as_secs() / interval + 1;
        let latest = match self {
            Self::Cron(cron, zone) => cron.find_previous_occurrence(&now.to_zoned(zone.clone()), true).ok().map(|z| z.timestamp()),
            Self::Every(every) => first.checked_add(SignedDuration::from_secs(every.as_secs().max(1) * (missed - 1))).ok(),
        };
        Due { at: latest.filter(|t| *t > earliest), many: missed > MISSED_MANY }
    }
}

/// The zone of the schedule; without one, as the controller runs: in UTC.
pub(super) fn time_zone(cronjob: &Value) -> Result<TimeZone, String> {
    match cronjob.str_at("/spec/timeZone").filter(|z| !z.is_empty()) {
        Some(name) => TimeZone::get(name).map_err(|e| format!("invalid timeZone: \"{name}\": {e}")),
        None => Ok(TimeZone::UTC),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schedule(text: &str, zone: Option<&str>) -> Schedule {
        Schedule::of(&json!({"spec": {"schedule": text, "timeZone": zone}})).expect("a schedule")
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn starts_follow_the_time_zone() {
        let check =
            |text, zone, after: &str, expected: &str| assert_eq!(schedule(text, zone).next(at(after)), Some(at(expected)), "{text}");
        check("0 * * * ?", None, "2026-01-01T10:20:00Z", "2026-01-01T11:00:00Z");
        check("@hourly", None, "2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z");
        check("30 8 * * *", Some("Europe/Berlin"), "2026-07-01T00:00:00Z", "2026-07-01T06:30:00Z");
        check("TZ=Asia/Tokyo 0 9 * * *", None, "2026-01-01T01:00:00Z", "2026-01-02T00:00:00Z");
        check("*/15 * * * MON-FRI", None, "2026-01-02T23:50:00Z", "2026-01-05T00:00:00Z");
        check("@every 1h30m", None, "2026-01-01T10:00:00Z", "2026-01-01T11:30:00Z");
    }

    #[test]
    fn the_latest_due_start_counts() {
        let check = |text, earliest: &str, now: &str, expected: Option<&str>, many| {
            assert_eq!(schedule(text, None).due(at(earliest), at(now)), Due { at: expected.map(at), many }, "{text} {now}");
        };
        check("0 * * * *", "2026-01-01T10:00:00Z", "2026-01-01T10:59:59Z", None, false);
        check("0 * * * *", "2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z", Some("2026-01-01T11:00:00Z"), false);
        check("0 * * * *", "2026-01-01T10:00:00Z", "2026-01-01T15:20:00Z", Some("2026-01-01T15:00:00Z"), false);
        check("0 * * * *", "2026-01-01T10:00:00Z", "2026-01-09T15:20:00Z", Some("2026-01-09T15:00:00Z"), true);
        check("@every 1h", "2026-01-01T10:10:00Z", "2026-01-01T12:20:00Z", Some("2026-01-01T12:10:00Z"), false);
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(matches!(Schedule::of(&json!({"spec": {"schedule": "* * *"}})), Err(ScheduleError::Unparseable(_))));
        assert!(matches!(
            Schedule::of(&json!({"spec": {"schedule": "* * * * *", "timeZone": "Mars/Base"}})),
            Err(ScheduleError::UnknownTimeZone(_))
        ));
    }
}
