//! Webhooks that judge requests, all at once.

use super::super::{Attributes, Plugin};
use super::hook::Hook;
use super::review::Review;
use super::{Refusal, Webhooks, ask, heed, hooks, interest};
use crate::reader::Writer;
use async_trait::async_trait;
use futures::future::join_all;
use std::sync::Arc;
use sublet_machinery::ApiError;

pub(in super::super) struct ValidatingAdmissionWebhook {
    webhooks: Webhooks,
}

impl ValidatingAdmissionWebhook {
    pub(in super::super) fn new() -> Self {
        Self { webhooks: Webhooks::new(["validatingwebhookconfigurations.admissionregistration.k8s.io"], hooks) }
    }
}

#[async_trait]
impl Plugin for ValidatingAdmissionWebhook {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionWebhook"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        !attributes.is_exempt()
    }

    async fn validate(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let Some(server) = store.server() else { return Ok(()) };
        let hooks = self.webhooks.read(server);
        let mut asked: Vec<(&Arc<Hook>, Result<Review, String>)> = Vec::new();
        for hook in hooks.iter() {
            if let Some(seen) = interest(hook, attributes, server).await? {
                asked.push((hook, Review::new(hook, attributes, &seen)));
            }
        }
        let dry_run = attributes.dry_run;
        let calls = asked.iter().map(|(hook, review)| async move {
            let review = review.as_ref().map_err(|why| Refusal::Failed(why.clone()))?;
            ask(hook, review, false, dry_run, server).await
        });
        let answers = join_all(calls).await;
        let mut refused = None;
        for (index, ((hook, _), answer)) in asked.iter().zip(answers).enumerate() {
            match answer.and_then(|answer| heed(hook, answer, attributes)) {
                Ok(_) => {}
                Err(Refusal::Failed(why)) if hook.fails_open || attributes.goes_on_without() => {
                    tracing::warn!(server = server.name(), webhook = hook.name, why, "failed calling webhook, failing open");
                    let key = format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}");
                    attributes.annotations.insert(key, hook.name.clone());
                }
                // The first one is told, as upstream does.
                Err(refusal) => refused = refused.or(Some(refusal.into_error(hook))),
            }
        }
        refused.map_or(Ok(()), Err)
    }
}
