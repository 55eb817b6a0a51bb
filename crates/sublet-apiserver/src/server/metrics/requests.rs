//! Requests by what they are about: how many, how long, how many at once.

use super::put;
use crate::http::RequestInfo;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Most series of requests; the rest is counted under the resource `other`.
const SERIES_MAX: usize = 2000;
/// As upstream's, in milliseconds.
const BUCKETS_MS: [u32; 23] = [
    5, 25, 50, 100, 200, 400, 600, 800, 1000, 1250, 1500, 2000, 3000, 4000, 5000, 6000, 8000, 10_000, 15_000, 20_000, 30_000, 45_000,
    60_000,
];
/// Paths that are no resources, by what is counted.
const PATHS: [&str; 9] = ["/readyz", "/livez", "/healthz", "/metrics", "/version", "/openapi/v2", "/openapi/v3", "/apis", "/api"];

#[derive(Default)]
pub struct Requests {
    hasher: RandomState,
    /// Guards the series by a digest of their labels, so that counting needs no copies of them.
    series: Arc<Mutex<HashMap<u64, Series>>>,
    /// Of reading and writing requests.
    in_flight: [AtomicU32; 2],
}

struct Series {
    labels: String,
    codes: Vec<(u16, u64)>,
    sum_ms: u64,
    buckets: [u32; BUCKETS_MS.len()],
    running: u32,
}

/// What a request is about, as labels tell it.
#[derive(Clone, Copy, Hash)]
struct Labels<'r> {
    verb: &'static str,
    group: &'r str,
    version: &'r str,
    resource: &'r str,
    subresource: &'r str,
    scope: &'static str,
    dry_run: bool,
}

impl<'r> Labels<'r> {
    /// What is not served must not make series of its own.
    fn of(info: &'r RequestInfo, served: bool, dry_run: bool, apply: bool) -> Self {
        let verb = match info.verb {
            "create" => "POST",
            "update" => "PUT",
            "patch" if apply => "APPLY",
            "patch" => "PATCH",
            "get" | "head" => "GET",
            "list" => "LIST",
            "watch" => "WATCH",
            "delete" => "DELETE",
            "deletecollection" => "DELETECOLLECTION",
            "post" => "POST",
            "put" => "PUT",
            _ => "other",
        };
        if !info.is_resource || !served {
            let path = PATHS.iter().find(|path| info.path.starts_with(*path) && !info.is_resource);
            let subresource = path.copied().unwrap_or_default();
            return Self { verb, group: "", version: "", resource: "", subresource, scope: "", dry_run: false };
        }
        let scope = match (info.name.is_empty() && info.verb != "create", info.namespace.is_empty()) {
            (false, _) => "resource",
            (true, false) => "namespace",
            (true, true) => "cluster",
        };
        let RequestInfo { group, version, resource, subresource, .. } = info;
        Self { verb, group, version, resource, subresource, scope, dry_run }
    }

    fn text(&self) -> String {
        let Self { verb, group, version, resource, subresource, scope, dry_run } = self;
        let (component, dry_run) = (if resource.is_empty() { "" } else { "apiserver" }, if *dry_run { "All" } else { "" });
        format!(
            "component=\"{component}\",dry_run=\"{dry_run}\",group=\"{group}\",resource=\"{resource}\",scope=\"{scope}\",\
             subresource=\"{subresource}\",verb=\"{verb}\",version=\"{version}\""
        )
    }
}

/// A request as it is counted.
pub(in super::super) struct Counted<'r> {
    pub info: &'r RequestInfo,
    pub served: bool,
    pub dry_run: bool,
    pub apply: bool,
}

/// A request that is in work, or lasts.
pub(in super::super) struct LongRunning {
    series: Arc<Mutex<HashMap<u64, Series>>>,
    key: u64,
}

impl Drop for LongRunning {
    fn drop(&mut self) {
        if let Some(series) = self.series.lock().expect("no holder of this lock panics").get_mut(&self.key) {
            series.running = series.running.saturating_sub(1);
        }
    }
}

impl Requests {
    fn with<T>(&self, labels: Labels<'_>, change: impl FnOnce(u64, &mut Series) -> T) -> T {
        let digest = |labels: &Labels<'_>| self.hasher.hash_one(labels);
        let mut all = self.series.lock().expect("no holder of this lock panics");
        let (mut labels, mut key) = (labels, digest(&labels));
        if all.len() >= SERIES_MAX && !all.contains_key(&key) {
            labels = Labels { verb: labels.verb, group: "", version: "", resource: "other", subresource: "", scope: "", dry_run: false };
            key = digest(&labels);
        }
        let series = all.entry(key).or_insert_with(|| Series {
            labels: labels.text(),
            codes: Vec::new(),
            sum_ms: 0,
            buckets: [0; BUCKETS_MS.len()],
            running: 0,
        });
        change(key, series)
    }

    pub(in super::super) fn begin(&self, writes: bool) {
        self.in_flight[usize::from(writes)].fetch_add(1, Ordering::Relaxed);
    }

    pub(in super::super) fn end(&self, writes: bool) {
        self.in_flight[usize::from(writes)].fetch_sub(1, Ordering::Relaxed);
    }

    /// `took` is `None` of what lasts as long as both sides want.
    pub(in super::super) fn count(&self, counted: &Counted<'_>, status: u16, took: Option<Duration>) {
        let labels = Labels::of(counted.info, counted.served, counted.dry_run, counted.apply);
        self.with(labels, |_, series| {
            match series.codes.iter_mut().find(|(code, _)| *code == status) {
                Some((_, count)) => *count += 1,
                None => series.codes.push((status, 1)),
            }
            let Some(took) = took else { return };
            let ms = took.as_millis();
            series.sum_ms = series.sum_ms.saturating_add(u64::try_from(ms).unwrap_or(u64::MAX));
            for (bucket, bound) in series.buckets.iter_mut().zip(BUCKETS_MS) {
                *bucket = bucket.saturating_add(u32::from(ms <= u128::from(bound)));
            }
        });
    }

    pub(in super::super) fn lasting(&self, counted: &Counted<'_>) -> LongRunning {
        let labels = Labels::of(counted.info, counted.served, counted.dry_run, counted.apply);
        let key = self.with(labels, |key, series| {
            series.running += 1;
            key
        });
        LongRunning { series: self.series.clone(), key }
    }

    pub(super) fn render(&self, text: &mut String) {
        put(text, format_args!("# TYPE apiserver_current_inflight_requests gauge"));
        for (kind, count) in ["readOnly", "mutating"].iter().zip(&self.in_flight) {
            put(text, format_args!("apiserver_current_inflight_requests{{request_kind=\"{kind}\"}} {}", count.load(Ordering::Relaxed)));
        }
        let all = self.series.lock().expect("no holder of this lock panics");
        let mut all: Vec<&Series> = all.values().collect();
        all.sort_unstable_by(|a, b| a.labels.cmp(&b.labels));
        put(text, format_args!("# TYPE apiserver_request_total counter"));
        for series in &all {
            for (code, count) in &series.codes {
                put(text, format_args!("apiserver_request_total{{code=\"{code}\",{}}} {count}", series.labels));
            }
        }
        put(text, format_args!("# TYPE apiserver_longrunning_requests gauge"));
        for series in all.iter().filter(|series| series.running > 0) {
            let labels = series.labels.replace("dry_run=\"\",", "");
            put(text, format_args!("apiserver_longrunning_requests{{{labels}}} {}", series.running));
        }
        put(text, format_args!("# TYPE apiserver_request_duration_seconds histogram"));
        for series in &all {
            histogram(text, series);
        }
    }
}

fn histogram(text: &mut String, series: &Series) {
    const NAME: &str = "apiserver_request_duration_seconds";
    let (labels, count) = (&series.labels, series.codes.iter().map(|(_, count)| count).sum::<u64>());
    for (in_time, bound) in series.buckets.iter().zip(BUCKETS_MS) {
        put(text, format_args!("{NAME}_bucket{{{labels},le=\"{}\"}} {in_time}", f64::from(bound) / 1000.0));
    }
    put(text, format_args!("{NAME}_bucket{{{labels},le=\"+Inf\"}} {count}"));
    put(text, format_args!("{NAME}_sum{{{labels}}} {}", series.sum_ms as f64 / 1000.0));
    put(text, format_args!("{NAME}_count{{{labels}}} {count}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Query;
    use http::Method;

    fn count(requests: &Requests, path: &str, served: bool) {
        let info = RequestInfo::parse(&Method::GET, path, &Query::default());
        requests.count(&Counted { info: &info, served, dry_run: false, apply: false }, 200, Some(Duration::from_millis(30)));
    }

    #[test]
    fn requests_have_upstreams_labels() {
        let requests = Requests::default();
        count(&requests, "/apis/apps/v1/namespaces/a/deployments", true);
        count(&requests, "/readyz/ping", true);
        let mut text = String::new();
        requests.render(&mut text);
        let labels = r#"component="apiserver",dry_run="",group="apps",resource="deployments",scope="namespace",subresource="",verb="LIST",version="v1""#;
        assert!(text.contains(&format!("apiserver_request_total{{code=\"200\",{labels}}} 1\n")), "{text}");
        assert!(text.contains(&format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"0.025\"}} 0\n")));
        assert!(text.contains(&format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"0.05\"}} 1\n")));
        assert!(text.contains(r#"subresource="/readyz",verb="GET",version=""} 1"#));
    }

    #[test]
    fn what_clients_make_up_is_not_counted_apart() {
        let requests = Requests::default();
        for number in 0..SERIES_MAX + 10 {
            count(&requests, &format!("/apis/g/v1/kind{number}"), false);
        }
        assert_eq!(requests.series.lock().unwrap().len(), 1);
        for number in 0..SERIES_MAX + 10 {
            count(&requests, &format!("/apis/g/v1/kind{number}"), true);
        }
        assert_eq!(requests.series.lock().unwrap().len(), SERIES_MAX + 1);
    }

    #[test]
    fn what_lasts_is_counted_until_it_ends() {
        let requests = Requests::default();
        let info = RequestInfo { verb: "watch", ..RequestInfo::parse(&Method::GET, "/api/v1/pods", &Query::default()) };
        let running = requests.lasting(&Counted { info: &info, served: true, dry_run: false, apply: false });
        let told = || {
            let mut text = String::new();
            requests.render(&mut text);
            text.lines().filter(|line| line.starts_with("apiserver_longrunning_requests{")).map(str::to_string).collect::<Vec<_>>()
        };
        let labels = r#"component="apiserver",group="",resource="pods",scope="cluster",subresource="",verb="WATCH",version="v1""#;
        assert_eq!(told(), [format!("apiserver_longrunning_requests{{{labels}}} 1")]);
        drop(running);
        assert_eq!(told(), [""; 0]);
    }
}
