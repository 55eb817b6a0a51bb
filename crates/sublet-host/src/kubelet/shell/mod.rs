//! A guess at what a shell script does, so that simulated containers end as their command says.
//!
//! It understands sequences, pipes, `&&`, `||`, `if`, `for`, `while`, tests of files and strings,
//! `sleep`, `exit`, variables and substitutions. A command that it does not know is taken for a
//! server: it runs on.

mod commands;
mod parse;

use parse::{LITERAL_DOLLAR, Token, command_end, split_at_keywords, tokenize};
use std::collections::BTreeMap;

/// How a container's process goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    Forever,
    Ends { after: i64, code: i64 },
}

/// What the process finds: environment and files. What it writes is added.
pub(crate) struct World<'a> {
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) read: &'a dyn Fn(&str) -> Option<String>,
    pub(crate) written: BTreeMap<String, String>,
    pub(crate) output: String,
    /// What goes to standard error, when it is not to stand with the output.
    pub(crate) errors: Option<String>,
    /// Standard input of the first command.
    pub(crate) input: String,
    /// Kernel settings of the pod.
    pub(crate) sysctls: BTreeMap<String, String>,
}

impl<'a> World<'a> {
    pub(crate) fn new(env: BTreeMap<String, String>, read: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { env, read, written: BTreeMap::new(), output: String::new(), errors: None, input: String::new(), sysctls: BTreeMap::new() }
    }

    fn file(&self, path: &str) -> Option<String> {
        self.written.get(path).cloned().or_else(|| (self.read)(path))
    }

    fn write(&mut self, path: &str, text: String, append: bool) {
        let mut content = if append { self.file(path).unwrap_or_default() } else { String::new() };
        content.push_str(&text);
        truncate(&mut content);
        self.written.insert(path.to_string(), content);
    }
}

const SCRIPT_BYTES_MAX: usize = 64 << 10;
/// Of output and of each file.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// Commands that one script may run before it counts as a server.
const STEPS_MAX: usize = 2000;
const DEPTH_MAX: usize = 16;

pub(crate) fn run_script(script: &str, world: &mut World<'_>) -> Run {
    if script.len() > SCRIPT_BYTES_MAX {
        return Run::Forever;
    }
    let mut shell = Shell::new(world);
    let flow = shell.list(&tokenize(script), 0);
    shell.end(flow)
}

/// A command given as words, without a shell.
pub(crate) fn run_words(words: &[String], world: &mut World<'_>) -> Run {
    let mut shell = Shell::new(world);
    let flow = shell.command(words, 0);
    shell.end(flow)
}

/// The script in `sh -c SCRIPT`.
pub(crate) fn script_of(words: &[String]) -> Option<String> {
    let at = words.iter().position(|w| w.starts_with('-') && !w.starts_with("--") && w.ends_with('c'))?;
    words.get(at + 1).cloned()
}

enum Flow {
    Code(i64),
    Exit(i64),
    Forever,
}

struct Shell<'w, 'a> {
    world: &'w mut World<'a>,
    seconds: i64,
    steps: usize,
    /// What the command reads: the output of the one before it in a pipe.
    input: String,
    output: String,
}

impl<'w, 'a> Shell<'w, 'a> {
    fn new(world: &'w mut World<'a>) -> Self {
        let input = std::mem::take(&mut world.input);
        Self { world, seconds: 0, steps: 0, input, output: String::new() }
    }

    fn end(self, flow: Flow) -> Run {
        self.world.output.push_str(&self.output);
        match flow {
            Flow::Forever => Run::Forever,
            Flow::Code(code) | Flow::Exit(code) => Run::Ends { after: self.seconds, code: code & 0xff },
        }
    }

    fn print(&mut self, text: &str) {
        self.output.push_str(text);
        truncate(&mut self.output);
    }

    /// Runs a list of commands; `depth` bounds nesting.
    fn list(&mut self, tokens: &[Token], depth: usize) -> Flow {
        let mut at = 0;
        let mut code = 0;
        let mut skip = false;
        while at < tokens.len() {
            let end = command_end(tokens, at);
            let (body, operator) = (&tokens[at..end], tokens.get(end));
            let pipes = operator == Some(&Token::Op("|"));
            if !body.is_empty() && !skip {
                let before = std::mem::take(&mut self.output);
                let flow = self.compound(body, depth);
                let printed = std::mem::replace(&mut self.output, before);
                self.input.clear();
                if pipes {
                    self.input = printed;
                } else {
                    self.print(&printed);
                }
                match flow {
                    Flow::Code(c) => code = c,
                    // A background process does not stop the script.
                    Flow::Forever if operator == Some(&Token::Op("&")) => code = 0,
                    other => return other,
                }
            }
            skip = match operator {
                Some(Token::Op("&&")) => code != 0,
                Some(Token::Op("||")) => code == 0,
                Some(Token::Op("|")) => skip,
                _ => false,
            };
            at = end + 1;
        }
        Flow::Code(code)
    }

    fn compound(&mut self, tokens: &[Token], depth: usize) -> Flow {
        self.steps += 1;
        if self.steps > STEPS_MAX || depth > DEPTH_MAX {
            return Flow::Forever;
        }
        match tokens.first() {
            Some(Token::Word(w)) if w == "if" => self.conditional(tokens, depth),
            Some(Token::Word(w)) if w == "while" || w == "until" => self.while_loop(tokens, w == "until", depth),
            Some(Token::Word(w)) if w == "for" => self.for_loop(tokens, depth),
            Some(Token::Word(w)) if w == "!" => match self.compound(&tokens[1..], depth) {
                Flow::Code(code) => Flow::Code(i64::from(code == 0)),
                other => other,
            },
            Some(Token::Word(w)) if (w == "{" || w == "(") && tokens.len() > 2 => self.list(&tokens[1..tokens.len() - 1], depth + 1),
            _ => self.simple(tokens, depth),
        }
    }

    fn conditional(&mut self, tokens: &[Token], depth: usize) -> Flow {
        let parts = split_at_keywords(tokens, &["if", "then", "elif", "else", "fi"]);
        let mut at = 0;
        while let Some((word, body)) = parts.get(at) {
            match word.as_str() {
                "if" | "elif" => match self.list(body, depth + 1) {
                    Flow::Code(0) => return parts.get(at + 1).map_or(Flow::Code(0), |(_, then)| self.list(then, depth + 1)),
                    Flow::Code(_) => at += 2,
                    other => return other,
                },
                "else" => return self.list(body, depth + 1),
                _ => return Flow::Code(0),
            }
        }
        Flow::Code(0)
    }

    fn while_loop(&mut self, tokens: &[Token], until: bool, depth: usize) -> Flow {
        let parts = split_at_keywords(tokens, &["while", "until", "do", "done"]);
        let [(_, condition), (_, body), ..] = parts.as_slice() else { return Flow::Forever };
        loop {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return Flow::Forever;
            }
            match self.list(condition, depth + 1) {
                Flow::Code(code) if (code == 0) == until => return Flow::Code(0),
                Flow::Code(_) => {}
                other => return other,
            }
            match self.list(body, depth + 1) {
                Flow::Code(_) => {}
                other => return other,
            }
        }
    }

    fn for_loop(&mut self, tokens: &[Token], depth: usize) -> Flow {
        let parts = split_at_keywords(tokens, &["for", "do", "done"]);
        let [(_, head), (_, body), ..] = parts.as_slice() else { return Flow::Forever };
        let mut words: Vec<String> = Vec::new();
        for token in head {
            if let Token::Word(word) = token {
                words.push(self.expand(word, depth));
            }
        }
        let [variable, keyword, values @ ..] = words.as_slice() else { return Flow::Forever };
        if keyword != "in" {
            return Flow::Forever;
        }
        let mut code = 0;
        for value in values.iter().flat_map(|v| v.split_whitespace()) {
            self.world.env.insert(variable.clone(), value.to_string());
            match self.list(body, depth + 1) {
                Flow::Code(c) => code = c,
                other => return other,
            }
        }
        Flow::Code(code)
    }

    /// A command with its assignments and redirections.
    fn simple(&mut self, tokens: &[Token], depth: usize) -> Flow {
        let mut words = Vec::new();
        let mut target: Option<(String, bool)> = None;
        let mut to_errors = false;
        let mut tokens = tokens.iter();
        while let Some(token) = tokens.next() {
            match token {
                Token::Op(operator @ (">" | ">>")) => {
                    if let Some(Token::Word(path)) = tokens.next() {
                        target = Some((self.expand(path, depth), *operator == ">>"));
                    }
                }
                Token::Op("<") => {
                    if let Some(Token::Word(path)) = tokens.next() {
                        let path = self.expand(path, depth);
                        self.input = self.world.file(&path).unwrap_or_default();
                    }
                }
                Token::Op(">&") => to_errors |= matches!(tokens.next(), Some(Token::Word(to)) if to == "2"),
                Token::Op(_) => {}
                Token::Word(word) => words.push(self.expand(word, depth)),
            }
        }
        while let Some((name, value)) = words.first().and_then(|w| w.split_once('=')).filter(|(n, _)| is_name(n)) {
            self.world.env.insert(name.to_string(), value.to_string());
            words.remove(0);
        }
        let before = std::mem::take(&mut self.output);
        let flow = if words.is_empty() { Flow::Code(0) } else { self.command(&words, depth) };
        let printed = std::mem::replace(&mut self.output, before);
        match target {
            Some((path, append)) => self.world.write(&path, printed, append),
            None if to_errors && self.world.errors.is_some() => {
                let errors = self.world.errors.get_or_insert_default();
                errors.push_str(&printed);
                truncate(errors);
            }
            None => self.print(&printed),
        }
        flow
    }

    /// Replaces `$NAME`, `${NAME}`, `$((..))` and `$(..)`.
    fn expand(&mut self, word: &str, depth: usize) -> String {
        let expanded = self.expand_dollars(word, depth);
        expanded.replace(LITERAL_DOLLAR, "$")
    }

    fn expand_dollars(&mut self, word: &str, depth: usize) -> String {
        let Some(dollar) = word.find('$') else { return word.to_string() };
        let (before, rest) = (&word[..dollar], &word[dollar + 1..]);
        let (value, after) = if let Some((inner, after)) = enclosed(rest, "((", "))") {
            let inner = self.expand_dollars(inner, depth);
            (self.arithmetic(&inner).to_string(), after)
        } else if let Some((inner, after)) = enclosed(rest, "(", ")") {
            (self.substitute(inner, depth), after)
        } else if let Some((inner, after)) = enclosed(rest, "{", "}") {
            (self.variable(inner), after)
        } else {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
            if end == 0 {
                return format!("{before}{LITERAL_DOLLAR}{}", self.expand_dollars(rest, depth));
            }
            (self.variable(&rest[..end]), &rest[end..])
        };
        format!("{before}{value}{}", self.expand_dollars(after, depth))
    }

    fn variable(&self, name: &str) -> String {
        match name {
            // Nothing here is random: the same script ends the same way each time.
            "RANDOM" => "0".into(),
            _ => self.world.env.get(name).cloned().unwrap_or_default(),
        }
    }

    /// The output of a command.
    fn substitute(&mut self, script: &str, depth: usize) -> String {
        if depth >= DEPTH_MAX {
            return String::new();
        }
        let before = std::mem::take(&mut self.output);
        self.list(&tokenize(script), depth + 1);
        std::mem::replace(&mut self.output, before).trim_end_matches('\n').to_string()
    }

    /// `a op b`, or one number.
    fn arithmetic(&self, text: &str) -> i64 {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |word: &str| word.parse::<i64>().unwrap_or_else(|_| self.variable(word).parse().unwrap_or(0));
        match words.as_slice() {
            [one] => number(one),
            [left, operator, right] => {
                let (left, right) = (number(left), number(right));
                match *operator {
                    "+" => left.saturating_add(right),
                    "-" => left.saturating_sub(right),
                    "*" => left.saturating_mul(right),
                    "/" => left.checked_div(right).unwrap_or(0),
                    "%" => left.checked_rem(right).unwrap_or(0),
                    _ => 0,
                }
            }
            _ => 0,
        }
    }
}

fn truncate(text: &mut String) {
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn enclosed<'t>(text: &'t str, open: &str, close: &str) -> Option<(&'t str, &'t str)> {
    let inner = text.strip_prefix(open)?;
    let mut depth = 0_usize;
    let (single_open, single_close) = (open.chars().next()?, close.chars().next()?);
    for (at, c) in inner.char_indices() {
        if depth == 0 && inner[at..].starts_with(close) {
            return Some((&inner[..at], &inner[at + close.len()..]));
        }
        if c == single_open {
            depth += 1;
        } else if c == single_close {
            depth = depth.saturating_sub(1);
        }
    }
    None
}

#[cfg(test)]
mod tests;
