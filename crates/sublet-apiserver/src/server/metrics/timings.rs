//! How long things took, by a few labels.

use super::{escaped, put};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// Series of one name; the rest is counted under the name `other`.
const SERIES_MAX: usize = 256;
/// Upstream's buckets for admission, in milliseconds.
const BUCKETS_MS: [u32; 6] = [5, 25, 100, 500, 1000, 2500];

/// What was done: by whom (nothing for steps), on which operation, in which step, and whether it said no.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    name: String,
    operation: &'static str,
    step: &'static str,
    rejected: bool,
}

#[derive(Default)]
struct Timing {
    count: u64,
    sum: Duration,
    buckets: [u64; BUCKETS_MS.len()],
}

#[derive(Default)]
pub(crate) struct Timings {
    series: Mutex<BTreeMap<Key, Timing>>,
}

impl Timings {
    pub(crate) fn observe(&self, name: &str, operation: &'static str, step: &'static str, rejected: bool, took: Duration) {
        let mut all = self.series.lock().expect("no holder of this lock panics");
        let mut key = Key { name: name.to_string(), operation, step, rejected };
        if all.len() >= SERIES_MAX && !all.contains_key(&key) {
            key.name = "other".into();
        }
        let timing = all.entry(key).or_default();
        timing.count += 1;
        timing.sum += took;
        for (bucket, bound) in timing.buckets.iter_mut().zip(BUCKETS_MS) {
            *bucket += u64::from(took <= Duration::from_millis(bound.into()));
        }
    }

    pub(super) fn render(&self, text: &mut String, metric: &str) {
        put(text, format_args!("# TYPE {metric} histogram"));
        for (Key { name, operation, step, rejected }, timing) in &*self.series.lock().expect("no holder of this lock panics") {
            let name = if name.is_empty() { String::new() } else { format!("name=\"{}\",", escaped(name)) };
            let labels = format!("{name}operation=\"{operation}\",rejected=\"{rejected}\",type=\"{step}\"");
            for (count, bound) in timing.buckets.iter().zip(BUCKETS_MS) {
                put(text, format_args!("{metric}_bucket{{{labels},le=\"{}\"}} {count}", f64::from(bound) / 1000.0));
            }
            put(text, format_args!("{metric}_bucket{{{labels},le=\"+Inf\"}} {}", timing.count));
            put(text, format_args!("{metric}_sum{{{labels}}} {}", timing.sum.as_secs_f64()));
            put(text, format_args!("{metric}_count{{{labels}}} {}", timing.count));
        }
    }
}
