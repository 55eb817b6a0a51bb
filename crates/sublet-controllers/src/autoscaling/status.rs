//! The status of an autoscaler, as it is put together during one look.

use crate::kit::conditions;
use crate::kit::exec;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;
use sublet_runtime::{ClientError, Ctx};

pub(super) struct Status {
    status: Value,
    generation: i64,
    now: String,
}

impl Status {
    pub(super) fn of(autoscaler: &Value, now: String) -> Self {
        let status = autoscaler.get("status").filter(|s| s.is_object()).cloned().unwrap_or_else(|| json!({}));
        Self { status, generation: autoscaler.generation(), now }
    }

    pub(super) fn is_true(&self, kind: &str) -> bool {
        conditions::is_true(&self.status, kind)
    }

    /// A condition keeps its place, and its time while its status stays.
    pub(super) fn condition(&mut self, kind: &str, is_true: bool, reason: &str, message: &str) {
        let value = if is_true { "True" } else { "False" };
        let condition = json!({"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": self.now});
        conditions::put(&mut self.status, condition);
    }

    pub(super) fn emptied(&mut self, emptied: bool) {
        let (reason, message) = if emptied {
            ("ScaledToZero", "the HPA controller scaled the workload to zero")
        } else {
            ("NotScaledToZero", "the HPA controller did not scale the workload to zero")
        };
        self.condition("ScaledToZero", emptied, reason, message);
    }

    /// What metrics said before is not to be read beside new counts.
    pub(super) fn forget_metrics(&mut self) {
        self.status.remove_at("/currentMetrics");
    }

    pub(super) fn metrics(&mut self, metrics: Vec<Value>) {
        self.status["currentMetrics"] = json!(metrics);
    }

    /// The count as it is; what is wanted stays as it was.
    pub(super) fn count(&mut self, current: i64) {
        self.status["currentReplicas"] = json!(current);
        self.status["observedGeneration"] = json!(self.generation);
    }

    pub(super) fn counts(&mut self, current: i64, desired: i64) {
        self.count(current);
        self.status["desiredReplicas"] = json!(desired);
    }

    pub(super) fn scaled(&mut self, current: i64, desired: i64) {
        self.counts(current, desired);
        self.status["lastScaleTime"] = json!(self.now);
    }

    /// Writes what is new.
    pub(super) async fn write(self, ctx: &Ctx, autoscaler: &Value) -> Result<(), ClientError> {
        exec::put_status(ctx, &super::AUTOSCALERS, autoscaler, self.status).await
    }
}
