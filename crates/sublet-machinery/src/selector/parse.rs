//! The grammar of label selectors, with upstream's messages.

use super::{Operator, Requirement, SelectorError};
use crate::error::{FieldError, FieldPath};
use crate::names;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    Identifier,
    In,
    Less,
    NotEquals,
    NotIn,
    Open,
}

pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut parser = Parser { text, position: 0, next: (Token::End, "") };
    parser.next = parser.lex();
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            (Token::Identifier | Token::Not, _) => {}
            (Token::End, _) => return Ok(requirements),
            (_, literal) => return Err(SelectorError(format!("found '{literal}', expected: !, identifier, or 'end of string'"))),
        }
        let requirement = parser.requirement().map_err(|e| SelectorError(format!("unable to parse requirement: {e}")))?;
        requirements.push(requirement);
        match parser.take() {
            (Token::End, _) => return Ok(requirements),
            (Token::Comma, _) => {}
            (_, literal) => return Err(SelectorError(format!("found '{literal}', expected: ',' or 'end of string'"))),
        }
        let (token, literal) = parser.peek();
        if !matches!(token, Token::Identifier | Token::Not) {
            return Err(SelectorError(format!("found '{literal}', expected: identifier after ','")));
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    position: usize,
    next: (Token, &'a str),
}

impl<'a> Parser<'a> {
    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let (key, unary) = self.key()?;
        if let Some(operator) = unary {
            return Requirement::new(key, operator, Vec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.exact_value()?],
        };
        Requirement::new(key, operator, values)
    }

    /// The key, and the operator when it takes no values.
    fn key(&mut self) -> Result<(&'a str, Option<Operator>), SelectorError> {
        let (mut token, mut literal) = self.take();
        let negated = token == Token::Not;
        if negated {
            (token, literal) = self.take();
        }
        if token != Token::Identifier {
            return Err(SelectorError(format!("found '{literal}', expected: identifier")));
        }
        let faults = names::qualified_name(literal);
        if !faults.is_empty() {
            return Err(SelectorError(FieldError::invalid(&FieldPath::root(), literal, faults.join("; ")).to_string()));
        }
        let ends = matches!(self.peek().0, Token::End | Token::Comma);
        let operator = if negated { Some(Operator::DoesNotExist) } else { ends.then_some(Operator::Exists) };
        Ok((literal, operator))
    }

    fn operator(&mut self) -> Result<Operator, SelectorError> {
        let (token, literal) = self.take_keyword();
        Ok(match token {
            Token::In => Operator::In,
            Token::NotIn => Operator::NotIn,
            Token::Equals => Operator::Equals,
            Token::DoubleEquals => Operator::DoubleEquals,
            Token::NotEquals => Operator::NotEquals,
            Token::Greater => Operator::GreaterThan,
            Token::Less => Operator::LessThan,
            _ => return Err(SelectorError(format!("found '{literal}', expected: in, notin, =, ==, !=, gt, lt"))),
        })
    }

    fn exact_value(&mut self) -> Result<String, SelectorError> {
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.take() {
            (Token::Identifier, literal) => Ok(literal.to_string()),
            (_, literal) => Err(SelectorError(format!("found '{literal}', expected: identifier"))),
        }
    }

    /// `(a,b)`. Empty places are the empty value, repeats count once.
    fn values(&mut self) -> Result<Vec<String>, SelectorError> {
        let (token, literal) = self.take();
        if token != Token::Open {
            return Err(SelectorError(format!("found '{literal}' expected: '('")));
        }
        let (token, literal) = self.peek();
        match token {
            Token::Identifier | Token::Comma => {}
            Token::Close => {
                self.take();
                return Ok(vec![String::new()]);
            }
            _ => return Err(SelectorError(format!("found '{literal}', expected: ',', ')' or identifier"))),
        }
        let mut values = self.identifiers()?;
        let (token, _) = self.take();
        debug_assert_eq!(token, Token::Close, "the list ends before its parenthesis");
        values.sort_unstable();
        values.dedup();
        Ok(values.into_iter().map(str::to_string).collect())
    }

    fn identifiers(&mut self) -> Result<Vec<&'a str>, SelectorError> {
        let mut values = Vec::new();
        loop {
            match self.take() {
                (Token::Identifier, literal) => {
                    values.push(literal);
                    match self.peek() {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => return Ok(values),
                        (_, literal) => return Err(SelectorError(format!("found '{literal}', expected: ',' or ')'"))),
                    }
                }
                (Token::Comma, _) => {
                    if values.is_empty() {
                        values.push("");
                    }
                    match self.peek().0 {
                        Token::Close => {
                            values.push("");
                            return Ok(values);
                        }
                        Token::Comma => values.push(""),
                        _ => {}
                    }
                }
                (_, literal) => return Err(SelectorError(format!("found '{literal}', expected: ',', or identifier"))),
            }
        }
    }

    /// Everywhere but in the place of an operator, `in` and `notin` are plain words.
    fn peek(&self) -> (Token, &'a str) {
        match self.next {
            (Token::In | Token::NotIn, literal) => (Token::Identifier, literal),
            other => other,
        }
    }

    fn take(&mut self) -> (Token, &'a str) {
        let taken = self.peek();
        self.next = self.lex();
        taken
    }

    fn take_keyword(&mut self) -> (Token, &'a str) {
        let taken = self.next;
        self.next = self.lex();
        taken
    }

    fn lex(&mut self) -> (Token, &'a str) {
        let bytes = self.text.as_bytes();
        while bytes.get(self.position).is_some_and(|b| is_whitespace(*b)) {
            self.position += 1;
        }
        let start = self.position;
        let token = match bytes.get(start) {
            None => return (Token::End, ""),
            Some(b'=') if bytes.get(start + 1) == Some(&b'=') => Token::DoubleEquals,
            Some(b'!') if bytes.get(start + 1) == Some(&b'=') => Token::NotEquals,
            Some(b'=') => Token::Equals,
            Some(b'!') => Token::Not,
            Some(b'(') => Token::Open,
            Some(b')') => Token::Close,
            Some(b',') => Token::Comma,
            Some(b'>') => Token::Greater,
            Some(b'<') => Token::Less,
            Some(_) => Token::Identifier,
        };
        let ends_word = |b: &u8| is_whitespace(*b) || b"=!(),><".contains(b);
        self.position = match token {
            Token::DoubleEquals | Token::NotEquals => start + 2,
            Token::Identifier => bytes[start..].iter().position(ends_word).map_or(bytes.len(), |n| start + n),
            _ => start + 1,
        };
        let literal = &self.text[start..self.position];
        match literal {
            "in" => (Token::In, literal),
            "notin" => (Token::NotIn, literal),
            _ => (token, literal),
        }
    }
}

fn is_whitespace(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_with_upstream_words() {
        for (text, message) in [
            ("x=a=y=b", "found '=', expected: ',' or 'end of string'"),
            ("x==a==b", "found '==', expected: ',' or 'end of string'"),
            ("!x=a", "found '=', expected: ',' or 'end of string'"),
            ("x<a", "unable to parse requirement: values[0]: Invalid value: \"a\": for 'Gt', 'Lt' operators, the value must be an integer"),
            ("x in", "unable to parse requirement: found '' expected: '('"),
            ("x in (a", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a,", "found '', expected: identifier after ','"),
            (",a", "found ',', expected: !, identifier, or 'end of string'"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
        ] {
            assert_eq!(parse(text).map(|_| ()).unwrap_err().0, message, "{text}");
        }
    }
}
