//! A guess at what a shell script does, so that simulated containers end as their command says.
//!
//! It understands sequences, `&&`, `||`, `if`, `for`, `while`, tests of files and strings, `sleep`,
//! `exit` and variables. A command that it does not know is taken for a server: it runs on.

use std::collections::{BTreeMap, BTreeSet};

/// How a container's process goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    Forever,
    Ends { after: i64, code: i64 },
}

/// What the process finds: environment and existing files. Files that it makes are added.
pub(crate) struct World<'a> {
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) exists: &'a dyn Fn(&str) -> bool,
    pub(crate) created: BTreeSet<String>,
}

const SCRIPT_BYTES_MAX: usize = 64 << 10;
/// Commands that one script may run before it counts as a server.
const STEPS_MAX: usize = 2000;

pub(crate) fn run_script(script: &str, world: &mut World<'_>) -> Run {
    if script.len() > SCRIPT_BYTES_MAX {
        return Run::Forever;
    }
    let tokens = tokenize(script);
    let mut shell = Shell { world, seconds: 0, steps: 0 };
    match shell.list(&tokens, 0) {
        Flow::Forever => Run::Forever,
        Flow::Code(code) | Flow::Exit(code) => Run::Ends { after: shell.seconds, code: code & 0xff },
    }
}

/// A command given as words, without a shell.
pub(crate) fn run_words(words: &[String], world: &mut World<'_>) -> Run {
    let mut shell = Shell { world, seconds: 0, steps: 0 };
    match shell.command(words) {
        Flow::Forever => Run::Forever,
        Flow::Code(code) | Flow::Exit(code) => Run::Ends { after: shell.seconds, code: code & 0xff },
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    /// `;`, `&&`, `||`, `|`, `&`, or a redirection.
    Op(&'static str),
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
}

impl Shell<'_, '_> {
    /// Runs a list of commands; `depth` bounds nesting.
    fn list(&mut self, tokens: &[Token], depth: usize) -> Flow {
        let mut at = 0;
        let mut code = 0;
        let mut skip = false;
        while at < tokens.len() {
            let end = command_end(tokens, at);
            let (body, operator) = (&tokens[at..end], tokens.get(end));
            if !body.is_empty() && !skip {
                match self.compound(body, depth) {
                    Flow::Code(c) => code = c,
                    // A background process does not stop the script.
                    Flow::Forever if operator == Some(&Token::Op("&")) => code = 0,
                    other => return other,
                }
            }
            skip = match operator {
                Some(Token::Op("&&")) => code != 0,
                Some(Token::Op("||")) => code == 0,
                _ => false,
            };
            at = end + 1;
        }
        Flow::Code(code)
    }

    fn compound(&mut self, tokens: &[Token], depth: usize) -> Flow {
        self.steps += 1;
        if self.steps > STEPS_MAX || depth > 16 {
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
            _ => self.simple(tokens),
        }
    }

    fn conditional(&mut self, tokens: &[Token], depth: usize) -> Flow {
        let parts = split_words(tokens, &["if", "then", "elif", "else", "fi"]);
        let mut at = 0;
        while let Some((word, body)) = parts.get(at) {
            match word.as_str() {
                "if" | "elif" => match self.list(body, depth + 1) {
                    Flow::Code(0) => {
                        return parts.get(at + 1).map_or(Flow::Code(0), |(_, then)| self.list(then, depth + 1));
                    }
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
        let parts = split_words(tokens, &["while", "until", "do", "done"]);
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
        let parts = split_words(tokens, &["for", "do", "done"]);
        let [(_, head), (_, body), ..] = parts.as_slice() else { return Flow::Forever };
        let words: Vec<String> = head.iter().filter_map(|t| if let Token::Word(w) = t { Some(self.expand(w)) } else { None }).collect();
        let [variable, keyword, values @ ..] = words.as_slice() else { return Flow::Forever };
        if keyword != "in" {
            return Flow::Forever;
        }
        let values: Vec<String> = values.iter().flat_map(|v| v.split_whitespace()).map(str::to_string).collect();
        let mut code = 0;
        for value in values {
            self.world.env.insert(variable.clone(), value);
            match self.list(body, depth + 1) {
                Flow::Code(c) => code = c,
                other => return other,
            }
        }
        Flow::Code(code)
    }

    fn simple(&mut self, tokens: &[Token]) -> Flow {
        let mut words = Vec::new();
        let mut tokens = tokens.iter();
        while let Some(token) = tokens.next() {
            match token {
                Token::Op(">") => {
                    if let Some(Token::Word(path)) = tokens.next() {
                        let path = self.expand(path);
                        self.world.created.insert(path);
                    }
                }
                Token::Op("<") => {
                    tokens.next();
                }
                Token::Op(_) => {}
                Token::Word(word) => words.push(self.expand(word)),
            }
        }
        while let Some((name, value)) = words.first().and_then(|w| w.split_once('=')).filter(|(n, _)| is_name(n)) {
            self.world.env.insert(name.to_string(), value.to_string());
            words.remove(0);
        }
        if words.is_empty() { Flow::Code(0) } else { self.command(&words) }
    }

    fn command(&mut self, words: &[String]) -> Flow {
        let Some(first) = words.first() else { return Flow::Code(0) };
        let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        match first.rsplit('/').next().unwrap_or_default() {
            "true" | ":" => Flow::Code(0),
            "false" => Flow::Code(1),
            "exit" => Flow::Exit(arguments.first().and_then(|a| a.parse().ok()).unwrap_or(0)),
            "exec" => self.command(&words[1..]),
            "sleep" => self.sleep(&arguments),
            "test" => Flow::Code(i64::from(!self.test(&arguments))),
            "[" | "[[" => Flow::Code(i64::from(!self.test(arguments.split_last().map_or(&[], |(_, rest)| rest)))),
            "touch" | "mkdir" => {
                self.world.created.extend(arguments.iter().filter(|a| !a.starts_with('-')).map(|a| a.to_string()));
                Flow::Code(0)
            }
            "tail" if arguments.iter().any(|a| a.starts_with("-f") || a.starts_with("-F")) => Flow::Forever,
            "sh" | "bash" | "ash" | "dash" => match shell_script(words) {
                Some(script) => {
                    let tokens = tokenize(&script);
                    self.list(&tokens, 1)
                }
                None => Flow::Code(0),
            },
            name if QUICK_COMMANDS.contains(&name) => Flow::Code(0),
            _ => Flow::Forever,
        }
    }

    fn sleep(&mut self, arguments: &[&str]) -> Flow {
        let mut total = 0.0;
        for argument in arguments {
            let (number, unit) = argument.trim().split_at(argument.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(argument.len()));
            let factor = match unit {
                "" | "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "d" => 86400.0,
                _ => return Flow::Forever,
            };
            match number.parse::<f64>() {
                Ok(seconds) => total += seconds * factor,
                Err(_) => return Flow::Forever,
            }
        }
        self.seconds = self.seconds.saturating_add(total.ceil() as i64);
        Flow::Code(0)
    }

    fn test(&self, arguments: &[&str]) -> bool {
        match arguments {
            ["!", rest @ ..] => !self.test(rest),
            [flag, path] if ["-r", "-f", "-e", "-d", "-s", "-w", "-x"].contains(flag) => {
                self.world.created.contains(*path) || (self.world.exists)(path)
            }
            ["-z", text] => text.is_empty(),
            ["-n", text] => !text.is_empty(),
            [left, "=" | "==", right] => left == right,
            [left, "!=", right] => left != right,
            [left, operator, right] => {
                let (Ok(left), Ok(right)) = (left.parse::<i64>(), right.parse::<i64>()) else { return false };
                match *operator {
                    "-eq" => left == right,
                    "-ne" => left != right,
                    "-lt" => left < right,
                    "-le" => left <= right,
                    "-gt" => left > right,
                    "-ge" => left >= right,
                    _ => false,
                }
            }
            [text] => !text.is_empty(),
            _ => false,
        }
    }

    /// Replaces `$NAME`, `${NAME}`, `$((..))` and `$(expr ..)`.
    fn expand(&self, word: &str) -> String {
        let Some(dollar) = word.find('$') else { return word.to_string() };
        let (before, rest) = (&word[..dollar], &word[dollar + 1..]);
        let (value, after) = if let Some((inner, after)) = enclosed(rest, "((", "))") {
            (self.arithmetic(&self.expand(inner)).to_string(), after)
        } else if let Some((inner, after)) = enclosed(rest, "(", ")") {
            (self.substitute(&self.expand(inner)), after)
        } else if let Some((inner, after)) = enclosed(rest, "{", "}") {
            (self.variable(inner), after)
        } else {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
            if end == 0 {
                return format!("{before}${}", self.expand(rest));
            }
            (self.variable(&rest[..end]), &rest[end..])
        };
        format!("{before}{value}{}", self.expand(after))
    }

    fn variable(&self, name: &str) -> String {
        match name {
            // Nothing here is random: the same script ends the same way each time.
            "RANDOM" => "0".into(),
            _ => self.world.env.get(name).cloned().unwrap_or_default(),
        }
    }

    fn substitute(&self, command: &str) -> String {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            ["expr", rest @ ..] => self.arithmetic(&rest.join(" ")).to_string(),
            ["seq", last] => sequence(1, last.parse().unwrap_or(0)),
            ["seq", first, last] => sequence(first.parse().unwrap_or(1), last.parse().unwrap_or(0)),
            ["echo", rest @ ..] => rest.join(" "),
            ["hostname"] => self.variable("HOSTNAME"),
            _ => String::new(),
        }
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
                    "*" | "\\*" => left.saturating_mul(right),
                    "/" => left.checked_div(right).unwrap_or(0),
                    "%" => left.checked_rem(right).unwrap_or(0),
                    _ => 0,
                }
            }
            _ => 0,
        }
    }
}

/// Commands that do their work at once, as far as anybody outside can see.
const QUICK_COMMANDS: &[&str] = &[
    "awk", "base64", "basename", "cat", "cd", "chmod", "chown", "cp", "cut", "date", "df", "dirname", "du", "echo", "env", "export",
    "expr", "find", "grep", "head", "hostname", "id", "ln", "ls", "md5sum", "mkfifo", "mktemp", "mount", "mv", "nslookup", "perl",
    "printenv", "printf", "ps", "pwd", "readlink", "rm", "rmdir", "sed", "seq", "set", "shift", "sort", "stat", "sync", "sysctl", "tail",
    "tee", "tr", "trap", "ulimit", "umask", "uname", "uniq", "unset", "wc", "wget", "which", "whoami",
];

/// The script in `sh -c SCRIPT`.
pub(crate) fn shell_script(words: &[String]) -> Option<String> {
    let at = words.iter().position(|w| w.starts_with('-') && !w.starts_with("--") && w.ends_with('c'))?;
    words.get(at + 1).cloned()
}

fn sequence(first: i64, last: i64) -> String {
    (first..=last.min(first.saturating_add(1000))).map(|n| n.to_string()).collect::<Vec<_>>().join(" ")
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

/// The end of the command that starts at `at`: the next operator outside of compound commands.
fn command_end(tokens: &[Token], at: usize) -> usize {
    let mut depth = 0_usize;
    let mut first = true;
    for (index, token) in tokens.iter().enumerate().skip(at) {
        match token {
            Token::Word(word) => {
                if first && ["if", "while", "until", "for", "{", "("].contains(&word.as_str()) {
                    depth += 1;
                } else if ["fi", "done", "}", ")"].contains(&word.as_str()) {
                    depth = depth.saturating_sub(1);
                }
                first = ["then", "do", "else", "{", "(", "!", "elif", "if", "while", "until"].contains(&word.as_str());
            }
            Token::Op(">" | "<") => {}
            Token::Op(_) if depth == 0 => return index,
            Token::Op(_) => first = true,
        }
    }
    tokens.len()
}

/// Cuts a compound command at its own keywords, not at those of commands within.
fn split_words(tokens: &[Token], keywords: &[&str]) -> Vec<(String, Vec<Token>)> {
    let mut parts: Vec<(String, Vec<Token>)> = Vec::new();
    let mut depth = 0_usize;
    for token in tokens {
        if let Token::Word(word) = token {
            let opens = ["if", "while", "until", "for"].contains(&word.as_str());
            let closes = ["fi", "done"].contains(&word.as_str());
            if opens {
                depth += 1;
            }
            let own = depth == 1 && keywords.contains(&word.as_str());
            if closes {
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

fn tokenize(script: &str) -> Vec<Token> {
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
            '\'' => word.get_or_insert_default().extend(chars.by_ref().take_while(|c| *c != '\'')),
            '"' => word.get_or_insert_default().extend(chars.by_ref().take_while(|c| *c != '"')),
            '\\' => {
                if let Some(next) = chars.next().filter(|n| *n != '\n') {
                    word.get_or_insert_default().push(next);
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
                let double = chars.next_if(|n| *n == c && c != '\n').is_some();
                tokens.push(Token::Op(match (c, double) {
                    ('&', true) => "&&",
                    ('|', true) => "||",
                    ('&', false) => "&",
                    ('|', false) => "|",
                    ('<', _) => "<",
                    ('>', _) => ">",
                    _ => ";",
                }));
                if c == '>' && chars.next_if(|n| *n == '&').is_some() {
                    word = Some(String::new());
                }
            }
            _ => word.get_or_insert_default().push(c),
        }
    }
    tokens.extend(word.take().map(Token::Word));
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(script: &str, files: &[&str], expected: Option<(i64, i64)>) {
        let exists = |path: &str| files.contains(&path);
        let env = BTreeMap::from([("INDEX".to_string(), "3".to_string())]);
        let mut world = World { env, exists: &exists, created: BTreeSet::new() };
        let expected = expected.map_or(Run::Forever, |(after, code)| Run::Ends { after, code });
        assert_eq!(run_script(script, &mut world), expected, "{script}");
    }

    #[test]
    fn scripts_end_as_they_say() {
        check("exit 0", &[], Some((0, 0)));
        check("echo hello; sleep 5; exit 3", &[], Some((5, 3)));
        check("false || exit 7", &[], Some((0, 7)));
        check("true && false", &[], Some((0, 1)));
        check("sleep 1m && echo 'done; really' >/dev/termination-log 2>&1", &[], Some((60, 0)));
        check("exit $(( $RANDOM / 16384 ))", &[], Some((0, 0)));
        check("# comment\nsleep 0.2\n", &[], Some((1, 0)));
        check("for i in $(seq 1 3); do echo $i; sleep 2; done; exit 1", &[], Some((6, 1)));
        check("if [ $(expr ${INDEX} % 2) -ne 0 ]; then\n exit 1\n else\n exit 0\n fi", &[], Some((0, 1)));
        check("if test -z \"$NONE\"; then if true; then exit 4; fi; fi; exit 5", &[], Some((0, 4)));
        check("! true || exit 9", &[], Some((0, 9)));
        check("(sleep 3; exit 2)", &[], None);
    }

    #[test]
    fn files_of_volumes_decide() {
        let script = "if [[ -r /data/foo-$INDEX ]]\nthen\n exit 0\nelse\n touch /data/foo-$INDEX\n exit 42\nfi";
        check(script, &[], Some((0, 42)));
        check(script, &["/data/foo-3"], Some((0, 0)));
        let exists = |_: &str| false;
        let mut world = World { env: BTreeMap::new(), exists: &exists, created: BTreeSet::new() };
        run_script("touch /data/a; echo x > /data/b", &mut world);
        assert_eq!(world.created.into_iter().collect::<Vec<_>>(), ["/data/a", "/data/b"]);
    }

    #[test]
    fn servers_run_on() {
        for script in
            ["nginx -g 'daemon off;'", "while true; do sleep 1; done", "echo start; exec /server", "tail -f /dev/null", "sleep infinity"]
        {
            check(script, &[], None);
        }
        check("nginx & sleep 4", &[], Some((4, 0)));
        check("until false; do echo; done", &[], None);
    }
}
