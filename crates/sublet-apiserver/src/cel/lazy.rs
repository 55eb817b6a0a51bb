//! `variables`: expressions that others name, and that run when their value is wanted.

use super::eval::{EvalError, Evaluated, Evaluator, failed};
use super::value::Val;
use super::{Expr, Program};
use std::cell::RefCell;

/// Named expressions over the same values as the expression that names them, and what came out of them.
#[derive(Debug)]
pub struct Lazy<'v, 'e> {
    programs: &'e [(String, Program)],
    found: RefCell<Vec<Option<Result<Val<'v>, EvalError>>>>,
}

impl<'v, 'e> Lazy<'v, 'e> {
    /// An expression can name those before it.
    pub fn new(programs: &'e [(String, Program)]) -> Self {
        Self { programs, found: RefCell::new(vec![None; programs.len()]) }
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.programs.iter().position(|(n, _)| n == name)
    }

    fn expr(&self, at: usize) -> &'e Expr {
        &self.programs[at].1.expr
    }
}

impl<'v, 'e> Evaluator<'v, 'e> {
    /// The value of a named expression. The first one who wants it pays for it.
    pub(super) fn named(&mut self, lazy: &'e Lazy<'v, 'e>, name: &str) -> Evaluated<'v> {
        self.charge(2)?;
        let at = lazy.position(name).ok_or_else(|| failed(format!("no such key: {name}")))?;
        if let Some(found) = &lazy.found.borrow()[at] {
            return found.clone();
        }
        let scope = self.scope[..self.root].to_vec();
        let left = self.limit.saturating_sub(self.cost);
        let mut inner = Evaluator { scope, root: self.root, lazy: Some(lazy), cost: 0, limit: left };
        let found = inner.expr(lazy.expr(at)).map_err(|error| match error {
            EvalError::Failed(why) => failed(format!("composited variable {name:?} fails to evaluate: {why}")),
            EvalError::TooExpensive => error,
        });
        let cost = inner.cost;
        lazy.found.borrow_mut()[at] = Some(found.clone());
        self.charge(cost)?;
        found
    }
}
