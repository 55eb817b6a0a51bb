//! Errors of compilation, shown with the place they are about.

/// Issues of one expression that are shown; the others are counted. As cel-go does it, and so is the next one.
const SHOWN_MAX: usize = 100;
/// Longer lines are not shown.
const LINE_BYTES_MAX: usize = 16_384;

/// One thing that is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    message: String,
    /// The byte of the expression; `None` when it is about all of it.
    at: Option<usize>,
}

impl Issue {
    pub(super) fn new(message: String, at: usize) -> Self {
        Self { message, at: Some(at) }
    }

    pub(super) fn syntax(message: String, at: usize) -> Self {
        Self { message: format!("Syntax error: {message}"), at: Some(at) }
    }

    pub(super) fn of_all(message: String) -> Self {
        Self { message, at: None }
    }

    /// As cel-go shows it: the message, the line, and a mark under the place.
    fn show(&self, expression: &str) -> String {
        let Some(at) = self.at else { return format!("ERROR: <input>:-1:0: {}", self.message) };
        let at = expression.floor_char_boundary(at);
        let before = &expression[..at];
        let line_number = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |n| n + 1);
        let column = before[start..].chars().count();
        let line = expression[start..].split('\n').next().unwrap_or_default();
        if line.len() > LINE_BYTES_MAX {
            return format!("ERROR: <input>:{line_number}:{}: {}", column + 1, self.message);
        }
        let line = line.replace('\t', " ");
        // Where characters take more than one byte, so do their marks.
        let dots: String = before[start..].chars().map(|c| if c.is_ascii() { '.' } else { '．' }).collect();
        let mark = if expression[at..].chars().next().is_none_or(|c| c.is_ascii()) { '^' } else { '＾' };
        format!("ERROR: <input>:{line_number}:{}: {}\n | {line}\n | {dots}{mark}", column + 1, self.message)
    }
}

/// All issues of an expression as one text, in the order of their places.
pub(super) fn show_all(issues: &[Issue], expression: &str) -> String {
    let mut sorted: Vec<&Issue> = issues.iter().collect();
    sorted.sort_by_key(|issue| issue.at);
    let mut shown: Vec<String> = sorted.iter().take(SHOWN_MAX).map(|issue| issue.show(expression)).collect();
    if sorted.len() > SHOWN_MAX {
        shown.push(format!("{} more errors were truncated", sorted.len() - SHOWN_MAX));
    }
    shown.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of a hundred thousand wrong characters was shown with all of the expression: gigabytes for one small request.
    #[test]
    fn what_is_wrong_everywhere_is_told_in_few_words() {
        let expression = "$".repeat(20_000);
        let issues: Vec<Issue> = (0..20_000).map(|at| Issue::new("wrong".into(), at)).collect();
        let shown = show_all(&issues, &expression);
        assert!(shown.starts_with("ERROR: <input>:1:1: wrong\nERROR: <input>:1:2: wrong"), "a line as long as that is not shown");
        assert!(shown.ends_with("\n19900 more errors were truncated"));
        let short = show_all(&issues[..2], "$$");
        assert_eq!(short, "ERROR: <input>:1:1: wrong\n | $$\n | ^\nERROR: <input>:1:2: wrong\n | $$\n | .^");
    }
}
