//! Admission policies: rules in CEL that the tenant binds to its resources.
//!
//! `Policies` keeps policies compiled with their bindings, as long as nobody changes either.

mod mutating;
mod params;
mod types;
mod validating;

pub(super) use mutating::MutatingAdmissionPolicy;
pub(crate) use types::type_warnings;
pub(super) use validating::ValidatingAdmissionPolicy;

use super::Attributes;
use super::conditions::{self, Condition, Extras};
use super::matching::Matcher;
use crate::cel::{Fields, Program, Type};
use crate::reader::{Derived, Reader};
use crate::registry::{Resource, Snapshot};
use crate::server::Server;
use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::{ApiError, ObjectExt};

/// Costs of all expressions of a policy for one binding, parameter and request.
const POLICY_COST_MAX: u64 = 10_000_000;

/// The policies of one kind with their bindings. `P` is what a policy makes of its own expressions.
type Policies<P> = Derived<Vec<Policy<P>>, 2>;

/// What the policies of one kind say beside what all have.
trait Own {
    fn compile(spec: &Value, scope: &Scope) -> Self;
}

/// A policy that has bindings.
struct Policy<P> {
    name: String,
    matcher: Matcher,
    conditions: Vec<Condition>,
    /// `apiVersion` and `kind` of parameters.
    param_kind: Option<(String, String)>,
    /// `failurePolicy: Ignore`
    fails_open: bool,
    variables: Result<Vec<(String, Program)>, String>,
    own: P,
    bindings: Vec<Binding>,
}

struct Binding {
    name: String,
    /// `None` when it takes all that the policy is about.
    matcher: Option<Matcher>,
    param_ref: Option<Value>,
    actions: Vec<String>,
}

/// What the expressions of a policy can name.
pub(crate) struct Scope {
    params: bool,
    variables: Option<Arc<Fields>>,
}

impl Scope {
    /// Compiles the variables of a policy's spec, which makes the scope of its other expressions.
    fn of(spec: &Value) -> (Self, Result<Vec<(String, Program)>, String>) {
        let mut scope = Self::new(spec["paramKind"].is_object(), !spec["variables"].as_array().is_none_or(Vec::is_empty));
        let mut programs = Vec::new();
        for variable in spec["variables"].as_array().into_iter().flatten() {
            let text = |key: &str| variable[key].as_str().unwrap_or_default();
            match scope.variable(text("name"), text("expression")) {
                Ok(program) => programs.push((text("name").to_string(), program)),
                Err(error) => return (scope, Err(format!("composited variable {:?} fails to compile: {error}", text("name")))),
            }
        }
        (scope, Ok(programs))
    }

    /// The scope of a policy that is being written, variables to be added one by one.
    pub(crate) fn new(params: bool, has_variables: bool) -> Self {
        let none = || Arc::new(Fields { name: "kubernetes.variables", fields: Vec::new() });
        Self { params, variables: has_variables.then(none) }
    }

    /// Adds a variable, with the type of its expression.
    pub(crate) fn variable(&mut self, name: &str, expression: &str) -> Result<Program, String> {
        let compiled = self.compile(expression, true, &[]);
        let found = compiled.as_ref().map_or(Type::Dyn, |(_, found)| found.clone());
        let mut fields = self.variables.as_ref().map(|f| f.fields.clone()).unwrap_or_default();
        fields.push((name.to_string(), found));
        self.variables = Some(Arc::new(Fields { name: "kubernetes.variables", fields }));
        compiled.map(|(program, _)| program)
    }

    /// Compiles an expression of the policy.
    pub(crate) fn compile(&self, text: &str, authorizer: bool, wanted: &[Type<'static>]) -> Result<(Program, Type<'static>), String> {
        let extras = Extras { params: self.params, authorizer, variables: self.variables.as_ref(), messages: false };
        conditions::compile(text, &conditions::declare(extras), wanted)
    }

    /// Compiles the expression of a mutation: an `Object` to apply, or a list of `JSONPatch`.
    pub(crate) fn compile_mutation(&self, text: &str, applies: bool) -> Result<Program, String> {
        let extras = Extras { params: self.params, authorizer: true, variables: self.variables.as_ref(), messages: true };
        let wanted = if applies { Type::Message("Object".into()) } else { Type::List(Box::new(Type::Message("JSONPatch".into()))) };
        conditions::compile(text, &conditions::declare(extras), &[wanted]).map(|(program, _)| program)
    }
}

/// The policies that are bound, in the order of their names.
fn bound<P: Own>([policies, bindings]: &[Vec<Arc<Value>>; 2]) -> Vec<Policy<P>> {
    let policies = policies.iter().filter_map(|policy| {
        let own: Vec<Binding> =
            bindings.iter().filter(|b| b.str_at("/spec/policyName") == Some(policy.name())).map(|b| Binding::of(b)).collect();
        (!own.is_empty()).then(|| Policy::of(policy, own))
    });
    policies.collect()
}

impl<P> Policy<P> {
    fn of(stated: &Value, bindings: Vec<Binding>) -> Self
    where
        P: Own,
    {
        let spec = &stated["spec"];
        let (scope, variables) = Scope::of(spec);
        let param = spec["paramKind"].as_object().map(|p| {
            let text = |key: &str| p.get(key).and_then(Value::as_str).unwrap_or_default().to_string();
            (text("apiVersion"), text("kind"))
        });
        Self {
            name: stated.name().to_string(),
            matcher: Matcher::of(&spec["matchConstraints"]),
            conditions: Condition::all(&spec["matchConditions"], Extras { params: scope.params, authorizer: true, ..Extras::default() }),
            param_kind: param,
            fails_open: spec["failurePolicy"] == "Ignore",
            variables,
            own: P::compile(spec, &scope),
            bindings,
        }
    }

    /// The resource in whose version the policy sees the request; `None` when it is about others. The error is one of
    /// configuration.
    fn concerned(&self, attributes: &Attributes<'_>, server: &Server, registry: &Snapshot) -> Result<Option<Arc<Resource>>, String> {
        let found = self.matcher.matches(attributes, server, registry).map_err(|e| e.message)?;
        match params::configuration_error(self, registry).filter(|_| found.is_some()) {
            Some(why) => Err(why),
            None => Ok(found),
        }
    }

    /// The parameters with which a binding runs the policy, none when it is about other requests; the error is one of
    /// configuration. `namespace` is that of the request.
    async fn params(
        &self,
        binding: &Binding,
        attributes: &Attributes<'_>,
        namespace: &str,
        server: &Server,
        registry: &Snapshot,
    ) -> Result<Vec<Value>, String> {
        if !binding.matches(attributes, server, registry).map_err(|e| e.message)? {
            return Ok(Vec::new());
        }
        params::collect(self, binding, namespace, server, registry).await
    }
}

impl Binding {
    fn of(stated: &Value) -> Self {
        let spec = &stated["spec"];
        let actions = spec["validationActions"].as_array().into_iter().flatten();
        Self {
            name: stated.name().to_string(),
            matcher: spec["matchResources"].is_object().then(|| Matcher::of(&spec["matchResources"])),
            param_ref: spec.get("paramRef").filter(|r| r.is_object()).cloned(),
            actions: actions.filter_map(Value::as_str).map(str::to_string).collect(),
        }
    }

    fn matches(&self, attributes: &Attributes<'_>, reader: &dyn Reader, registry: &Snapshot) -> Result<bool, ApiError> {
        let Some(matcher) = &self.matcher else { return Ok(true) };
        // No rules of its own leaves those of the policy.
        matcher.matches_within(attributes, reader, registry)
    }
}

/// What expressions see of the namespace of a request; null when it is in none, or about one.
fn namespace_object(attributes: &Attributes<'_>, server: &Server) -> Result<Value, ApiError> {
    let name = attributes.namespace_seen();
    if name.is_empty() || attributes.is("namespaces") {
        return Ok(Value::Null);
    }
    let namespace = server.get("namespaces", "", name).ok_or_else(|| ApiError::not_found("", "namespaces", name))?;
    let mut seen = Value::clone(&namespace);
    for hidden in ["managedFields", "ownerReferences", "selfLink"] {
        seen.metadata_mut().remove(hidden);
    }
    Ok(seen)
}
