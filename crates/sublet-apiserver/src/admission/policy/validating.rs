//! Policies that judge requests.

use super::super::conditions::{self, Asker, Input, Verdict};
use super::super::view::Versioned;
use super::super::{Attributes, Plugin};
use super::{Binding, Own, POLICY_COST_MAX, Policies, Policy, Scope, bound, namespace_object};
use crate::cel::{CALL_COST_MAX, EvalError, Lazy, Program, Type, Val};
use crate::reader::Writer;
use crate::registry::Snapshot;
use crate::server::Server;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::{ApiError, Cause, Reason};

const MESSAGE_BYTES_MAX: usize = 5 * 1024;
const ANNOTATION_BYTES_MAX: usize = 10 * 1024;
/// The most failures that are noted for audit.
const FAILURES_MAX: usize = 50;
const OUT_OF_BUDGET: &str = "validation failed due to running out of cost budget, no further validation rules will be run";

pub(in super::super) struct ValidatingAdmissionPolicy {
    policies: Policies<Rules>,
}

/// What a policy says about requests.
struct Rules {
    validations: Vec<Validation>,
    annotations: Vec<(String, String, Result<Program, String>)>,
}

struct Validation {
    text: String,
    program: Result<Program, String>,
    message: String,
    message_expression: Option<Program>,
    reason: Reason,
}

/// One thing that is wrong with a request.
struct Denial {
    policy: String,
    binding: Option<String>,
    message: String,
    reason: Reason,
}

/// What running a policy with one parameter gave.
#[derive(Default)]
struct Outcome {
    /// By the number of the validation.
    failures: Vec<(usize, String, Reason)>,
    /// Failures that no action softens.
    errors: Vec<String>,
    annotations: Vec<(String, String)>,
}

impl ValidatingAdmissionPolicy {
    pub(in super::super) fn new() -> Self {
        let policies = "validatingadmissionpolicies.admissionregistration.k8s.io";
        let bindings = "validatingadmissionpolicybindings.admissionregistration.k8s.io";
        Self { policies: Policies::new([policies, bindings], bound) }
    }
}

impl Own for Rules {
    fn compile(spec: &Value, scope: &Scope) -> Self {
        let list = |name: &str| spec[name].as_array().map(Vec::as_slice).unwrap_or_default();
        let validation = |stated: &Value| {
            let text = |key: &str| stated[key].as_str().unwrap_or_default();
            let message = text("messageExpression");
            Validation {
                text: text("expression").to_string(),
                program: scope.compile(text("expression"), true, &[Type::Bool]).map(|(program, _)| program),
                message: text("message").trim().to_string(),
                message_expression: (!message.trim().is_empty())
                    .then(|| scope.compile(message, false, &[Type::String]).ok().map(|(program, _)| program))
                    .flatten(),
                reason: Some(text("reason")).filter(|r| !r.is_empty()).map_or(Reason::Invalid, Reason::parse),
            }
        };
        let annotation = |stated: &Value| {
            let text = |key: &str| stated[key].as_str().unwrap_or_default().to_string();
            let expression = text("valueExpression").trim().to_string();
            let program = scope.compile(&expression, true, &[Type::String, Type::Null]).map(|(program, _)| program);
            (text("key"), expression, program)
        };
        Self {
            validations: list("validations").iter().map(validation).collect(),
            annotations: list("auditAnnotations").iter().map(annotation).collect(),
        }
    }
}

#[async_trait]
impl Plugin for ValidatingAdmissionPolicy {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionPolicy"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        !attributes.is_exempt_from_policies()
    }

    async fn validate(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let Some(server) = store.server() else { return Ok(()) };
        let policies = self.policies.read(server);
        if policies.is_empty() {
            return Ok(());
        }
        let registry = server.registry().snapshot();
        let (mut denials, mut noted) = (Vec::new(), Vec::new());
        for policy in policies.iter() {
            judge(policy, attributes, server, &registry, &mut denials, &mut noted).await?;
        }
        if !noted.is_empty() {
            noted.truncate(FAILURES_MAX);
            attributes.annotations.insert("validation.policy.admission.k8s.io/validation_failure".into(), json!(noted).to_string());
        }
        denials.into_iter().next().map_or(Ok(()), |denial| Err(refuse(attributes, denial)))
    }
}

/// The first denial is the answer.
fn refuse(attributes: &Attributes<'_>, denial: Denial) -> ApiError {
    let by = match denial.binding {
        Some(binding) => format!("ValidatingAdmissionPolicy '{}' with binding '{binding}'", denial.policy),
        None => format!("ValidatingAdmissionPolicy '{}'", denial.policy),
    };
    let message = format!("{by} denied request: {}", denial.message);
    let mut error = attributes.forbidden(&message);
    error.reason = denial.reason;
    error.code = match denial.reason {
        Reason::Forbidden => 403,
        Reason::Unauthorized => 401,
        Reason::RequestEntityTooLarge => 413,
        _ => 422,
    };
    error.causes.push(Cause { reason: String::new(), message, field: String::new() });
    error
}

/// Runs one policy with all its bindings and their parameters.
async fn judge(
    policy: &Policy<Rules>,
    attributes: &mut Attributes<'_>,
    server: &Server,
    registry: &Snapshot,
    denials: &mut Vec<Denial>,
    noted: &mut Vec<Value>,
) -> Result<(), ApiError> {
    let mut misconfigured = |binding: Option<&Binding>, why: String| {
        if !policy.fails_open {
            let what = if binding.is_some() { "binding" } else { "policy" };
            let binding = binding.map(|b| b.name.clone());
            let message = format!("failed to configure {what}: {why}");
            denials.push(Denial { policy: policy.name.clone(), binding, message, reason: Reason::Invalid });
        }
    };
    let resource = match policy.concerned(attributes, server, registry) {
        Ok(Some(resource)) => resource,
        Ok(None) => return Ok(()),
        Err(why) => {
            misconfigured(None, why);
            return Ok(());
        }
    };
    let mut seen = None;
    let namespace = attributes.namespace_seen().to_string();
    let namespace_object = namespace_object(attributes, server)?;
    let mut outcomes = Vec::new();
    for binding in &policy.bindings {
        let params = match policy.params(binding, attributes, &namespace, server, registry).await {
            Ok(params) => params,
            Err(why) => {
                misconfigured(Some(binding), why);
                continue;
            }
        };
        if seen.is_none() && !params.is_empty() {
            match Versioned::of(attributes, &resource, server).await {
                Ok(versioned) => seen = Some(versioned),
                Err(error) => {
                    misconfigured(Some(binding), format!("failed to convert object version: {}", error.message));
                    continue;
                }
            }
        }
        for param in &params {
            let versioned = seen.as_ref().expect("was made for the parameters");
            outcomes.push((binding, run(policy, attributes, versioned, &namespace_object, param, server)));
        }
    }
    publish(policy, attributes, outcomes, denials, noted);
    Ok(())
}

/// What came out, by the actions of each binding.
fn publish(
    policy: &Policy<Rules>,
    attributes: &mut Attributes<'_>,
    outcomes: Vec<(&Binding, Outcome)>,
    denials: &mut Vec<Denial>,
    noted: &mut Vec<Value>,
) {
    for (binding, outcome) in outcomes {
        let deny =
            |message: String, reason: Reason| Denial { policy: policy.name.clone(), binding: Some(binding.name.clone()), message, reason };
        for (index, message, reason) in outcome.failures {
            for action in &binding.actions {
                match action.as_str() {
                    "Deny" => denials.push(deny(message.clone(), reason)),
                    "Warn" => attributes.warnings.push(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                        policy.name, binding.name
                    )),
                    "Audit" => noted.push(json!({
                        "message": message, "policy": policy.name, "binding": binding.name, "expressionIndex": index,
                        "validationActions": binding.actions,
                    })),
                    _ => {}
                }
            }
        }
        denials.extend(outcome.errors.into_iter().map(|message| deny(message, Reason::Invalid)));
        for (key, value) in outcome.annotations {
            let noted = attributes.annotations.entry(format!("{}/{key}", policy.name)).or_default();
            if !noted.split(", ").any(|v| v == value) {
                let comma = if noted.is_empty() { "" } else { ", " };
                noted.push_str(&format!("{comma}{value}"));
            }
        }
    }
}

/// Runs a policy's expressions with one parameter.
fn run(
    policy: &Policy<Rules>,
    attributes: &Attributes<'_>,
    seen: &Versioned,
    namespace: &Value,
    param: &Value,
    server: &Server,
) -> Outcome {
    let failed = |message: String| match policy.fails_open {
        true => Outcome::default(),
        false => Outcome { failures: vec![(0, message, Reason::Invalid)], ..Outcome::default() },
    };
    let request = attributes.request_seen(&seen.resource, &seen.kind);
    let asker = Asker::new(server.authorization(), attributes);
    let input = Input { object: &seen.object, old: &seen.old, request: &request, namespace, params: param, asker: Some(&asker) };
    match conditions::check(&policy.conditions, &Input { namespace: &Value::Null, ..input }) {
        Verdict::Matches => {}
        Verdict::Skip => return Outcome::default(),
        Verdict::Failed(why) => return failed(why),
    }
    let variables = match &policy.variables {
        Ok(variables) => variables,
        Err(why) => return failed(why.clone()),
    };
    let values = match input.values() {
        Ok(values) => values,
        Err(why) => return failed(why),
    };
    let lazy = Lazy::new(variables);
    let mut runner = Runner { values: &values, lazy: &lazy, budget: POLICY_COST_MAX };
    let mut outcome = Outcome::default();
    for (index, validation) in policy.own.validations.iter().enumerate() {
        match runner.run(&validation.program, &validation.text) {
            Ok(Val::Bool(true)) => {}
            Ok(_) => outcome.failures.push((index, runner.message(validation), validation.reason)),
            Err(why) if why == OUT_OF_BUDGET => return failed(why),
            Err(_) if policy.fails_open => {}
            Err(why) => outcome.failures.push((index, why, Reason::Invalid)),
        }
    }
    runner.budget = POLICY_COST_MAX;
    for (key, text, program) in &policy.own.annotations {
        match runner.run(program, text) {
            Ok(Val::String(value)) => {
                let value = value.as_str().trim();
                if !value.is_empty() {
                    let end = value.floor_char_boundary(ANNOTATION_BYTES_MAX);
                    outcome.annotations.push((key.clone(), value[..end].to_string()));
                }
            }
            Ok(_) => {}
            Err(_) if policy.fails_open => {}
            Err(why) => outcome.errors.push(why),
        }
    }
    outcome
}

/// Runs the expressions of one policy within its budget.
struct Runner<'r, 'v, 'e> {
    values: &'r [(&'static str, Val<'v>)],
    lazy: &'r Lazy<'v, 'e>,
    budget: u64,
}

impl<'v> Runner<'_, 'v, '_> {
    fn run(&mut self, program: &Result<Program, String>, text: &str) -> Result<Val<'v>, String> {
        let program = program.as_ref().map_err(|why| format!("compilation error: {why}"))?;
        let (result, cost) = program.eval_with(self.values, Some(self.lazy), CALL_COST_MAX);
        if cost > self.budget && result != Err(EvalError::TooExpensive) {
            return Err(OUT_OF_BUDGET.into());
        }
        self.budget = self.budget.saturating_sub(cost);
        result.map_err(|error| conditions::failed(text, &error))
    }

    /// What is told about a validation that came out false.
    fn message(&mut self, validation: &Validation) -> String {
        let expressed = validation.message_expression.as_ref().and_then(|program| {
            let (result, cost) = program.eval_with(self.values, Some(self.lazy), CALL_COST_MAX.min(self.budget));
            self.budget = self.budget.saturating_sub(cost);
            let result = result.ok()?;
            let text = result.as_str()?.trim();
            (!text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n')).then(|| text.to_string())
        });
        match (expressed, validation.message.as_str()) {
            (Some(text), _) => text,
            (None, "") => format!("failed expression: {}", validation.text.trim()),
            (None, message) => message.to_string(),
        }
    }
}
