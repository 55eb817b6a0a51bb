//! Signs approved requests with the authority of the cluster.

use super::{APPROVED, DENIED, FAILED, REQUESTS, has, is_issued, parsed, rules, usages};
use crate::kit::exec;
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use serde_json::{Value, json};
use sublet_machinery::ObjectExt;
use sublet_pki::{Authority, PkiError};
use sublet_runtime::manager::map;
use sublet_runtime::{Clock, Controller, Ctx, Key, Outcome, Reconciler};

/// Who asks for no lifetime gets the longest.
const LIFETIME_MAX: SignedDuration = SignedDuration::from_hours(365 * 24);
const LIFETIME_MIN: SignedDuration = SignedDuration::from_mins(10);

pub(crate) fn controller(authority: Authority) -> Controller {
    Controller::new("csrsigning", Signer { authority }).watches(REQUESTS, |change, mapping| {
        if change.new.as_ref().is_some_and(|r| is_due(r)) { map::itself(change, mapping) } else { Vec::new() }
    })
}

fn is_due(request: &Value) -> bool {
    let is_approved = has(request, APPROVED) && !has(request, DENIED);
    let failed = request
        .array_at("/status/conditions")
        .iter()
        .any(|c| c["type"] == FAILED && matches!(c["status"].as_str(), None | Some("" | "True")));
    is_approved && !failed && !is_issued(request) && rules::of(request.str_at("/spec/signerName").unwrap_or_default()).is_some()
}

fn lifetime(request: &Value) -> SignedDuration {
    request.i64_at("/spec/expirationSeconds").map_or(LIFETIME_MAX, |s| SignedDuration::from_secs(s).clamp(LIFETIME_MIN, LIFETIME_MAX))
}

struct Signer {
    authority: Authority,
}

#[async_trait]
impl Reconciler for Signer {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let Some(request) = ctx.informer(&REQUESTS).get_key(key).filter(|r| is_due(r)) else { return Outcome::Done };
        let status = match self.status(&request, &ctx.clock) {
            Ok(status) => status,
            Err(error) => return Outcome::Stuck(format!("error auto signing csr {:?}: {error}", request.name())),
        };
        exec::put_status(ctx, &REQUESTS, &request, status).await.map_or_else(Outcome::from, |()| Outcome::Done)
    }
}

impl Signer {
    /// The status with the certificate, or with why there will be none.
    fn status(&self, object: &Value, clock: &Clock) -> Result<Value, PkiError> {
        let (request, usages) = (parsed(object)?, usages(object));
        let mut status = object["status"].clone();
        let rule = rules::of(object.str_at("/spec/signerName").unwrap_or_default());
        if let Some(Err(wrong)) = rule.map(|rule| rule(&request, &usages)) {
            let mut conditions = object.array_at("/status/conditions").to_vec();
            conditions.push(json!({
                "type": FAILED, "status": "True", "reason": "SignerValidationFailure", "message": wrong, "lastUpdateTime": clock.rfc3339(),
            }));
            status["conditions"] = json!(conditions);
            return Ok(status);
        }
        let certificate = self.authority.sign_request(&request, &usages, lifetime(object), clock.now())?;
        status["certificate"] = json!(STANDARD.encode(certificate));
        Ok(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT_REQUEST: &str = include_str!("testdata/alice.csr");

    fn object(signer: &str, usages: &[&str]) -> Value {
        json!({
            "metadata": {"name": "a"},
            "spec": {"signerName": signer, "usages": usages, "request": STANDARD.encode(CLIENT_REQUEST), "expirationSeconds": 3600},
            "status": {"conditions": [{"type": APPROVED, "status": "True"}]},
        })
    }

    fn signer(clock: &Clock) -> Signer {
        Signer { authority: Authority::new("test-ca", clock.now()).expect("an authority") }
    }

    #[test]
    fn an_approved_request_gets_its_certificate() {
        let clock = Clock::manual(1_767_323_045);
        let request = object(rules::CLIENT, &["client auth", "digital signature"]);
        assert!(is_due(&request));
        let status = signer(&clock).status(&request, &clock).expect("it can be signed");
        let pem = STANDARD.decode(status["certificate"].as_str().expect("a certificate")).expect("base64");
        let end = sublet_pki::expires_at(std::str::from_utf8(&pem).expect("PEM")).expect("a certificate");
        assert_eq!(end, clock.now() + SignedDuration::from_hours(1));
        assert!(!is_due(&json!({"spec": request["spec"], "status": status})));
    }

    #[test]
    fn a_request_that_breaks_the_signers_rules_fails_for_good() {
        let clock = Clock::manual(1_767_323_045);
        let check = |signer_name: &str, usages: &[&str], message: &str| {
            let request = object(signer_name, usages);
            let status = signer(&clock).status(&request, &clock).expect("a verdict");
            let failed = &status["conditions"][1];
            assert_eq!((failed["reason"].as_str(), failed["message"].as_str()), (Some("SignerValidationFailure"), Some(message)));
            assert!(status.get("certificate").is_none() && !is_due(&json!({"spec": request["spec"], "status": status})));
        };
        check(rules::CLIENT, &["server auth", "client auth"], "invalid usage for client certificate: server auth");
        check(rules::KUBELET_CLIENT, &["client auth", "digital signature"], "subject organization is not system:nodes");
    }

    #[test]
    fn only_approved_requests_of_known_signers_are_due() {
        let mut request = object("example.com/other", &["client auth"]);
        assert!(!is_due(&request));
        request["spec"]["signerName"] = json!(rules::KUBELET_SERVING);
        assert!(is_due(&request));
        request["status"]["conditions"] = json!([{"type": APPROVED, "status": "True"}, {"type": DENIED, "status": "True"}]);
        assert!(!is_due(&request));
    }

    #[test]
    fn lifetimes_are_held_in_bounds() {
        let check = |seconds: Value, expected| assert_eq!(lifetime(&json!({"spec": {"expirationSeconds": seconds}})), expected);
        check(Value::Null, LIFETIME_MAX);
        check(json!(60), LIFETIME_MIN);
        check(json!(7200), SignedDuration::from_hours(2));
        check(json!(i64::from(i32::MAX)), LIFETIME_MAX);
    }
}
