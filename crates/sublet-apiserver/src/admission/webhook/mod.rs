//! Admission webhooks: HTTPS servers of the tenant that change or judge requests.
//!
//! `Webhooks` keeps the configurations parsed, as long as nobody changes them. A request costs nothing more than a
//! look at a number when there are none.

mod hook;
mod mutating;
mod review;
mod validating;

pub(super) use mutating::{MutatingAdmissionWebhook, reread};
pub(super) use validating::ValidatingAdmissionWebhook;

use super::Attributes;
use super::conditions::{self, Asker, Input, Verdict};
use super::view::Versioned;
use crate::outgoing::CallError;
use crate::reader::Derived;
use crate::server::Server;
use bytes::Bytes;
use hook::Hook;
use review::{Answer, Review};
use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::{ApiError, ObjectExt};

/// The hooks of one kind of configuration, parsed.
type Webhooks = Derived<Vec<Arc<Hook>>>;

/// All hooks: configurations in the order of their names, hooks as stated.
fn hooks([configurations]: &[Vec<Arc<Value>>; 1]) -> Vec<Arc<Hook>> {
    let mut configurations: Vec<_> = configurations.iter().collect();
    configurations.sort_by_key(|c| c.name());
    configurations.into_iter().flat_map(|c| Hook::all(c)).map(Arc::new).collect()
}

/// Why a hook stands in the way of a request.
enum Refusal {
    /// The hook could not be asked, or its answer could not be used. Its failure policy decides what that means.
    Failed(String),
    /// The hook denied the request, or the request is at fault.
    Denied(ApiError),
}

impl Refusal {
    /// What a hook that fails closed tells the client.
    fn into_error(self, hook: &Hook) -> ApiError {
        match self {
            Self::Failed(why) => ApiError::internal(format!("failed calling webhook {:?}: {why}", hook.name)),
            Self::Denied(error) => error,
        }
    }
}

/// What a hook is to be shown, or `None` when it has no interest in the request.
async fn interest(hook: &Hook, attributes: &Attributes<'_>, server: &Server) -> Result<Option<Versioned>, ApiError> {
    let Some(resource) = hook.matcher.matches(attributes, server, &server.registry().snapshot())? else { return Ok(None) };
    let versioned = Versioned::of(attributes, &resource, server).await?;
    if hook.conditions.is_empty() {
        return Ok(Some(versioned));
    }
    let verdict = {
        let request = attributes.request_seen(&versioned.resource, &versioned.kind);
        let asker = Asker::new(server.authorization(), attributes);
        let (object, old, null) = (&versioned.object, &versioned.old, &Value::Null);
        conditions::check(&hook.conditions, &Input { object, old, request: &request, namespace: null, params: null, asker: Some(&asker) })
    };
    match verdict {
        Verdict::Matches => Ok(Some(versioned)),
        Verdict::Skip => Ok(None),
        Verdict::Failed(_) if hook.fails_open => Ok(None),
        Verdict::Failed(why) => Err(ApiError::forbidden(&attributes.resource.group, &attributes.resource.plural, attributes.name, why)),
    }
}

/// Asks one hook; its answer may be no.
async fn ask(hook: &Hook, review: &Review, mutating: bool, dry_run: bool, server: &Server) -> Result<Answer, Refusal> {
    if dry_run && !hook.may_dry_run {
        let why = format!("admission webhook {:?} does not support dry run", hook.name);
        return Err(Refusal::Denied(ApiError::bad_request(why)));
    }
    let target = hook.target.as_ref().map_err(|why| Refusal::Failed(format!("could not get REST client: {why}")))?;
    let body = Bytes::from(serde_json::to_vec(&review.body).expect("a Value is always writable"));
    let started = tokio::time::Instant::now();
    let answer = server.outgoing().call(server, target, body, hook.timeout).await;
    let (step, failed) = (if mutating { "admit" } else { "validating" }, answer.is_err());
    server.metrics().webhooks.observe(&hook.name, review.operation, step, failed, started.elapsed());
    let answer = answer.map_err(|error| match error {
        CallError::Transport(why) | CallError::Status { message: why, .. } => Refusal::Failed(format!("failed to call webhook: {why}")),
    })?;
    review.read(&answer, mutating).map_err(Refusal::Failed)
}

/// What an answer says besides yes or no counts in either case.
fn heed(hook: &Hook, answer: Answer, attributes: &mut Attributes<'_>) -> Result<Answer, Refusal> {
    attributes.warnings.extend(answer.warnings.iter().cloned());
    for (key, value) in &answer.annotations {
        attributes.annotations.insert(format!("{}/{key}", hook.name), value.clone());
    }
    if answer.allowed { Ok(answer) } else { Err(Refusal::Denied(denied(&hook.name, answer))) }
}

/// `admission webhook "x" denied the request: y`, with what the hook says about it.
fn denied(name: &str, answer: Answer) -> ApiError {
    let by = format!("admission webhook {name:?} denied the request");
    let status = answer.status.unwrap_or_default();
    let mut error = ApiError::from_status(&status);
    error.code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).filter(|code| *code >= 400).unwrap_or(400);
    let reason = status["reason"].as_str().unwrap_or_default();
    error.message = match (error.message.as_str(), reason) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    error
}
