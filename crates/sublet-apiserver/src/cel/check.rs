//! The type of every part of an expression, or what is wrong with it.

use super::ast::{Call, Expr, Kind, Literal, MESSAGE, Macro, MacroKind, Select};
use super::decls::{Overload, overloads};
use super::issue::Issue;
use super::types::{AUTHORIZER, RESOURCE_CHECK, Type};
use std::collections::HashMap;
use std::sync::Arc;

/// The message of which the fields are known.
const JSON_PATCH: &str = "JSONPatch";

/// What a checked expression is made of.
pub(super) struct Checked<'s> {
    pub(super) result: Type<'s>,
    /// By the id of the expression.
    pub(super) types: Vec<Type<'s>>,
}

/// Checks an expression against the variables it may use. An issue does not end the check.
pub(super) fn check<'s>(expr: &Expr, nodes: usize, variables: &[(&str, Type<'s>)]) -> Result<Checked<'s>, Vec<Issue>> {
    let scope = variables.iter().map(|(name, found)| ((*name).into(), found.clone())).collect();
    let mut checker = Checker { scope, types: vec![Type::Dyn; nodes], issues: Vec::new() };
    let result = checker.expr(expr);
    if checker.issues.is_empty() { Ok(Checked { result, types: checker.types }) } else { Err(checker.issues) }
}

struct Checker<'s> {
    /// Variables, the innermost last.
    scope: Vec<(Arc<str>, Type<'s>)>,
    types: Vec<Type<'s>>,
    issues: Vec<Issue>,
}

/// What the parameters of a function stand for in one call.
type Bindings<'s> = HashMap<char, Type<'s>>;

impl<'s> Checker<'s> {
    fn expr(&mut self, expr: &Expr) -> Type<'s> {
        let found = match &expr.kind {
            Kind::Literal(literal) => literal_type(literal),
            Kind::Ident(name) => self.ident(name, expr.at),
            Kind::Select(select) => self.select(select, expr.at),
            Kind::Has(select) => {
                self.select(select, expr.at);
                Type::Bool
            }
            Kind::Call(call) => self.call(call, expr.at),
            Kind::List(elements) => {
                let mut of = None;
                for element in elements {
                    let mut found = self.expr(&element.value);
                    if element.optional {
                        found = self.unwrap(found, element.value.at);
                    }
                    of = Some(Self::join(of, found));
                }
                Type::list(of.unwrap_or(Type::Dyn))
            }
            Kind::Map(entries) => {
                let (mut keys, mut values) = (None, None);
                for entry in entries {
                    let key = self.expr(&entry.key);
                    keys = Some(Self::join(keys, key));
                    let mut value = self.expr(&entry.value);
                    if entry.optional {
                        value = self.unwrap(value, entry.value.at);
                    }
                    values = Some(Self::join(values, value));
                }
                Type::Map(Box::new(keys.unwrap_or(Type::Dyn)), Box::new(values.unwrap_or(Type::Dyn)))
            }
            Kind::Macro(found) => self.expand(found),
        };
        self.types[expr.id] = found.clone();
        found
    }

    fn issue(&mut self, at: usize, message: String) {
        self.issues.push(Issue::new(message, at));
    }

    fn unwrap(&mut self, found: Type<'s>, at: usize) -> Type<'s> {
        match found {
            Type::Optional(inner) => *inner,
            Type::Dyn => Type::Dyn,
            other => {
                self.issue(at, format!("expected type 'optional_type({other})' but found '{other}'"));
                Type::Dyn
            }
        }
    }

    /// The type of elements of a literal: theirs if they have one, otherwise a dynamic one.
    fn join(of: Option<Type<'s>>, found: Type<'s>) -> Type<'s> {
        match of {
            None => found,
            Some(Type::Dyn) => Type::Dyn,
            // An empty literal is of any type, so the next one decides.
            Some(of) if accepts(&of, &found) => {
                let decides = found == Type::Dyn || of.is_open() && !found.is_open() && found != Type::Null;
                if decides { found } else { of }
            }
            Some(of) if accepts(&found, &of) => found,
            Some(_) => Type::Dyn,
        }
    }

    fn ident(&mut self, name: &Arc<str>, at: usize) -> Type<'s> {
        if let Some((_, found)) = self.scope.iter().rev().find(|(n, _)| n == name) {
            return found.clone();
        }
        const TYPES: [&str; 13] =
            ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type", "dyn", "optional_type", "duration"];
        if TYPES.contains(&name.as_ref()) {
            return Type::Type;
        }
        self.issue(at, format!("undeclared reference to '{name}' (in container '')"));
        Type::Dyn
    }

    fn select(&mut self, select: &Select, at: usize) -> Type<'s> {
        // Types with dots in their names.
        if let Some(name) = dotted(&select.operand)
            && !self.is_variable(&name)
            && matches!(
                format!("{name}.{}", select.field).as_str(),
                "google.protobuf"
                    | "google.protobuf.Timestamp"
                    | "google.protobuf.Duration"
                    | "net.IP"
                    | "net.CIDR"
                    | "kubernetes.Quantity"
                    | "kubernetes.URL"
                    | "kubernetes.Semver"
            )
        {
            return Type::Type;
        }
        let operand = self.expr(&select.operand);
        let (operand, was_optional) = match operand {
            Type::Optional(inner) => (*inner, true),
            other => (other, false),
        };
        let found = match &operand {
            Type::Dyn | Type::Param(_) => Type::Dyn,
            Type::Map(_, value) => (**value).clone(),
            Type::Object(object) => match object.field(&select.field) {
                Some(found) => found,
                None => {
                    self.issue(at, format!("undefined field '{}'", select.field));
                    Type::Dyn
                }
            },
            Type::Fields(fields) => match fields.fields.iter().find(|(name, _)| *name == *select.field) {
                Some((_, found)) => found.clone(),
                None => {
                    self.issue(at, format!("undefined field '{}'", select.field));
                    Type::Dyn
                }
            },
            Type::Opaque(AUTHORIZER) if select.field.as_ref() == "requestResource" => Type::Opaque(RESOURCE_CHECK),
            other => {
                let message = format!("type '{other}' does not support field selection");
                self.issue(at, message);
                Type::Dyn
            }
        };
        if was_optional || select.optional { Type::optional(found) } else { found }
    }

    fn is_variable(&self, dotted: &str) -> bool {
        let root = dotted.split('.').next().unwrap_or_default();
        self.scope.iter().any(|(name, _)| name.as_ref() == root)
    }

    /// Messages are known where a variable of the name of their root says so.
    fn message(&mut self, name: &str, fields: &Expr, at: usize) -> Type<'s> {
        let root = name.split('.').next().unwrap_or_default();
        if !self.scope.iter().any(|(known, found)| known.as_ref() == root && *found == Type::Type) {
            self.issue(at, format!("undeclared reference to '{name}' (in container '')"));
        }
        let Kind::Map(entries) = &fields.kind else { return Type::Dyn };
        for entry in entries {
            let mut found = self.expr(&entry.value);
            if entry.optional {
                found = self.unwrap(found, entry.value.at);
            }
            let Kind::Literal(Literal::String(field)) = &entry.key.kind else { continue };
            if root != JSON_PATCH {
                continue;
            }
            match (field.as_ref(), &found) {
                ("value", _) | ("op" | "path" | "from", Type::String | Type::Dyn) => {}
                ("op" | "path" | "from", other) => {
                    let message = format!("expected type of field '{field}' is 'string' but provided type is '{other}'");
                    self.issue(entry.key.at, message);
                }
                (field, other) => {
                    let message = format!("expected type of field '{field}' is '' but provided type is '{other}'");
                    self.issue(entry.key.at, message);
                }
            }
        }
        Type::Message(name.into())
    }

    fn call(&mut self, call: &Call, at: usize) -> Type<'s> {
        if let (Some(name), [fields]) = (call.function.strip_prefix(MESSAGE), &*call.args) {
            return self.message(name, fields, at);
        }
        // A target that is only a name may be the namespace of the function.
        if let Some(target) = &call.target
            && let Some(namespace) = dotted(target)
            && !self.is_variable(&namespace)
        {
            let name = format!("{namespace}.{}", call.function);
            if overloads(&name).is_some() {
                let args: Vec<Type<'s>> = call.args.iter().map(|arg| self.expr(arg)).collect();
                return self.resolve(&name, false, &args, at);
            }
        }
        let mut args = Vec::new();
        if let Some(target) = &call.target {
            args.push(self.expr(target));
        }
        args.extend(call.args.iter().map(|arg| self.expr(arg)));
        if matches!(call.function.as_ref(), "_&&_" | "_||_") {
            args.iter().zip(&call.args).for_each(|(found, arg)| self.must_be_bool(found, arg.at));
            return Type::Bool;
        }
        if matches!(call.function.as_ref(), "_<_" | "_<=_" | "_>_" | "_>=_") {
            return self.compare(&call.function, &args, at);
        }
        self.resolve(&call.function, call.target.is_some(), &args, at)
    }

    /// Numbers of all types compare with each other, other values with their like.
    fn compare(&mut self, function: &str, args: &[Type<'s>], at: usize) -> Type<'s> {
        let is_number = |t: &Type<'_>| matches!(t, Type::Int | Type::Uint | Type::Double | Type::Dyn);
        let is_ordered = |t: &Type<'_>| matches!(t, Type::Bool | Type::String | Type::Bytes | Type::Timestamp | Type::Duration | Type::Dyn);
        let (left, right) = (&args[0], &args[1]);
        let both_numbers = is_number(left) && is_number(right);
        let alike = is_ordered(left) && is_ordered(right) && (left == right || *left == Type::Dyn || *right == Type::Dyn);
        if !both_numbers && !alike {
            self.no_overload(function, false, args, at);
        }
        Type::Bool
    }

    fn resolve(&mut self, function: &str, is_member: bool, args: &[Type<'s>], at: usize) -> Type<'s> {
        let Some(candidates) = overloads(function) else {
            self.issue(at, format!("undeclared reference to '{function}' (in container '')"));
            return Type::Dyn;
        };
        let mut result: Option<Type<'s>> = None;
        for overload in candidates.iter().filter(|o| o.is_member == is_member && o.args.len() == args.len()) {
            if let Some(found) = apply(overload, args) {
                result = Some(match result {
                    Some(other) if other != found => Type::Dyn,
                    _ => found,
                });
            }
        }
        result.unwrap_or_else(|| {
            self.no_overload(function, is_member, args, at);
            Type::Dyn
        })
    }

    fn no_overload(&mut self, function: &str, is_member: bool, args: &[Type<'s>], at: usize) {
        let list = |types: &[Type<'s>]| types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let applied = if is_member { format!("{}.({})", args[0], list(&args[1..])) } else { format!("({})", list(args)) };
        self.issue(at, format!("found no matching overload for '{function}' applied to '{applied}'"));
    }

    fn expand(&mut self, found: &Macro) -> Type<'s> {
        let range = self.expr(&found.range);
        if matches!(found.kind, MacroKind::OptMap | MacroKind::OptFlatMap) {
            let inner = self.unwrap(range, found.range.at);
            let body = self.within(&[(found.var.clone(), inner)], |checker| checker.expr(&found.body));
            return if found.kind == MacroKind::OptMap || body == Type::Dyn { Type::optional(body) } else { body };
        }
        let (key, value, is_map) = match range {
            Type::List(of) => (Type::Int, *of, false),
            Type::Map(key, value) => (*key, *value, true),
            Type::Dyn | Type::Param(_) => (Type::Dyn, Type::Dyn, false),
            other => {
                let message = format!("expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)");
                self.issue(found.range.at, message);
                (Type::Dyn, Type::Dyn, false)
            }
        };
        let mut variables = vec![(found.var.clone(), if found.var2.is_some() || is_map { key.clone() } else { value.clone() })];
        if let Some(var2) = &found.var2 {
            variables.push((var2.clone(), value.clone()));
        }
        let (filter, body) = self.within(&variables, |checker| {
            let filter = found.filter.as_ref().map(|f| (checker.expr(f), f.at));
            (filter, checker.expr(&found.body))
        });
        if let Some((filter, at)) = filter {
            self.must_be_bool(&filter, at);
        }
        let element = if is_map { key.clone() } else { value };
        match found.kind {
            MacroKind::All | MacroKind::Exists | MacroKind::ExistsOne => {
                self.must_be_bool(&body, found.body.at);
                Type::Bool
            }
            MacroKind::Filter => {
                self.must_be_bool(&body, found.body.at);
                Type::list(element)
            }
            MacroKind::SortBy => Type::list(element),
            MacroKind::Map | MacroKind::TransformList => Type::list(body),
            MacroKind::TransformMap => Type::Map(Box::new(key), Box::new(body)),
            MacroKind::TransformMapEntry => match body {
                Type::Map(key, value) => Type::Map(key, value),
                _ => Type::Map(Box::new(Type::Dyn), Box::new(Type::Dyn)),
            },
            MacroKind::OptMap | MacroKind::OptFlatMap => Type::Dyn,
        }
    }

    fn within<R>(&mut self, variables: &[(Arc<str>, Type<'s>)], run: impl FnOnce(&mut Self) -> R) -> R {
        let length = self.scope.len();
        self.scope.extend(variables.iter().cloned());
        let result = run(self);
        self.scope.truncate(length);
        result
    }

    fn must_be_bool(&mut self, found: &Type<'s>, at: usize) {
        if !matches!(found, Type::Bool | Type::Dyn) {
            let message = format!("expected type 'bool' but found '{found}'");
            self.issue(at, message);
        }
    }
}

fn literal_type(literal: &Literal) -> Type<'static> {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

/// `a.b.c` as a name.
pub(super) fn dotted(expr: &Expr) -> Option<String> {
    match &expr.kind {
        Kind::Ident(name) => Some(name.to_string()),
        Kind::Select(select) if !select.optional => Some(format!("{}.{}", dotted(&select.operand)?, select.field)),
        _ => None,
    }
}

/// The result of an overload for these arguments, if it fits them.
fn apply<'s>(overload: &Overload, args: &[Type<'s>]) -> Option<Type<'s>> {
    let mut bindings = Bindings::new();
    let fits = overload.args.iter().zip(args).all(|(wanted, found)| unify(wanted, found, &mut bindings));
    fits.then(|| substitute(&overload.result, &bindings))
}

fn unify<'s>(wanted: &Type<'static>, found: &Type<'s>, bindings: &mut Bindings<'s>) -> bool {
    match (wanted, found) {
        (Type::Param(name), _) => match bindings.get(name) {
            None => {
                bindings.insert(*name, found.clone());
                true
            }
            Some(bound) if accepts(bound, found) => true,
            Some(bound) if accepts(found, bound) => {
                bindings.insert(*name, found.clone());
                true
            }
            Some(_) => false,
        },
        (Type::List(wanted), Type::List(found)) | (Type::Optional(wanted), Type::Optional(found)) => unify(wanted, found, bindings),
        (Type::Map(wk, wv), Type::Map(fk, fv)) => unify(wk, fk, bindings) && unify(wv, fv, bindings),
        (_, Type::Dyn) => {
            bind_dyn(wanted, bindings);
            true
        }
        (Type::Dyn, _) => true,
        (wanted, found) => accepts(wanted, found),
    }
}

/// What is taken from a dynamic value is dynamic.
fn bind_dyn(wanted: &Type<'static>, bindings: &mut Bindings<'_>) {
    match wanted {
        Type::Param(name) => {
            bindings.entry(*name).or_insert(Type::Dyn);
        }
        Type::List(of) | Type::Optional(of) => bind_dyn(of, bindings),
        Type::Map(key, value) => {
            bind_dyn(key, bindings);
            bind_dyn(value, bindings);
        }
        _ => {}
    }
}

fn substitute<'s>(found: &Type<'static>, bindings: &Bindings<'s>) -> Type<'s> {
    match found {
        Type::Param(name) => bindings.get(name).cloned().unwrap_or(Type::Dyn),
        Type::List(of) => Type::list(substitute(of, bindings)),
        Type::Optional(of) => Type::optional(substitute(of, bindings)),
        Type::Map(key, value) => Type::Map(Box::new(substitute(key, bindings)), Box::new(substitute(value, bindings))),
        other => other.clone(),
    }
}

/// Whether a value of `found` can stand where `wanted` is.
fn accepts(wanted: &Type<'_>, found: &Type<'_>) -> bool {
    match (wanted, found) {
        (Type::Dyn, _) | (_, Type::Dyn) => true,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => accepts(a, b),
        (Type::Map(ak, av), Type::Map(bk, bv)) => accepts(ak, bk) && accepts(av, bv),
        // null stands for objects and for the types that protobuf wraps.
        (
            Type::Object(_) | Type::Fields(_) | Type::Message(_) | Type::Opaque(_) | Type::Optional(_) | Type::Timestamp | Type::Duration,
            Type::Null,
        ) => true,
        (Type::Object(a), Type::Object(b)) => a == b,
        (Type::Fields(a), Type::Fields(b)) => a.name == b.name,
        (Type::Message(a), Type::Message(b)) => a == b,
        (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b) && !matches!((a, b), (Type::Opaque(x), Type::Opaque(y)) if x != y),
    }
}
