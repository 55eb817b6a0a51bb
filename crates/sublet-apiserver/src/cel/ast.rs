//! Expressions as parsed: operators are calls under CEL's names for them, macros are nodes of their own.

use std::sync::Arc;

/// An expression with the byte at which it begins, or at which its operator stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Expr {
    /// Counted from zero within one program; types found by the checker are kept by it.
    pub(super) id: usize,
    pub(super) at: usize,
    /// How many expressions are on the longest way down from here.
    pub(super) height: usize,
    pub(super) kind: Kind,
}

impl Kind {
    /// The height of an expression of this kind.
    pub(super) fn height(&self) -> usize {
        let tallest = |parts: &mut dyn Iterator<Item = &Expr>| parts.map(|part| part.height).max().unwrap_or_default();
        1 + match self {
            Self::Literal(_) | Self::Ident(_) => 0,
            Self::Select(select) | Self::Has(select) => select.operand.height,
            Self::Call(call) => tallest(&mut call.target.iter().chain(&call.args)),
            Self::List(elements) => tallest(&mut elements.iter().map(|e| &e.value)),
            Self::Map(entries) => tallest(&mut entries.iter().flat_map(|e| [&e.key, &e.value])),
            Self::Macro(found) => tallest(&mut [&found.range, &found.body].into_iter().chain(&found.filter)),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Literal(Literal),
    Ident(Arc<str>),
    Select(Box<Select>),
    Call(Box<Call>),
    List(Vec<Element>),
    Map(Vec<Entry>),
    /// `has(a.b)`
    Has(Box<Select>),
    Macro(Box<Macro>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Select {
    pub(super) operand: Expr,
    pub(super) field: Arc<str>,
    /// `a.?b`
    pub(super) optional: bool,
}

/// Begins the name of a call that makes a message; the name of its type follows.
pub(super) const MESSAGE: &str = "@new ";

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    /// `_+_`, `size`, `ip.isCanonical`, `@new Object.spec`.
    pub(super) function: Arc<str>,
    pub(super) target: Option<Expr>,
    pub(super) args: Vec<Expr>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Element {
    pub(super) value: Expr,
    /// `[?x]`
    pub(super) optional: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) key: Expr,
    pub(super) value: Expr,
    /// `{?k: x}`
    pub(super) optional: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MacroKind {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
    TransformList,
    TransformMap,
    TransformMapEntry,
    SortBy,
    OptMap,
    OptFlatMap,
}

/// `range.all(x, body)`, `range.map(x, filter, body)`, `range.all(i, x, body)`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Macro {
    pub(super) kind: MacroKind,
    pub(super) range: Expr,
    pub(super) var: Arc<str>,
    /// Of the form with two variables: the first is the index or key, this one the value.
    pub(super) var2: Option<Arc<str>>,
    pub(super) filter: Option<Expr>,
    pub(super) body: Expr,
}
