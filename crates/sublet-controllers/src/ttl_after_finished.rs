//! Deletes finished jobs when their time to live is over.

use crate::kit::{conditions, time};
use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;
use sublet_machinery::ObjectExt;
use sublet_runtime::manager::map;
use sublet_runtime::resources::JOBS;
use sublet_runtime::{ClientError, Controller, Ctx, DeleteOptions, Key, Outcome, Reconciler};

pub(crate) fn controller() -> Controller {
    Controller::new("ttl-after-finished-controller", Ttl).watches(JOBS, map::itself)
}

/// When the job may go; `None` for jobs that run, stay, or are going already.
fn expiry(job: &Value) -> Option<Timestamp> {
    let ttl = job.i64_at("/spec/ttlSecondsAfterFinished")?;
    let status = job.get("status").filter(|_| !job.is_deleting())?;
    let finished = ["Complete", "Failed"].into_iter().filter_map(|kind| conditions::find(status, kind)).find(|c| c["status"] == "True")?;
    Some(time::plus_seconds(time::at(finished, "/lastTransitionTime")?, ttl))
}

struct Ttl;

#[async_trait]
impl Reconciler for Ttl {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let Some(expiry) = ctx.informer(&JOBS).get_key(key).and_then(|j| expiry(&j)) else { return Outcome::Done };
        let now = ctx.clock.now();
        if expiry > now {
            return Outcome::After(time::until(now, expiry));
        }
        match expire(ctx, key, now).await {
            Ok(()) => Outcome::Done,
            Err(error) => error.into(),
        }
    }
}

/// The time to live may have been raised since: the live object decides.
async fn expire(ctx: &Ctx, key: &Key, now: Timestamp) -> Result<(), ClientError> {
    let Some(job) = ctx.client.get_opt(&JOBS, &key.namespace, &key.name).await? else { return Ok(()) };
    if expiry(&job).is_some_and(|at| at <= now) {
        let options = DeleteOptions { propagation_policy: Some("Foreground"), ..DeleteOptions::default() }.uid(job.uid());
        ctx.client.delete_if_exists(&JOBS, &key.namespace, &key.name, &options).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn finished_jobs_expire_after_their_time_to_live() {
        let job = |kind: &str, ttl: Value| {
            let conditions = json!([{"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
            json!({"spec": {"ttlSecondsAfterFinished": ttl}, "status": {"conditions": conditions}})
        };
        let at = |text: &str| Some(text.parse().expect("a time"));
        assert_eq!(expiry(&job("Complete", json!(60))), at("2026-01-01T00:01:00Z"));
        assert_eq!(expiry(&job("Failed", json!(0))), at("2026-01-01T00:00:00Z"));
        assert_eq!(expiry(&job("Suspended", json!(0))), None);
        assert_eq!(expiry(&job("Complete", Value::Null)), None);
    }
}
