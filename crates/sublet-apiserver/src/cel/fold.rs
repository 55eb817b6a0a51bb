//! Macros: loops over lists and maps.

use super::ast::{Macro, MacroKind};
use super::eval::{EvalError, Evaluated, Evaluator, failed, no_overload};
use super::value::{Map, Unfit, Val};
use std::rc::Rc;

impl<'v, 'e> Evaluator<'v, 'e> {
    pub(super) fn expand(&mut self, found: &'e Macro) -> Evaluated<'v> {
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
            other => Err(failed(format!("got 'types.{}', expected iterable type", go_type(&other)))),
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

/// The name of the type that cel-go keeps values in that are not containers.
fn go_type(value: &Val<'_>) -> &'static str {
    match value {
        Val::Null => "Null",
        Val::Bool(_) => "Bool",
        Val::Int(_) => "Int",
        Val::Uint(_) => "Uint",
        Val::Double(_) => "Double",
        Val::String(_) => "String",
        Val::Bytes(_) => "Bytes",
        Val::Duration(_) => "Duration",
        Val::Timestamp(_) => "Timestamp",
        Val::Optional(_) => "Optional",
        _ => "Type",
    }
}
