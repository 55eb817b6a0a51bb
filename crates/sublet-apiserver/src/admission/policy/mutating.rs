//! Policies that change requests.

use super::super::conditions::{self, Asker, Input, Verdict};
use super::super::view::Versioned;
use super::super::webhook::reread;
use super::super::{Attributes, Plugin};
use super::{Binding, Own, POLICY_COST_MAX, Policies, Policy, Scope, bound, namespace_object};
use crate::cel::{CALL_COST_MAX, Lazy, Program, to_json};
use crate::reader::Writer;
use crate::registry::{Resource, Snapshot};
use crate::server::Server;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::{ApiError, Cause, ObjectExt, Reason, apply, patch, structural};

pub(in super::super) struct MutatingAdmissionPolicy {
    policies: Policies<Mutations>,
}

struct Mutations {
    mutations: Vec<Mutation>,
    /// `reinvocationPolicy: IfNeeded`
    asks_again: bool,
}

struct Mutation {
    text: String,
    /// An `Object` to apply, in contrast to a patch.
    applies: bool,
    program: Result<Program, String>,
}

impl MutatingAdmissionPolicy {
    pub(in super::super) fn new() -> Self {
        let policies = "mutatingadmissionpolicies.admissionregistration.k8s.io";
        let bindings = "mutatingadmissionpolicybindings.admissionregistration.k8s.io";
        Self { policies: Policies::new([policies, bindings], bound) }
    }
}

impl Own for Mutations {
    fn compile(spec: &Value, scope: &Scope) -> Self {
        let mutation = |stated: &Value| {
            let applies = stated["patchType"] == "ApplyConfiguration";
            let pointer = if applies { "/applyConfiguration/expression" } else { "/jsonPatch/expression" };
            let text = stated.str_at(pointer).unwrap_or_default().to_string();
            Mutation { program: scope.compile_mutation(&text, applies), applies, text }
        };
        let all = spec["mutations"].as_array().into_iter().flatten();
        Self { mutations: all.map(mutation).collect(), asks_again: spec["reinvocationPolicy"] == "IfNeeded" }
    }
}

#[async_trait]
impl Plugin for MutatingAdmissionPolicy {
    fn name(&self) -> &'static str {
        "MutatingAdmissionPolicy"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        !attributes.is_exempt_from_policies()
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let Some(server) = store.server() else { return Ok(()) };
        let policies = self.policies.read(server);
        if policies.is_empty() {
            return Ok(());
        }
        if attributes.reinvocation.is_again && attributes.reinvocation.policies.last != attributes.object {
            attributes.reinvocation.policies.require_again();
        }
        let registry = server.registry().snapshot();
        let mut errors = Vec::new();
        for policy in policies.iter() {
            run_policy(policy, attributes, server, &registry, &mut errors).await?;
        }
        attributes.reinvocation.policies.last = attributes.object.clone();
        if errors.is_empty() { Ok(()) } else { Err(refuse(attributes, errors)) }
    }
}

/// Why a policy stands in the way: its own failure, or that it could not be run at all.
struct Failure {
    message: String,
    is_configuration: bool,
}

/// All failures are told as causes, the first one as the message.
fn refuse(attributes: &Attributes<'_>, failures: Vec<Failure>) -> ApiError {
    let mut error = attributes.forbidden("admission request denied by policy");
    if let Some(first) = failures.first() {
        error.message.clone_from(&first.message);
        error.reason = if first.is_configuration { Reason::Forbidden } else { Reason::Invalid };
    }
    let cause = |failure: Failure| Cause { reason: String::new(), message: failure.message, field: String::new() };
    error.causes.extend(failures.into_iter().map(cause));
    error
}

async fn run_policy(
    policy: &Policy<Mutations>,
    attributes: &mut Attributes<'_>,
    server: &Server,
    registry: &Snapshot,
    errors: &mut Vec<Failure>,
) -> Result<(), ApiError> {
    let mut failed = |binding: Option<&Binding>, is_configuration: bool, why: String| {
        if !policy.fails_open {
            let by = match binding {
                Some(binding) => format!("'{}' with binding '{}'", policy.name, binding.name),
                None => format!("{:?}", policy.name),
            };
            errors.push(Failure { message: format!("policy {by} denied request: {why}"), is_configuration });
        }
    };
    let resource = match policy.concerned(attributes, server, registry) {
        Ok(Some(resource)) => resource,
        Ok(None) => return Ok(()),
        Err(why) => {
            failed(None, true, format!("failed to configure policy: {why}"));
            return Ok(());
        }
    };
    let namespace = attributes.namespace_seen().to_string();
    for binding in &policy.bindings {
        let params = match policy.params(binding, attributes, &namespace, server, registry).await {
            Ok(params) => params,
            Err(why) => {
                failed(Some(binding), true, format!("failed to configure binding: {why}"));
                continue;
            }
        };
        for param in params {
            if let Err(why) = invoke(policy, binding, attributes, server, &resource, &param).await? {
                failed(Some(binding), false, why);
            }
        }
    }
    Ok(())
}

/// Runs the mutations of a policy with one parameter. The inner error is the policy's, and its failure policy decides.
async fn invoke(
    policy: &Policy<Mutations>,
    binding: &Binding,
    attributes: &mut Attributes<'_>,
    server: &Server,
    resource: &Arc<Resource>,
    param: &Value,
) -> Result<Result<(), String>, ApiError> {
    let mut seen = Versioned::of(attributes, resource, server).await?;
    if seen.object.is_null() {
        return Ok(Ok(()));
    }
    let namespace = namespace_object(attributes, server)?;
    let key = format!("{}/{}/{}/{}", policy.name, binding.name, param.namespace(), param.name());
    let again = attributes.reinvocation.is_again && !attributes.reinvocation.policies.again.contains(&key);
    let before = seen.object.clone();
    let result = match mutate_all(policy, attributes, &mut seen, &namespace, param, server, again) {
        Ok(()) => Ok(()),
        Err(Stop::Policy(why)) => Err(why),
        Err(Stop::Request(error)) => return Err(error),
    };
    if seen.object != before {
        let own = attributes.resource;
        let is_other = own.version != resource.version || own.group != resource.group;
        let object = std::mem::take(&mut seen.object);
        let object = if is_other { server.convert_object(object, resource, own).await? } else { object };
        attributes.take_seen(object);
        attributes.reinvocation.policies.require_again();
        attributes.reinvocation.is_wanted = true;
    }
    if policy.own.asks_again && result.is_ok() {
        attributes.reinvocation.policies.willing.insert(key);
    }
    Ok(result)
}

/// One mutation after the other, as long as conditions hold.
fn mutate_all(
    policy: &Policy<Mutations>,
    attributes: &Attributes<'_>,
    seen: &mut Versioned,
    namespace: &Value,
    param: &Value,
    server: &Server,
    skip: bool,
) -> Result<(), Stop> {
    let request = attributes.request_seen(&seen.resource, &seen.kind);
    let asker = Asker::new(server.authorization(), attributes);
    let input =
        Input { object: &seen.object, old: &seen.old, request: &request, namespace: &Value::Null, params: param, asker: Some(&asker) };
    match conditions::check(&policy.conditions, &input) {
        Verdict::Matches if !skip => {}
        Verdict::Matches | Verdict::Skip => return Ok(()),
        Verdict::Failed(why) => return Err(why.into()),
    }
    let variables = policy.variables.as_ref().map_err(Clone::clone)?;
    for mutation in &policy.own.mutations {
        let program = mutation.program.as_ref().map_err(|why| format!("compilation error: {why}"))?;
        let made = {
            let input = Input { object: &seen.object, old: &seen.old, request: &request, namespace, params: param, asker: Some(&asker) };
            let values = input.values()?;
            let lazy = Lazy::new(variables);
            let (result, _) = program.eval_with(&values, Some(&lazy), CALL_COST_MAX.min(POLICY_COST_MAX));
            let value = result.map_err(|error| conditions::failed(&mutation.text, &error))?;
            to_json(&value)?
        };
        if let Some(why) = program.misplaced() {
            return Err(format!("type mismatch: {why}").into());
        }
        let changed = if mutation.applies { apply_to(seen, made)? } else { patched(seen, &made)? };
        let is_own_kind = seen.kind.kind == seen.resource.kind.as_str();
        if let Some(unknown) = unknown_fields(&seen.resource, &changed).first().filter(|_| is_own_kind) {
            return Err(Stop::Request(ApiError::internal(format!("strict decoding error: {unknown}"))));
        }
        seen.object = if is_own_kind { reread(&seen.resource, changed).map_err(Stop::Request)? } else { changed };
    }
    Ok(())
}

/// Why mutations end.
enum Stop {
    /// The policy has failed; its failure policy decides what that means.
    Policy(String),
    /// What it made is no object of the kind.
    Request(ApiError),
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Self::Policy(why)
    }
}

/// `unknown field "x"`, of built-in kinds; custom ones leave out what they do not know.
fn unknown_fields(resource: &Resource, object: &Value) -> Vec<String> {
    if resource.custom.is_some() {
        return Vec::new();
    }
    let text = serde_json::to_vec(object).expect("a Value is always writable");
    structural::decode_typed(&text, resource.schema.node()).map(|decoded| decoded.strict).unwrap_or_default()
}

fn apply_to(seen: &Versioned, mut made: Value) -> Result<Value, String> {
    for field in ["apiVersion", "kind"] {
        made[field] = seen.object[field].clone();
    }
    let schema = seen.resource.schema.node();
    let untyped = |why: String| Err(format!("error applying patch: failed to convert patch object to typed object: {why}"));
    if let Some(unknown) = unknown_fields(&seen.resource, &made).first().and_then(|text| text.strip_prefix("unknown field ")) {
        return untyped(format!(".{}: field not declared in schema", unknown.trim_matches('"')));
    }
    let text = serde_json::to_vec(&made).expect("a Value is always writable");
    let decoded = structural::decode_typed(&text, schema).ok().filter(|_| seen.resource.custom.is_none());
    if let Some(why) = decoded.and_then(|decoded| decoded.type_error) {
        return untyped(why);
    }
    let atomics = apply::atomics(&made, schema);
    if !atomics.is_empty() {
        let why = format!("may not mutate atomic arrays, maps or structs: {}", atomics.join(", "));
        return Err(format!("error applying patch: invalid ApplyConfiguration: {why}"));
    }
    Ok(apply::merge_into(&seen.object, &made, schema))
}

fn patched(seen: &Versioned, made: &Value) -> Result<Value, String> {
    let operations: Vec<Value> = made.as_array().into_iter().flatten().map(complete).collect();
    match patch::json_patch::apply_operations(seen.object.clone(), &operations) {
        Ok(changed) => Ok(changed),
        // A test that fails says that there is nothing to do.
        Err(error) if error.0.contains("testing") => Ok(seen.object.clone()),
        Err(error) => Err(format!("JSON Patch: {error}")),
    }
}

/// An operation without what was not said.
fn complete(operation: &Value) -> Value {
    let mut operation = operation.clone();
    if operation["from"] == "" {
        operation.as_object_mut().map(|map| map.remove("from"));
    }
    if operation["op"].is_null() {
        operation["op"] = json!("");
    }
    operation
}
