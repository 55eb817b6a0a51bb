//! Tokens that were made for accounts without anybody asking, as clusters once did, and that nobody uses: after a
//! year they are marked, after another they go.

use super::{is_of, is_token, names};
use crate::kit::{exec, time};
use async_trait::async_trait;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::time::Duration;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::{CONFIG_MAPS, PODS, SECRETS, SERVICE_ACCOUNTS};
use sublet_runtime::{ClientError, Controller, Ctx, DeleteOptions, Key, Outcome, Reconciler};

const PERIOD: Duration = Duration::from_secs(24 * 3600);
/// How long a token is unused before anything is done about it.
const UNUSED: SignedDuration = SignedDuration::from_hours(365 * 24);

const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// Says since when uses are written down.
const TRACKING: (&str, &str) = ("kube-system", "kube-apiserver-legacy-service-account-token-tracking");

pub(crate) fn controller() -> Controller {
    Controller::new("legacy-service-account-token-cleaner", Cleaner).reads(PODS).reads(SERVICE_ACCOUNTS).watches(SECRETS, |change, _| {
        let is_new = change.old.is_none() && is_token(change.object());
        if is_new { vec![Key::new("", "all")] } else { Vec::new() }
    })
}

struct Cleaner;

#[async_trait]
impl Reconciler for Cleaner {
    async fn reconcile(&self, ctx: &Ctx, _: &Key) -> Outcome {
        let mut tokens = ctx.informer(&SECRETS).list(None);
        tokens.retain(|secret| is_token(secret));
        if tokens.is_empty() {
            return Outcome::Done;
        }
        for secret in tokens {
            if let Err(error) = look(ctx, &secret).await {
                return error.into();
            }
        }
        Outcome::After(PERIOD)
    }
}

async fn look(ctx: &Ctx, secret: &Value) -> Result<(), ClientError> {
    let now = ctx.clock.now();
    // Nearly always this is all there is to do.
    if !is_old(secret, now) {
        return Ok(());
    }
    let accounts = ctx.informer(&SERVICE_ACCOUNTS).list(Some(secret.namespace()));
    let was_made_unasked = accounts.iter().any(|account| is_of(secret, account) && names(account, secret.name()));
    let is_mounted = || ctx.informer(&PODS).list(Some(secret.namespace())).iter().any(|pod| mentions(&pod["spec"], secret.name()));
    if !was_made_unasked || is_mounted() || !is_tracked(ctx, now).await? {
        return Ok(());
    }
    match verdict(secret, now) {
        Verdict::Keep => Ok(()),
        Verdict::Mark(today) => {
            let patch = json!({"metadata": {"uid": secret.uid(), "labels": {INVALID_SINCE: today}}});
            exec::merge_patch(ctx, &SECRETS, secret, patch).await.map(|_| ())
        }
        Verdict::Delete => {
            let options =
                DeleteOptions { precondition_resource_version: Some(secret.resource_version().into()), ..DeleteOptions::default() };
            exec::delete(ctx, &SECRETS, secret, options).await
        }
    }
}

/// Uses have been written down for long enough.
async fn is_tracked(ctx: &Ctx, now: Timestamp) -> Result<bool, ClientError> {
    let map = ctx.client.get_opt(&CONFIG_MAPS, TRACKING.0, TRACKING.1).await?;
    let since = map.as_ref().and_then(|map| map["data"]["since"].as_str()?.parse::<Date>().ok());
    // The whole day after it is the first that is known of.
    let first = since.and_then(|date| date.tomorrow().ok()).and_then(|date| date.to_zoned(TimeZone::UTC).ok());
    Ok(first.is_some_and(|first| first.timestamp() + UNUSED <= now))
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    Mark(String),
    Delete,
}

fn is_old(secret: &Value, now: Timestamp) -> bool {
    !secret.is_deleting() && time::created(secret).is_some_and(|at| at < now - UNUSED)
}

/// About a token of which only its use is still in question.
fn verdict(secret: &Value, now: Timestamp) -> Verdict {
    let (today, limit) = (day(now), day(now - UNUSED));
    let is_date = |text: &str| text.parse::<Date>().is_ok();
    if let Some(used) = secret.label(LAST_USED)
        && (!is_date(used) || *used >= *limit)
    {
        return Verdict::Keep;
    }
    match secret.label(INVALID_SINCE).filter(|since| is_date(since)) {
        None => Verdict::Mark(today),
        Some(since) if *since >= *limit => Verdict::Keep,
        Some(_) => Verdict::Delete,
    }
}

fn day(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d").to_string()
}

/// A pod names the Secret somewhere that Secrets are named.
fn mentions(value: &Value, secret: &str) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, value)| {
            let names_secrets = key.to_ascii_lowercase().contains("secret");
            let is_it = |value: &Value| value == secret || value["name"] == secret || value["secretName"] == secret;
            (names_secrets && (is_it(value) || value.as_array().is_some_and(|all| all.iter().any(is_it)))) || mentions(value, secret)
        }),
        Value::Array(all) => all.iter().any(|value| mentions(value, secret)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-06-01T12:00:00Z".parse().expect("a time")
    }

    #[test]
    fn unused_tokens_are_marked_and_then_go() {
        let check = |labels: Value, expected| assert_eq!(verdict(&json!({"metadata": {"labels": labels}}), now()), expected, "{labels}");
        check(json!({}), Verdict::Mark("2026-06-01".into()));
        check(json!({LAST_USED: "2025-01-01"}), Verdict::Mark("2026-06-01".into()));
        check(json!({LAST_USED: "2025-06-01"}), Verdict::Keep);
        check(json!({LAST_USED: "some day"}), Verdict::Keep);
        check(json!({INVALID_SINCE: "some day"}), Verdict::Mark("2026-06-01".into()));
        check(json!({INVALID_SINCE: "2026-01-01"}), Verdict::Keep);
        check(json!({INVALID_SINCE: "2025-05-31", LAST_USED: "2025-01-01"}), Verdict::Delete);
    }

    #[test]
    fn young_tokens_are_left_alone() {
        let created = |at: &str| json!({"metadata": {"creationTimestamp": at}});
        assert!(is_old(&created("2025-05-31T00:00:00Z"), now()) && !is_old(&created("2025-06-02T00:00:00Z"), now()));
    }

    #[test]
    fn pods_name_secrets_in_many_places() {
        for spec in [
            json!({"imagePullSecrets": [{"name": "s"}]}),
            json!({"volumes": [{"secret": {"secretName": "s"}}]}),
            json!({"volumes": [{"projected": {"sources": [{"secret": {"name": "s"}}]}}]}),
            json!({"volumes": [{"csi": {"nodePublishSecretRef": {"name": "s"}}}]}),
            json!({"containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}]}),
            json!({"initContainers": [{"envFrom": [{"secretRef": {"name": "s"}}]}]}),
        ] {
            assert!(mentions(&spec, "s") && !mentions(&spec, "other"), "{spec}");
        }
        assert!(!mentions(&json!({"volumes": [{"configMap": {"name": "s"}}]}), "s"));
    }
}
