//! Text to tokens.

use super::issue::Issue;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Ident(Arc<str>),
    Int(i64),
    /// 2^63, which is only good as the operand of a minus.
    IntMin,
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    /// An operator or a bracket.
    Punct(&'static str),
    End,
}

/// A token and the byte at which it begins.
pub(super) type Spanned = (Token, usize);

/// Longer ones come first.
const PUNCTUATION: [&str; 29] = [
    "&&", "||", "==", "!=", "<=", ">=", ".?", "[?", "{?", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")", "[", "]",
    "{", "}", "=", ";",
];

/// All tokens, without what is none.
pub(super) fn tokenize(text: &str) -> (Vec<Spanned>, Vec<Issue>) {
    let (mut lexer, mut issues) = (Lexer { text, at: 0, tokens: Vec::new() }, Vec::new());
    while lexer.skip_space() {
        if let Err(issue) = lexer.token() {
            issues.push(issue);
        }
    }
    lexer.tokens.push((Token::End, text.len()));
    (lexer.tokens, issues)
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
    tokens: Vec<Spanned>,
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Skips space and comments; false at the end.
    fn skip_space(&mut self) -> bool {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
            self.at += rest.len() - trimmed.len();
            if !trimmed.starts_with("//") {
                return self.at < self.text.len();
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    fn token(&mut self) -> Result<(), Issue> {
        let start = self.at;
        let rest = self.rest();
        let first = rest.chars().next().unwrap_or_default();
        if let Some((raw, bytes, skip)) = string_prefix(rest) {
            self.at += skip;
            let token = self.string(raw, bytes, start)?;
            self.tokens.push((token, start));
            return Ok(());
        }
        let is_fraction = first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit());
        if first.is_ascii_digit() || is_fraction {
            let token = self.number(start)?;
            self.tokens.push((token, start));
            return Ok(());
        }
        if first == '_' || first.is_ascii_alphabetic() {
            let end = rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
            self.tokens.push((Token::Ident(rest[..end].into()), start));
            self.at += end;
            return Ok(());
        }
        let Some(punct) = PUNCTUATION.into_iter().find(|p| rest.starts_with(p)) else {
            self.at += first.len_utf8();
            return Err(Issue::syntax(format!("token recognition error at: '{first}'"), start));
        };
        // `a ? .5 : b` and `x ?.y`: only `.?` directly before a name is the optional select.
        self.at += punct.len();
        self.tokens.push((Token::Punct(punct), start));
        Ok(())
    }

    fn number(&mut self, start: usize) -> Result<Token, Issue> {
        let rest = self.rest();
        let wrong = |what: &str| Issue::syntax(format!("invalid {what} literal"), start);
        if let Some(hex) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
            let end = hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
            let digits = hex[..end].to_string();
            let unsigned = hex[end..].starts_with(['u', 'U']);
            self.at += 2 + end + usize::from(unsigned);
            return if unsigned {
                u64::from_str_radix(&digits, 16).map(Token::Uint).map_err(|_| wrong("uint"))
            } else {
                i64::from_str_radix(&digits, 16).map(Token::Int).map_err(|_| wrong("int"))
            };
        }
        let bytes = rest.as_bytes();
        let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
        let mut end = digits(0);
        let mut is_double = false;
        if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
            is_double = true;
            end += 1 + digits(end + 1);
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits((end + 1 + sign).min(bytes.len()));
            if exponent > 0 {
                is_double = true;
                end += 1 + sign + exponent;
            }
        }
        let text = rest[..end].to_string();
        let unsigned = !is_double && matches!(bytes.get(end), Some(b'u' | b'U'));
        self.at += end + usize::from(unsigned);
        if is_double {
            return text.parse().map(Token::Double).map_err(|_| wrong("double"));
        }
        if unsigned {
            return text.parse().map(Token::Uint).map_err(|_| wrong("uint"));
        }
        match text.parse::<i64>() {
            Ok(value) => Ok(Token::Int(value)),
            Err(_) if text.parse::<u64>() == Ok(1 << 63) => Ok(Token::IntMin),
            Err(_) => Err(wrong("int")),
        }
    }

    fn string(&mut self, raw: bool, bytes: bool, start: usize) -> Result<Token, Issue> {
        let rest = self.rest();
        match string_content(rest, raw, bytes) {
            Some((content, used)) => {
                self.at += used;
                if bytes {
                    return Ok(Token::Bytes(content.into()));
                }
                let text = String::from_utf8(content).map_err(|_| Issue::syntax("invalid string literal".into(), start))?;
                Ok(Token::String(text.into()))
            }
            None => {
                self.at = self.text.len();
                Err(Issue::syntax(format!("token recognition error at: '{}'", &self.text[start..]), start))
            }
        }
    }
}

/// What stands between quotes, and the bytes read with them; `None` when a string is not ended.
fn string_content(text: &str, raw: bool, bytes: bool) -> Option<(Vec<u8>, usize)> {
    let quote = &text[..1];
    let triple = text.starts_with(&quote.repeat(3));
    let close = if triple { quote.repeat(3) } else { quote.to_string() };
    let (mut at, mut out) = (close.len(), Vec::new());
    loop {
        let here = &text[at..];
        if here.starts_with(close.as_str()) {
            return Some((out, at + close.len()));
        }
        let c = here.chars().next()?;
        if !triple && (c == '\n' || c == '\r') {
            return None;
        }
        if c == '\\' && !raw {
            at += 1 + escape(&here[1..], bytes, &mut out)?;
        } else {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            at += c.len_utf8();
        }
    }
}

/// (raw, bytes, length of the prefix) when a string begins here.
fn string_prefix(text: &str) -> Option<(bool, bool, usize)> {
    let quote = text.bytes().take(3).position(|b| b == b'"' || b == b'\'')?;
    let prefix = text[..quote].to_ascii_lowercase();
    match prefix.as_str() {
        "" => Some((false, false, 0)),
        "r" => Some((true, false, 1)),
        "b" => Some((false, true, 1)),
        "br" | "rb" => Some((true, true, 2)),
        _ => None,
    }
}

/// Reads what follows a backslash; returns the bytes used.
fn escape(text: &str, bytes: bool, out: &mut Vec<u8>) -> Option<usize> {
    let c = text.chars().next()?;
    let simple = match c {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => 10,
        'r' => 13,
        't' => 9,
        'v' => 11,
        '\\' | '\'' | '"' | '`' | '?' => c as u8,
        _ => 0,
    };
    if simple != 0 {
        out.push(simple);
        return Some(1);
    }
    let (digits, radix, skip) = match c {
        'x' | 'X' => (2, 16, 1),
        'u' if !bytes => (4, 16, 1),
        'U' if !bytes => (8, 16, 1),
        '0'..='3' => (3, 8, 0),
        _ => return None,
    };
    let code = u32::from_str_radix(text.get(skip..skip + digits)?, radix).ok()?;
    if bytes {
        out.push(u8::try_from(code).ok()?);
    } else {
        out.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes());
    }
    Some(skip + digits)
}
