//! Where numbers come from: the metrics APIs of the cluster, as far as somebody serves them.

use super::calculate::{Sample, Samples};
use crate::kit::time;
use jiff::SignedDuration;
use serde_json::Value;
use std::fmt::Write as _;
use sublet_machinery::selector::Selector;
use sublet_machinery::{ObjectExt, Quantity};
use sublet_runtime::{Client, ClientError};

const CUSTOM: &str = "custom.metrics.k8s.io";
/// The window of a custom metric that does not say its own.
const WINDOW: SignedDuration = SignedDuration::from_mins(1);

/// What pods, or one container of each, use of a resource.
pub(super) async fn resource(client: &Client, namespace: &str, selector: &str, name: &str, container: &str) -> Result<Samples, String> {
    let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods?labelSelector={}", escaped(selector));
    let list =
        get(client, &path, "pods.metrics.k8s.io").await.map_err(|e| format!("unable to fetch metrics from resource metrics API: {e}"))?;
    let items = list.array_at("/items");
    if items.is_empty() {
        return Err("no metrics returned from resource metrics API".into());
    }
    Ok(items.iter().filter_map(|item| Some((item.name().to_string(), sample(item, name, container)?))).collect())
}

/// Every container that counts must have been measured.
fn sample(item: &Value, name: &str, container: &str) -> Option<Sample> {
    let counted = || item.array_at("/containers").iter().filter(|c| container.is_empty() || c["name"] == container);
    counted().next()?;
    let value = counted().map(|c| Some(Quantity::from_json(c["usage"].get(name)?).ok()?.milli_value())).sum::<Option<i64>>()?;
    Some(Sample {
        value,
        at: time::at(item, "/timestamp"),
        window: item.str_at("/window").and_then(|w| w.parse().ok()).unwrap_or_default(),
    })
}

/// A metric of each pod.
pub(super) async fn pods(client: &Client, namespace: &str, selector: &str, metric: &Value) -> Result<Samples, String> {
    let items = custom(client, namespace, &format!("pods/*/{}", name(metric)), selector, metric).await?;
    let samples = items.iter().filter_map(|item| {
        let window = item["windowSeconds"].as_i64().map_or(WINDOW, SignedDuration::from_secs);
        let value = Quantity::from_json(&item["value"]).ok()?.milli_value();
        Some((item.str_at("/describedObject/name")?.to_string(), Sample { value, at: time::at(item, "/timestamp"), window }))
    });
    Ok(samples.collect())
}

/// A metric of one object: `resource` is its plural with its group. Namespaces have metrics about themselves alone.
pub(super) async fn object(client: &Client, namespace: &str, resource: &str, object: &str, metric: &Value) -> Result<i64, String> {
    let tail = match resource {
        "namespaces" => format!("metrics/{}", name(metric)),
        _ => format!("{resource}/{object}/{}", name(metric)),
    };
    let items = custom(client, namespace, &tail, "", metric).await?;
    let value = items.first().and_then(|item| Quantity::from_json(&item["value"]).ok());
    value.map(|v| v.milli_value()).ok_or_else(|| "the custom metrics API returned no value".into())
}

async fn custom(client: &Client, namespace: &str, tail: &str, selector: &str, metric: &Value) -> Result<Vec<Value>, String> {
    let failed = |e: String| format!("unable to fetch metrics from custom metrics API: {e}");
    let what = format!("{}.{CUSTOM}", tail.split('/').next().unwrap_or_default());
    let group = get(client, &format!("/apis/{CUSTOM}"), &what).await.map_err(failed)?;
    let is_new = group.array_at("/versions").iter().any(|v| v["version"] == "v1beta2");
    let version = if is_new { "v1beta2" } else { "v1beta1" };
    let metric_selector = selector_text(&metric["selector"]).map_err(failed)?;
    let path = format!(
        "/apis/{CUSTOM}/{version}/namespaces/{namespace}/{tail}?labelSelector={}&metricLabelSelector={}",
        escaped(selector),
        escaped(&metric_selector)
    );
    let list = get(client, &path, &what).await.map_err(failed)?;
    match list.array_at("/items") {
        [] => Err("no metrics returned from custom metrics API".into()),
        items => Ok(items.to_vec()),
    }
}

/// A metric of something outside: the sum of all its series.
pub(super) async fn external(client: &Client, namespace: &str, metric: &Value) -> Result<i64, String> {
    let selector = selector_text(&metric["selector"])?;
    let path =
        format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{}?labelSelector={}", name(metric), escaped(&selector));
    let what = format!("{}.external.metrics.k8s.io", name(metric));
    let list = get(client, &path, &what).await.map_err(|e| format!("unable to fetch metrics from external metrics API: {e}"))?;
    let items = list.array_at("/items");
    if items.is_empty() {
        return Err("no metrics returned from external metrics API".into());
    }
    let values = items.iter().filter_map(|item| Quantity::from_json(&item["value"]).ok());
    Ok(values.fold(0i64, |sum, value| sum.saturating_add(value.milli_value())))
}

async fn get(client: &Client, path: &str, what: &str) -> Result<Value, String> {
    client.get_raw(path).await.map_err(|error| match &error {
        // The server knows no such path and answers in plain text; clients say it in these words.
        ClientError::Api(api) if api.code == 404 && api.message.starts_with("404") => {
            format!("the server could not find the requested resource (get {what})")
        }
        _ => error.to_string(),
    })
}

pub(super) fn name(metric: &Value) -> &str {
    metric["name"].as_str().unwrap_or_default()
}

/// A selector of series as it stands in a query; nothing selects all.
pub(super) fn selector_text(selector: &Value) -> Result<String, String> {
    if selector.is_null() {
        return Ok(String::new());
    }
    Selector::from_object(selector).map(|s| s.to_string()).map_err(|e| e.0)
}

fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => _ = write!(out, "%{byte:02X}"),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_counts_when_all_of_it_was_measured() {
        let item = json!({"metadata": {"name": "p"}, "timestamp": "2026-01-01T00:00:00Z", "window": "30s", "containers": [
            {"name": "a", "usage": {"cpu": "100m", "memory": "1Ki"}}, {"name": "b", "usage": {"cpu": "250m"}},
        ]});
        let value = |name, container| sample(&item, name, container).map(|s| s.value);
        assert_eq!(value("cpu", ""), Some(350));
        assert_eq!(value("cpu", "b"), Some(250));
        assert_eq!(value("memory", ""), None);
        assert_eq!(value("memory", "a"), Some(1_024_000));
        assert_eq!(value("cpu", "c"), None);
        assert_eq!(sample(&item, "cpu", "").expect("a sample").window, SignedDuration::from_secs(30));
    }

    #[test]
    fn selectors_go_into_queries() {
        assert_eq!(selector_text(&Value::Null), Ok(String::new()));
        let selector = json!({"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["a", "b"]}]});
        assert_eq!(escaped(&selector_text(&selector).expect("a selector")), "app%3Dx%2Ck%20in%20%28a%2Cb%29");
    }
}
