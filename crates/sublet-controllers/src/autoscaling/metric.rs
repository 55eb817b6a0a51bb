//! One metric of an autoscaler: asked for, judged, and shown in the status.

use super::calculate::{Proposal, Subject, Target, requests};
use super::{sources, target};
use serde_json::{Value, json};
use sublet_machinery::quantity::Format;
use sublet_machinery::{ObjectExt, Quantity};
use sublet_runtime::Client;

/// What a metric asks for, its name for people, and its status.
#[derive(Debug)]
pub(super) struct Computed {
    pub(super) replicas: i64,
    pub(super) name: String,
    pub(super) status: Value,
}

/// Why a metric says nothing: the reason of condition and event, what they tell, and what is said of the whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: &'static str,
    pub(super) why: String,
    pub(super) summary: String,
}

/// Where the metrics are asked for, and about what.
pub(super) struct Asked<'a> {
    pub(super) client: &'a Client,
    pub(super) namespace: &'a str,
    /// Of the pods, as text.
    pub(super) selector: &'a str,
    pub(super) subject: Subject<'a>,
    /// The pods that the target has, which need not be those that it wants.
    pub(super) replicas: i64,
}

/// The field of each type of metric and the reason of its failure.
const KINDS: [(&str, &str, &str); 5] = [
    ("Object", "object", "FailedGetObjectMetric"),
    ("Pods", "pods", "FailedGetPodsMetric"),
    ("Resource", "resource", "FailedGetResourceMetric"),
    ("ContainerResource", "containerResource", "FailedGetContainerResourceMetric"),
    ("External", "external", "FailedGetExternalMetric"),
];

pub(super) async fn compute(asked: &Asked<'_>, metric: &Value) -> Result<Computed, Failure> {
    let kind = metric["type"].as_str().unwrap_or_default();
    let Some((_, field, reason)) = KINDS.into_iter().find(|(name, _, _)| *name == kind) else {
        let why = format!("unknown metric source type {kind:?}");
        return Err(Failure { reason: "InvalidMetricSourceType", summary: why.clone(), why });
    };
    let source = &metric[field];
    let what = match kind {
        "Object" => object(asked, source).await,
        "Pods" => pods(asked, source).await,
        "External" => external(asked, source).await,
        _ => resource(asked, source, kind == "ContainerResource").await,
    };
    match what {
        Ok((proposal, name, mut status)) => {
            if let Some(metric) = source.get("metric") {
                status["metric"] = metric.clone();
            }
            Ok(Computed { replicas: proposal.replicas, name, status: json!({"type": kind, field: status}) })
        }
        Err(why) => {
            let named = |key: &str| source[key].as_str().unwrap_or_default();
            let what = match kind {
                "Object" => "object metric".to_string(),
                "Pods" => "pods metric".into(),
                "Resource" => format!("{} resource metric", named("name")),
                "ContainerResource" => format!("{} container metric", named("container")),
                _ => format!("{} external metric", sources::name(&source["metric"])),
            };
            Err(Failure { reason, summary: format!("failed to get {what} value: {why}"), why })
        }
    }
}

type Found = Result<(Proposal, String, Value), String>;

async fn resource(asked: &Asked<'_>, source: &Value, of_container: bool) -> Found {
    let name = source["name"].as_str().unwrap_or_default();
    let container = if of_container { source["container"].as_str().unwrap_or_default() } else { "" };
    let wanted = &source["target"];
    let samples = || async {
        let samples = sources::resource(asked.client, asked.namespace, asked.selector, name, container).await;
        samples.map_err(|e| format!("unable to get metrics for resource {name}: {e}"))
    };
    let mut status = json!({"name": name});
    if of_container {
        status["container"] = json!(container);
    }
    if let Some(average) = milli(&wanted["averageValue"]) {
        let found = match samples().await {
            Ok(samples) => asked.subject.of_pods(samples, &Target::Average(average), name),
            Err(error) => Err(error),
        };
        let found = found.map_err(|e| format!("failed to get {name} usage: {e}"))?;
        status["current"] = json!({"averageValue": quantity(name, found.usage)});
        return Ok((found, format!("{name} resource"), status));
    }
    let Some(percent) = wanted["averageUtilization"].as_i64() else {
        return Err(
            "invalid resource metric source: neither an average utilization target nor an average value (usage) target was set".into()
        );
    };
    let found = match samples().await {
        Ok(samples) => requests(asked.subject.pods, container, name)
            .and_then(|requests| asked.subject.of_pods(samples, &Target::Utilization { percent, requests: &requests }, name)),
        Err(error) => Err(error),
    };
    let found = found.map_err(|e| format!("failed to get {name} utilization: {e}"))?;
    status["current"] = json!({"averageUtilization": found.utilization, "averageValue": quantity(name, found.usage)});
    let of = if of_container { "container resource" } else { "resource" };
    Ok((found, format!("{name} {of} utilization (percentage of request)"), status))
}

async fn pods(asked: &Asked<'_>, source: &Value) -> Found {
    let name = sources::name(&source["metric"]);
    let average = milli(&source["target"]["averageValue"]).unwrap_or_default();
    let samples = sources::pods(asked.client, asked.namespace, asked.selector, &source["metric"]).await;
    let samples = samples.map_err(|e| format!("unable to get metric {name}: {e}"))?;
    let found = asked.subject.of_pods(samples, &Target::Average(average), "")?;
    let status = json!({"current": {"averageValue": quantity("", found.usage)}});
    Ok((found, format!("pods metric {name}"), status))
}

async fn object(asked: &Asked<'_>, source: &Value) -> Found {
    let (metric, described, wanted) = (&source["metric"], &source["describedObject"], &source["target"]);
    let name = sources::name(metric);
    let usage = async {
        let text = |key: &str| described[key].as_str().unwrap_or_default();
        let usage = async {
            let resources = target::resources(asked.client, text("apiVersion"), text("kind")).await?;
            let gvr = resources.first().ok_or("unrecognized resource")?;
            let resource = if gvr.group.is_empty() { gvr.resource.to_string() } else { format!("{}.{}", gvr.resource, gvr.group) };
            sources::object(asked.client, asked.namespace, &resource, text("name"), metric).await
        };
        usage.await.map_err(|e| format!("unable to get metric {name} on {} {}/{}: {e}", text("kind"), asked.namespace, text("name")))
    };
    let status = |current: Value| json!({"describedObject": described, "current": current});
    if let Some(value) = milli(&wanted["value"]).filter(|_| wanted["type"] == "Value") {
        let found = whole(asked, usage.await?, value)?;
        let status = status(json!({"value": quantity("", found.usage)}));
        return Ok((found, format!("{} metric {name}", described.kind()), status));
    }
    if let Some(average) = milli(&wanted["averageValue"]).filter(|_| wanted["type"] == "AverageValue") {
        let usage = usage.await.map_err(|e| format!("failed to get {name} object metric: {e}"))?;
        let found = asked.subject.of_shares(usage, average, asked.replicas);
        let status = status(json!({"averageValue": quantity("", found.usage)}));
        return Ok((found, external_name(metric), status));
    }
    Err("invalid object metric source: neither a value target nor an average value target was set".into())
}

async fn external(asked: &Asked<'_>, source: &Value) -> Found {
    let (metric, wanted) = (&source["metric"], &source["target"]);
    let name = sources::name(metric);
    let usage = async {
        let usage = sources::external(asked.client, asked.namespace, metric).await;
        usage.map_err(|e| {
            format!("unable to get external metric {}/{name}/{}: {e}", asked.namespace, selector_for_people(&metric["selector"]))
        })
    };
    if let Some(average) = milli(&wanted["averageValue"]) {
        let usage = usage.await.map_err(|e| format!("failed to get {name} external metric: {e}"))?;
        let found = asked.subject.of_shares(usage, average, asked.replicas);
        let status = json!({"current": {"averageValue": quantity("", found.usage)}});
        return Ok((found, external_name(metric), status));
    }
    if let Some(value) = milli(&wanted["value"]) {
        let usage = usage.await.map_err(|e| format!("failed to get external metric {name}: {e}"))?;
        let found = whole(asked, usage, value).map_err(|e| format!("failed to get external metric {name}: {e}"))?;
        let status = json!({"current": {"value": quantity("", found.usage)}});
        return Ok((found, external_name(metric), status));
    }
    Err("invalid external metric source: neither a value target nor an average value target was set".into())
}

fn whole(asked: &Asked<'_>, usage: i64, value: i64) -> Result<Proposal, String> {
    if asked.subject.pods.is_empty() && asked.subject.current != 0 {
        return Err("unable to calculate ready pods: no pods returned by selector while calculating replica count".into());
    }
    Ok(asked.subject.of_whole(usage, value))
}

fn external_name(metric: &Value) -> String {
    format!("external metric {}({})", sources::name(metric), selector_for_people(&metric["selector"]))
}

/// As upstream prints it.
fn selector_for_people(selector: &Value) -> String {
    if selector.is_null() {
        return "nil".into();
    }
    let labels = selector.object_at("/matchLabels").into_iter().flatten();
    let labels: String = labels.map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default())).collect();
    let expressions = selector.array_at("/matchExpressions").iter().map(|e| {
        let text = |key: &str| e[key].as_str().unwrap_or_default();
        let values: Vec<&str> = e.array_at("/values").iter().filter_map(Value::as_str).collect();
        format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},", text("key"), text("operator"), values.join(" "))
    });
    let expressions: String = expressions.collect();
    format!("&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}")
}

/// `None` where nothing is said, which would read as nothing.
fn milli(value: &Value) -> Option<i64> {
    Quantity::from_json(value).ok().filter(|_| !value.is_null()).map(|q| q.milli_value())
}

/// Thousandths as they are written: memory in powers of two, from a thousand on in whole bytes.
fn quantity(resource: &str, milli: i64) -> String {
    const BINARY_FROM: i64 = 1024;
    let whole = milli.div_euclid(1000) + i64::from(milli.rem_euclid(1000) > 0);
    if resource == "memory" && milli >= BINARY_FROM * 1000 {
        Quantity::new(whole, Format::BinarySi).to_string()
    } else {
        Quantity::from_milli(milli).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_written_as_its_resource_is() {
        assert_eq!(quantity("cpu", 250), "250m");
        assert_eq!(quantity("cpu", 2000), "2");
        assert_eq!(quantity("memory", 104_857_600_000), "100Mi");
        assert_eq!(quantity("memory", 512_000), "512");
        assert_eq!(quantity("memory", 1_500_000_500), "1500001");
    }

    #[test]
    fn what_is_not_said_is_no_target() {
        assert_eq!((milli(&Value::Null), milli(&json!("0")), milli(&json!("1500m"))), (None, Some(0), Some(1500)));
    }

    #[test]
    fn selectors_are_shown_as_upstream_shows_them() {
        assert_eq!(external_name(&json!({"name": "qps"})), "external metric qps(nil)");
        let metric = json!({"name": "qps", "selector": {"matchLabels": {"label": "value"}}});
        let expected = "external metric qps(&LabelSelector{MatchLabels:map[string]string{label: value,},MatchExpressions:[]LabelSelectorRequirement{},})";
        assert_eq!(external_name(&metric), expected);
    }
}
