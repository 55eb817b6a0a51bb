//! Words and operators of a script, and where its commands end.

/// Stands for a dollar sign in single quotes, which is not expanded.
pub(super) const LITERAL_DOLLAR: char = '\u{1}';

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Word(String),
    /// `;`, `&&`, `||`, `|`, `&`, or a redirection: `>`, `>>`, `<`, `>&`.
    Op(&'static str),
}

const OPENING: [&str; 6] = ["if", "while", "until", "for", "{", "("];
const CLOSING: [&str; 4] = ["fi", "done", "}", ")"];
const COMMAND_FOLLOWS: [&str; 10] = ["then", "do", "else", "{", "(", "!", "elif", "if", "while", "until"];

/// The end of the command that starts at `at`: the next operator outside of compound commands.
pub(super) fn command_end(tokens: &[Token], at: usize) -> usize {
    let mut depth = 0_usize;
    let mut first = true;
    for (index, token) in tokens.iter().enumerate().skip(at) {
        match token {
            Token::Word(word) => {
                if first && OPENING.contains(&word.as_str()) {
                    depth += 1;
                } else if CLOSING.contains(&word.as_str()) {
                    depth = depth.saturating_sub(1);
                }
                first = COMMAND_FOLLOWS.contains(&word.as_str());
            }
            Token::Op(">" | ">>" | "<" | ">&") => {}
            Token::Op(_) if depth == 0 => return index,
            Token::Op(_) => first = true,
        }
    }
    tokens.len()
}

/// Cuts a compound command at its own keywords, not at those of commands within.
pub(super) fn split_at_keywords(tokens: &[Token], keywords: &[&str]) -> Vec<(String, Vec<Token>)> {
    let mut parts: Vec<(String, Vec<Token>)> = Vec::new();
    let mut depth = 0_usize;
    for token in tokens {
        if let Token::Word(word) = token {
            if ["if", "while", "until", "for"].contains(&word.as_str()) {
                depth += 1;
            }
            let own = depth == 1 && keywords.contains(&word.as_str());
            if ["fi", "done"].contains(&word.as_str()) {
                depth = depth.saturating_sub(1);
            }
            if own {
                parts.push((word.clone(), Vec::new()));
                continue;
            }
        }
        if let Some((_, body)) = parts.last_mut() {
            body.push(token.clone());
        }
    }
    parts
}

pub(super) fn tokenize(script: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = script.chars().peekable();
    let mut parens = 0_usize;
    while let Some(c) = chars.next() {
        // A substitution is one word, however many blanks it has.
        if parens > 0 {
            parens = if c == '(' { parens + 1 } else { parens - usize::from(c == ')') };
            word.get_or_insert_default().push(c);
            continue;
        }
        match c {
            '\'' => {
                let quoted = chars.by_ref().take_while(|c| *c != '\'');
                word.get_or_insert_default().extend(quoted.map(|c| if c == '$' { LITERAL_DOLLAR } else { c }));
            }
            '"' => word.get_or_insert_default().extend(chars.by_ref().take_while(|c| *c != '"')),
            '\\' => {
                if let Some(next) = chars.next().filter(|n| *n != '\n') {
                    word.get_or_insert_default().push(if next == '$' { LITERAL_DOLLAR } else { next });
                }
            }
            '$' if chars.peek() == Some(&'(') => {
                parens = 1;
                chars.next();
                word.get_or_insert_default().push_str("$(");
            }
            '#' if word.is_none() => while chars.next_if(|c| *c != '\n').is_some() {},
            ' ' | '\t' => tokens.extend(word.take().map(Token::Word)),
            '\n' | ';' | '&' | '|' | '<' | '>' => {
                // `2>` redirects a descriptor; the digit is no argument.
                if c == '>' && word.as_deref().is_some_and(|w| w == "1" || w == "2") {
                    word = None;
                }
                tokens.extend(word.take().map(Token::Word));
                tokens.push(Token::Op(operator(c, &mut chars)));
            }
            _ => word.get_or_insert_default().push(c),
        }
    }
    tokens.extend(word.take().map(Token::Word));
    tokens
}

fn operator(c: char, chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> &'static str {
    let double = c != '\n' && chars.next_if_eq(&c).is_some();
    let descriptor = c == '>' && !double && chars.next_if_eq(&'&').is_some();
    match (c, double) {
        ('&', true) => "&&",
        ('|', true) => "||",
        ('&', false) => "&",
        ('|', false) => "|",
        ('<', _) => "<",
        ('>', true) => ">>",
        ('>', false) if descriptor => ">&",
        ('>', false) => ">",
        _ => ";",
    }
}
