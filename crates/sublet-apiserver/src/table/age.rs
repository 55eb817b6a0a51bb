//! Times as people read them: `5m`, `2d3h`.

use jiff::Timestamp;

/// How long ago a timestamp was; `<unknown>` when there is none.
pub(super) fn since(timestamp: Option<&str>, now: Timestamp) -> String {
    match timestamp {
        None => UNKNOWN.into(),
        Some(text) => text.parse().map_or_else(|_| INVALID.into(), |then: Timestamp| human(seconds_between(then, now))),
    }
}

/// From one moment to the other in whole seconds; `None` when either cannot be read.
pub(super) fn between(start: &str, end: &str) -> Option<i64> {
    Some(seconds_between(start.parse().ok()?, end.parse().ok()?))
}

fn seconds_between(start: Timestamp, end: Timestamp) -> i64 {
    (end.as_duration() - start.as_duration()).as_secs()
}

/// Two or three significant figures, as `HumanDuration` of apimachinery.
pub(super) fn human(seconds: i64) -> String {
    if seconds < -1 {
        return INVALID.into();
    }
    if seconds < 0 {
        return "0s".into();
    }
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        pair(minutes, "m", seconds % 60, "s")
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        pair(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if days < 8 {
        pair(days, "d", hours % 24, "h")
    } else if years < 2 {
        format!("{days}d")
    } else if years < 8 {
        pair(years, "y", days % 365, "d")
    } else {
        format!("{years}y")
    }
}

fn pair(big: i64, big_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 { format!("{big}{big_unit}") } else { format!("{big}{big_unit}{small}{small_unit}") }
}

pub(super) const UNKNOWN: &str = "<unknown>";
const INVALID: &str = "<invalid>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_keep_two_or_three_figures() {
        const MINUTE: i64 = 60;
        const HOUR: i64 = 60 * MINUTE;
        const DAY: i64 = 24 * HOUR;
        const YEAR: i64 = 365 * DAY;
        for (seconds, text) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (10 * MINUTE, "10m"),
            (179 * MINUTE, "179m"),
            (3 * HOUR, "3h"),
            (7 * HOUR + 59 * MINUTE, "7h59m"),
            (8 * HOUR, "8h"),
            (47 * HOUR, "47h"),
            (2 * DAY, "2d"),
            (7 * DAY + HOUR, "7d1h"),
            (8 * DAY, "8d"),
            (2 * YEAR - HOUR, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + 23 * DAY, "2y23d"),
            (8 * YEAR, "8y"),
        ] {
            assert_eq!(human(seconds), text, "{seconds}");
        }
    }
}
