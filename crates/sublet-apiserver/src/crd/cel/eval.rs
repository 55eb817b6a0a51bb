//! Running checked expressions within a budget of costs.
//!
//! Costs are counted as cel-go counts them, so that an expression that runs upstream runs here and the
//! other way round: one for a variable or a field, ten for a list, and so on.

use super::ast::{Call, Element, Entry, Expr, Kind, Literal, Macro, MacroKind, Select};
use super::check::dotted;
use super::decls::overloads;
use super::functions;
use super::value::{List, Map, Text, Unfit, Val};
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
        self.scope.iter().any(|(name, _)| *name == root)
    }

    fn select(&mut self, select: &'e Select) -> Evaluated<'v> {
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

    fn expand(&mut self, found: &'e Macro) -> Evaluated<'v> {
        let range = self.expr(&found.range)?;
        if matches!(found.kind, MacroKind::OptMap | MacroKind::OptFlatMap) {
            return self.optional_map(found, range);
        }
        let entries = self.entries(found, range)?;
        let is_list = !matches!(found.kind, MacroKind::All | MacroKind::Exists | MacroKind::ExistsOne);
        // The result of the fold, and the container it begins with.
        self.charge(1 + if is_list { 10 } else { 0 })?;
        match found.kind {
            MacroKind::All => self.quantify(found, entries, false),
            MacroKind::Exists => self.quantify(found, entries, true),
            MacroKind::ExistsOne => self.exists_one(found, entries),
            MacroKind::Filter => self.filter(found, entries),
            MacroKind::SortBy => self.sort_by(found, entries),
            MacroKind::Map | MacroKind::TransformList => {
                let mut items = Vec::new();
                self.each(found, entries, |_, body| {
                    items.push(body);
                    Ok(())
                })?;
                Ok(Val::items(items))
            }
            MacroKind::TransformMap => {
                let mut members = Vec::new();
                self.each(found, entries, |key, body| {
                    members.push((key, body));
                    Ok(())
                })?;
                Ok(Val::Map(Map::Entries(Rc::new(members))))
            }
            MacroKind::TransformMapEntry => self.transform_entries(found, entries),
            MacroKind::OptMap | MacroKind::OptFlatMap => Err(no_overload()),
        }
    }

    /// (index or key, value) of every element. With one variable, a map is walked by its keys.
    fn entries(&mut self, found: &Macro, range: Val<'v>) -> Result<Vec<(Val<'v>, Val<'v>)>, EvalError> {
        match range {
            Val::List(list) => {
                let items = list.to_vec()?;
                Ok(items.into_iter().enumerate().map(|(index, value)| (Val::Int(index as i64), value)).collect())
            }
            Val::Map(map) if found.var2.is_none() => Ok(map.keys().into_iter().map(|key| (key.clone(), key)).collect()),
            Val::Map(map) => map
                .keys()
                .into_iter()
                .filter_map(|key| map.get(&key).map(|value| Ok((key, value?))))
                .collect::<Result<_, Unfit>>()
                .map_err(Into::into),
            _ => Err(no_overload()),
        }
    }

    fn with_element<R>(
        &mut self,
        found: &'e Macro,
        key: Val<'v>,
        value: Val<'v>,
        run: impl FnOnce(&mut Self) -> Result<R, EvalError>,
    ) -> Result<R, EvalError> {
        let length = self.scope.len();
        match &found.var2 {
            Some(var2) => {
                self.scope.push((&found.var, key));
                self.scope.push((var2, value));
            }
            None => self.scope.push((&found.var, value)),
        }
        let result = run(self);
        self.scope.truncate(length);
        result
    }

    fn quantify(&mut self, found: &'e Macro, entries: Vec<(Val<'v>, Val<'v>)>, decides: bool) -> Evaluated<'v> {
        let mut error = None;
        for (key, value) in entries {
            // The loop condition and the step around the predicate.
            self.charge(if decides { 4 } else { 3 })?;
            match self.with_element(found, key, value, |e| e.expr(&found.body)) {
                Ok(Val::Bool(value)) if value == decides => return Ok(Val::Bool(decides)),
                Ok(Val::Bool(_)) => {}
                Err(EvalError::TooExpensive) => return Err(EvalError::TooExpensive),
                Err(other) => error = Some(other),
                Ok(_) => error = Some(no_overload()),
            }
        }
        error.map_or(Ok(Val::Bool(!decides)), Err)
    }

    fn exists_one(&mut self, found: &'e Macro, entries: Vec<(Val<'v>, Val<'v>)>) -> Evaluated<'v> {
        let mut count = 0;
        for (key, value) in entries {
            self.charge(1)?;
            match self.with_element(found, key, value, |e| e.expr(&found.body))? {
                Val::Bool(value) => {
                    self.charge(u64::from(value))?;
                    count += u32::from(value);
                }
                _ => return Err(no_overload()),
            }
        }
        self.charge(1)?;
        Ok(Val::Bool(count == 1))
    }

    fn filter(&mut self, found: &'e Macro, entries: Vec<(Val<'v>, Val<'v>)>) -> Evaluated<'v> {
        let mut items = Vec::new();
        for (key, value) in entries {
            self.charge(1)?;
            match self.with_element(found, key, value.clone(), |e| e.expr(&found.body))? {
                Val::Bool(true) => {
                    self.charge(12)?;
                    items.push(value);
                }
                Val::Bool(false) => {}
                _ => return Err(no_overload()),
            }
        }
        Ok(Val::items(items))
    }

    fn sort_by(&mut self, found: &'e Macro, entries: Vec<(Val<'v>, Val<'v>)>) -> Evaluated<'v> {
        let mut keyed = Vec::new();
        for (key, value) in entries {
            self.charge(12)?;
            let by = self.with_element(found, key, value.clone(), |e| e.expr(&found.body))?;
            keyed.push((by, value));
        }
        if keyed.windows(2).any(|pair| pair[0].0.compare(&pair[1].0).is_none()) {
            return Err(failed("no such overload: sortBy"));
        }
        keyed.sort_by(|a, b| a.0.compare(&b.0).unwrap_or(std::cmp::Ordering::Equal));
        Ok(Val::items(keyed.into_iter().map(|(_, value)| value).collect()))
    }

    /// Runs the body for every element that passes the filter.
    fn each(
        &mut self,
        found: &'e Macro,
        entries: Vec<(Val<'v>, Val<'v>)>,
        mut take: impl FnMut(Val<'v>, Val<'v>) -> Result<(), EvalError>,
    ) -> Result<(), EvalError> {
        for (key, value) in entries {
            self.charge(1)?;
            let body = self.with_element(found, key.clone(), value, |e| {
                if let Some(filter) = &found.filter {
                    match e.expr(filter)? {
                        Val::Bool(true) => {}
                        Val::Bool(false) => return Ok(None),
                        _ => return Err(no_overload()),
                    }
                }
                e.expr(&found.body).map(Some)
            })?;
            if let Some(body) = body {
                self.charge(11)?;
                take(key, body)?;
            }
        }
        Ok(())
    }

    fn transform_entries(&mut self, found: &'e Macro, entries: Vec<(Val<'v>, Val<'v>)>) -> Evaluated<'v> {
        let mut members: Vec<(Val<'v>, Val<'v>)> = Vec::new();
        self.each(found, entries, |_, body| {
            let Val::Map(map) = body else { return Err(no_overload()) };
            for key in map.keys() {
                if members.iter().any(|(k, _)| k.equals(&key)) {
                    return Err(failed("insert failed: key already exists"));
                }
                if let Some(value) = map.get(&key) {
                    members.push((key, value?));
                }
            }
            Ok(())
        })?;
        Ok(Val::Map(Map::Entries(Rc::new(members))))
    }

    fn optional_map(&mut self, found: &'e Macro, range: Val<'v>) -> Evaluated<'v> {
        self.charge(3)?;
        let Val::Optional(inner) = range else { return Err(no_overload()) };
        let Some(inner) = inner else { return Ok(Val::Optional(None)) };
        let body = self.with_element(found, Val::Null, (*inner).clone(), |e| e.expr(&found.body))?;
        Ok(if found.kind == MacroKind::OptMap { Val::some(body) } else { body })
    }
}

fn of_literal<'v>(literal: &Literal) -> Val<'v> {
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
        Val::List(List::Json(..) | List::Items(_)) | Val::Null => Err(failed(format!("no such key: {name}"))),
        _ => Err(no_overload()),
    }
}
