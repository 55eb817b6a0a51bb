//! `x-kubernetes-validations`: rules in CEL about custom resources.

mod definition;
mod messages;

pub(super) use definition::validate;

use super::validate::field_path;
use crate::cel::{self, CALL_COST_MAX, EvalError, Program, Type, Val, of_json};
use messages::{reason_error, type_name};
use serde_json::Value;
use std::collections::HashMap;
use sublet_machinery::schema::CelRule;
use sublet_machinery::structural::{Correlated, OldItems};
use sublet_machinery::{FieldError, FieldErrorKind, FieldPath, NodeId, SchemaNode};

/// Costs of all rules for one object.
const OBJECT_COST_MAX: u64 = 10_000_000;
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// What there is to say about an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    pub errors: Vec<FieldError>,
    /// What is wrong but was so before. For Warning headers.
    pub warnings: Vec<String>,
}

/// A rule that did not come out true.
struct Broken {
    error: FieldError,
    /// It came out false, in contrast to not coming out at all; only that can be forgiven.
    is_verdict: bool,
}

/// The compiled rules of one version of a custom resource.
#[derive(Debug, Default)]
pub struct Rules {
    /// By the node of the schema that states them.
    by_node: HashMap<NodeId, Vec<Rule>>,
    /// Nodes that state rules, or have some below them.
    on_the_way: Vec<bool>,
}

#[derive(Debug)]
struct Rule {
    stated: CelRule,
    /// Definitions are checked when they are written, so a rule that does not compile is left from an
    /// older server; it fails with this text.
    program: Result<Program, String>,
    message: Option<Program>,
    uses_old: bool,
    /// `fieldPath` in upstream's notation.
    field_path: Option<String>,
}

impl Rules {
    /// Compiles the rules below the root of a resource; `None` when there are none.
    pub fn compile(root: SchemaNode<'_>) -> Option<Self> {
        Self::compile_at(root, true)
    }

    fn compile_at(root: SchemaNode<'_>, is_resource: bool) -> Option<Self> {
        let mut rules = Self { by_node: HashMap::new(), on_the_way: vec![false; root.table().len()] };
        let found = rules.collect(root, root, is_resource, &mut Vec::new());
        found.then_some(rules)
    }

    /// `stated` says what must hold, `node` of which type it is: they differ inside of `allOf`, where no types are stated.
    fn collect(&mut self, node: SchemaNode<'_>, stated: SchemaNode<'_>, is_resource: bool, path: &mut Vec<NodeId>) -> bool {
        // Schemas of definitions are trees, but a node may be shared.
        if path.contains(&stated.id()) {
            return false;
        }
        path.push(stated.id());
        let mut found = !stated.rules.is_empty();
        if found && !self.by_node.contains_key(&stated.id()) {
            let compiled = stated.rules.iter().map(|rule| compile_rule(node, rule, is_resource || node.embedded_resource)).collect();
            self.by_node.insert(stated.id(), compiled);
        }
        for (key, id) in &stated.get().properties {
            found |= node.field(key).is_some_and(|node| self.collect(node, stated.at(*id), false, path));
        }
        if let (Some(node), Some(stated)) = (node.additional(), stated.additional()) {
            found |= self.collect(node, stated, false, path);
        }
        if let (Some(node), Some(stated)) = (node.items(), stated.items()) {
            found |= self.collect(node, stated, false, path);
        }
        for id in &stated.get().all_of {
            found |= self.collect(node, stated.at(*id), is_resource, path);
        }
        path.pop();
        self.on_the_way[stated.id() as usize] |= found;
        found
    }

    /// Runs the rules. Transition rules run where there is an old value; what an unchanged value breaks
    /// is forgiven.
    pub fn validate(&self, root: SchemaNode<'_>, object: &Value, old: Option<&Value>) -> Verdict {
        let current = old.map(|old| Correlated { new: object, old, node: root });
        let place = Place { node: root, is_resource: true, path: FieldPath::root() };
        self.run(&place, object, old, Ratchet { current, parent: None })
    }

    /// Runs the rules on a default of the schema, as if it was there before and as if it was not.
    pub(super) fn validate_default(node: SchemaNode<'_>, default: &Value, path: &FieldPath) -> Vec<FieldError> {
        let Some(rules) = Self::compile_at(node, false) else { return Vec::new() };
        let place = Place { node, is_resource: false, path: path.clone() };
        let errors = rules.run(&place, default, Some(default), Ratchet::NONE).errors;
        if errors.is_empty() { rules.run(&place, default, None, Ratchet::NONE).errors } else { errors }
    }

    fn run<'s>(&self, place: &Place<'s>, value: &'s Value, old: Option<&'s Value>, ratchet: Ratchet<'s>) -> Verdict {
        let mut run = Run { rules: self, budget: OBJECT_COST_MAX, spent: false, verdict: Verdict::default() };
        run.value(place, place.node, value, old, ratchet);
        run.verdict
    }
}

fn compile_rule(node: SchemaNode<'_>, stated: &CelRule, is_resource: bool) -> Rule {
    let variables = variables(node, stated, is_resource);
    let program = match &variables {
        Some(variables) => cel::compile(&stated.rule, variables, Some(node)).map(|c| c.program).map_err(|error| error.to_string()),
        None => Err("failed to convert to declType for CEL validation rules".into()),
    };
    let message = variables
        .filter(|_| !stated.message_expression.is_empty())
        .and_then(|variables| cel::compile(&stated.message_expression, &variables, Some(node)).ok())
        .map(|c| c.program);
    Rule {
        uses_old: program.as_ref().is_ok_and(|p| p.uses("oldSelf")),
        program,
        message,
        field_path: field_path(&stated.field_path, node, true).ok().map(|(path, _)| path).filter(|p| !p.is_empty()),
        stated: stated.clone(),
    }
}

/// `self` and `oldSelf` with their types.
fn variables<'s>(node: SchemaNode<'s>, stated: &CelRule, is_resource: bool) -> Option<[(&'static str, Type<'s>); 2]> {
    let own = cel::declare_at(node, is_resource)?;
    let old = if stated.optional_old_self == Some(true) { Type::Optional(Box::new(own.clone())) } else { own.clone() };
    Some([("self", own), ("oldSelf", old)])
}

/// Where in the object the run is.
struct Place<'s> {
    node: SchemaNode<'s>,
    is_resource: bool,
    path: FieldPath,
}

/// What decides whether an unchanged value is forgiven: the value itself if its old one is known, or
/// the nearest one around it.
#[derive(Clone, Copy)]
struct Ratchet<'s> {
    current: Option<Correlated<'s>>,
    parent: Option<Correlated<'s>>,
}

impl<'s> Ratchet<'s> {
    const NONE: Self = Self { current: None, parent: None };

    fn forgives(self) -> bool {
        self.current.or(self.parent).is_some_and(Correlated::unchanged)
    }

    fn key(self, key: &str) -> Self {
        match self.current {
            None => self,
            Some(_) if self.parent.is_none() && matches!(key, "apiVersion" | "kind") => Self::NONE,
            Some(current) => Self { current: current.key(key), parent: Some(current) },
        }
    }
}

struct Run<'r> {
    rules: &'r Rules,
    budget: u64,
    /// Out of budget: nothing more is run.
    spent: bool,
    verdict: Verdict,
}

impl Run<'_> {
    fn value<'s>(&mut self, place: &Place<'s>, stated: SchemaNode<'s>, value: &'s Value, old: Option<&'s Value>, ratchet: Ratchet<'s>) {
        let is_on_the_way = self.rules.on_the_way.get(stated.id() as usize).copied().unwrap_or_default();
        // Null is judged by the rules around it.
        if value.is_null() || self.spent || !is_on_the_way {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        if let Some(rules) = self.rules.by_node.get(&stated.id()) {
            self.own_rules(rules, place, value, old, ratchet);
        }
        match value {
            Value::Array(items) => self.items(place, stated, items, old, ratchet),
            Value::Object(map) => {
                for (key, value) in map {
                    let (Some(node), Some(stated)) = (place.node.field(key), stated.field(key)) else { continue };
                    let path = if place.node.property(key).is_some() { place.path.child(key) } else { place.path.key(key) };
                    let old = old.and_then(|old| old.as_object()?.get(key));
                    self.value(&Place { node, is_resource: false, path }, stated, value, old, ratchet.key(key));
                }
            }
            _ => {}
        }
        for id in &stated.get().all_of {
            self.value(place, stated.at(*id), value, old, ratchet);
        }
    }

    fn items<'s>(&mut self, place: &Place<'s>, stated: SchemaNode<'s>, items: &'s [Value], old: Option<&'s Value>, ratchet: Ratchet<'s>) {
        let (Some(node), Some(stated)) = (place.node.items(), stated.items()) else { return };
        let old_items = OldItems::new(old, place.node);
        for (index, item) in items.iter().enumerate() {
            let old = old_items.find(item);
            let below = match ratchet.current {
                None => ratchet,
                Some(current) => Ratchet { current: old.map(|old| Correlated { new: item, old, node }), parent: Some(current) },
            };
            self.value(&Place { node, is_resource: false, path: place.path.index(index) }, stated, item, old, below);
        }
    }

    fn own_rules<'s>(&mut self, rules: &[Rule], place: &Place<'s>, value: &'s Value, old: Option<&'s Value>, ratchet: Ratchet<'s>) {
        let of = |value| of_json(value, Some(place.node), place.is_resource);
        let (own, old_own) = match (of(value), old.map(of).transpose()) {
            (Ok(own), Ok(old)) => (own, old),
            (Err(error), _) | (_, Err(error)) => {
                self.verdict.errors.push(FieldError::invalid(&place.path, type_name(place.node), error));
                return;
            }
        };
        for rule in rules {
            if self.spent {
                return;
            }
            let optional = rule.stated.optional_old_self == Some(true);
            if rule.uses_old && old_own.is_none() && !optional {
                continue;
            }
            let old_value = match (optional, &old_own) {
                (true, old) => Val::Optional(old.clone().map(std::rc::Rc::new)),
                (false, Some(old)) => old.clone(),
                (false, None) => Val::Null,
            };
            let variables = [("self", own.clone()), ("oldSelf", old_value)];
            match self.run_rule(rule, place, value, &variables) {
                None => {}
                Some(Broken { error, is_verdict: true }) if !rule.uses_old && ratchet.forgives() => {
                    self.verdict.warnings.push(error.to_string());
                }
                Some(Broken { error, .. }) => self.verdict.errors.push(error),
            }
        }
    }

    fn run_rule<'s>(&mut self, rule: &Rule, place: &Place<'s>, value: &Value, variables: &[(&str, Val<'s>)]) -> Option<Broken> {
        let kind = type_name(place.node);
        let invalid = |detail: String| Some(Broken { error: FieldError::invalid(&place.path, kind, detail), is_verdict: false });
        let program = match &rule.program {
            Ok(program) => program,
            Err(error) => return invalid(format!("rule compile error: {error}")),
        };
        let (result, cost) = program.eval(variables, CALL_COST_MAX);
        if cost > self.budget && result != Err(EvalError::TooExpensive) {
            self.spent = true;
            return invalid("validation failed due to running out of cost budget, no further validation rules will be run".into());
        }
        self.budget = self.budget.saturating_sub(cost);
        let shown = messages::rule_text(&rule.stated);
        match result {
            Ok(Val::Bool(true)) => None,
            Ok(_) => {
                let path = rule.field_path.as_ref().map_or_else(|| place.path.clone(), |field| place.path.child(field));
                let detail = match self.message(rule, variables) {
                    Ok(message) => message.unwrap_or_else(|| messages::default_message(&rule.stated)),
                    Err(detail) => {
                        self.spent = true;
                        return invalid(detail);
                    }
                };
                let error = reason_error(&rule.stated.reason, &path, place.node, value, detail);
                Some(Broken { error, is_verdict: true })
            }
            Err(EvalError::TooExpensive) => {
                self.spent = true;
                let error = EvalError::TooExpensive;
                invalid(format!("'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {shown}"))
            }
            Err(EvalError::Failed(error)) if error.starts_with("no such overload") => invalid(format!(
                "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {shown}"
            )),
            Err(EvalError::Failed(error)) => invalid(format!("{error} evaluating rule: {shown}")),
        }
    }

    /// What `messageExpression` says, if it says something fit to be shown; an error when it cost too much.
    fn message(&mut self, rule: &Rule, variables: &[(&str, Val<'_>)]) -> Result<Option<String>, String> {
        let Some(program) = &rule.message else { return Ok(None) };
        let (result, cost) = program.eval(variables, CALL_COST_MAX);
        if cost > self.budget {
            let detail = "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run";
            return Err(detail.into());
        }
        self.budget -= cost;
        if result == Err(EvalError::TooExpensive) {
            let text = &rule.stated.message_expression;
            return Err(format!("no further validation rules will be run due to call cost exceeds limit for messageExpression: {text:?}"));
        }
        let fit = |text: &&str| !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n');
        Ok(result.ok().and_then(|value| value.as_str().map(str::trim).filter(fit).map(str::to_string)))
    }
}

impl PartialEq for Val<'_> {
    fn eq(&self, other: &Self) -> bool {
        matches!((self, other), (Val::Bool(a), Val::Bool(b)) if a == b)
    }
}

/// Kinds of errors that say that an object is too broken for rules.
pub(super) fn is_blocking(error: &FieldError) -> bool {
    matches!(error.kind, FieldErrorKind::Required | FieldErrorKind::TooLong | FieldErrorKind::TooMany | FieldErrorKind::TypeInvalid)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod upstream;
