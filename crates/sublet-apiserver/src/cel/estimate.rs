//! What an expression costs at worst, before it runs: by the sizes that schemas allow.
//!
//! The rules are those of cel-go and of the Kubernetes libraries, because they decide which definitions
//! are accepted. A change here is a change of the API.

use super::ast::{Call, Expr, Kind, Literal, Macro, MacroKind};
use super::check::dotted;
use super::decls::overloads;
use super::sizes::elements_max;
use super::types::Type;
use std::sync::Arc;
use sublet_machinery::SchemaNode;

/// From the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Range {
    const UNKNOWN: Self = Self { min: 0, max: u64::MAX };
    const ZERO: Self = Self::exactly(0);

    const fn exactly(n: u64) -> Self {
        Self { min: n, max: n }
    }

    fn add(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    fn scaled(self, factor: f64) -> Self {
        // A float beyond the range of u64 is cut to its end.
        let scale = |n: u64| (n as f64 * factor).ceil() as u64;
        Self { min: scale(self.min), max: scale(self.max) }
    }

    fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// The most that an expression costs.
pub(super) fn max_cost<'s>(expr: &Expr, types: &[Type<'s>], root: Option<SchemaNode<'s>>, roots: &[&str]) -> u64 {
    let root = root.map_or(Source::Lost, Source::Schema);
    let scope = roots.iter().map(|name| ((*name).into(), root, None)).collect();
    Estimator { types, root, scope }.expr(expr).cost.max
}

/// Where a value comes from, as far as its size can be read from a schema.
#[derive(Clone, Copy, Debug)]
enum Source<'s> {
    /// Made by the expression itself.
    Made,
    Schema(SchemaNode<'s>),
    /// Taken from the object, but out of the sight of the schema.
    Lost,
    /// The key of a map.
    Key,
}

impl<'s> Source<'s> {
    fn size(self) -> Option<Range> {
        match self {
            Self::Made | Self::Lost => None,
            Self::Key => Some(Range::ZERO),
            Self::Schema(node) => Some(Range { min: 0, max: elements_max(node) }),
        }
    }

    /// What is taken from a value. Of a value that the expression made, upstream forgets where it comes
    /// from and judges its parts like the root.
    fn below(self, root: Self, child: impl Fn(SchemaNode<'s>) -> Option<SchemaNode<'s>>) -> Self {
        match self {
            Self::Made => root,
            Self::Schema(node) => child(node).map_or(Self::Lost, Self::Schema),
            Self::Lost | Self::Key => Self::Lost,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Estimate<'s> {
    cost: Range,
    size: Option<Range>,
    source: Source<'s>,
    /// The size of the items of a list that the expression itself makes.
    items: Option<Range>,
}

struct Estimator<'a, 's> {
    types: &'a [Type<'s>],
    root: Source<'s>,
    scope: Vec<(Arc<str>, Source<'s>, Option<Range>)>,
}

fn costs<'s>(cost: Range) -> Estimate<'s> {
    Estimate { cost, size: None, source: Source::Made, items: None }
}

impl<'s> Estimator<'_, 's> {
    fn expr(&mut self, expr: &Expr) -> Estimate<'s> {
        match &expr.kind {
            Kind::Literal(literal) => Estimate { size: Some(Range::exactly(literal_size(literal))), ..costs(Range::ZERO) },
            Kind::Ident(name) => {
                let found = self.scope.iter().rev().find(|(n, ..)| n == name);
                let (source, size) = found.map_or((self.root, None), |(_, source, size)| (*source, *size));
                Estimate { source, size: source.size().or(size), ..costs(Range::exactly(1)) }
            }
            Kind::Has(select) => costs(self.expr(&select.operand).cost),
            Kind::Select(select) => {
                let operand = self.expr(&select.operand);
                let is_access = matches!(self.types[select.operand.id], Type::Map(..) | Type::Object(_) | Type::Param(_));
                let name = super::types::unescape(&select.field).unwrap_or_default();
                let source = operand.source.below(self.root, |node| node.property(&name));
                let cost = operand.cost.add(Range::exactly(u64::from(is_access)));
                Estimate { source, size: source.size(), ..costs(cost) }
            }
            Kind::Call(call) => self.call(call),
            Kind::List(elements) => {
                let (mut cost, mut items) = (Range::exactly(10), None);
                for element in elements {
                    let found = self.expr(&element.value);
                    let size = self.size(&found, &element.value);
                    cost = cost.add(found.cost);
                    items = Some(items.map_or(size, |items: Range| items.union(size)));
                }
                let items = Some(items.unwrap_or(Range::ZERO));
                Estimate { size: Some(Range::exactly(elements.len() as u64)), items, ..costs(cost) }
            }
            Kind::Map(entries) => {
                let mut cost = Range::exactly(30);
                for entry in entries {
                    cost = cost.add(self.expr(&entry.key).cost).add(self.expr(&entry.value).cost);
                }
                Estimate { size: Some(Range::exactly(entries.len() as u64)), ..costs(cost) }
            }
            Kind::Macro(found) => self.expand(found),
        }
    }

    /// The size of a value, or the widest range when nothing is known.
    fn size(&self, estimate: &Estimate<'s>, expr: &Expr) -> Range {
        estimate.size.unwrap_or_else(|| if is_scalar(&self.types[expr.id]) { Range::exactly(1) } else { Range::UNKNOWN })
    }

    fn call(&mut self, call: &Call) -> Estimate<'s> {
        let mut parts: Vec<(Estimate<'s>, &Expr)> = Vec::new();
        let namespace = call.target.as_ref().and_then(dotted).filter(|name| {
            let root = name.split('.').next().unwrap_or_default();
            !self.scope.iter().any(|(n, ..)| n.as_ref() == root) && overloads(&format!("{name}.{}", call.function)).is_some()
        });
        let function = namespace.as_ref().map_or_else(|| call.function.to_string(), |name| format!("{name}.{}", call.function));
        if let (Some(target), None) = (&call.target, &namespace) {
            parts.push((self.expr(target), target));
        }
        for arg in &call.args {
            parts.push((self.expr(arg), arg));
        }
        let sum = parts.iter().fold(Range::ZERO, |sum, (est, _)| sum.add(est.cost));
        let sizes: Vec<Range> = parts.iter().map(|(est, expr)| self.size(est, expr)).collect();
        let types: Vec<&Type<'s>> = parts.iter().map(|(_, expr)| &self.types[expr.id]).collect();
        match function.as_str() {
            "_&&_" | "_||_" => {
                let (left, right) = (parts[0].0.cost, parts[1].0.cost);
                return Estimate { size: Some(Range::exactly(1)), ..costs(Range { min: left.min, max: left.add(right).max }) };
            }
            "_?_:_" => {
                let cost = parts[0].0.cost.add(parts[1].0.cost.union(parts[2].0.cost));
                return Estimate { size: Some(sizes[1].union(sizes[2])), ..costs(cost) };
            }
            "_[_]" | "_[?_]" => {
                let source = parts[0].0.source.below(self.root, |node| node.items().or_else(|| node.additional()));
                let size = source.size().or(parts[0].0.items);
                return Estimate { source, size, ..costs(sum.add(Range::exactly(1))) };
            }
            _ => {}
        }
        let (own, size) = function_cost(&function, call, &sizes, &types, &parts);
        Estimate { size, ..costs(sum.add(own)) }
    }

    fn expand(&mut self, found: &Macro) -> Estimate<'s> {
        let range = self.expr(&found.range);
        let count = self.size(&range, &found.range);
        let is_list = matches!(self.types[found.range.id], Type::List(_));
        let child = if is_list { SchemaNode::items } else { SchemaNode::additional };
        let element = range.source.below(self.root, child);
        let length = self.scope.len();
        let first = match (is_list, found.var2.is_some()) {
            (true, false) => (element, range.items),
            (true, true) => (Source::Lost, Some(Range::exactly(1))),
            (false, _) if matches!(range.source, Source::Made) => (self.root, None),
            (false, _) => (if matches!(element, Source::Schema(_)) { Source::Key } else { Source::Lost }, None),
        };
        self.scope.push((found.var.clone(), first.0, first.1));
        if let Some(var2) = &found.var2 {
            self.scope.push((var2.clone(), element, range.items));
        }
        let filter = found.filter.as_ref().map(|f| self.expr(f).cost);
        let body_estimate = self.expr(&found.body);
        let body = body_estimate.cost;
        let body_size = self.size(&body_estimate, &found.body);
        self.scope.truncate(length);
        if matches!(found.kind, MacroKind::OptMap | MacroKind::OptFlatMap) {
            let cost = range.cost.add(range.cost).add(Range::exactly(14)).add(Range { min: 0, max: body.max });
            return costs(cost);
        }
        // What one round costs beside the body, what begins the fold, and what ends it.
        let filtered = |made: Range| filter.map_or(made, |filter| filter.add(Range::exactly(1).union(made)));
        let fixed = Range::exactly;
        let (round, begin, end) = match found.kind {
            MacroKind::All => (fixed(2).add(Range { min: 1, max: fixed(1).add(body).max }), 0, 1),
            MacroKind::Exists => (fixed(3).add(Range { min: 1, max: fixed(1).add(body).max }), 0, 1),
            MacroKind::ExistsOne => (body.add(Range { min: 1, max: 2 }), 0, 2),
            MacroKind::Filter => (body.add(Range { min: 1, max: 13 }), 10, 1),
            MacroKind::TransformMap => (filtered(fixed(3).add(body)), 30, 1),
            MacroKind::TransformMapEntry => (filtered(fixed(2).add(body)), 30, 1),
            _ => (filtered(fixed(12).add(body)), 10, 1),
        };
        let cost = range.cost.add(fixed(begin)).add(fixed(end)).add(count.times(round));
        let is_container = begin > 0;
        let items = match found.kind {
            MacroKind::Map | MacroKind::TransformList => Some(body_size),
            _ => None,
        };
        Estimate { size: Some(if is_container { count } else { fixed(1) }), items, ..costs(cost) }
    }
}

/// The cost of a call without that of its arguments, and the size of its result.
fn function_cost<'s>(
    function: &str,
    call: &Call,
    sizes: &[Range],
    types: &[&Type<'s>],
    parts: &[(Estimate<'s>, &Expr)],
) -> (Range, Option<Range>) {
    let one = Range::exactly(1);
    let size = |index: usize| sizes.get(index).copied().unwrap_or(one);
    let is_text = |t: &&Type<'_>| matches!(t, Type::String | Type::Bytes);
    let regex = |text: Range, pattern: Range| text.add(one).scaled(0.1).times(pattern.scaled(0.25));
    match function {
        "dyn" => (one, sizes.first().copied()),
        "check" => (Range::exactly(350_000), None),
        "startsWith" | "endsWith" => (size(1).scaled(0.1), None),
        "@in" if !matches!(types.get(1), Some(Type::Map(..))) => (size(1), None),
        "matches" => (regex(size(0), size(1)), None),
        "find" | "findAll" => (regex(size(0), size(1)), Some(Range { min: 0, max: size(0).max })),
        "contains" => (size(0).scaled(0.1).times(size(1).scaled(0.1)), None),
        "_==_" if matches!(types.first(), Some(Type::Opaque(_))) && types.first() == types.get(1) => (one, None),
        "_==_" | "_!=_" => (smaller(size(0), size(1)), None),
        "_<_" | "_<=_" | "_>_" | "_>=_" if types.iter().any(is_text) => (smaller(size(0), size(1)), None),
        "_+_" if types.iter().any(is_text) => {
            let result = size(0).add(size(1));
            (result.scaled(0.1), Some(result))
        }
        "_+_" if matches!(types.first(), Some(Type::List(_))) => (one, Some(size(0).add(size(1)))),
        "bytes" if matches!(types, [Type::String]) => {
            (size(0).scaled(0.1), Some(Range { min: size(0).min, max: size(0).max.saturating_mul(4) }))
        }
        "string" if matches!(types, [Type::Bytes]) => (size(0).scaled(0.1), Some(Range { min: size(0).min / 4, max: size(0).max })),
        "strings.quote" => {
            let grown = Range { min: size(0).min.saturating_add(2), max: size(0).max.saturating_mul(2).saturating_add(2) };
            (size(0).scaled(0.1), Some(grown))
        }
        "format" | "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver" => (size(0).scaled(0.1), None),
        "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" => (size(0).scaled(0.1), Some(size(0))),
        "ip" if call.target.is_none() => (size(0).scaled(0.1), None),
        "ip.isCanonical" => (size(0).scaled(0.2), None),
        "replace" => (size(0).scaled(0.2), Some(replaced(size(0), size(1), size(2)))),
        "split" => (size(0).scaled(0.2), Some(Range { min: 0, max: split_max(call, size(0)) })),
        "join" => joined(sizes, parts),
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => (walk(size(0), types, parts), None),
        "containsIP" | "containsCIDR" => {
            let bytes = Range { min: 4, max: 16 };
            let mut cost = bytes.add(bytes).scaled(0.1);
            if function == "containsCIDR" {
                cost = cost.add(bytes.scaled(0.1)).add(one);
            }
            if matches!(types.get(1), Some(Type::String)) {
                cost = cost.add(size(1).scaled(0.1));
            }
            (cost, None)
        }
        "validate" => (size(1).scaled(0.1).scaled(32.0), None),
        "sets.contains" | "sets.intersects" => (one.add(size(0).times(size(1))), None),
        "sets.equivalent" => (one.add(size(0).times(size(1)).times(Range::exactly(2))), None),
        "distinct" => (Range::exactly(10).add(size(0).times(size(0))), Some(size(0))),
        "flatten" | "reverse" | "sort" => (Range::exactly(10).add(size(0)), Some(size(0))),
        "slice" => {
            // Upstream takes a range that ends before it begins for an endless one.
            let part = Range::exactly(constant(call, 1).unwrap_or(size(0).max).wrapping_sub(constant(call, 0).unwrap_or(0)));
            (Range::exactly(10).add(part), Some(part))
        }
        "lists.range" => {
            let made = constant(call, 0).map_or(Range::UNKNOWN, Range::exactly);
            (Range::exactly(10).add(made), Some(made))
        }
        _ => (one, None),
    }
}

/// The cost of comparing two values: the smaller one is walked.
fn smaller(a: Range, b: Range) -> Range {
    let max = a.max.min(b.max);
    Range { min: u64::from(max > 0), max }.scaled(0.1)
}

/// One walk over a list or string, and over the strings in it.
fn walk(size: Range, types: &[&Type<'_>], parts: &[(Estimate<'_>, &Expr)]) -> Range {
    match types.first() {
        Some(Type::List(of)) => {
            let mut item = Range::exactly(1);
            if matches!(**of, Type::String | Type::Bytes) {
                item = item.add(item_size(parts).scaled(0.1));
            }
            size.times(item)
        }
        _ => size.scaled(0.1),
    }
}

fn item_size(parts: &[(Estimate<'_>, &Expr)]) -> Range {
    let Some((list, _)) = parts.first() else { return Range::UNKNOWN };
    list.source.below(Source::Lost, SchemaNode::items).size().unwrap_or(Range::UNKNOWN)
}

fn joined(sizes: &[Range], parts: &[(Estimate<'_>, &Expr)]) -> (Range, Option<Range>) {
    let count = sizes.first().copied().unwrap_or(Range::UNKNOWN);
    let mut size = count.times(item_size(parts));
    if let Some(separator) = sizes.get(1) {
        size = size.add(separator.times(Range { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) }));
    }
    (size.scaled(0.1), Some(size))
}

/// An argument that is written as a number.
fn constant(call: &Call, index: usize) -> Option<u64> {
    match call.args.get(index)?.kind {
        Kind::Literal(Literal::Int(n)) => Some(u64::try_from(n).unwrap_or(0)),
        _ => None,
    }
}

fn split_max(call: &Call, size: Range) -> u64 {
    match call.args.get(1).map(|arg| &arg.kind) {
        Some(Kind::Literal(Literal::Int(limit))) => u64::try_from(*limit).unwrap_or(u64::MAX),
        _ => size.max,
    }
}

/// The size of a string in which `old` became `new`.
fn replaced(text: Range, old: Range, new: Range) -> Range {
    let (count_max, kept_max) = if old.min == 0 {
        (text.max.saturating_add(1), text.max)
    } else if new.max <= old.min {
        (0, text.max)
    } else {
        (text.max.div_ceil(old.min), 0)
    };
    let (count_min, kept_min) = if old.max == 0 {
        (text.min.saturating_add(1), text.min)
    } else if old.max <= new.min {
        (0, text.min)
    } else {
        (text.min.div_ceil(old.max), 0)
    };
    Range { min: count_min, max: count_max }.times(new).add(Range { min: kept_min, max: kept_max })
}

fn literal_size(literal: &Literal) -> u64 {
    match literal {
        Literal::String(text) => text.chars().count() as u64,
        Literal::Bytes(bytes) => bytes.len() as u64,
        _ => 1,
    }
}

fn is_scalar(found: &Type<'_>) -> bool {
    match found {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        Type::Optional(inner) => is_scalar(inner),
        _ => false,
    }
}
