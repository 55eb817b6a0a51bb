//! Timestamps of objects.

use jiff::Timestamp;
use serde_json::Value;
use std::time::Duration;
use sublet_machinery::ObjectExt;

pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// The time at a pointer, when there is a readable one.
pub(crate) fn at(object: &Value, pointer: &str) -> Option<Timestamp> {
    parse(object.str_at(pointer)?)
}

pub(crate) fn created(object: &Value) -> Option<Timestamp> {
    at(object, "/metadata/creationTimestamp")
}

/// Later minus earlier in seconds; negative when the order is the other one.
pub(crate) fn seconds_between(earlier: Timestamp, later: Timestamp) -> f64 {
    later.duration_since(earlier).as_secs_f64()
}

/// How long from `now` until `at`; zero when it has passed.
pub(crate) fn until(now: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO)
}

/// `at` plus seconds, held inside the range of timestamps.
pub(crate) fn plus_seconds(at: Timestamp, seconds: i64) -> Timestamp {
    at.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}
