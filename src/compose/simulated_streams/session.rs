//! One exec or attach.

use super::channels::{Channel, Channels};
use anyhow::Result;
use serde_json::{Value, json};
use sublet_host::{Executed, SimulatedShell};

/// Input that a command may have.
const INPUT_BYTES_MAX: usize = 16 << 20;
const LINE_BYTES_MAX: usize = 1 << 20;
const PROMPT: &str = "$ ";
const END_OF_INPUT: char = '\u{4}';

pub struct Session {
    pub shell: SimulatedShell,
    pub words: Vec<String>,
    pub wants_input: bool,
    pub tty: bool,
    /// What was printed before somebody attached; `None`: a command.
    pub printed: Option<String>,
}

impl Session {
    pub async fn run(mut self, mut channels: Channels) -> Result<()> {
        let code = if let Some(printed) = self.printed.take() {
            channels.send(Channel::Stdout, &printed).await?;
            while channels.input().await?.is_some() {}
            0
        } else if self.wants_input && sublet_host::is_interactive(&self.words) {
            self.interact(&mut channels).await?
        } else {
            let mut text = String::new();
            while self.wants_input
                && let Some(more) = channels.input().await?
            {
                text.push_str(&more);
                if text.len() > INPUT_BYTES_MAX {
                    break;
                }
            }
            let words = self.words.clone();
            let executed = self.shell.exec(&words, &text);
            self.print(&mut channels, &executed).await?;
            executed.code
        };
        channels.finish(&exit_status(code).to_string()).await
    }

    async fn print(&self, channels: &mut Channels, executed: &Executed) -> Result<()> {
        if self.tty {
            // A terminal has one output, and lines end with a carriage return.
            let text = format!("{}{}", executed.stdout, executed.stderr).replace('\n', "\r\n");
            return channels.send(Channel::Stdout, &text).await;
        }
        channels.send(Channel::Stdout, &executed.stdout).await?;
        channels.send(Channel::Stderr, &executed.stderr).await
    }

    /// A shell that takes lines until its input ends or it is told to exit.
    async fn interact(&mut self, channels: &mut Channels) -> Result<i64> {
        let mut line = String::new();
        let mut code = 0;
        self.echo(channels, PROMPT).await?;
        while let Some(text) = channels.input().await? {
            for c in text.chars() {
                match c {
                    END_OF_INPUT => return Ok(code),
                    '\u{7f}' | '\u{8}' => self.erase(channels, &mut line).await?,
                    '\r' | '\n' => {
                        self.echo(channels, "\r\n").await?;
                        let entered = std::mem::take(&mut line);
                        let mut words = entered.split_whitespace();
                        if words.next() == Some("exit") {
                            return Ok(words.next().and_then(|w| w.parse().ok()).unwrap_or(code));
                        }
                        code = self.entered(channels, &entered).await?;
                        self.echo(channels, PROMPT).await?;
                    }
                    c if line.len() < LINE_BYTES_MAX => {
                        line.push(c);
                        self.echo(channels, c.encode_utf8(&mut [0; 4])).await?;
                    }
                    _ => {}
                }
            }
        }
        if line.is_empty() { Ok(code) } else { self.entered(channels, &line).await }
    }

    async fn entered(&mut self, channels: &mut Channels, line: &str) -> Result<i64> {
        let executed = self.shell.line(line);
        self.print(channels, &executed).await?;
        Ok(executed.code)
    }

    async fn erase(&self, channels: &mut Channels, line: &mut String) -> Result<()> {
        match line.pop() {
            Some(_) => self.echo(channels, "\u{8} \u{8}").await,
            None => Ok(()),
        }
    }

    /// What a terminal shows beside the output.
    async fn echo(&self, channels: &mut Channels, text: &str) -> Result<()> {
        if self.tty { channels.send(Channel::Stdout, text).await } else { Ok(()) }
    }
}

/// What the error channel says at the end.
fn exit_status(code: i64) -> Value {
    if code == 0 {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: exit status {code}"),
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_told_as_upstream_tells_them() {
        assert_eq!(exit_status(0)["status"], "Success");
        assert_eq!(exit_status(3)["details"]["causes"][0], json!({"reason": "ExitCode", "message": "3"}));
    }
}
