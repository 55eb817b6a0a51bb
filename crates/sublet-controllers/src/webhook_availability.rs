//! Tells the owner of a webhook that refuses all it is shown because nobody answers behind its Service.

use async_trait::async_trait;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::manager::Mapping;
use sublet_runtime::resources::{ENDPOINT_SLICES, MUTATING_WEBHOOK_CONFIGURATIONS, SERVICES, VALIDATING_WEBHOOK_CONFIGURATIONS};
use sublet_runtime::{Change, Controller, Ctx, EventKind, Key, Outcome, Reconciler};
use tokio::time::Instant;

/// A Service may need this long to come up before it is worth a word.
const GRACE: Duration = Duration::from_secs(15);
/// Between two words about the same state.
const REPEAT: Duration = Duration::from_secs(300);
const SERVICE_NAME: &str = "kubernetes.io/service-name";

static CONFIGURATIONS: [(&str, Gvr); 2] =
    [("mutating", MUTATING_WEBHOOK_CONFIGURATIONS), ("validating", VALIDATING_WEBHOOK_CONFIGURATIONS)];

pub(crate) fn controller() -> Controller {
    Controller::new("webhook-availability", Availability::default())
        .watches(MUTATING_WEBHOOK_CONFIGURATIONS, |change, _| vec![Key::new("mutating", change.object().name())])
        .watches(VALIDATING_WEBHOOK_CONFIGURATIONS, |change, _| vec![Key::new("validating", change.object().name())])
        .watches(SERVICES, |change, mapping| of_service(change, change.object().name(), mapping))
        .watches(ENDPOINT_SLICES, |change, mapping| of_service(change, change.object().label(SERVICE_NAME).unwrap_or_default(), mapping))
}

/// The configurations that a change of a Service, or of its endpoints, concerns.
fn of_service(change: &Change, name: &str, mapping: &Mapping) -> Vec<Key> {
    let namespace = change.object().namespace();
    let mut keys = Vec::new();
    for (kind, gvr) in &CONFIGURATIONS {
        let all = mapping.informer(gvr).list(None);
        let about = all.iter().filter(|c| services(c).any(|(_, s)| s["namespace"] == namespace && s["name"] == name));
        keys.extend(about.map(|c| Key::new(*kind, c.name())));
    }
    keys
}

/// The webhooks that fail closed, with the Services that they are reached by.
fn services(configuration: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let closed = configuration.array_at("/webhooks").iter().filter(|w| w["failurePolicy"] != "Ignore");
    closed.filter_map(|w| Some((w["name"].as_str()?, w.pointer("/clientConfig/service").filter(|s| s.is_object())?)))
}

/// What is wrong with a Service, if anything.
fn trouble(service: &Value, exists: bool, slices: &[Arc<Value>]) -> Option<String> {
    let name = format!("{}/{}", service["namespace"].as_str()?, service["name"].as_str()?);
    if !exists {
        return Some(format!("service {name:?} does not exist"));
    }
    let ready = slices.iter().flat_map(|s| s.array_at("/endpoints")).any(|e| e.pointer("/conditions/ready") != Some(&Value::Bool(false)));
    (!ready).then(|| format!("service {name:?} has no ready endpoints"))
}

#[derive(Default)]
struct Availability {
    /// Guards since when configurations are in trouble; one entry for each that is.
    since: Mutex<HashMap<Key, Instant>>,
}

#[async_trait]
impl Reconciler for Availability {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let gvr = CONFIGURATIONS.iter().find(|(kind, _)| *kind == key.namespace).map(|(_, gvr)| gvr);
        let configuration = gvr.and_then(|gvr| ctx.informer(gvr).get("", &key.name));
        let troubles = configuration.as_deref().map(|c| troubles(ctx, c)).unwrap_or_default();
        let (Some(configuration), false) = (&configuration, troubles.is_empty()) else {
            self.since.lock().expect("no holder panics").remove(key);
            return Outcome::Done;
        };
        let since = *self.since.lock().expect("no holder panics").entry(key.clone()).or_insert_with(Instant::now);
        let left = GRACE.saturating_sub(since.elapsed());
        if !left.is_zero() {
            return Outcome::After(left);
        }
        for (webhook, why) in troubles {
            let message = format!(
                "webhook {webhook:?} cannot be asked ({why}): the requests that it is to be shown are refused, since its failurePolicy is Fail; start it, or delete the configuration"
            );
            ctx.events.record(configuration, EventKind::Warning, "WebhookUnavailable", &message).await;
        }
        Outcome::After(REPEAT)
    }
}

fn troubles<'a>(ctx: &Ctx, configuration: &'a Value) -> Vec<(&'a str, String)> {
    let found = services(configuration).filter_map(|(webhook, service)| {
        let (namespace, name) = (service["namespace"].as_str()?, service["name"].as_str()?);
        let exists = ctx.informer(&SERVICES).get(namespace, name).is_some();
        let mut slices = ctx.informer(&ENDPOINT_SLICES).list(Some(namespace));
        slices.retain(|s| s.label(SERVICE_NAME) == Some(name));
        Some((webhook, trouble(service, exists, &slices)?))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_webhook_that_fails_closed_needs_somebody_who_answers() {
        let service = json!({"namespace": "guard", "name": "judge"});
        let configuration = json!({"webhooks": [
            {"name": "closed.example.com", "clientConfig": {"service": service}},
            {"name": "open.example.com", "failurePolicy": "Ignore", "clientConfig": {"service": service}},
            {"name": "elsewhere.example.com", "failurePolicy": "Fail", "clientConfig": {"url": "https://example.com"}},
        ]});
        assert_eq!(services(&configuration).map(|(name, _)| name).collect::<Vec<_>>(), ["closed.example.com"]);
        let slice = |ready: Value| [Arc::new(json!({"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}]}))];
        assert_eq!(trouble(&service, false, &[]).as_deref(), Some("service \"guard/judge\" does not exist"));
        assert_eq!(trouble(&service, true, &slice(json!(false))).as_deref(), Some("service \"guard/judge\" has no ready endpoints"));
        assert_eq!(trouble(&service, true, &slice(json!(true))), None);
        assert_eq!(trouble(&service, true, &slice(Value::Null)), None, "unknown counts as ready");
    }
}
