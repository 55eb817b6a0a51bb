//! Output for people: columns like kubectl's, and a line of progress.

use anyhow::{Result, bail};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use std::time::Duration;
use tokio::time::Instant;

#[derive(Clone, Copy, ValueEnum, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
}

/// Rows under headers, padded with three spaces as kubectl pads.
pub fn columns(headers: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = headers.iter().map(|h| h.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: Vec<&str>| {
        let mut text = String::new();
        for (index, cell) in cells.iter().enumerate() {
            text.push_str(cell);
            if index + 1 < cells.len() {
                text.extend(std::iter::repeat_n(' ', widths[index] - cell.chars().count() + 3));
            }
        }
        text.trim_end().to_string() + "\n"
    };
    let mut out = line(headers.to_vec());
    for row in rows {
        out.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    out
}

/// The age of a timestamp as kubectl shows it: `5s`, `3m`, `2h`, `4d`.
pub fn age(created: &str, now: Timestamp) -> String {
    let Ok(created) = created.parse::<Timestamp>() else { return "<unknown>".into() };
    let seconds = now.duration_since(created).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// What a look at something that takes time found.
pub enum Look<T> {
    Done(T),
    /// `shown` while there is time, `error` when there is no more.
    NotYet {
        shown: String,
        error: String,
    },
}

/// Looks again and again, and shows what is waited for.
pub async fn wait<T>(message: String, timeout: Duration, pause: Duration, mut look: impl AsyncFnMut() -> Result<Look<T>>) -> Result<T> {
    let spinner = spinner(message);
    let deadline = Instant::now() + timeout;
    loop {
        match look().await? {
            Look::Done(found) => {
                spinner.finish_and_clear();
                return Ok(found);
            }
            Look::NotYet { error, .. } if Instant::now() >= deadline => {
                spinner.finish_and_clear();
                bail!(error);
            }
            Look::NotYet { shown, .. } => spinner.set_message(shown),
        }
        tokio::time::sleep(pause).await;
    }
}

/// A spinner on stderr; nothing when stderr is no terminal.
fn spinner(message: impl Into<String>) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(message.into());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

pub fn print(value: &serde_json::Value, format: Format) -> Result<()> {
    match format {
        Format::Json => println!("{}", serde_json::to_string_pretty(value)?),
        Format::Yaml => print!("{}", serde_saphyr::to_string(value)?),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".into(), "True".into()], vec!["longer".into(), "False".into()]];
        assert_eq!(columns(&["NAME", "READY"], &rows), "NAME     READY\na        True\nlonger   False\n");
    }

    #[test]
    fn ages_read_like_kubectls() {
        let now = "2026-01-02T00:00:00Z".parse().unwrap();
        let check = |created: &str| age(created, now);
        assert_eq!(check("2026-01-01T23:59:01Z"), "59s");
        assert_eq!(check("2026-01-01T23:00:00Z"), "60m");
        assert_eq!(check("2025-12-25T00:00:00Z"), "8d");
    }
}
