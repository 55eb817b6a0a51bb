//! The columns of apps, batch, autoscaling and policy.

use crate::registry::Column;
use crate::table::age::{between, human, since};
use crate::table::columns::{
    NONE, UNSET, age, boolean, condition, count, each, integer, labels, name, scalar_at, selector, some_of, string, text, wide,
};
use jiff::Timestamp;
use serde_json::Value;
use sublet_machinery::ObjectExt;

pub(in crate::table) fn columns(plural: &str) -> Option<Vec<Column>> {
    Some(match plural {
        "controllerrevisions" => controller_revisions(),
        "daemonsets" => daemon_sets(),
        "deployments" => deployments(),
        "replicasets" => replica_sets(),
        "statefulsets" => stateful_sets(),
        "cronjobs" => cron_jobs(),
        "jobs" => jobs(),
        "horizontalpodautoscalers" => autoscalers(),
        "poddisruptionbudgets" => vec![
            name(),
            string("Min Available", "Pods that must stay.", |o, _| {
                scalar_at(o, "/spec/minAvailable").unwrap_or_else(|| "N/A".into()).into()
            }),
            string("Max Unavailable", "Pods that may be away.", |o, _| {
                scalar_at(o, "/spec/maxUnavailable").unwrap_or_else(|| "N/A".into()).into()
            }),
            integer("Allowed Disruptions", "Pods that may be evicted now.", |o, _| count(o, "/status/disruptionsAllowed")),
            age(),
        ],
        _ => return None,
    })
}

fn containers() -> [Column; 2] {
    [
        wide(string("Containers", "The names of the containers.", |o, _| each(o.array_at(TEMPLATE), "name"))),
        wide(string("Images", "The images of the containers.", |o, _| each(o.array_at(TEMPLATE), "image"))),
    ]
}

fn selector_column() -> Column {
    wide(string("Selector", "The labels of the pods.", |o, _| selector_or_none(&o["spec"]["selector"])))
}

fn selector_or_none(value: &Value) -> Value {
    let text = selector(value);
    if text.is_empty() { NONE.into() } else { text.into() }
}

fn ready_of(object: &Value) -> Value {
    format!("{}/{}", count(object, "/status/readyReplicas"), count(object, "/spec/replicas")).into()
}

fn deployments() -> Vec<Column> {
    let mut columns = vec![
        name(),
        string("Ready", "Replicas that are ready, of those asked for.", |o, _| ready_of(o)),
        string("Up-to-date", "Replicas of the newest template.", |o, _| count(o, "/status/updatedReplicas")),
        string("Available", "Replicas that are available.", |o, _| count(o, "/status/availableReplicas")),
        age(),
    ];
    columns.extend(containers());
    // Unlike the others, an empty selector shows as nothing.
    columns.push(wide(string("Selector", "The labels of the pods.", |o, _| selector(&o["spec"]["selector"]).into())));
    columns
}

fn replica_sets() -> Vec<Column> {
    let mut columns = vec![
        name(),
        integer("Desired", "Replicas asked for.", |o, _| count(o, "/spec/replicas")),
        integer("Current", "Replicas that exist.", |o, _| count(o, "/status/replicas")),
        integer("Ready", "Replicas that are ready.", |o, _| count(o, "/status/readyReplicas")),
        age(),
    ];
    columns.extend(containers());
    columns.push(selector_column());
    columns
}

fn stateful_sets() -> Vec<Column> {
    let mut columns = vec![name(), string("Ready", "Replicas that are ready, of those asked for.", |o, _| ready_of(o)), age()];
    columns.extend(containers());
    columns
}

fn daemon_sets() -> Vec<Column> {
    let mut columns = vec![
        name(),
        integer("Desired", "Nodes that should run the pod.", |o, _| count(o, "/status/desiredNumberScheduled")),
        integer("Current", "Nodes that run the pod.", |o, _| count(o, "/status/currentNumberScheduled")),
        integer("Ready", "Nodes where the pod is ready.", |o, _| count(o, "/status/numberReady")),
        integer("Up-to-date", "Nodes with the newest template.", |o, _| count(o, "/status/updatedNumberScheduled")),
        integer("Available", "Nodes where the pod is available.", |o, _| count(o, "/status/numberAvailable")),
        string("Node Selector", "The nodes it is for.", |o, _| labels(o.object_at("/spec/template/spec/nodeSelector")).into()),
        age(),
    ];
    columns.extend(containers());
    columns.push(selector_column());
    columns
}

fn controller_revisions() -> Vec<Column> {
    vec![
        name(),
        string("Controller", "Whose revision it is.", |o, _| {
            let Some(owner) = o.controller_owner() else { return NONE.into() };
            let group = text(owner, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
            let kind = text(owner, "/kind").to_lowercase();
            let kind = if group.is_empty() { kind } else { format!("{kind}.{}", group.to_lowercase()) };
            format!("{kind}/{}", text(owner, "/name")).into()
        }),
        string("Revision", "The number of the revision.", |o, _| count(o, "/revision")),
        age(),
    ]
}

fn jobs() -> Vec<Column> {
    let mut columns = vec![
        name(),
        string("Status", "How far the job is.", |o, _| job_status(o).into()),
        string("Completions", "Pods that succeeded, of those asked for.", |o, _| job_completions(o).into()),
        string("Duration", "The time the job takes or took.", |o, p| job_duration(o, p.now).into()),
        age(),
    ];
    columns.extend(containers());
    columns.push(selector_column());
    columns
}

fn job_status(job: &Value) -> &'static str {
    let holds = |condition_type: &str| condition(job.array_at("/status/conditions"), condition_type) == Some("True");
    if holds("Complete") {
        return "Complete";
    }
    if holds("Failed") {
        return "Failed";
    }
    if job.is_deleting() {
        return "Terminating";
    }
    ["Suspended", "FailureTarget", "SuccessCriteriaMet"].into_iter().find(|c| holds(c)).unwrap_or("Running")
}

fn job_completions(job: &Value) -> String {
    let succeeded = count(job, "/status/succeeded");
    match (job.i64_at("/spec/completions"), job.i64_at("/spec/parallelism").unwrap_or_default()) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn job_duration(job: &Value, now: Timestamp) -> String {
    match (job.str_at("/status/startTime"), job.str_at("/status/completionTime")) {
        (None, _) => String::new(),
        (Some(start), None) => since(Some(start), now),
        (Some(start), Some(end)) => between(start, end).map(human).unwrap_or_default(),
    }
}

fn cron_jobs() -> Vec<Column> {
    const CONTAINERS: &str = "/spec/jobTemplate/spec/template/spec/containers";
    vec![
        name(),
        string("Schedule", "When jobs start.", |o, _| text(o, "/spec/schedule").into()),
        string("Timezone", "The time zone of the schedule.", |o, _| o.str_at("/spec/timeZone").unwrap_or(NONE).into()),
        boolean("Suspend", "Whether no new jobs start.", |o, _| match o.bool_at("/spec/suspend") {
            Some(true) => "True".into(),
            Some(false) => "False".into(),
            None => UNSET.into(),
        }),
        integer("Active", "Jobs that run now.", |o, _| o.array_at("/status/active").len().into()),
        string("Last Schedule", "The time since the last start.", |o, p| {
            o.str_at("/status/lastScheduleTime").map_or_else(|| NONE.into(), |t| since(Some(t), p.now)).into()
        }),
        age(),
        wide(string("Containers", "The names of the containers.", |o, _| each(o.array_at(CONTAINERS), "name"))),
        wide(string("Images", "The images of the containers.", |o, _| each(o.array_at(CONTAINERS), "image"))),
        wide(string("Selector", "The labels of the pods.", |o, _| {
            o.pointer("/spec/jobTemplate/spec/selector").map_or_else(|| NONE.into(), selector_or_none)
        })),
    ]
}

fn autoscalers() -> Vec<Column> {
    vec![
        name(),
        string("Reference", "What is scaled.", |o, _| {
            format!("{}/{}", text(o, "/spec/scaleTargetRef/kind"), text(o, "/spec/scaleTargetRef/name")).into()
        }),
        string("Targets", "Current and wanted metrics.", |o, _| metrics(o).into()),
        string("MinPods", "Replicas at least.", |o, _| scalar_at(o, "/spec/minReplicas").unwrap_or_else(|| UNSET.into()).into()),
        string("MaxPods", "Replicas at most.", |o, _| count(o, "/spec/maxReplicas")),
        string("Replicas", "Replicas now.", |o, _| count(o, "/status/currentReplicas")),
        age(),
    ]
}

fn metrics(autoscaler: &Value) -> String {
    let specs = autoscaler.array_at("/spec/metrics");
    if specs.is_empty() {
        return cpu_target(autoscaler);
    }
    let statuses = autoscaler.array_at("/status/currentMetrics");
    let texts: Vec<String> = specs.iter().enumerate().map(|(i, spec)| metric(spec, statuses.get(i))).collect();
    some_of(&texts, METRICS_SHOWN, ", ")
}

/// `autoscaling/v1` has one target of its own.
fn cpu_target(autoscaler: &Value) -> String {
    let Some(target) = autoscaler.i64_at("/spec/targetCPUUtilizationPercentage") else { return NONE.into() };
    let current = autoscaler.i64_at("/status/currentCPUUtilizationPercentage").map_or_else(|| UNKNOWN.into(), |c| format!("{c}%"));
    format!("cpu: {current}/{target}%")
}

fn metric(spec: &Value, status: Option<&Value>) -> String {
    let key = match text(spec, "/type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".into(),
    };
    let target = |field: &str| scalar_at(spec, &format!("/{key}/target/{field}"));
    let current = |field: &str| {
        let status = status.filter(|s| s[key].is_object());
        status.map(|s| scalar_at(s, &format!("/{key}/current/{field}")))
    };
    // A status without the value prints a zero quantity.
    let quantity = |field: &str| current(field).map_or_else(|| UNKNOWN.to_string(), |c| c.unwrap_or_else(|| "0".into()));
    match key {
        "pods" => format!("{}/{}", quantity("averageValue"), target("averageValue").unwrap_or_default()),
        "external" | "object" => match target("averageValue") {
            Some(average) => format!("{}/{average} (avg)", current("averageValue").flatten().unwrap_or_else(|| UNKNOWN.into())),
            None => format!("{}/{}", quantity("value"), target("value").unwrap_or_default()),
        },
        _ => {
            let name = text(&spec[key], "/name");
            match target("averageValue") {
                Some(average) => format!("{name}: {}/{average}", quantity("averageValue")),
                None => {
                    let percent = |value: Option<String>, missing: &str| value.map_or_else(|| missing.to_string(), |v| format!("{v}%"));
                    let current = percent(current("averageUtilization").flatten(), UNKNOWN);
                    format!("{name}: {current}/{}", percent(target("averageUtilization"), "<auto>"))
                }
            }
        }
    }
}

const TEMPLATE: &str = "/spec/template/spec/containers";
const UNKNOWN: &str = "<unknown>";
const METRICS_SHOWN: usize = 2;
