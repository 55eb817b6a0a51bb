//! The Common Expression Language as Kubernetes speaks it: typed by schemas, with its libraries, within
//! a budget.
//!
//! [`compile`] parses and checks an expression against its variables; a [`Program`] runs as often as
//! wanted, on values that [`of_json`] makes from objects without copying them.

mod ast;
mod check;
mod decls;
mod estimate;
mod eval;
mod fold;
mod functions;
mod issue;
mod lazy;
mod lexer;
mod literals;
mod messages;
mod moment;
mod parser;
mod sizes;
mod types;
mod value;

pub use eval::EvalError;
pub use lazy::Lazy;
pub use messages::to_json;
pub use moment::Moment;
pub(crate) use sizes::size_min;
pub(crate) use types::KEYWORDS;
pub use types::{AUTHORIZER, DECISION, Fields, GROUP_CHECK, PATH_CHECK, RESOURCE_CHECK, Type, declare, declare_at};
pub use value::{Extension, Opaque, Val, of_json};

use ast::{Expr, Kind};
use eval::Evaluator;
use issue::Issue;
use sublet_machinery::SchemaNode;

/// Costs that one evaluation may have.
pub const CALL_COST_MAX: u64 = 1_000_000;

/// An expression that was found right.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    expr: Expr,
}

/// What is known about an expression before it runs.
#[derive(Debug)]
pub struct Compiled<'s> {
    pub program: Program,
    pub result: Type<'s>,
    /// At worst, with the sizes that the schema allows.
    pub cost_max: u64,
}

/// Why an expression is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// Every issue with its place, as cel-go shows them.
    #[error("compilation failed: {0}")]
    Wrong(String),
    /// A part that is constant has no value.
    #[error("instantiation failed: {0}")]
    Unusable(String),
}

/// Compiles an expression. `root` is the schema of the first variable, for estimates.
pub fn compile<'s>(text: &str, variables: &[(&str, Type<'s>)], root: Option<SchemaNode<'s>>) -> Result<Compiled<'s>, CompileError> {
    let wrong = |issues: Vec<Issue>| CompileError::Wrong(issue::show_all(&issues, text));
    let (expr, nodes) = parser::parse(text).map_err(wrong)?;
    let checked = check::check(&expr, nodes, variables).map_err(wrong)?;
    let issues = literals::issues(&expr, &checked);
    if !issues.is_empty() {
        return Err(wrong(issues));
    }
    if let Some(error) = literals::unconvertible(&expr) {
        return Err(CompileError::Unusable(error));
    }
    let names: Vec<&str> = variables.iter().map(|(name, _)| *name).collect();
    let cost_max = estimate::max_cost(&expr, &checked.types, root, &names);
    Ok(Compiled { program: Program { expr }, result: checked.result, cost_max })
}

impl Program {
    /// Whether the expression uses a variable of this name.
    pub fn uses(&self, name: &str) -> bool {
        uses(&self.expr, name)
    }

    /// Runs the expression; the second value is what it cost.
    pub fn eval<'v>(&self, variables: &[(&str, Val<'v>)], cost_max: u64) -> (Result<Val<'v>, EvalError>, u64) {
        self.eval_with(variables, None, cost_max)
    }

    /// As [`Self::eval`], with expressions under names of their own, which run when somebody looks at them.
    pub fn eval_with<'v>(
        &self,
        variables: &[(&str, Val<'v>)],
        lazy: Option<&Lazy<'v, '_>>,
        cost_max: u64,
    ) -> (Result<Val<'v>, EvalError>, u64) {
        let scope: Vec<_> = variables.iter().map(|(name, value)| (*name, value.clone())).collect();
        let mut evaluator = Evaluator { root: scope.len(), scope, lazy, cost: 0, limit: cost_max.min(CALL_COST_MAX) };
        let result = evaluator.expr(&self.expr);
        (result, evaluator.cost)
    }

    /// A message that is of another type than the field that it stands in: `Object.spec{a: Object.spec.b{}}`.
    pub fn misplaced(&self) -> Option<String> {
        messages::misplaced(&self.expr, None)
    }
}

fn uses(expr: &Expr, name: &str) -> bool {
    match &expr.kind {
        Kind::Literal(_) => false,
        Kind::Ident(found) => found.as_ref() == name,
        Kind::Select(select) | Kind::Has(select) => uses(&select.operand, name),
        Kind::Call(call) => call.target.iter().chain(&call.args).any(|e| uses(e, name)),
        Kind::List(elements) => elements.iter().any(|e| uses(&e.value, name)),
        Kind::Map(entries) => entries.iter().any(|e| uses(&e.key, name) || uses(&e.value, name)),
        Kind::Macro(found) => {
            let hidden = found.var.as_ref() == name || found.var2.as_deref() == Some(name);
            uses(&found.range, name) || !hidden && found.filter.iter().chain([&found.body]).any(|e| uses(e, name))
        }
    }
}

#[cfg(test)]
mod tests;
