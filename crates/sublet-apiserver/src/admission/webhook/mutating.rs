//! Webhooks that change requests, one after the other.

use super::super::view::Versioned;
use super::super::{Attributes, Plugin};
use super::hook::Hook;
use super::review::{Answer, Review};
use super::{Refusal, Webhooks, ask, heed, hooks, interest};
use crate::reader::Writer;
use crate::registry::Resource;
use crate::rest::write::apply_defaults;
use crate::server::Server;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::patch::json_patch;
use sublet_machinery::structural::{self, Decoded};
use sublet_machinery::{ApiError, ObjectExt};

pub(in super::super) struct MutatingAdmissionWebhook {
    webhooks: Webhooks,
}

impl MutatingAdmissionWebhook {
    pub(in super::super) fn new() -> Self {
        Self { webhooks: Webhooks::new(["mutatingwebhookconfigurations.admissionregistration.k8s.io"], hooks) }
    }
}

#[async_trait]
impl Plugin for MutatingAdmissionWebhook {
    fn name(&self) -> &'static str {
        "MutatingAdmissionWebhook"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        !attributes.is_exempt()
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let Some(server) = store.server() else { return Ok(()) };
        let hooks = self.webhooks.read(server);
        let is_again = attributes.reinvocation.is_again;
        if is_again && attributes.reinvocation.webhooks.last != attributes.object {
            // Plugins of the server changed the object on their second run.
            attributes.reinvocation.webhooks.require_again();
        }
        for (index, hook) in hooks.iter().enumerate() {
            let Some(seen) = interest(hook, attributes, server).await? else { continue };
            // A hook is not asked for the first time on the second run.
            if is_again && !attributes.reinvocation.webhooks.again.contains(&hook.uid) {
                continue;
            }
            let changed = call(hook, index, seen, attributes, server).await;
            if matches!(changed, Ok(true)) {
                attributes.reinvocation.webhooks.require_again();
                attributes.reinvocation.is_wanted = true;
            }
            if hook.asks_again {
                attributes.reinvocation.webhooks.willing.insert(hook.uid.clone());
            }
            match changed {
                Ok(_) => {}
                Err(Refusal::Failed(why)) if hook.fails_open || attributes.goes_on_without() => {
                    tracing::warn!(server = server.name(), webhook = hook.name, why, "failed calling webhook, failing open");
                    let key = format!("failed-open.mutation.webhook.admission.k8s.io/round_{}_index_{index}", u8::from(is_again));
                    attributes.annotations.insert(key, hook.name.clone());
                }
                Err(refusal) => return Err(refusal.into_error(hook)),
            }
        }
        attributes.reinvocation.webhooks.last = attributes.object.clone();
        Ok(())
    }
}

/// Asks one hook and applies its patch; tells whether the object changed.
async fn call(hook: &Hook, index: usize, seen: Versioned, attributes: &mut Attributes<'_>, server: &Server) -> Result<bool, Refusal> {
    let review = Review::new(hook, attributes, &seen).map_err(Refusal::Failed)?;
    let answer = ask(hook, &review, true, attributes.dry_run, server).await?;
    let answer = heed(hook, answer, attributes)?;
    let changed = apply(hook, seen, &answer, attributes, server).await?;
    let key = format!("mutation.webhook.admission.k8s.io/round_{}_index_{index}", u8::from(attributes.reinvocation.is_again));
    let note = json!({"configuration": hook.configuration, "webhook": hook.name, "mutated": changed});
    attributes.annotations.insert(key, note.to_string());
    Ok(changed)
}

async fn apply(hook: &Hook, seen: Versioned, answer: &Answer, attributes: &mut Attributes<'_>, server: &Server) -> Result<bool, Refusal> {
    if answer.patch.is_empty() {
        return Ok(false);
    }
    let undecodable = |why: String| Refusal::Failed(format!("received undecodable patch in webhook response: {why}"));
    let patch: Value = serde_json::from_slice(&answer.patch).map_err(|e| undecodable(e.to_string()))?;
    let operations = json_patch::check(&patch).map_err(|e| undecodable(e.message))?;
    if operations.is_empty() {
        return Ok(false);
    }
    if seen.object.is_null() {
        let why = format!("admission webhook {:?} attempted to modify the object, which is not supported for this operation", hook.name);
        return Err(Refusal::Denied(ApiError::internal(why)));
    }
    if answer.patch_type != "JSONPatch" {
        return Err(Refusal::Failed(format!("unsupported patch type {:?}", answer.patch_type)));
    }
    let patched = json_patch::apply_operations(seen.object.clone(), operations);
    let patched = patched.map_err(|e| Refusal::Denied(ApiError::internal(e)))?;
    let is_own_kind = seen.kind.kind == seen.resource.kind.as_str();
    let mut patched = if is_own_kind { reread(&seen.resource, patched).map_err(Refusal::Denied)? } else { patched };
    if patched == seen.object {
        return Ok(false);
    }
    let own = attributes.resource;
    if is_own_kind && (own.version != seen.resource.version || own.group != seen.resource.group) {
        patched = server.convert_object(patched, &seen.resource, own).await.map_err(Refusal::Denied)?;
    }
    attributes.take_seen(patched);
    Ok(true)
}

/// A changed object as if it came in a request: of its kind, without what the kind does not have, with defaults.
pub(in super::super) fn reread(resource: &Resource, object: Value) -> Result<Value, ApiError> {
    let kind = (object.kind().to_string(), object.api_version().to_string());
    if kind != (resource.kind.clone(), resource.api_version()) {
        let why = format!("the object became a {} of {:?}, it was a {} of {:?}", kind.0, kind.1, resource.kind, resource.api_version());
        return Err(ApiError::internal(why));
    }
    let mut object = if resource.custom.is_some() {
        let mut decoded = Decoded { value: object, ..Decoded::default() };
        crate::crd::read(resource, &mut decoded)?;
        decoded.value
    } else {
        let text = serde_json::to_vec(&object).expect("a Value is always writable");
        let decoded = structural::decode_typed(&text, resource.schema.node()).map_err(ApiError::internal)?;
        if let Some(why) = decoded.type_error {
            return Err(ApiError::internal(why));
        }
        decoded.value
    };
    apply_defaults(resource, &mut object);
    Ok(object)
}
