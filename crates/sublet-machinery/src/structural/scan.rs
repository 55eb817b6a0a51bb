//! Reading JSON tokens with the words of Go's `encoding/json` for what is wrong with the text.
//!
//! As in Go, bytes that are not UTF-8 and lone surrogates become U+FFFD instead of an error.

use serde_json::{Number, Value};

/// Objects nested deeper are refused; stored text must stay readable for parsers with a limit of 128.
pub const DEPTH_MAX: usize = 120;

/// What Go says about text that is not JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SyntaxError(pub String);

/// A position in JSON text.
pub(super) struct Scanner<'t> {
    text: &'t [u8],
    at: usize,
}

/// What a value begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Object,
    Array,
    String,
    Number,
    True,
    False,
    Null,
}

impl<'t> Scanner<'t> {
    pub(super) fn new(text: &'t [u8]) -> Self {
        Self { text, at: 0 }
    }

    fn skip_space(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// The next byte that is not space, not consumed.
    fn peek(&mut self) -> Result<u8, SyntaxError> {
        self.skip_space();
        self.text.get(self.at).copied().ok_or_else(end)
    }

    /// What the value at this position is. Nothing is consumed but space.
    pub(super) fn token(&mut self) -> Result<Token, SyntaxError> {
        match self.peek()? {
            b'{' => Ok(Token::Object),
            b'[' => Ok(Token::Array),
            b'"' => Ok(Token::String),
            b'-' | b'0'..=b'9' => Ok(Token::Number),
            b't' => Ok(Token::True),
            b'f' => Ok(Token::False),
            b'n' => Ok(Token::Null),
            other => Err(unexpected(other, "looking for beginning of value")),
        }
    }

    /// Consumes `true`, `false` or `null`.
    pub(super) fn literal(&mut self, word: &str) -> Result<(), SyntaxError> {
        for expected in word.bytes() {
            let byte = *self.text.get(self.at).ok_or_else(end)?;
            if byte != expected {
                let context = format!("in literal {word} (expecting {})", quoted(expected));
                return Err(unexpected(byte, &context));
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Consumes `{` or `[`; true when the matching close follows at once and was consumed too.
    pub(super) fn open(&mut self, close: u8) -> Result<bool, SyntaxError> {
        self.at += 1;
        let empty = self.peek()? == close;
        self.at += usize::from(empty);
        Ok(empty)
    }

    /// Consumes the key of a member and its colon.
    pub(super) fn key(&mut self) -> Result<String, SyntaxError> {
        let byte = self.peek()?;
        if byte != b'"' {
            return Err(unexpected(byte, "looking for beginning of object key string"));
        }
        let key = self.string()?;
        let byte = self.peek()?;
        if byte != b':' {
            return Err(unexpected(byte, "after object key"));
        }
        self.at += 1;
        Ok(key)
    }

    /// Consumes what follows a member or element: true when another one comes.
    pub(super) fn more(&mut self, close: u8) -> Result<bool, SyntaxError> {
        match self.peek()? {
            b',' => {
                self.at += 1;
                Ok(true)
            }
            byte if byte == close => {
                self.at += 1;
                Ok(false)
            }
            byte => Err(unexpected(byte, if close == b'}' { "after object key:value pair" } else { "after array element" })),
        }
    }

    /// Nothing but space may follow.
    pub(super) fn finish(&mut self) -> Result<(), SyntaxError> {
        self.skip_space();
        match self.text.get(self.at) {
            None => Ok(()),
            Some(byte) => Err(unexpected(*byte, "after top-level value")),
        }
    }

    /// Consumes a number and returns its text.
    pub(super) fn number(&mut self) -> Result<&'t str, SyntaxError> {
        let start = self.at;
        if self.text[self.at] == b'-' {
            self.at += 1;
            if !self.at_digit()? {
                return Err(unexpected(self.text[self.at], "in numeric literal"));
            }
        }
        if self.text[self.at] == b'0' {
            self.at += 1;
        } else {
            self.digits();
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            if !self.at_digit()? {
                return Err(unexpected(self.text[self.at], "after decimal point in numeric literal"));
            }
            self.digits();
        }
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.text.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !self.at_digit()? {
                return Err(unexpected(self.text[self.at], "in exponent of numeric literal"));
            }
            self.digits();
        }
        Ok(std::str::from_utf8(&self.text[start..self.at]).expect("only ASCII bytes were consumed"))
    }

    fn at_digit(&self) -> Result<bool, SyntaxError> {
        self.text.get(self.at).map(u8::is_ascii_digit).ok_or_else(end)
    }

    fn digits(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    /// Consumes a string.
    pub(super) fn string(&mut self) -> Result<String, SyntaxError> {
        self.at += 1;
        let start = self.at;
        // The usual string has no escapes and is copied in one piece.
        loop {
            match self.text.get(self.at).copied().ok_or_else(end)? {
                b'"' => {
                    let text = String::from_utf8_lossy(&self.text[start..self.at]).into_owned();
                    self.at += 1;
                    return Ok(text);
                }
                b'\\' => break,
                byte if byte < 0x20 => return Err(unexpected(byte, "in string literal")),
                _ => self.at += 1,
            }
        }
        let mut bytes = self.text[start..self.at].to_vec();
        loop {
            match self.text.get(self.at).copied().ok_or_else(end)? {
                b'"' => {
                    self.at += 1;
                    return Ok(String::from_utf8_lossy(&bytes).into_owned());
                }
                b'\\' => {
                    self.at += 1;
                    let c = self.escape()?;
                    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                byte if byte < 0x20 => return Err(unexpected(byte, "in string literal")),
                byte => {
                    bytes.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, SyntaxError> {
        let byte = self.text.get(self.at).copied().ok_or_else(end)?;
        self.at += 1;
        Ok(match byte {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.hex4()?;
                if let Some(c) = char::from_u32(first) {
                    return Ok(c);
                }
                // A surrogate: only a high one followed by a low one makes a character.
                if self.text[self.at..].starts_with(b"\\u") {
                    let here = self.at;
                    self.at += 2;
                    let second = self.hex4()?;
                    if (0xd800..0xdc00).contains(&first) && (0xdc00..0xe000).contains(&second) {
                        let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                        return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                    }
                    self.at = here;
                }
                char::REPLACEMENT_CHARACTER
            }
            other => return Err(unexpected(other, "in string escape code")),
        })
    }

    fn hex4(&mut self) -> Result<u32, SyntaxError> {
        let mut code = 0;
        for _ in 0..4 {
            let byte = self.text.get(self.at).copied().ok_or_else(end)?;
            let digit = char::from(byte).to_digit(16).ok_or_else(|| unexpected(byte, "in \\u hexadecimal character escape"))?;
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }

    /// Consumes a value that nobody wants.
    pub(super) fn skip(&mut self, depth: usize) -> Result<(), SyntaxError> {
        match self.token()? {
            Token::Object => {
                check_depth(depth)?;
                let mut more = !self.open(b'}')?;
                while more {
                    self.key()?;
                    self.skip(depth + 1)?;
                    more = self.more(b'}')?;
                }
                Ok(())
            }
            Token::Array => {
                check_depth(depth)?;
                let mut more = !self.open(b']')?;
                while more {
                    self.skip(depth + 1)?;
                    more = self.more(b']')?;
                }
                Ok(())
            }
            Token::String => self.string().map(drop),
            Token::Number => self.number().map(drop),
            Token::True => self.literal("true"),
            Token::False => self.literal("false"),
            Token::Null => self.literal("null"),
        }
    }
}

pub(super) fn check_depth(depth: usize) -> Result<(), SyntaxError> {
    if depth >= DEPTH_MAX { Err(SyntaxError("exceeded max depth".into())) } else { Ok(()) }
}

/// The value of a number as Go holds it without a type: an int64 where it fits, a float64 otherwise.
/// A float without fraction is stored as an integer, because that is how Go writes it back. `None`
/// when it overflows.
pub(super) fn untyped_number(text: &str) -> Option<Value> {
    if let Ok(integer) = text.parse::<i64>() {
        return Some(Value::from(integer));
    }
    float_value(text.parse().ok()?)
}

/// The JSON form Go writes for a float64.
pub(super) fn float_value(float: f64) -> Option<Value> {
    // 2^63; every float below it without fraction is an i64.
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    if float.fract() == 0.0 && float.abs() < BOUND {
        return Some(Value::from(float as i64));
    }
    Number::from_f64(float).map(Value::Number)
}

fn end() -> SyntaxError {
    SyntaxError("unexpected end of JSON input".into())
}

fn unexpected(byte: u8, context: &str) -> SyntaxError {
    SyntaxError(format!("invalid character {} {context}", quoted(byte)))
}

fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".into(),
        b'"' => "'\"'".into(),
        b'\n' => r"'\n'".into(),
        b'\r' => r"'\r'".into(),
        b'\t' => r"'\t'".into(),
        b'\\' => r"'\\'".into(),
        0..0x20 | 0x7f => format!("'\\x{byte:02x}'"),
        _ => format!("'{}'", char::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let mut scanner = Scanner::new(text.as_bytes());
        let result = scanner.skip(0).and_then(|()| scanner.finish());
        assert_eq!(result.map_err(|e| e.0), if expected.is_empty() { Ok(()) } else { Err(expected.to_string()) }, "{text}");
    }

    #[test]
    fn broken_text_is_described_in_go_words() {
        check(r#" {"a": [1, -2.5e+3, true, false, null, "\u00e9\n"]} "#, "");
        check("not json", "invalid character 'o' in literal null (expecting 'u')");
        check("", "unexpected end of JSON input");
        check(r#"{"a":1"#, "unexpected end of JSON input");
        check(r#"{"a":1} xx"#, "invalid character 'x' after top-level value");
        check(r#"{"a" 1}"#, "invalid character '1' after object key");
        check(r#"{"a":1 "b"}"#, "invalid character '\"' after object key:value pair");
        check(r#"{a:1}"#, "invalid character 'a' looking for beginning of object key string");
        check(r#"{"a":1,}"#, "invalid character '}' looking for beginning of object key string");
        check("[1 2]", "invalid character '2' after array element");
        check("[1,]", "invalid character ']' looking for beginning of value");
        check("01", "invalid character '1' after top-level value");
        check("-x", "invalid character 'x' in numeric literal");
        check("1.x", "invalid character 'x' after decimal point in numeric literal");
        check("1ex", "invalid character 'x' in exponent of numeric literal");
        check("\"a\nb\"", r"invalid character '\n' in string literal");
        check(r#""\q""#, "invalid character 'q' in string escape code");
        check(r#""\u12g4""#, r"invalid character 'g' in \u hexadecimal character escape");
        check(&"[".repeat(5000), "exceeded max depth");
    }

    #[test]
    fn strings_are_repaired_as_in_go() {
        let read = |text: &[u8]| Scanner::new(text).string();
        assert_eq!(read(br#""a\ud83d\ude00b""#).as_deref(), Ok("a\u{1f600}b"));
        assert_eq!(read(br#""\ud83dx""#).as_deref(), Ok("\u{fffd}x"));
        assert_eq!(read(br#""\ud83d\u0041""#).as_deref(), Ok("\u{fffd}A"));
        assert_eq!(read(b"\"\xff\"").as_deref(), Ok("\u{fffd}"));
    }

    #[test]
    fn numbers_without_a_type_are_ints_where_they_fit() {
        assert_eq!(untyped_number("9223372036854775807"), Some(Value::from(i64::MAX)));
        assert_eq!(untyped_number("1.0"), Some(Value::from(1)));
        assert_eq!(untyped_number("1.5"), Some(Value::from(1.5)));
        assert_eq!(untyped_number("18446744073709551615"), Some(Value::from(18446744073709551615.0)));
        assert_eq!(untyped_number("1e999"), None);
    }
}
