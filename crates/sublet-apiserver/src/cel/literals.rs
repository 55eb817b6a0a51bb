//! What can be said about literals before an expression runs.

use super::ast::{Call, Expr, Kind, Literal, MESSAGE, Macro};
use super::check::Checked;
use super::eval::of_literal;
use super::functions;
use super::functions::format;
use super::issue::Issue;
use super::moment::Moment;
use super::types::Type;
use super::value::Val;
use sublet_machinery::structural::format::parse_go_duration;

/// Issues of an expression whose types are right.
pub(super) fn issues(expr: &Expr, checked: &Checked<'_>) -> Vec<Issue> {
    let mut linter = Linter { types: &checked.types, issues: Vec::new() };
    linter.visit(expr, false);
    linter.issues
}

/// Conversions of constants happen once, before an expression runs; the error says why one cannot.
pub(super) fn unconvertible(expr: &Expr) -> Option<String> {
    constant(expr).err()
}

struct Linter<'c, 's> {
    types: &'c [Type<'s>],
    issues: Vec<Issue>,
}

/// What an argument of `format` is, and where, if not what its clause takes.
enum Misfit {
    Template(String),
    Argument(String, usize),
}

impl From<String> for Misfit {
    fn from(text: String) -> Self {
        Self::Template(text)
    }
}

impl<'s> Linter<'_, 's> {
    /// In the arguments of `format`, literals may mix types.
    fn visit(&mut self, expr: &Expr, may_mix: bool) {
        match &expr.kind {
            Kind::Literal(_) | Kind::Ident(_) => {}
            Kind::Select(select) | Kind::Has(select) => self.visit(&select.operand, may_mix),
            Kind::Call(call) => {
                self.call(call, expr.at);
                call.target.iter().for_each(|target| self.visit(target, may_mix));
                let may_mix = may_mix || call.function.as_ref() == "format" || call.function.starts_with(MESSAGE);
                call.args.iter().for_each(|arg| self.visit(arg, may_mix));
            }
            Kind::List(elements) => {
                elements.iter().for_each(|element| self.visit(&element.value, may_mix));
                let different = self.first_unlike(elements.iter().map(|e| (&e.value, e.optional)));
                if let (false, Some(issue)) = (may_mix, different.into_iter().next()) {
                    self.issues.push(issue);
                }
            }
            Kind::Map(entries) => {
                for entry in entries {
                    self.visit(&entry.key, may_mix);
                    self.visit(&entry.value, may_mix);
                }
                if !may_mix {
                    let keys = self.first_unlike(entries.iter().map(|e| (&e.key, false)));
                    let values = self.first_unlike(entries.iter().map(|e| (&e.value, e.optional)));
                    self.issues.extend(keys.into_iter().chain(values));
                }
            }
            Kind::Macro(found) => {
                let Macro { range, filter, body, .. } = &**found;
                [Some(range), filter.as_ref(), Some(body)].into_iter().flatten().for_each(|e| self.visit(e, may_mix));
            }
        }
    }

    /// Elements whose type is not that of the first one.
    fn first_unlike<'e>(&self, elements: impl Iterator<Item = (&'e Expr, bool)>) -> Vec<Issue> {
        let mut typed = elements.filter_map(|(expr, optional)| match (&self.types[expr.id], optional) {
            // An optional value of any type.
            (Type::Optional(inner), true) if **inner == Type::Dyn => None,
            (Type::Optional(inner), true) => Some((&**inner, expr.at)),
            (found, _) => Some((found, expr.at)),
        });
        let Some((first, _)) = typed.next() else { return Vec::new() };
        typed
            .filter(|(found, _)| !alike(first, found))
            .map(|(found, at)| Issue::new(format!("expected type '{first}' but found '{found}'"), at))
            .collect()
    }

    fn call(&mut self, call: &Call, at: usize) {
        let literal = |expr: &Expr| match &expr.kind {
            Kind::Literal(Literal::String(text)) => Some(text.clone()),
            _ => None,
        };
        let function = call.function.as_ref();
        if function == "format" {
            if let (Some(template), [Expr { kind: Kind::List(elements), .. }]) = (call.target.as_ref().and_then(literal), &*call.args) {
                let values: Vec<&Expr> = elements.iter().map(|e| &e.value).collect();
                self.issues.extend(self.format(&template, &values, at));
            }
            return;
        }
        let Some((argument, text)) = call.args.last().and_then(|arg| Some((arg, literal(arg)?))) else { return };
        let wrong = match function {
            "timestamp" => Moment::parse(&text).is_none(),
            "duration" => parse_go_duration(&text).is_none(),
            "matches" => sublet_machinery::pattern::check(&text).is_err(),
            _ => false,
        };
        if wrong {
            self.issues.push(Issue::new(format!("invalid {function} argument"), argument.at));
        }
    }

    fn format(&self, template: &str, values: &[&Expr], at: usize) -> Option<Issue> {
        let filled = format::fill(template, values.len(), |index, kind, _| {
            let unfit = self.unfit(kind, values[index]);
            unfit.map_or(Ok(String::new()), |(found, at)| Err(Misfit::Argument(format::unfit(kind, &found), at)))
        });
        match filled {
            Err(Misfit::Template(text)) => Some(Issue::new(text, at)),
            Err(Misfit::Argument(text, at)) => Some(Issue::new(text, at)),
            Ok((_, used)) if used < values.len() => {
                let text = format!("too many arguments supplied to string.format (expected {used}, got {})", values.len());
                Some(Issue::new(text, at))
            }
            Ok(_) => None,
        }
    }

    /// The type, and the place, that a clause cannot show.
    fn unfit(&self, kind: char, value: &Expr) -> Option<(String, usize)> {
        let found = &self.types[value.id];
        let fits = match kind {
            's' => !matches!(found, Type::Object(_) | Type::Optional(_) | Type::Opaque(_)),
            'd' | 'o' => matches!(found, Type::Int | Type::Uint),
            'f' | 'e' => matches!(found, Type::Double),
            'b' => matches!(found, Type::Int | Type::Uint | Type::Bool),
            _ => matches!(found, Type::Int | Type::Uint | Type::String | Type::Bytes),
        };
        if !fits && *found != Type::Dyn {
            let name = match found {
                Type::List(_) => "list".into(),
                Type::Map(..) => "map".into(),
                Type::Optional(_) => "optional_type".into(),
                other => other.to_string(),
            };
            return Some((name, value.at));
        }
        match &value.kind {
            Kind::List(elements) if kind == 's' => elements.iter().find_map(|e| self.unfit(kind, &e.value)),
            Kind::Map(entries) if kind == 's' => {
                entries.iter().find_map(|e| self.unfit(kind, &e.key).or_else(|| self.unfit(kind, &e.value)))
            }
            _ => None,
        }
    }
}

/// Whether two types are the same, where what a literal leaves open may be anything.
fn alike(a: &Type<'_>, b: &Type<'_>) -> bool {
    let open = |a: &Type<'_>, b: &Type<'_>| *a == Type::Dyn || *b == Type::Dyn || alike(a, b);
    match (a, b) {
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => open(a, b),
        (Type::Map(ak, av), Type::Map(bk, bv)) => open(ak, bk) && open(av, bv),
        (a, b) => a == b,
    }
}

/// The value of a constant or of a conversion of one.
fn constant<'v>(expr: &Expr) -> Result<Option<Val<'v>>, String> {
    match &expr.kind {
        Kind::Literal(literal) => Ok(Some(of_literal(literal))),
        Kind::Ident(_) => Ok(None),
        Kind::Select(select) | Kind::Has(select) => none(&[&select.operand]),
        Kind::List(elements) => none(&elements.iter().map(|e| &e.value).collect::<Vec<_>>()),
        Kind::Map(entries) => none(&entries.iter().flat_map(|e| [&e.key, &e.value]).collect::<Vec<_>>()),
        Kind::Macro(found) => {
            let Macro { range, filter, body, .. } = &**found;
            none(&[Some(range), filter.as_ref(), Some(body)].into_iter().flatten().collect::<Vec<_>>())
        }
        Kind::Call(call) => {
            const CONVERSIONS: [&str; 8] = ["bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"];
            if let (None, [argument], true) = (&call.target, &*call.args, CONVERSIONS.contains(&call.function.as_ref())) {
                let Some(value) = constant(argument)? else { return Ok(None) };
                return functions::call(&call.function, false, &[value]).map(Some).map_err(|error| error.to_string());
            }
            none(&call.target.iter().chain(&call.args).collect::<Vec<_>>())
        }
    }
}

/// For what is no constant itself but may have some inside.
fn none<'v>(parts: &[&Expr]) -> Result<Option<Val<'v>>, String> {
    parts.iter().try_for_each(|part| constant(part).map(drop)).map(|()| None)
}
