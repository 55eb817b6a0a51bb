//! Approves the certificates by which kubelets are clients, for those who may have them.

use super::{APPROVED, DENIED, REQUESTS, has, is_issued, parsed, rules, usages};
use crate::kit::{exec, time};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::time::Duration;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_pki::Request;
use sublet_runtime::manager::map;
use sublet_runtime::{ClientError, Controller, Ctx, Key, Outcome, Reconciler};

const REVIEWS: Gvr = Gvr::new("authorization.k8s.io", "v1", "subjectaccessreviews");

/// How long to wait before somebody without the right is asked about again: as long as the request is old.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(1000));

/// What a request may be recognized as: a subresource that the asker needs the right to create.
const RIGHTS: [(&str, &str); 2] = [
    ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."),
    ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."),
];

pub(crate) fn controller() -> Controller {
    Controller::new("csrapproving", Approver).watches(REQUESTS, |change, mapping| {
        if change.new.as_ref().is_some_and(|r| r["spec"]["signerName"] == rules::KUBELET_CLIENT && is_undecided(r)) {
            map::itself(change, mapping)
        } else {
            Vec::new()
        }
    })
}

fn is_undecided(request: &Value) -> bool {
    !is_issued(request) && !has(request, APPROVED) && !has(request, DENIED)
}

/// The rights by which the asker may have what is asked for.
fn recognized(object: &Value, request: &Request) -> impl Iterator<Item = (&'static str, &'static str)> {
    let is_node = object["spec"]["signerName"] == rules::KUBELET_CLIENT && rules::kubelet_client(request, &usages(object)).is_ok();
    let is_self = object["spec"]["username"] == *request.common_name;
    RIGHTS.into_iter().filter(move |(right, _)| is_node && (is_self || *right != "selfnodeclient"))
}

struct Approver;

#[async_trait]
impl Reconciler for Approver {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let Some(object) = ctx.informer(&REQUESTS).get_key(key).filter(|r| is_undecided(r)) else { return Outcome::Done };
        let request = match parsed(&object) {
            Ok(request) => request,
            Err(error) => return Outcome::Stuck(format!("unable to parse csr {:?}: {error}", object.name())),
        };
        let mut tried = false;
        for (right, message) in recognized(&object, &request) {
            tried = true;
            match may(ctx, &object, right).await {
                Ok(true) => return approve(ctx, &object, message).await.map_or_else(Outcome::from, |()| Outcome::Done),
                Ok(false) => {}
                Err(error) => return error.into(),
            }
        }
        // Rights may be given later, and nobody tells of it.
        let age = time::created(&object).map_or(Duration::ZERO, |at| time::until(at, ctx.clock.now()));
        if tried { Outcome::After(age.clamp(ASK_AGAIN.0, ASK_AGAIN.1)) } else { Outcome::Done }
    }
}

async fn may(ctx: &Ctx, object: &Value, right: &str) -> Result<bool, ClientError> {
    let mut spec = json!({"resourceAttributes": {
        "group": REQUESTS.group, "version": "*", "resource": REQUESTS.resource, "subresource": right, "verb": "create",
    }});
    for (from, to) in [("username", "user"), ("uid", "uid"), ("groups", "groups"), ("extra", "extra")] {
        if let Some(value) = object["spec"].get(from) {
            spec[to] = value.clone();
        }
    }
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
    Ok(ctx.client.create(&REVIEWS, &review).await?["status"]["allowed"] == true)
}

async fn approve(ctx: &Ctx, object: &Value, message: &str) -> Result<(), ClientError> {
    let mut changed = object.clone();
    let condition = json!({"type": APPROVED, "status": "True", "reason": "AutoApproved", "message": message});
    let mut conditions = object.array_at("/status/conditions").to_vec();
    conditions.push(condition);
    changed["status"]["conditions"] = json!(conditions);
    exec::update_subresource(ctx, &REQUESTS, &changed, "approval").await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    const USAGES: [&str; 3] = ["key encipherment", "digital signature", "client auth"];

    fn check(change: impl Fn(&mut Value, &mut Request), expected: &[&str]) {
        for usages in [&USAGES[..], &USAGES[1..]] {
            let mut object = json!({"spec": {"signerName": rules::KUBELET_CLIENT, "username": "system:node:foo", "usages": usages}});
            let mut request =
                Request { common_name: "system:node:foo".into(), organizations: vec!["system:nodes".into()], ..Request::default() };
            change(&mut object, &mut request);
            assert_eq!(recognized(&object, &request).map(|(right, _)| right).collect::<Vec<_>>(), expected, "{object} {request:?}");
        }
    }

    #[test]
    fn a_node_asks_for_itself_or_for_another() {
        let both = ["selfnodeclient", "nodeclient"];
        check(|_, _| {}, &both);
        check(|object, _| object["spec"]["username"] = json!("joe"), &both[1..]);
        check(|_, request| request.common_name = "system:node:bar".into(), &both[1..]);
        check(|_, request| request.common_name = "mike".into(), &[]);
        check(|_, request| request.organizations.clear(), &[]);
        check(|_, request| request.organizations = vec!["system:master".into()], &[]);
        check(|object, _| object["spec"]["usages"] = json!(["server auth", "client auth", "digital signature"]), &[]);
        check(|object, _| object["spec"]["signerName"] = json!("example.com/not-correct"), &[]);
        check(|object, _| object["spec"]["signerName"] = json!(rules::KUBELET_SERVING), &[]);
    }

    #[test]
    fn what_is_decided_is_left_alone() {
        let decided = |kind: &str| json!({"status": {"conditions": [{"type": kind, "status": "False"}]}});
        assert!(is_undecided(&json!({})) && is_undecided(&decided(super::super::FAILED)));
        assert!(!is_undecided(&decided(APPROVED)) && !is_undecided(&decided(DENIED)));
    }
}
