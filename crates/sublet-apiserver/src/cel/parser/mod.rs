//! Tokens to expressions.

mod operators;

use super::ast::{Call, Element, Entry, Expr, Kind, Literal, MESSAGE, Macro, MacroKind, Select};
use super::check::dotted;
use super::issue::Issue;
use super::lexer::{Spanned, Token, tokenize};
use super::types::KEYWORDS;
use operators::Rank;
use std::sync::Arc;

/// Characters of an expression.
const CHARS_MAX: usize = 100_000;
/// Steps down that the parser takes: two for what is in brackets, one for each rank of operators.
const DEPTH_MAX: usize = 250;
/// So are those that grow taller by operators that follow each other.
const HEIGHT_MAX: usize = 251;

/// What an expression can begin with, in the words of upstream's parser.
const EXPRESSION_START: &str =
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

/// Parses one expression; the second value is the number of nodes.
pub(super) fn parse(text: &str) -> Result<(Expr, usize), Vec<Issue>> {
    let size = text.chars().count();
    if size > CHARS_MAX {
        return Err(vec![Issue::of_all(format!("expression code point size exceeds limit: size: {size}, limit {CHARS_MAX}"))]);
    }
    let (tokens, mut issues) = tokenize(text);
    let mut parser = Parser { text, tokens, next: 0, nodes: 0, depth: 0 };
    let parsed = parser.expr().and_then(|expr| match parser.peek() {
        Token::End => Ok(expr),
        _ => Err(parser.unexpected("<EOF>")),
    });
    match parsed {
        Ok(expr) if issues.is_empty() => return Ok((expr, parser.nodes)),
        Ok(_) => {}
        Err(issue) => issues.push(issue),
    }
    Err(issues)
}

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Spanned>,
    next: usize,
    nodes: usize,
    depth: usize,
}

type Parsed = Result<Expr, Issue>;

impl<'t> Parser<'t> {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].0
    }

    fn at(&self) -> usize {
        self.tokens[self.next].1
    }

    fn advance(&mut self) -> Token {
        let token = self.tokens[self.next].0.clone();
        if self.next + 1 < self.tokens.len() {
            self.next += 1;
        }
        token
    }

    fn take(&mut self, punct: &str) -> bool {
        let found = matches!(self.peek(), Token::Punct(p) if *p == punct);
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, punct: &str) -> Result<(), Issue> {
        if self.take(punct) { Ok(()) } else { Err(self.unexpected(&format!("'{punct}'"))) }
    }

    /// The next token as it is written.
    fn found(&self) -> &'t str {
        let end = self.tokens.get(self.next + 1).map_or(self.text.len(), |(_, at)| *at);
        if *self.peek() == Token::End { "<EOF>" } else { self.text[self.at()..end].trim_end() }
    }

    fn unexpected(&self, wanted: &str) -> Issue {
        let found = self.found();
        // Without this one, all would be well.
        let is_extra = match self.tokens.get(self.next + 1).map(|(token, _)| token) {
            Some(Token::End) => wanted == "<EOF>",
            Some(Token::Punct(p)) if wanted != EXPRESSION_START => wanted == format!("'{p}'"),
            Some(Token::Punct(p)) => matches!(*p, "[" | "{" | "(" | "." | "-" | "!"),
            Some(_) => wanted == EXPRESSION_START,
            None => false,
        };
        let what = if is_extra { "extraneous" } else { "mismatched" };
        Issue::syntax(format!("{what} input '{found}' expecting {wanted}"), self.at())
    }

    fn node(&mut self, at: usize, kind: Kind) -> Parsed {
        let height = kind.height();
        if height > HEIGHT_MAX {
            return Err(Issue::of_all("max recursion depth exceeded".into()));
        }
        self.nodes += 1;
        Ok(Expr { id: self.nodes - 1, at, height, kind })
    }

    fn call(&mut self, at: usize, function: &str, target: Option<Expr>, args: Vec<Expr>) -> Parsed {
        self.node(at, Kind::Call(Box::new(Call { function: function.into(), target, args })))
    }

    /// One step further down.
    fn enter(&mut self) -> Result<(), Issue> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(Issue::of_all(format!("expression recursion limit exceeded: {DEPTH_MAX}"))) } else { Ok(()) }
    }

    fn expr(&mut self) -> Parsed {
        self.enter()?;
        let condition = self.operators(Rank::Or)?;
        let at = self.at();
        let expr = if self.take("?") {
            let yes = self.operators(Rank::Or)?;
            self.expect(":")?;
            let no = self.expr()?;
            self.call(at, "_?_:_", None, vec![condition, yes, no])?
        } else {
            condition
        };
        self.depth -= 1;
        Ok(expr)
    }

    fn members(&mut self, mut operand: Expr) -> Parsed {
        loop {
            let at = self.at();
            if self.take(".?") {
                let field = self.identifier()?;
                operand = self.node(at, Kind::Select(Box::new(Select { operand, field, optional: true })))?;
            } else if self.take(".") {
                if matches!(self.found(), "true" | "false" | "null" | "in") {
                    return Err(self.unexpected("IDENTIFIER"));
                }
                let field = self.identifier()?;
                let open = self.at();
                if self.take("(") {
                    let args = self.arguments()?;
                    operand = self.member_call(open, operand, field, args)?;
                } else {
                    operand = self.node(at, Kind::Select(Box::new(Select { operand, field, optional: false })))?;
                }
            } else if self.take("[?") {
                let index = self.expr()?;
                self.expect("]")?;
                operand = self.call(at, "_[?_]", None, vec![operand, index])?;
            } else if self.take("[") {
                let index = self.expr()?;
                self.expect("]")?;
                operand = self.call(at, "_[_]", None, vec![operand, index])?;
            } else if matches!(self.peek(), Token::Punct("{" | "{?"))
                && let Some(name) = dotted(&operand)
            {
                return self.message(at, &name);
            } else {
                return Ok(operand);
            }
        }
    }

    /// `Object.spec{replicas: 1}`: a call that makes a message of a map.
    fn message(&mut self, at: usize, name: &str) -> Parsed {
        let mut optional = self.take("{?");
        if !optional {
            self.expect("{")?;
        }
        let mut entries = Vec::new();
        while optional || !self.take("}") {
            optional |= self.take("?");
            let key_at = self.at();
            let Token::Ident(field) = self.advance() else { return Err(Issue::syntax("a field needs a name".into(), key_at)) };
            // What is wrong about a field is told where its colon is.
            let key_at = self.at();
            let key = self.node(key_at, Kind::Literal(Literal::String(field)))?;
            self.expect(":")?;
            entries.push(Entry { key, value: self.expr()?, optional });
            optional = false;
            if !self.take(",") {
                self.expect("}")?;
                break;
            }
        }
        let fields = self.node(at, Kind::Map(entries))?;
        let call = self.call(at, &format!("{MESSAGE}{name}"), None, vec![fields])?;
        self.members(call)
    }

    fn identifier(&mut self) -> Result<Arc<str>, Issue> {
        match self.peek().clone() {
            Token::Ident(name) => {
                self.advance();
                Ok(name)
            }
            token => {
                let found = if token == Token::End { "" } else { self.found() };
                Err(Issue::syntax(format!("no viable alternative at input '.{found}'"), self.at()))
            }
        }
    }

    fn arguments(&mut self) -> Result<Vec<Expr>, Issue> {
        let mut args = Vec::new();
        if self.take(")") {
            return Ok(args);
        }
        loop {
            args.push(self.expr()?);
            if !self.take(",") {
                self.expect(")")?;
                return Ok(args);
            }
        }
    }

    fn primary(&mut self) -> Parsed {
        let at = self.at();
        if self.take("(") {
            let inner = self.expr()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.take("[?") {
            // `[?x, ...]`: the lexer reads the bracket and the question mark as one.
            return self.list(at, true);
        }
        if self.take("[") {
            return self.list(at, false);
        }
        if self.take("{?") {
            return self.map(at, true);
        }
        if self.take("{") {
            return self.map(at, false);
        }
        // A leading dot names from the root; there is no other root here.
        self.take(".");
        match self.advance() {
            Token::Int(n) => self.node(at, Kind::Literal(Literal::Int(n))),
            Token::Uint(n) => self.node(at, Kind::Literal(Literal::Uint(n))),
            Token::Double(n) => self.node(at, Kind::Literal(Literal::Double(n))),
            Token::String(text) => self.node(at, Kind::Literal(Literal::String(text))),
            Token::Bytes(bytes) => self.node(at, Kind::Literal(Literal::Bytes(bytes))),
            Token::Ident(name) => self.named(at, name),
            Token::IntMin => Err(Issue::syntax("invalid int literal".into(), at)),
            Token::Punct(_) | Token::End => {
                self.next = self.tokens.iter().position(|(_, place)| *place == at).unwrap_or(self.next);
                Err(self.unexpected(EXPRESSION_START))
            }
        }
    }

    fn named(&mut self, at: usize, name: Arc<str>) -> Parsed {
        let literal = match name.as_ref() {
            "true" => Some(Literal::Bool(true)),
            "false" => Some(Literal::Bool(false)),
            "null" => Some(Literal::Null),
            _ => None,
        };
        if let Some(literal) = literal {
            return self.node(at, Kind::Literal(literal));
        }
        if KEYWORDS.contains(&name.as_ref()) {
            return Err(Issue::syntax(format!("reserved identifier: {name}"), at));
        }
        let open = self.at();
        if !self.take("(") {
            return self.node(at, Kind::Ident(name));
        }
        let mut args = self.arguments()?;
        if name.as_ref() == "has" && args.len() == 1 {
            let Expr { kind, at, .. } = args.remove(0);
            return match kind {
                Kind::Select(select) if !select.optional => self.node(open, Kind::Has(select)),
                _ => Err(Issue::new("invalid argument to has() macro".into(), at)),
            };
        }
        self.call(open, &name, None, args)
    }

    fn list(&mut self, at: usize, mut optional: bool) -> Parsed {
        let mut elements = Vec::new();
        while optional || !self.take("]") {
            optional |= self.take("?");
            elements.push(Element { value: self.expr()?, optional });
            optional = false;
            if !self.take(",") {
                self.expect("]")?;
                break;
            }
            if matches!(self.peek(), Token::Punct(",")) {
                return Err(self.unexpected("']'"));
            }
        }
        self.node(at, Kind::List(elements))
    }

    fn map(&mut self, at: usize, mut optional: bool) -> Parsed {
        let mut entries = Vec::new();
        while optional || !self.take("}") {
            optional |= self.take("?");
            let key = self.expr()?;
            self.expect(":")?;
            entries.push(Entry { key, value: self.expr()?, optional });
            optional = false;
            if !self.take(",") {
                self.expect("}")?;
                break;
            }
            if matches!(self.peek(), Token::Punct(",")) {
                return Err(self.unexpected("'}'"));
            }
        }
        self.node(at, Kind::Map(entries))
    }

    /// A call with a target: a macro, a function in a namespace (`sets.contains`), or a member function.
    fn member_call(&mut self, at: usize, target: Expr, name: Arc<str>, args: Vec<Expr>) -> Parsed {
        if let Some((kind, two)) = macro_kind(&name, args.len()) {
            return self.expand(at, kind, two, target, args);
        }
        self.call(at, &name, Some(target), args)
    }

    fn expand(&mut self, at: usize, kind: MacroKind, two: bool, range: Expr, mut args: Vec<Expr>) -> Parsed {
        let variable = |arg: Expr| match arg.kind {
            Kind::Ident(name) => Ok(name),
            _ => Err(Issue::new("argument must be a simple name".into(), arg.at)),
        };
        let var = variable(args.remove(0))?;
        let var2 = if two { Some(variable(args.remove(0))?) } else { None };
        let filter = if args.len() == 2 { Some(args.remove(0)) } else { None };
        let body = args.remove(0);
        self.node(at, Kind::Macro(Box::new(Macro { kind, range, var, var2, filter, body })))
    }
}

/// The macro of a name with so many arguments, and whether it has two variables.
fn macro_kind(name: &str, args: usize) -> Option<(MacroKind, bool)> {
    let kind = match (name, args) {
        ("all", 2 | 3) => MacroKind::All,
        ("exists", 2 | 3) => MacroKind::Exists,
        ("exists_one", 2 | 3) | ("existsOne", 2 | 3) => MacroKind::ExistsOne,
        ("map", 2 | 3) => return Some((MacroKind::Map, false)),
        ("filter", 2) => MacroKind::Filter,
        ("transformList", 3 | 4) => return Some((MacroKind::TransformList, true)),
        ("transformMap", 3 | 4) => return Some((MacroKind::TransformMap, true)),
        ("transformMapEntry", 3 | 4) => return Some((MacroKind::TransformMapEntry, true)),
        ("sortBy", 2) => MacroKind::SortBy,
        ("optMap", 2) => MacroKind::OptMap,
        ("optFlatMap", 2) => MacroKind::OptFlatMap,
        _ => return None,
    };
    Some((kind, args == 3))
}
