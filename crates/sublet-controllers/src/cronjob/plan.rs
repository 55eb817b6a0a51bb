//! The step of a cron job: which job to start, which old ones to delete, what the status becomes.

use super::schedule::{self, Schedule, ScheduleError};
use crate::kit::template;
use crate::kit::{conditions, time};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::EventKind;

/// Room for clocks that differ a little.
const NEXT_DELTA: Duration = Duration::from_millis(100);
const SCHEDULED_AT: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

#[derive(Debug, PartialEq)]
pub(super) struct Event {
    pub(super) kind: EventKind,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) events: Vec<Event>,
    /// Finished jobs beyond the history limits.
    pub(super) trim: Vec<Arc<Value>>,
    /// Running jobs (references of the active list) that the new one replaces.
    pub(super) replace: Vec<Value>,
    pub(super) start: Option<(Value, Timestamp)>,
    pub(super) status: Value,
    pub(super) after: Option<Duration>,
}

pub(super) struct Observed<'a> {
    pub(super) cronjob: &'a Value,
    pub(super) jobs: &'a [Arc<Value>],
    /// Uids of active jobs that the server does not have any more.
    pub(super) missing: &'a [String],
    pub(super) now: Timestamp,
}

/// Complete or Failed, when finished.
fn finished(job: &Value) -> Option<&'static str> {
    let status = job.get("status")?;
    ["Complete", "Failed"].into_iter().find(|kind| conditions::is_true(status, kind))
}

impl Plan {
    fn event(&mut self, kind: EventKind, reason: &'static str, message: String) {
        self.events.push(Event { kind, reason, message });
    }

    fn active(&self) -> &[Value] {
        self.status.array_at("/active")
    }

    fn drop_active(&mut self, uid: &str) {
        if let Some(active) = self.status.get_mut("active").and_then(Value::as_array_mut) {
            active.retain(|r| r["uid"] != uid);
            if active.is_empty() {
                self.status.remove_at("/active");
            }
        }
    }

    /// Adds a started job to the active list.
    pub(super) fn add_active(&mut self, job: &Value, scheduled: Timestamp) {
        let reference = json!({
            "apiVersion": "batch/v1", "kind": "Job", "namespace": job.namespace(), "name": job.name(), "uid": job.uid(),
            "resourceVersion": job.resource_version(),
        });
        match self.status.get_mut("active").and_then(Value::as_array_mut) {
            Some(active) => active.push(reference),
            None => self.status["active"] = json!([reference]),
        }
        self.status["lastScheduleTime"] = json!(sublet_runtime::clock::format_seconds(scheduled));
    }
}

pub(super) fn plan(observed: &Observed) -> Plan {
    let cronjob = observed.cronjob;
    let mut plan = Plan { status: cronjob.get("status").filter(|s| s.is_object()).cloned().unwrap_or(json!({})), ..Plan::default() };
    trim_history(observed, &mut plan);
    follow_jobs(observed, &mut plan);
    if cronjob.is_deleting() {
        return plan;
    }
    let schedule = match Schedule::of(cronjob) {
        Err(ScheduleError::UnknownTimeZone(message)) => {
            plan.event(EventKind::Warning, "UnknownTimeZone", message);
            return plan;
        }
        _ if cronjob.bool_at("/spec/suspend").unwrap_or(false) => return plan,
        Err(ScheduleError::Unparseable(why)) => {
            let text = cronjob.str_at("/spec/schedule").unwrap_or_default();
            plan.event(EventKind::Warning, "UnparseableSchedule", format!("unparseable schedule: \"{text}\" : {why}"));
            return plan;
        }
        Ok(schedule) => schedule,
    };
    let text = cronjob.str_at("/spec/schedule").unwrap_or_default();
    if text.contains("TZ") {
        let message = format!(
            "CRON_TZ or TZ used in schedule \"{text}\" is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
        );
        plan.event(EventKind::Warning, "UnsupportedSchedule", message);
    }
    if schedule.next(observed.now).is_none() {
        // The 31st of February.
        let why = format!("invalid schedule: {text} : time difference between two schedules is less than 1 second");
        plan.event(EventKind::Warning, "InvalidSchedule", why);
        return plan;
    }
    start(observed, &schedule, &mut plan);
    plan.after = next_look(cronjob, &schedule, observed.now);
    plan
}

/// The pause until the next start.
pub(super) fn next_look(cronjob: &Value, schedule: &Schedule, now: Timestamp) -> Option<Duration> {
    let earliest = last_start(cronjob);
    let from = if schedule.next(earliest).is_some_and(|t| t <= now) { now } else { earliest };
    Some(time::until(now, schedule.next(from)?) + NEXT_DELTA)
}

fn last_start(cronjob: &Value) -> Timestamp {
    time::at(cronjob, "/status/lastScheduleTime").or_else(|| time::created(cronjob)).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn trim_history(observed: &Observed, plan: &mut Plan) {
    for (kind, limit) in [("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")] {
        let Some(limit) = observed.cronjob.i64_at(&format!("/spec/{limit}")) else { continue };
        let mut jobs: Vec<&Arc<Value>> = observed.jobs.iter().filter(|j| finished(j) == Some(kind)).collect();
        let surplus = jobs.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        jobs.sort_by_key(|j| {
            let started = time::at(j, "/status/startTime");
            (started.is_none(), started, j.name().to_string())
        });
        for job in jobs.into_iter().take(surplus).filter(|j| !j.is_deleting()) {
            plan.drop_active(job.uid());
            plan.trim.push(job.clone());
        }
    }
}

/// Takes finished and lost jobs from the active list.
fn follow_jobs(observed: &Observed, plan: &mut Plan) {
    for job in observed.jobs {
        let is_active = plan.active().iter().any(|r| r["uid"] == job.uid());
        match finished(job) {
            None if !is_active => {
                let message = format!("Saw a job that the controller did not create or forgot: {}", job.name());
                plan.event(EventKind::Warning, "UnexpectedJob", message);
            }
            None => {}
            Some(kind) => {
                if is_active {
                    plan.drop_active(job.uid());
                    let message = format!("Saw completed job: {}, condition: {kind}", job.name());
                    plan.event(EventKind::Normal, "SawCompletedJob", message);
                }
                let completed = job.str_at("/status/completionTime").filter(|_| kind == "Complete");
                // Timestamps of whole seconds in UTC sort as texts.
                if let Some(completed) = completed.filter(|c| plan.status["lastSuccessfulTime"].as_str().is_none_or(|last| *c > last)) {
                    plan.status["lastSuccessfulTime"] = json!(completed);
                }
            }
        }
    }
    for uid in observed.missing {
        if let Some(reference) = plan.active().iter().find(|r| r["uid"] == *uid.as_str()) {
            let message = format!("Active job went missing: {}", reference["name"].as_str().unwrap_or_default());
            plan.event(EventKind::Normal, "MissingJob", message);
            plan.drop_active(uid);
        }
    }
}

fn start(observed: &Observed, schedule: &Schedule, plan: &mut Plan) {
    let (cronjob, now) = (observed.cronjob, observed.now);
    let deadline = cronjob.i64_at("/spec/startingDeadlineSeconds");
    let window = deadline.map(|d| now.checked_sub(SignedDuration::from_secs(d)).unwrap_or(Timestamp::MIN));
    let earliest = last_start(cronjob).max(window.unwrap_or(Timestamp::MIN));
    let due = schedule.due(earliest, now);
    let Some(at) = due.at else { return };
    if due.many {
        let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        plan.event(EventKind::Warning, "TooManyMissedTimes", message.into());
    }
    if window.is_some_and(|w| at < w) {
        let message = format!("Missed scheduled time to start a job: {}", at.strftime("%a, %d %b %Y %H:%M:%S +0000"));
        plan.event(EventKind::Warning, "MissSchedule", message);
        return;
    }
    let name = job_name(cronjob, at);
    let is_started = plan.active().iter().any(|r| r["name"] == *name.as_str()) || time::at(cronjob, "/status/lastScheduleTime") == Some(at);
    if is_started {
        return;
    }
    match cronjob.str_at("/spec/concurrencyPolicy") {
        Some("Forbid") if !plan.active().is_empty() => {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            plan.event(EventKind::Normal, "JobAlreadyActive", message.into());
            return;
        }
        Some("Replace") => plan.replace = plan.active().to_vec(),
        _ => {}
    }
    for reference in plan.replace.clone() {
        plan.drop_active(reference["uid"].as_str().unwrap_or_default());
    }
    plan.start = Some((new_job(cronjob, &name, at), at));
}

/// The name tells the start, so that no start happens twice.
fn job_name(cronjob: &Value, at: Timestamp) -> String {
    format!("{}-{}", cronjob.name(), at.as_second().div_euclid(60))
}

fn new_job(cronjob: &Value, name: &str, at: Timestamp) -> Value {
    let template = &cronjob["spec"]["jobTemplate"];
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "spec": template["spec"].clone(),
        "metadata": {
            "name": name, "namespace": cronjob.namespace(),
            "ownerReferences": [template::controller_reference(cronjob, &super::CRON_JOB)],
        },
    });
    for key in ["labels", "annotations"] {
        if let Some(map) = template["metadata"].get(key).filter(|m| m.is_object()) {
            job["metadata"][key] = map.clone();
        }
    }
    let zone = schedule::time_zone(cronjob).unwrap_or(jiff::tz::TimeZone::UTC);
    let format = if zone == jiff::tz::TimeZone::UTC { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%:z" };
    job.set_annotation(SCHEDULED_AT, &at.to_zoned(zone).strftime(format).to_string());
    job
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cronjob(spec: Value, status: Value) -> Value {
        let mut cronjob = json!({
            "metadata": {"name": "c", "namespace": "n", "uid": "c", "creationTimestamp": "2026-01-01T09:30:00Z"},
            "spec": {"schedule": "0 * * * *", "jobTemplate": {"spec": {"x": 1}}}, "status": status,
        });
        for (key, value) in spec.as_object().into_iter().flatten() {
            cronjob["spec"][key] = value.clone();
        }
        cronjob
    }

    fn job(name: &str, state: &str) -> Arc<Value> {
        let conditions = if state.is_empty() { json!([]) } else { json!([{"type": state, "status": "True"}]) };
        Arc::new(json!({
            "metadata": {"name": name, "namespace": "n", "uid": name},
            "status": {"conditions": conditions, "completionTime": "2026-01-01T09:45:00Z", "startTime": format!("2026-01-01T09:40:0{}Z", name.len() % 10)},
        }))
    }

    fn step(cronjob: &Value, jobs: &[Arc<Value>], now: &str) -> Plan {
        plan(&Observed { cronjob, jobs, missing: &[], now: now.parse().expect("a time") })
    }

    fn reasons(plan: &Plan) -> Vec<&str> {
        plan.events.iter().map(|e| e.reason).collect()
    }

    #[test]
    fn a_due_start_makes_a_job_named_after_its_minute() {
        let plan = step(&cronjob(json!({"timeZone": "Europe/Berlin"}), json!({})), &[], "2026-01-01T10:00:10Z");
        let (job, at) = plan.start.expect("due");
        assert_eq!((job.name(), at.to_string().as_str()), ("c-29454360", "2026-01-01T10:00:00Z"));
        assert_eq!(job.annotation(SCHEDULED_AT), Some("2026-01-01T11:00:00+01:00"));
        assert_eq!(plan.after.map(|d| d.as_secs()), Some(3590));
    }

    #[test]
    fn nothing_starts_before_its_time_or_twice_or_when_suspended() {
        assert_eq!(step(&cronjob(json!({}), json!({})), &[], "2026-01-01T09:59:00Z").start, None);
        assert_eq!(step(&cronjob(json!({}), json!({"lastScheduleTime": "2026-01-01T10:00:00Z"})), &[], "2026-01-01T10:00:10Z").start, None);
        assert_eq!(step(&cronjob(json!({"suspend": true}), json!({})), &[], "2026-01-01T10:00:10Z").start, None);
    }

    #[test]
    fn running_jobs_are_let_be_forbid_or_replaced() {
        let active = json!({"active": [{"name": "old", "uid": "old"}]});
        let check =
            |policy: &str| step(&cronjob(json!({"concurrencyPolicy": policy}), active.clone()), &[job("old", "")], "2026-01-01T10:00:10Z");
        assert!(check("Allow").start.is_some());
        let forbid = check("Forbid");
        assert_eq!((forbid.start.is_some(), reasons(&forbid)), (false, vec!["JobAlreadyActive"]));
        let replace = check("Replace");
        assert_eq!((replace.start.is_some(), replace.replace.len(), replace.active().len()), (true, 1, 0));
    }

    #[test]
    fn a_start_too_late_is_missed() {
        let late = step(&cronjob(json!({"startingDeadlineSeconds": 60}), json!({})), &[], "2026-01-01T10:05:00Z");
        assert_eq!(late.start, None);
        let in_time = step(&cronjob(json!({"startingDeadlineSeconds": 600}), json!({})), &[], "2026-01-01T10:05:00Z");
        assert!(in_time.start.is_some());
    }

    #[test]
    fn finished_jobs_leave_the_list_and_old_ones_go() {
        let active = json!({"active": [{"name": "a", "uid": "a"}, {"name": "gone", "uid": "gone"}]});
        let cronjob = cronjob(json!({"successfulJobsHistoryLimit": 1}), active);
        let jobs = [job("a", "Complete"), job("bb", "Complete"), job("ccc", "Failed")];
        let missing = ["gone".to_string()];
        let plan =
            plan(&Observed { cronjob: &cronjob, jobs: &jobs, missing: &missing, now: "2026-01-01T09:50:00Z".parse().expect("a time") });
        assert_eq!(plan.trim.iter().map(|j| j.name().to_string()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(plan.status, json!({"lastSuccessfulTime": "2026-01-01T09:45:00Z"}));
        assert_eq!(reasons(&plan), ["MissingJob"]);
    }

    #[test]
    fn bad_schedules_are_told() {
        assert_eq!(reasons(&step(&cronjob(json!({"schedule": "x"}), json!({})), &[], "2026-01-01T10:00:10Z")), ["UnparseableSchedule"]);
        let never = cronjob(json!({"schedule": "59 23 31 2 *"}), json!({}));
        assert_eq!(reasons(&step(&never, &[], "2026-01-01T10:00:10Z")), ["InvalidSchedule"]);
        assert_eq!(reasons(&step(&cronjob(json!({"timeZone": "x/y"}), json!({})), &[], "2026-01-01T10:00:10Z")), ["UnknownTimeZone"]);
    }
}
