//! Forgets requests that nobody will come back to.

use super::{APPROVED, DENIED, FAILED, REQUESTS, is_issued};
use crate::kit::{exec, time};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::manager::map;
use sublet_runtime::resources::POD_CERTIFICATE_REQUESTS;
use sublet_runtime::{Controller, Ctx, DeleteOptions, Key, Outcome, Reconciler};

const DECIDED: SignedDuration = SignedDuration::from_hours(1);
const PENDING: SignedDuration = SignedDuration::from_hours(24);
const OF_PODS: SignedDuration = SignedDuration::from_mins(30);

pub(crate) fn requests() -> Controller {
    Controller::new("csrcleaner", Cleaner { gvr: REQUESTS, end }).watches(REQUESTS, map::itself)
}

pub(crate) fn pod_requests() -> Controller {
    let end: End = |request| time::created(request).map(|at| at + OF_PODS);
    Controller::new("podcertificaterequestcleaner", Cleaner { gvr: POD_CERTIFICATE_REQUESTS, end })
        .watches(POD_CERTIFICATE_REQUESTS, map::itself)
}

type End = fn(&Value) -> Option<Timestamp>;

/// The earliest of the times after which a request has served: undecided for a day, decided for an hour,
/// approved for a day without a certificate, or its certificate has ended.
fn end(request: &Value) -> Option<Timestamp> {
    let conditions = request.array_at("/status/conditions");
    if conditions.is_empty() {
        return time::created(request).map(|at| at + PENDING);
    }
    let ends = conditions.iter().filter_map(|condition| {
        let updated = time::at(condition, "/lastUpdateTime");
        match condition["type"].as_str()? {
            APPROVED if is_issued(request) => [updated.map(|at| at + DECIDED), certificate_end(request)].into_iter().flatten().min(),
            APPROVED => updated.map(|at| at + PENDING),
            DENIED | FAILED => updated.map(|at| at + DECIDED),
            _ => None,
        }
    });
    ends.min()
}

fn certificate_end(request: &Value) -> Option<Timestamp> {
    let pem = STANDARD.decode(request.str_at("/status/certificate")?).ok()?;
    sublet_pki::expires_at(std::str::from_utf8(&pem).ok()?).ok()
}

struct Cleaner {
    gvr: Gvr,
    end: End,
}

#[async_trait]
impl Reconciler for Cleaner {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let Some(request) = ctx.informer(&self.gvr).get_key(key) else { return Outcome::Done };
        let now = ctx.clock.now();
        match (self.end)(&request) {
            None => Outcome::Done,
            Some(end) if end > now => Outcome::After(time::until(now, end)),
            Some(_) => {
                exec::delete(ctx, &self.gvr, &request, DeleteOptions::default()).await.map_or_else(Outcome::from, |()| Outcome::Done)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sublet_pki::{Authority, Leaf, Usage};

    fn ago(minutes: i64) -> String {
        (now() - SignedDuration::from_mins(minutes)).to_string()
    }

    fn now() -> Timestamp {
        "2026-01-02T00:00:00Z".parse().expect("a time")
    }

    fn certificate(lifetime: SignedDuration) -> String {
        let authority = Authority::new("test-ca", now()).expect("an authority");
        let leaf = Leaf { common_name: "a", organization: None, names: &[], usage: Usage::Client, lifetime };
        STANDARD.encode(authority.issue(&leaf, now() - SignedDuration::from_mins(10)).expect("a certificate").certificate_pem)
    }

    fn check(created_minutes: i64, certificate: &str, conditions: &[(&str, i64)], deleted: bool) {
        let conditions: Vec<Value> =
            conditions.iter().map(|(kind, minutes)| json!({"type": kind, "lastUpdateTime": ago(*minutes)})).collect();
        let mut request = json!({"metadata": {"creationTimestamp": ago(created_minutes)}, "status": {"conditions": conditions}});
        if !certificate.is_empty() {
            request["status"]["certificate"] = json!(certificate);
        }
        assert_eq!(end(&request).is_some_and(|end| end <= now()), deleted, "{request}");
    }

    #[test]
    fn requests_go_when_they_have_served() {
        let (good, ended) = (certificate(SignedDuration::from_hours(9)), certificate(SignedDuration::from_mins(5)));
        check(1, &good, &[(APPROVED, 50)], false);
        check(1, "", &[(APPROVED, 50)], false);
        check(1, &good, &[(APPROVED, 120)], true);
        check(1, "", &[(DENIED, 50)], false);
        check(1, "", &[(DENIED, 120)], true);
        check(1, "", &[(APPROVED, 120), (FAILED, 50)], false);
        check(1, "", &[(APPROVED, 120), (FAILED, 120)], true);
        check(5 * 60, "", &[], false);
        check(25 * 60, "", &[], true);
        check(1, "", &[(APPROVED, 25 * 60)], true);
        check(1, "", &[(APPROVED, 5 * 60)], false);
        check(1, &ended, &[(APPROVED, 50)], true);
        check(1, &STANDARD.encode("garbage"), &[(APPROVED, 120)], true);
    }
}
