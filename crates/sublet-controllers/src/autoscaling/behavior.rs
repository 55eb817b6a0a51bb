//! How fast the count of replicas may follow its metrics: bounds, rates and windows.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sublet_machinery::ObjectExt;

/// How long a higher recommendation keeps the count from falling, where nothing else is said.
const DOWN_WINDOW_SECONDS: i64 = 300;
/// Without rules of its own, a count at most doubles in one step; the first pods come at once.
const STEP_FACTOR: i64 = 2;
const STEP_MIN: i64 = 4;
/// The longest window and period that rules may have.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(1);

/// What was recommended and done, of the last hour.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    recommendations: Vec<(i64, Timestamp)>,
    /// Pods that were added, and taken away.
    ups: Vec<(i64, Timestamp)>,
    downs: Vec<(i64, Timestamp)>,
}

/// A verdict with what is said about it: reason and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) replicas: i64,
    pub(super) able: (&'static str, &'static str),
    pub(super) is_limited: bool,
    pub(super) limited: (&'static str, &'static str),
}

/// Where the count stands and where its metrics want it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) current: i64,
    pub(super) desired: i64,
    pub(super) min: i64,
    pub(super) max: i64,
}

const WITHIN: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_FAST: (&str, &str) = ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const TOO_MANY: (&str, &str) = ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: (&str, &str) = ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const TOO_FAST_DOWN: (&str, &str) = ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const READY: (&str, &str) = ("ReadyForNewScale", "recommended size matches current size");
const UP_STABILIZED: (&str, &str) =
    ("ScaleUpStabilized", "recent recommendations were lower than current one, applying the lowest recent recommendation");
const DOWN_STABILIZED: (&str, &str) =
    ("ScaleDownStabilized", "recent recommendations were higher than current one, applying the highest recent recommendation");

impl History {
    /// The first look recommends what is there.
    pub(super) fn begin(&mut self, current: i64, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push((current, now));
        }
    }

    /// Takes in that the count was changed. Without rules nobody asks for it.
    pub(super) fn scaled(&mut self, behavior: Option<&Value>, before: i64, after: i64, now: Timestamp) {
        if behavior.is_none() {
            return;
        }
        let (events, change) = if after > before { (&mut self.ups, after - before) } else { (&mut self.downs, before - after) };
        events.retain(|(_, at)| now.duration_since(*at) <= REMEMBERED);
        events.push((change, now));
    }

    /// Brings a wish in line with the rules, and remembers it.
    pub(super) fn normalize(&mut self, wish: Wish, behavior: Option<&Value>, now: Timestamp) -> Verdict {
        let stable = match behavior {
            Some(rules) => self.stabilize_by(wish, rules, now),
            None => self.highest(wish.desired, DOWN_WINDOW_SECONDS, now),
        };
        self.recommendations.retain(|(_, at)| now.duration_since(*at) <= REMEMBERED);
        self.recommendations.push((wish.desired, now));
        let able = match (stable == wish.desired, behavior) {
            (true, _) => READY,
            (false, Some(_)) if wish.desired >= wish.current => UP_STABILIZED,
            (false, _) => DOWN_STABILIZED,
        };
        let wish = Wish { desired: stable, ..wish };
        let (replicas, limited) = match behavior {
            Some(rules) => self.limit_by(wish, rules, now),
            None => limit(wish),
        };
        Verdict { replicas, able, is_limited: replicas != stable, limited }
    }

    fn highest(&self, desired: i64, seconds: i64, now: Timestamp) -> i64 {
        let recent = self.recommendations.iter().filter(|(_, at)| now.duration_since(*at).as_secs() <= seconds);
        recent.map(|(replicas, _)| *replicas).fold(desired, i64::max)
    }

    /// Between the lowest recommendation of the one window and the highest of the other, as near to what is there as may be.
    fn stabilize_by(&self, wish: Wish, rules: &Value, now: Timestamp) -> i64 {
        let window = |direction: &str, default| rules[direction]["stabilizationWindowSeconds"].as_i64().unwrap_or(default);
        let recent =
            |seconds: i64| self.recommendations.iter().filter(move |(_, at)| now.duration_since(*at) < SignedDuration::from_secs(seconds));
        let up = recent(window("scaleUp", 0)).map(|(replicas, _)| *replicas).fold(wish.desired, i64::min);
        let down = recent(window("scaleDown", DOWN_WINDOW_SECONDS)).map(|(replicas, _)| *replicas).fold(wish.desired, i64::max);
        wish.current.max(up).min(down)
    }

    fn limit_by(&self, wish: Wish, rules: &Value, now: Timestamp) -> (i64, (&'static str, &'static str)) {
        if wish.desired > wish.current {
            let fastest = self.furthest(wish.current, &rules["scaleUp"], 1, now).max(wish.current);
            let (most, why) = if wish.max > fastest { (fastest, TOO_FAST) } else { (wish.max, TOO_MANY) };
            if wish.desired > most {
                return (most, why);
            }
        } else if wish.desired < wish.current {
            let fastest = self.furthest(wish.current, &rules["scaleDown"], -1, now).min(wish.current);
            let (least, why) = if wish.min < fastest { (fastest, TOO_FAST_DOWN) } else { (wish.min, TOO_FEW) };
            if wish.desired < least {
                return (least, why);
            }
        }
        (wish.desired, WITHIN)
    }

    /// The count that the policies of one direction allow now.
    fn furthest(&self, current: i64, rules: &Value, sign: i64, now: Timestamp) -> i64 {
        let select = rules["selectPolicy"].as_str().unwrap_or("Max");
        if select == "Disabled" {
            return current;
        }
        let proposals = rules.array_at("/policies").iter().map(|policy| {
            let period = policy["periodSeconds"].as_i64().unwrap_or_default();
            let changed = |events: &[(i64, Timestamp)]| -> i64 {
                events.iter().filter(|(_, at)| now.duration_since(*at) < SignedDuration::from_secs(period)).map(|(change, _)| *change).sum()
            };
            let start = current - changed(&self.ups) + changed(&self.downs);
            let value = policy["value"].as_i64().unwrap_or_default();
            match policy["type"].as_str() {
                // Rounded up, so that small counts move at all; down, for the same reason in the other direction.
                Some("Percent") if sign > 0 => div_ceil(start * (100 + value), 100),
                Some("Percent") => start * (100 - value) / 100,
                _ => start + sign * value,
            }
        });
        let is_most = (select == "Max") == (sign > 0);
        let furthest = if is_most { proposals.max() } else { proposals.min() };
        furthest.unwrap_or(current)
    }
}

fn div_ceil(value: i64, by: i64) -> i64 {
    value.div_euclid(by) + i64::from(value.rem_euclid(by) > 0)
}

/// The bounds where there are no rules.
fn limit(wish: Wish) -> (i64, (&'static str, &'static str)) {
    let fastest = (wish.current * STEP_FACTOR).max(STEP_MIN);
    let (most, why) = if wish.max > fastest { (fastest, TOO_FAST) } else { (wish.max, TOO_MANY) };
    if wish.desired < wish.min {
        (wish.min, TOO_FEW)
    } else if wish.desired > most {
        (most, why)
    } else {
        (wish.desired, WITHIN)
    }
}

#[cfg(test)]
#[path = "behavior_tests.rs"]
mod tests;
