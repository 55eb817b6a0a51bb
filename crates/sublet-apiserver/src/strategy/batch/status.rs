//! Updates of the status of a job. Rules about a part are held only when that part changes, so that old
//! jobs stay writable (as `getStatusValidationOptions`, 1.37).

use super::super::apps::rules::validate_counts;
use super::super::edit::is_zero;
use super::super::field::{Errors, Field, IMMUTABLE, Seen};
use super::policies::{count_indexes, invalid_unshown, overlap};
use serde_json::Value;
use sublet_machinery::FieldError;

struct Update<'a> {
    new: &'a Value,
    old: &'a Value,
    status: Field<'a>,
}

pub(super) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let update = Update { new, old, status: Field::root(new).at("status") };
    Errors::of(|errors| {
        validate_counts(&update.status, &["active", "succeeded", "failed", "ready", "terminating"], errors);
        update.uncounted(errors);
        update.completion(errors);
        update.finish(errors);
        update.indexes(errors);
        update.success(errors);
        update.no_way_back(errors);
    })
}

impl Update<'_> {
    fn is(&self, job: &Value, condition: &str) -> bool {
        let conditions = job["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|c| c["type"] == condition && c["status"] == "True")
    }

    fn now(&self, condition: &str) -> bool {
        self.is(self.new, condition)
    }

    fn finished(&self, job: &Value) -> bool {
        self.is(job, "Complete") || self.is(job, "Failed")
    }

    fn turned(&self, condition: &str) -> bool {
        self.is(self.old, condition) != self.now(condition)
    }

    fn changed(&self, key: &str) -> bool {
        let (new, old) = (&self.new["status"][key], &self.old["status"][key]);
        new != old && !(is_zero(new) && is_zero(old))
    }

    fn conditions(&self, detail: &str, errors: &mut Errors) {
        errors.add(invalid_unshown(&self.status.at("conditions"), detail));
    }

    fn uncounted(&self, errors: &mut Errors) {
        let mut seen = Seen::default();
        for key in ["succeeded", "failed"] {
            for uid in self.status.at("uncountedTerminatedPods").at(key).items() {
                if uid.is_zero() {
                    errors.add(uid.invalid("must not be empty"));
                } else if seen.again(uid.text()) {
                    errors.add(uid.duplicate());
                }
            }
        }
    }

    fn completion(&self, errors: &mut Errors) {
        let (start, end) = (self.status.at("startTime"), self.status.at("completionTime"));
        let complete = self.now("Complete");
        if (self.turned("Complete") || self.turned("Failed")) && complete && self.now("Failed") {
            self.conditions("cannot set Complete=True and Failed=true conditions", errors);
        }
        if (self.turned("Complete") || self.turned("FailureTarget")) && complete && self.now("FailureTarget") {
            self.conditions("cannot set Complete=True and FailureTarget=true conditions", errors);
        }
        if self.turned("Complete") || self.changed("completionTime") {
            if end.is_set() && !complete {
                errors.add(end.invalid("cannot set completionTime when there is no Complete=True condition"));
            }
            if !end.is_set() && complete {
                errors.add(end.required("completionTime is required for Complete jobs"));
            }
        }
        let times = (self.changed("startTime") || self.changed("completionTime")) && start.is_set() && end.is_set();
        if times && end.text() < start.text() {
            errors.add(end.invalid("must be equal to or after `startTime`"));
        }
        if (self.turned("Failed") || self.changed("failedIndexes")) && self.now("Failed") && !self.now("FailureTarget") {
            self.conditions("cannot set Failed=True condition without the FailureTarget=true condition", errors);
        }
        if (self.turned("Complete") || self.turned("SuccessCriteriaMet")) && complete && !self.now("SuccessCriteriaMet") {
            self.conditions("cannot set Complete=True condition without the SuccessCriteriaMet=true condition", errors);
        }
    }

    fn finish(&self, errors: &mut Errors) {
        let status = &self.status;
        let (finished, turned) = (self.finished(self.new), self.finished(self.new) != self.finished(self.old));
        let active = status.at("active");
        if (turned || self.changed("active")) && finished && active.int() > 0 {
            errors.add(active.invalid("active>0 is invalid for finished job"));
        }
        let nothing_to_do = self.new["spec"]["suspend"] == true && self.new["spec"]["completions"] == 0;
        if (turned || self.changed("startTime")) && !nothing_to_do && finished && !status.at("startTime").is_set() {
            errors.add(status.at("startTime").required("startTime is required for finished job"));
        }
        let uncounted = status.at("uncountedTerminatedPods");
        let some = !uncounted.at("failed").is_zero() || !uncounted.at("succeeded").is_zero();
        if (turned || self.changed("uncountedTerminatedPods")) && finished && some {
            errors.add(uncounted.invalid("must be empty for finished job"));
        }
        let terminating = status.at("terminating");
        if (turned || self.changed("terminating")) && finished && terminating.int() > 0 {
            errors.add(terminating.invalid("terminating>0 is invalid for finished job"));
        }
        let ready = status.at("ready");
        if (self.changed("ready") || self.changed("active")) && ready.is_set() && ready.int() > active.int() {
            errors.add(ready.invalid("cannot set more ready pods than active"));
        }
    }

    fn indexes(&self, errors: &mut Errors) {
        let spec = &self.new["spec"];
        let (completed, failed) = (self.status.at("completedIndexes"), self.status.at("failedIndexes"));
        let completions = spec["completions"].as_i64();
        let per_index = spec["backoffLimitPerIndex"].is_number();
        if let Some(completions) = completions {
            for (field, wanted) in [(&completed, true), (&failed, per_index)] {
                let name = if wanted && std::ptr::eq(field, &completed) { "completedIndexes" } else { "failedIndexes" };
                if wanted
                    && self.changed(name)
                    && let Err(why) = count_indexes(field.text(), completions)
                {
                    errors.add(field.invalid(format!("error parsing {name}: {why}")));
                }
            }
        }
        if self.changed("completedIndexes") && !completed.is_zero() && spec["completionMode"] != "Indexed" {
            errors.add(completed.invalid("cannot set non-empty completedIndexes when non-indexed completion mode"));
        }
        if self.changed("failedIndexes") && failed.is_set() && !per_index {
            errors.add(failed.invalid("cannot set non-null failedIndexes when backoffLimitPerIndex is null"));
        }
        if (self.changed("failedIndexes") || self.changed("completedIndexes"))
            && let Some(completions) = completions
            && let Some(index) = overlap(completed.text(), failed.text(), completions)
        {
            errors.add(failed.invalid(format!("failedIndexes and completedIndexes overlap at index: {index}")));
        }
    }

    fn success(&self, errors: &mut Errors) {
        let met = self.now("SuccessCriteriaMet");
        if met && self.now("Failed") {
            self.conditions("cannot set SuccessCriteriaMet=True and Failed=true conditions", errors);
        }
        if met && self.now("FailureTarget") {
            self.conditions("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions", errors);
        }
        if self.new["spec"]["successPolicy"].is_object() && !met && self.now("Complete") {
            self.conditions("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True", errors);
        }
    }

    /// Ended is ended, and counters do not go down.
    fn no_way_back(&self, errors: &mut Errors) {
        let (status, old) = (&self.status, &self.old["status"]);
        for condition in ["Failed", "Complete", "FailureTarget"] {
            if self.is(self.old, condition) && !self.now(condition) {
                self.conditions(&format!("cannot disable the terminal {condition}=True condition"), errors);
            }
        }
        let elastic = self.new["spec"]["completionMode"] == "Indexed" && self.new["spec"]["completions"] == self.new["spec"]["parallelism"];
        for (key, held) in [("failed", true), ("succeeded", !elastic)] {
            if held && status.at(key).int() < old[key].as_i64().unwrap_or_default() {
                errors.add(status.at(key).invalid_as(status.at(key).int(), format!("cannot decrease the {key} counter")));
            }
        }
        let end = status.at("completionTime");
        if end.is_set() && !old["completionTime"].is_null() && *end.value != old["completionTime"] {
            errors.add(end.invalid(IMMUTABLE));
        }
        let off = |job: &Value| {
            let conditions = job["status"]["conditions"].as_array().into_iter().flatten();
            conditions.into_iter().any(|c| c["type"] == "Suspended" && c["status"] == "False")
        };
        let resuming = self.is(self.old, "Suspended") && off(self.new);
        let suspended = self.new["spec"]["suspend"] == true;
        if self.changed("startTime") && !resuming && !old["startTime"].is_null() && !suspended {
            errors.add(status.at("startTime").invalid("field is immutable for unsuspended job once set"));
        }
        if self.is(self.old, "SuccessCriteriaMet") && !self.now("SuccessCriteriaMet") {
            self.conditions("cannot disable the SuccessCriteriaMet=True condition", errors);
        }
        if self.is(self.old, "Complete") && !self.is(self.old, "SuccessCriteriaMet") && self.now("SuccessCriteriaMet") {
            self.conditions("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions", errors);
        }
    }
}
