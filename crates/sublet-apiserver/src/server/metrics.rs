//! Counters with upstream's names. Labels come from closed sets, so that the number of series is bounded.

use super::Server;
use crate::http::RequestInfo;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Duration;

/// Most series of requests; the rest is counted under the resource `other`.
const SERIES_MAX: usize = 2000;
const BUCKETS_MS: [u64; 8] = [5, 25, 50, 100, 250, 500, 1000, 5000];

/// What is counted of requests.
#[derive(Default)]
pub struct Metrics {
    /// Guards the series: (verb, resource, code) to counts.
    series: Mutex<BTreeMap<(&'static str, String, u16), Series>>,
}

#[derive(Default)]
struct Series {
    count: u64,
    sum_ms: u64,
    buckets: [u64; BUCKETS_MS.len()],
}

impl Metrics {
    pub fn count(&self, info: &RequestInfo, status: u16, took: Duration) {
        // An unknown resource in the path must not make a series of its own.
        let resource = if info.is_resource && status != 404 { info.resource.clone() } else { String::new() };
        let mut all = self.series.lock().expect("no holder of this lock panics");
        let mut key = (info.verb, resource, status);
        if all.len() >= SERIES_MAX && !all.contains_key(&key) {
            key.1 = "other".into();
        }
        let series = all.entry(key).or_default();
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        series.count += 1;
        series.sum_ms = series.sum_ms.saturating_add(ms);
        for (bucket, bound) in series.buckets.iter_mut().zip(BUCKETS_MS) {
            *bucket += u64::from(ms <= bound);
        }
    }

    /// The Prometheus text form.
    pub fn render(&self, server: &Server) -> String {
        let mut out = String::new();
        let text = &mut out;
        let all = self.series.lock().expect("no holder of this lock panics");
        put(text, format_args!("# TYPE apiserver_request_total counter"));
        for ((verb, resource, code), series) in all.iter() {
            let verb = verb.to_uppercase();
            put(text, format_args!("apiserver_request_total{{code=\"{code}\",resource=\"{resource}\",verb=\"{verb}\"}} {}", series.count));
        }
        put(text, format_args!("# TYPE apiserver_request_duration_seconds histogram"));
        for ((verb, resource, code), series) in all.iter() {
            let labels = format!("code=\"{code}\",resource=\"{resource}\",verb=\"{}\"", verb.to_uppercase());
            for (count, bound) in series.buckets.iter().zip(BUCKETS_MS) {
                let bound = bound as f64 / 1000.0;
                put(text, format_args!("apiserver_request_duration_seconds_bucket{{{labels},le=\"{bound}\"}} {count}"));
            }
            put(text, format_args!("apiserver_request_duration_seconds_bucket{{{labels},le=\"+Inf\"}} {}", series.count));
            put(text, format_args!("apiserver_request_duration_seconds_sum{{{labels}}} {}", series.sum_ms as f64 / 1000.0));
            put(text, format_args!("apiserver_request_duration_seconds_count{{{labels}}} {}", series.count));
        }
        put(text, format_args!("# TYPE apiserver_storage_objects gauge"));
        for (resource, count) in server.store().counts() {
            put(text, format_args!("apiserver_storage_objects{{resource=\"{resource}\"}} {count}"));
        }
        put(text, format_args!("# TYPE apiserver_storage_size_bytes gauge"));
        put(text, format_args!("apiserver_storage_size_bytes {}", server.store().backend().size_bytes()));
        if let Some(auditor) = server.auditor() {
            auditor.render(text);
        }
        out
    }
}

fn put(out: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(out, "{line}").expect("writing to a String");
}
