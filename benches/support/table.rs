//! Tables in Markdown, to be read on a terminal and pasted into the documentation.

/// Prints rows under a head, columns aligned.
pub fn print(title: &str, head: &[&str], rows: &[Vec<String>]) {
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|r| r.get(at)).map(|c| c.chars().count());
        cells.chain([head[at].chars().count()]).max().unwrap_or_default()
    };
    let line = |cells: Vec<String>| {
        let padded = cells.iter().enumerate().map(|(at, c)| format!("{c:<width$}", width = width(at)));
        println!("| {} |", padded.collect::<Vec<_>>().join(" | "));
    };
    println!("\n{title}\n");
    line(head.iter().map(ToString::to_string).collect());
    line((0..head.len()).map(|at| "-".repeat(width(at))).collect());
    for row in rows {
        line(row.clone());
    }
}

/// A number with as many digits as it deserves.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if v.is_nan() => "-".into(),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// How many times `one` is of `other`.
pub fn ratio(one: f64, other: f64) -> String {
    if other == 0.0 { "-".into() } else { number(one / other) }
}
