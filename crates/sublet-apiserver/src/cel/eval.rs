//! Running checked expressions within a budget of costs.
//!
//! Costs are counted as cel-go counts them, so that an expression that runs upstream runs here and the
//! other way round: one for a variable or a field, ten for a list, and so on.

use super::ast::{Call, Element, Entry, Expr, Kind, Literal, MESSAGE, Select};
use super::check::dotted;
use super::decls::overloads;
use super::functions;
use super::lazy::Lazy;
use super::value::{Map, Opaque, Text, Unfit, Val};
use std::rc::Rc;
use std::sync::Arc;

/// Why an evaluation has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EvalError {
    #[error("{0}")]
    Failed(String),
    #[error("operation cancelled: actual cost limit exceeded")]
    TooExpensive,
}

impl From<Unfit> for EvalError {
    fn from(text: Unfit) -> Self {
        Self::Failed(text)
    }
}

/// Where expressions find those that have names.
const VARIABLES: &str = "variables";

pub(super) type Evaluated<'v> = Result<Val<'v>, EvalError>;

/// `no such overload`, which upstream shows with the expression.
pub(super) fn no_overload() -> EvalError {
    EvalError::Failed("no such overload".into())
}

pub(super) fn failed(text: impl Into<String>) -> EvalError {
    EvalError::Failed(text.into())
}

pub(super) struct Evaluator<'v, 'e> {
    /// Variables, the innermost last.
    pub(super) scope: Vec<(&'e str, Val<'v>)>,
    /// How many of them were there from the start.
    pub(super) root: usize,
    /// What `variables` has.
    pub(super) lazy: Option<&'e Lazy<'v, 'e>>,
    pub(super) cost: u64,
    pub(super) limit: u64,
}

impl<'v, 'e> Evaluator<'v, 'e> {
    pub(super) fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(EvalError::TooExpensive) } else { Ok(()) }
    }

    pub(super) fn expr(&mut self, expr: &'e Expr) -> Evaluated<'v> {
        match &expr.kind {
            Kind::Literal(literal) => Ok(of_literal(literal)),
            Kind::Ident(name) => self.ident(name),
            Kind::Select(select) => self.select(select),
            Kind::Has(select) => self.has(select),
            Kind::Call(call) => self.call(call),
            Kind::List(elements) => self.list(elements),
            Kind::Map(entries) => self.map(entries),
            Kind::Macro(found) => self.expand(found),
        }
    }

    fn ident(&mut self, name: &'e Arc<str>) -> Evaluated<'v> {
        self.charge(1)?;
        if let Some((_, value)) = self.scope.iter().rev().find(|(n, _)| *n == name.as_ref()) {
            return Ok(value.clone());
        }
        let type_name = match name.as_ref() {
            "duration" => "google.protobuf.Duration",
            name => name,
        };
        Ok(Val::Type(type_name.into()))
    }

    fn is_variable(&self, dotted: &str) -> bool {
        let root = dotted.split('.').next().unwrap_or_default();
        self.scope.iter().any(|(name, _)| *name == root) || self.lazy.is_some() && root == VARIABLES
    }

    /// The named expressions, when that is what an expression is.
    fn lazies(&self, expr: &Expr) -> Option<&'e Lazy<'v, 'e>> {
        let is_named = matches!(&expr.kind, Kind::Ident(name) if name.as_ref() == VARIABLES);
        self.lazy.filter(|_| is_named && !self.scope.iter().any(|(name, _)| *name == VARIABLES))
    }

    fn select(&mut self, select: &'e Select) -> Evaluated<'v> {
        if let Some(lazy) = self.lazies(&select.operand) {
            let value = self.named(lazy, &select.field)?;
            return Ok(if select.optional { Val::some(value) } else { value });
        }
        if let Some(name) = dotted(&select.operand).filter(|name| !self.is_variable(name)) {
            self.charge(1)?;
            return Ok(Val::Type(format!("{name}.{}", select.field).into()));
        }
        let operand = self.expr(&select.operand)?;
        self.charge(1)?;
        if let Val::Optional(inner) = &operand {
            let Some(inner) = inner else { return Ok(Val::Optional(None)) };
            return match field(inner, &select.field)? {
                Some(value) => Ok(Val::some(value?)),
                None => Ok(Val::Optional(None)),
            };
        }
        match (field(&operand, &select.field)?, select.optional) {
            (Some(value), true) => Ok(Val::some(value?)),
            (None, true) => Ok(Val::Optional(None)),
            (Some(value), false) => Ok(value?),
            (None, false) => Err(failed(format!("no such key: {}", select.field))),
        }
    }

    fn has(&mut self, select: &'e Select) -> Evaluated<'v> {
        if self.lazies(&select.operand).is_some() {
            return Ok(Val::Bool(true));
        }
        let operand = match self.expr(&select.operand)? {
            Val::Optional(None) => return Ok(Val::Bool(false)),
            Val::Optional(Some(inner)) => (*inner).clone(),
            other => other,
        };
        Ok(Val::Bool(field(&operand, &select.field)?.is_some()))
    }

    fn list(&mut self, elements: &'e [Element]) -> Evaluated<'v> {
        let is_constant = elements.iter().all(|e| matches!(e.value.kind, Kind::Literal(_)));
        let mut items = Vec::with_capacity(elements.len());
        for element in elements {
            let value = self.expr(&element.value)?;
            match value {
                Val::Optional(inner) if element.optional => items.extend(inner.map(|v| (*v).clone())),
                value => items.push(value),
            }
        }
        // Constants are made once, before the expression runs.
        self.charge(if is_constant && !elements.is_empty() { 0 } else { 10 })?;
        Ok(Val::items(items))
    }

    fn map(&mut self, entries: &'e [Entry]) -> Evaluated<'v> {
        let mut members: Vec<(Val<'v>, Val<'v>)> = Vec::with_capacity(entries.len());
        for entry in entries {
            let key = self.expr(&entry.key)?;
            let mut value = self.expr(&entry.value)?;
            if entry.optional {
                match value {
                    Val::Optional(Some(inner)) => value = (*inner).clone(),
                    _ => continue,
                }
            }
            if members.iter().any(|(k, _)| k.equals(&key)) {
                return Err(failed("Failed with repeated key"));
            }
            members.push((key, value));
        }
        self.charge(30)?;
        Ok(Val::Map(Map::Entries(Rc::new(members))))
    }

    fn call(&mut self, call: &'e Call) -> Evaluated<'v> {
        match call.function.as_ref() {
            "_&&_" => return self.and(&call.args[0], &call.args[1], false),
            "_||_" => return self.and(&call.args[0], &call.args[1], true),
            "_?_:_" => {
                return match self.expr(&call.args[0])? {
                    Val::Bool(true) => self.expr(&call.args[1]),
                    Val::Bool(false) => self.expr(&call.args[2]),
                    _ => Err(no_overload()),
                };
            }
            "orValue" | "or" if call.target.is_some() => {
                let target = call.target.as_ref().map(|t| self.expr(t)).transpose()?;
                self.charge(1)?;
                return match target {
                    Some(Val::Optional(Some(inner))) if call.function.as_ref() == "orValue" => Ok((*inner).clone()),
                    Some(Val::Optional(None)) => self.expr(&call.args[0]),
                    Some(found @ Val::Optional(_)) => Ok(found),
                    _ => Err(no_overload()),
                };
            }
            _ => {}
        }
        if let (true, [fields]) = (call.function.starts_with(MESSAGE), &*call.args) {
            // A message costs ten more than a map.
            self.charge(10)?;
            return self.expr(fields);
        }
        let mut name = None;
        let mut args = Vec::with_capacity(call.args.len() + 1);
        if let Some(target) = &call.target {
            name = dotted(target)
                .filter(|namespace| !self.is_variable(namespace))
                .map(|namespace| format!("{namespace}.{}", call.function))
                .filter(|name| overloads(name).is_some());
            if name.is_none() {
                args.push(self.expr(target)?);
            }
        }
        for arg in &call.args {
            args.push(self.expr(arg)?);
        }
        let function = name.as_deref().unwrap_or(&call.function);
        let is_member = call.target.is_some() && name.is_none();
        self.charge(functions::cost_before(function, &args))?;
        let result = functions::call(function, is_member, &args)?;
        self.charge(functions::cost_after(function, &result))?;
        Ok(result)
    }

    /// `&&` and `||`: one decided side is enough, even when the other one fails.
    fn and(&mut self, left: &'e Expr, right: &'e Expr, decides: bool) -> Evaluated<'v> {
        let first = self.expr(left);
        match first {
            Ok(Val::Bool(value)) if value == decides => return Ok(Val::Bool(decides)),
            Err(EvalError::TooExpensive) => return first,
            _ => {}
        }
        match (first, self.expr(right)) {
            (_, Err(EvalError::TooExpensive)) => Err(EvalError::TooExpensive),
            (_, Ok(Val::Bool(value))) if value == decides => Ok(Val::Bool(decides)),
            (Ok(Val::Bool(_)), Ok(Val::Bool(_))) => Ok(Val::Bool(!decides)),
            (Err(error), _) | (_, Err(error)) => Err(error),
            _ => Err(no_overload()),
        }
    }
}

pub(super) fn of_literal<'v>(literal: &Literal) -> Val<'v> {
    match literal {
        Literal::Null => Val::Null,
        Literal::Bool(value) => Val::Bool(*value),
        Literal::Int(value) => Val::Int(*value),
        Literal::Uint(value) => Val::Uint(*value),
        Literal::Double(value) => Val::Double(*value),
        Literal::String(text) => Val::String(Text::Shared(text.clone())),
        Literal::Bytes(bytes) => Val::Bytes(bytes.as_ref().into()),
    }
}

/// The member of an object or map; an error when the value has none at all.
fn field<'v>(operand: &Val<'v>, name: &str) -> Result<Option<Result<Val<'v>, Unfit>>, EvalError> {
    match operand {
        Val::Map(Map::Json(object)) => Ok(object.field(name)),
        Val::Map(map) => Ok(map.get(&Val::text(name))),
        Val::Opaque(Opaque::Extension(extension)) => Ok(extension.field(name).map(Ok)),
        Val::List(list) => functions::position(list, &Val::text(name)).map(|_| None),
        _ => Ok(None),
    }
}
