//! Admission webhooks: HTTPS servers of the tenant that change or judge requests.
//!
//! [`Webhooks`] keeps the configurations parsed, as long as nobody changes them. A request costs nothing more than a
//! look at a number when there are none.

mod hook;
mod mutating;
mod review;
mod validating;

pub(super) use mutating::{MutatingAdmissionWebhook, reread};
pub(super) use validating::ValidatingAdmissionWebhook;

use super::conditions::{self, Asker, Input, Verdict};
use super::view::Versioned;
use super::{Attributes, matching};
use crate::outgoing::{CallError, Outgoing};
use crate::reader::{Reader, Writer};
use crate::server::Server;
use bytes::Bytes;
use hook::Hook;
use review::{Answer, Review};
use serde_json::Value;
use std::sync::{Arc, Mutex};
use sublet_machinery::{ApiError, ObjectExt};

/// The configurations of one kind, parsed.
struct Webhooks {
    group_resource: &'static str,
    /// The parsed hooks in order, and the revision they were read at.
    parsed: Mutex<Option<(u64, Arc<Vec<Arc<Hook>>>)>>,
}

impl Webhooks {
    const fn new(group_resource: &'static str) -> Self {
        Self { group_resource, parsed: Mutex::new(None) }
    }

    /// All hooks: configurations in the order of their names, hooks as stated.
    fn current(&self, store: &dyn Reader) -> Arc<Vec<Arc<Hook>>> {
        let revision = store.revision(self.group_resource);
        let mut parsed = self.parsed.lock().expect("no holder of this lock panics");
        if let Some((at, hooks)) = &*parsed
            && *at == revision
        {
            return hooks.clone();
        }
        let mut configurations = store.list(self.group_resource, None);
        configurations.sort_by(|a, b| a.name().cmp(b.name()));
        let hooks: Vec<Arc<Hook>> = configurations.iter().flat_map(|c| Hook::all(c)).map(Arc::new).collect();
        let hooks = Arc::new(hooks);
        *parsed = Some((revision, hooks.clone()));
        hooks
    }
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
async fn interest(
    hook: &Hook,
    attributes: &Attributes<'_>,
    store: &Arc<dyn Writer>,
    server: Option<&Server>,
) -> Result<Option<Versioned>, ApiError> {
    let registry = server.map(|s| s.registry().snapshot());
    let Some(resource) = matching::Matcher::matches(&hook.matcher, attributes, as_reader(store), registry.as_deref())? else {
        return Ok(None);
    };
    let versioned = Versioned::of(attributes, &resource, server).await?;
    if hook.conditions.is_empty() {
        return Ok(Some(versioned));
    }
    let verdict = {
        let request = attributes.request_seen(&versioned.resource, &versioned.kind);
        let asker = server.map(|s| Asker::new(s.authorization(), attributes));
        let (object, old, null) = (&versioned.object, &versioned.old, &Value::Null);
        conditions::check(&hook.conditions, &Input { object, old, request: &request, namespace: null, params: null, asker: asker.as_ref() })
    };
    match verdict {
        Verdict::Matches => Ok(Some(versioned)),
        Verdict::Skip => Ok(None),
        Verdict::Failed(_) if hook.fails_open => Ok(None),
        Verdict::Failed(why) => Err(ApiError::forbidden(&attributes.resource.group, &attributes.resource.plural, attributes.name, why)),
    }
}

fn as_reader(store: &Arc<dyn Writer>) -> &dyn Reader {
    &**store
}

/// Asks one hook; its answer may be no.
async fn ask(
    hook: &Hook,
    review: &Review,
    mutating: bool,
    dry_run: bool,
    store: &Arc<dyn Writer>,
    outgoing: &Outgoing,
) -> Result<Answer, Refusal> {
    if dry_run && !hook.may_dry_run {
        let why = format!("admission webhook {:?} does not support dry run", hook.name);
        return Err(Refusal::Denied(ApiError::bad_request(why)));
    }
    let target = hook.target.as_ref().map_err(|why| Refusal::Failed(format!("could not get REST client: {why}")))?;
    let body = Bytes::from(serde_json::to_vec(&review.body).expect("a Value is always writable"));
    let answer = outgoing.call(as_reader(store), target, body, hook.timeout).await;
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
