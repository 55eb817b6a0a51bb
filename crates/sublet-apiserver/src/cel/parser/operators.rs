//! Operators by their rank.

use super::{EXPRESSION_START, Parsed, Parser};
use crate::cel::ast::{Expr, Kind, Literal};
use crate::cel::lexer::Token;

/// How tight operators bind, the loosest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Or,
    And,
    Relation,
    Sum,
    Product,
    Unary,
}

impl Rank {
    fn tighter(self) -> Self {
        match self {
            Self::Or => Self::And,
            Self::And => Self::Relation,
            Self::Relation => Self::Sum,
            Self::Sum => Self::Product,
            Self::Product | Self::Unary => Self::Unary,
        }
    }
}

impl Parser<'_> {
    /// Operands of operators of this rank or one that binds tighter, grouped from the left.
    pub(super) fn operators(&mut self, least: Rank) -> Parsed {
        self.enter()?;
        let mut left = self.unary()?;
        while let Some((rank, function)) = self.operator().filter(|(rank, _)| *rank >= least) {
            if matches!(rank, Rank::Or | Rank::And) {
                left = self.chain(left, rank, function)?;
                continue;
            }
            let at = self.at();
            self.advance();
            let right = self.operators(rank.tighter())?;
            left = self.call(at, function, None, vec![left, right])?;
        }
        self.depth -= 1;
        Ok(left)
    }

    fn operator(&self) -> Option<(Rank, &'static str)> {
        Some(match self.peek() {
            Token::Punct("||") => (Rank::Or, "_||_"),
            Token::Punct("&&") => (Rank::And, "_&&_"),
            Token::Punct("<") => (Rank::Relation, "_<_"),
            Token::Punct("<=") => (Rank::Relation, "_<=_"),
            Token::Punct(">") => (Rank::Relation, "_>_"),
            Token::Punct(">=") => (Rank::Relation, "_>=_"),
            Token::Punct("==") => (Rank::Relation, "_==_"),
            Token::Punct("!=") => (Rank::Relation, "_!=_"),
            Token::Ident(name) if name.as_ref() == "in" => (Rank::Relation, "@in"),
            Token::Punct("+") => (Rank::Sum, "_+_"),
            Token::Punct("-") => (Rank::Sum, "_-_"),
            Token::Punct("*") => (Rank::Product, "_*_"),
            Token::Punct("/") => (Rank::Product, "_/_"),
            Token::Punct("%") => (Rank::Product, "_%_"),
            _ => return None,
        })
    }

    /// `a && b && c`: a tree as low as can be, for there may be many.
    fn chain(&mut self, first: Expr, rank: Rank, function: &'static str) -> Parsed {
        let (mut terms, mut places) = (vec![first], Vec::new());
        while self.operator().is_some_and(|(found, _)| found == rank) {
            places.push(self.at());
            self.advance();
            terms.push(self.operators(rank.tighter())?);
        }
        self.balanced(&mut terms.into_iter(), &places, function)
    }

    fn balanced(&mut self, terms: &mut impl Iterator<Item = Expr>, places: &[usize], function: &str) -> Parsed {
        let middle = places.len() / 2;
        let Some(at) = places.get(middle) else { return terms.next().ok_or_else(|| self.unexpected(EXPRESSION_START)) };
        let left = self.balanced(terms, &places[..middle], function)?;
        let right = self.balanced(terms, &places[middle + 1..], function)?;
        self.call(*at, function, None, vec![left, right])
    }

    fn unary(&mut self) -> Parsed {
        let at = self.at();
        if let Some(literal) = self.negative() {
            let literal = self.node(at, Kind::Literal(literal))?;
            return self.members(literal);
        }
        for (punct, function) in [("!", "!_"), ("-", "-_")] {
            let mut count = 0;
            while self.take(punct) {
                count += 1;
            }
            if count > 0 {
                let operand = self.member()?;
                // Two of them are none.
                return if count % 2 == 1 { self.call(at, function, None, vec![operand]) } else { Ok(operand) };
            }
        }
        self.member()
    }

    /// A minus belongs to the number after it, so that the smallest integer can be written.
    fn negative(&mut self) -> Option<Literal> {
        let (Token::Punct("-"), Some((number, _))) = (self.peek(), self.tokens.get(self.next + 1)) else { return None };
        let literal = match number {
            Token::Int(n) => Literal::Int(-n),
            Token::IntMin => Literal::Int(i64::MIN),
            Token::Double(n) => Literal::Double(-n),
            _ => return None,
        };
        self.next += 2;
        Some(literal)
    }

    fn member(&mut self) -> Parsed {
        let at = self.at();
        let operand = match self.negative() {
            Some(literal) => self.node(at, Kind::Literal(literal))?,
            None => self.primary()?,
        };
        self.members(operand)
    }
}
