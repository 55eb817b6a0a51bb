//! The commands that the guess knows.

use super::parse::tokenize;
use super::{Flow, Shell, script_of};

impl Shell<'_, '_> {
    pub(super) fn command(&mut self, words: &[String], depth: usize) -> Flow {
        let Some(first) = words.first() else { return Flow::Code(0) };
        let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        match first.rsplit('/').next().unwrap_or_default() {
            "true" | ":" => Flow::Code(0),
            "false" => Flow::Code(1),
            "exit" => Flow::Exit(arguments.first().and_then(|a| a.parse().ok()).unwrap_or(0)),
            "exec" => self.command(&words[1..], depth),
            "sleep" => self.sleep(&arguments),
            "test" => Flow::Code(i64::from(!self.test(&arguments))),
            "[" | "[[" => Flow::Code(i64::from(!self.test(arguments.split_last().map_or(&[], |(_, rest)| rest)))),
            "touch" | "mkdir" => {
                for path in arguments.iter().filter(|a| !a.starts_with('-')) {
                    self.world.write(path, String::new(), true);
                }
                Flow::Code(0)
            }
            "tail" if arguments.iter().any(|a| a.starts_with("-f") || a.starts_with("-F")) => Flow::Forever,
            "sh" | "bash" | "ash" | "dash" => match script_of(words) {
                Some(script) => self.list(&tokenize(&script), depth + 1),
                None => Flow::Code(0),
            },
            name => self.printing(name, &arguments),
        }
    }

    /// Commands whose effect is their output.
    fn printing(&mut self, name: &str, arguments: &[&str]) -> Flow {
        let text = match name {
            "echo" => echo(arguments),
            "printf" => {
                arguments.first().map(|f| f.replace("\\n", "\n").replace("%s", arguments.get(1).unwrap_or(&""))).unwrap_or_default()
            }
            "cat" | "head" | "tail" | "sort" | "uniq" => self.read(arguments),
            "wc" => {
                let lines = self.read(arguments).matches('\n').count();
                let file = arguments.iter().find(|a| !a.starts_with('-')).map(|f| format!(" {f}")).unwrap_or_default();
                format!("{lines}{file}\n")
            }
            "awk" if arguments.iter().any(|a| a.contains("print $1")) => {
                let input = std::mem::take(&mut self.input);
                input.lines().map(|l| format!("{}\n", l.split_whitespace().next().unwrap_or_default())).collect()
            }
            "expr" => format!("{}\n", self.arithmetic(&arguments.join(" "))),
            "seq" => sequence(arguments),
            "hostname" => format!("{}\n", self.variable("HOSTNAME")),
            "env" | "printenv" => self.world.env.iter().map(|(k, v)| format!("{k}={v}\n")).collect(),
            "sysctl" => {
                let names = arguments.iter().map(|name| name.replace('/', "."));
                names.filter_map(|name| self.world.sysctls.get(&name).map(|value| format!("{name} = {value}\n"))).collect()
            }
            name if QUIET_COMMANDS.contains(&name) => String::new(),
            _ => return Flow::Forever,
        };
        self.print(&text);
        Flow::Code(0)
    }

    /// The files named, or the input.
    fn read(&mut self, arguments: &[&str]) -> String {
        let files: Vec<&&str> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
        if files.is_empty() {
            return std::mem::take(&mut self.input);
        }
        files.iter().filter_map(|f| self.world.file(f)).collect()
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
            [flag, path] if ["-r", "-f", "-e", "-d", "-s", "-w", "-x"].contains(flag) => self.world.file(path).is_some(),
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
}

/// Commands that do their work at once and print nothing that matters.
const QUIET_COMMANDS: &[&str] = &[
    "awk", "base64", "basename", "cd", "chmod", "chown", "cp", "cut", "date", "df", "dirname", "du", "export", "find", "grep", "id", "ln",
    "ls", "md5sum", "mkfifo", "mktemp", "mount", "mv", "nslookup", "perl", "ps", "pwd", "readlink", "rm", "rmdir", "sed", "set", "shift",
    "stat", "sync", "tee", "tr", "trap", "ulimit", "umask", "uname", "unset", "wget", "which", "whoami",
];

fn echo(arguments: &[&str]) -> String {
    match arguments {
        ["-n", rest @ ..] => rest.join(" "),
        ["-e", rest @ ..] => format!("{}\n", rest.join(" ").replace("\\n", "\n")),
        all => format!("{}\n", all.join(" ")),
    }
}

fn sequence(arguments: &[&str]) -> String {
    let number = |text: &str| text.parse::<i64>().unwrap_or(0);
    let (first, last) = match arguments {
        [last] => (1, number(last)),
        [first, last] => (number(first), number(last)),
        _ => return String::new(),
    };
    (first..=last.min(first.saturating_add(1000))).map(|n| format!("{n}\n")).collect()
}
