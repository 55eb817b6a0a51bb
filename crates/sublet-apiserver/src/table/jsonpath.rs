//! The JSONPath subset of printer columns: fields, indexes, slices, wildcards, unions, filters, recursive descent.

use crate::table::age;
use jiff::Timestamp;
use serde_json::{Number, Value};

/// The cell of a column of a custom resource.
pub(super) fn cell(path: &str, value_type: &str, object: &Value, now: Timestamp) -> Value {
    let Some(steps) = parse(path) else { return Value::Null };
    let Some(value) = find(&steps, object).into_iter().next() else { return Value::Null };
    match (value_type, value) {
        (_, Value::Null) if value_type != "string" => Value::Null,
        ("string", value) => text(value).into(),
        ("integer", Value::Number(n)) => n.as_i64().or_else(|| n.as_f64().map(|f| f as i64)).into(),
        ("number", Value::Number(n)) => number(n),
        ("boolean", Value::Bool(b)) => (*b).into(),
        ("date", Value::String(s)) => age::since(Some(s), now).into(),
        _ => Value::Null,
    }
}

/// Whole numbers are written without a fraction.
fn number(of: &Number) -> Value {
    match of.as_f64() {
        Some(whole) if whole.fract() == 0.0 && whole.abs() < 9e15 => (whole as i64).into(),
        _ => Value::Number(of.clone()),
    }
}

/// A value as printed: strings bare, everything else as JSON.
fn text(value: &Value) -> String {
    match value {
        Value::String(s) => s.clone(),
        Value::Null => "<no value>".into(),
        Value::Number(n) => number(n).to_string(),
        // Go's JSON keeps these characters out of HTML.
        other => other.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"),
    }
}

#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    /// Start, end and step, as in Python.
    Slice(Option<i64>, Option<i64>, i64),
    Index(i64),
    Wildcard,
    Recursive,
    Union(Vec<Step>),
    Filter(Operand, Option<(String, Operand)>),
}

#[derive(Debug, PartialEq)]
enum Operand {
    /// A path from the element (`@`).
    Path(Vec<Step>),
    Literal(Value),
}

fn find<'a>(steps: &[Step], object: &'a Value) -> Vec<&'a Value> {
    let mut values = vec![object];
    for step in steps {
        values = values.into_iter().flat_map(|value| apply(step, value)).collect();
    }
    values
}

fn apply<'a>(step: &Step, value: &'a Value) -> Vec<&'a Value> {
    match (step, value) {
        (Step::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
        (Step::Index(index), Value::Array(items)) => at(items, *index).into_iter().collect(),
        (Step::Slice(start, end, by), Value::Array(items)) => slice(items, *start, *end, *by),
        (Step::Wildcard, Value::Array(items)) => items.iter().collect(),
        (Step::Wildcard, Value::Object(map)) => map.values().collect(),
        (Step::Union(steps), value) => steps.iter().flat_map(|step| apply(step, value)).collect(),
        (Step::Filter(left, test), Value::Array(items)) => items.iter().filter(|item| passes(left, test.as_ref(), item)).collect(),
        (Step::Recursive, value) => descend(value),
        _ => Vec::new(),
    }
}

fn at(items: &[Value], index: i64) -> Option<&Value> {
    let index = if index < 0 { index + i64::try_from(items.len()).ok()? } else { index };
    items.get(usize::try_from(index).ok()?)
}

fn slice(items: &[Value], start: Option<i64>, end: Option<i64>, by: i64) -> Vec<&Value> {
    let len = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let place = |index: i64| (if index < 0 { index + len } else { index }).clamp(0, len);
    let (start, end) = (place(start.unwrap_or(0)), place(end.unwrap_or(len)));
    let step = usize::try_from(by.max(1)).unwrap_or(1);
    items.iter().take(usize::try_from(end).unwrap_or(0)).skip(usize::try_from(start).unwrap_or(0)).step_by(step).collect()
}

fn descend(value: &Value) -> Vec<&Value> {
    let mut all = vec![value];
    match value {
        Value::Array(items) => all.extend(items.iter().flat_map(descend)),
        Value::Object(map) => all.extend(map.values().flat_map(descend)),
        _ => {}
    }
    all
}

fn passes(left: &Operand, test: Option<&(String, Operand)>, item: &Value) -> bool {
    let left = operand(left, item);
    let Some((operator, right)) = test else { return left.is_some() };
    let (Some(left), Some(right)) = (left, operand(right, item)) else { return false };
    match operator.as_str() {
        "==" => same(left, right),
        "!=" => !same(left, right),
        _ => match order(left, right) {
            Some(order) => match operator.as_str() {
                "<" => order.is_lt(),
                "<=" => order.is_le(),
                ">" => order.is_gt(),
                _ => order.is_ge(),
            },
            None => false,
        },
    }
}

fn operand<'a>(operand: &'a Operand, item: &'a Value) -> Option<&'a Value> {
    match operand {
        Operand::Path(steps) => find(steps, item).into_iter().next(),
        Operand::Literal(value) => Some(value),
    }
}

fn same(left: &Value, right: &Value) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}

fn order(left: &Value, right: &Value) -> Option<std::cmp::Ordering> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

/// Reads a path such as `.spec.replicas` or `.status.conditions[?(@.type=="Ready")].status`.
fn parse(path: &str) -> Option<Vec<Step>> {
    let path = path.trim();
    let path = path.strip_prefix('{').and_then(|p| p.strip_suffix('}')).unwrap_or(path);
    let mut rest = path.strip_prefix(['$', '@']).unwrap_or(path);
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("..") {
            steps.push(Step::Recursive);
            rest = if after.starts_with('[') { after } else { field(after, &mut steps)? };
        } else if let Some(after) = rest.strip_prefix('.') {
            // `.[0]` is an index, and a lone `.` the object itself.
            rest = if after.starts_with('[') || after.is_empty() { after } else { field(after, &mut steps)? };
        } else if let Some(after) = rest.strip_prefix('[') {
            let end = bracket_end(after)?;
            steps.push(bracket(&after[..end])?);
            rest = &after[end + 1..];
        } else {
            rest = field(rest, &mut steps)?;
        }
    }
    Some(steps)
}

/// Reads a field name up to the next `.` or `[`; a backslash keeps those as part of it.
fn field<'a>(text: &'a str, steps: &mut Vec<Step>) -> Option<&'a str> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.push(chars.next()?.1),
            '.' | '[' => {
                end = at;
                break;
            }
            ' ' | '\'' | '"' | '(' | ')' | ']' => return None,
            c => name.push(c),
        }
    }
    if name.is_empty() {
        return None;
    }
    steps.push(if name == "*" { Step::Wildcard } else { Step::Field(name) });
    Some(&text[end..])
}

/// Where the bracket closes, outside of quotes and nested brackets.
fn bracket_end(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn bracket(text: &str) -> Option<Step> {
    let text = text.trim();
    if let Some(filter) = text.strip_prefix("?(").and_then(|t| t.strip_suffix(')')) {
        return parse_filter(filter);
    }
    let parts = split_unquoted(text, ',');
    if parts.len() > 1 {
        return Some(Step::Union(parts.into_iter().map(bracket).collect::<Option<_>>()?));
    }
    if text == "*" {
        return Some(Step::Wildcard);
    }
    if let Some(Value::String(name)) = literal(text) {
        return Some(Step::Field(name));
    }
    if text.contains(':') {
        let mut numbers = text.split(':').map(|n| if n.is_empty() { Some(None) } else { n.trim().parse().ok().map(Some) });
        let (start, end) = (numbers.next()??, numbers.next()??);
        let by = numbers.next().unwrap_or(Some(None))?.unwrap_or(1);
        return Some(Step::Slice(start, end, by));
    }
    text.parse().ok().map(Step::Index)
}

fn parse_filter(text: &str) -> Option<Step> {
    // Longer operators first, so that `<=` is not read as `<`.
    for operator in ["==", "!=", "<=", ">=", "<", ">"] {
        if let Some(at) = find_unquoted(text, operator) {
            let (left, right) = (&text[..at], &text[at + operator.len()..]);
            return Some(Step::Filter(parse_operand(left)?, Some((operator.to_string(), parse_operand(right)?))));
        }
    }
    Some(Step::Filter(parse_operand(text)?, None))
}

fn parse_operand(text: &str) -> Option<Operand> {
    let text = text.trim();
    match literal(text) {
        Some(value) => Some(Operand::Literal(value)),
        None => parse(text.strip_prefix('@')?).map(Operand::Path),
    }
}

fn literal(text: &str) -> Option<Value> {
    let quoted = ['\'', '"'].iter().find_map(|q| text.strip_prefix(*q).and_then(|t| t.strip_suffix(*q)));
    match quoted {
        Some(inner) => Some(inner.replace("\\'", "'").replace("\\\"", "\"").into()),
        None => match text {
            "true" | "false" => Some((text == "true").into()),
            _ if text.starts_with(|c: char| c.is_ascii_digit() || c == '-') && !text.contains(':') => {
                serde_json::from_str(text).ok().filter(Value::is_number)
            }
            _ => None,
        },
    }
}

fn split_unquoted(text: &str, separator: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut quote) = (0, None);
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => quote = Some(c),
            None if c == separator => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            None => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn find_unquoted(text: &str, word: &str) -> Option<usize> {
    let mut quote = None;
    text.char_indices().find_map(|(at, c)| {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => quote = Some(c),
            None if text[at..].starts_with(word) => return Some(at),
            None => {}
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object() -> Value {
        json!({
            "metadata": {"labels": {"example.com/name": "x"}, "creationTimestamp": "2020-01-01T00:00:00Z"},
            "spec": {"replicas": 3, "ratio": 1.5, "paused": false, "list": [1, 2, 3], "map": {"a": 1}},
            "status": {"conditions": [
                {"type": "Synced", "status": "False"},
                {"type": "Ready", "status": "True", "count": 4},
            ]},
        })
    }

    fn check(path: &str, value_type: &str, expected: Value) {
        let now: Timestamp = "2020-01-01T00:05:00Z".parse().expect("time");
        assert_eq!(cell(path, value_type, &object(), now), expected, "{path} as {value_type}");
    }

    #[test]
    fn cells_follow_their_type() {
        check(".spec.replicas", "integer", json!(3));
        check(".spec.ratio", "integer", json!(1));
        check(".spec.ratio", "number", json!(1.5));
        check(".spec.replicas", "number", json!(3));
        check(".spec.replicas", "string", json!("3"));
        check(".spec.replicas", "boolean", Value::Null);
        check(".spec.paused", "boolean", json!(false));
        check(".spec.paused", "string", json!("false"));
        check(".spec.map", "string", json!("{\"a\":1}"));
        check(".spec.list", "string", json!("[1,2,3]"));
        check(".spec.missing", "string", Value::Null);
        check(".metadata.creationTimestamp", "date", json!("5m"));
        check(".spec.ratio", "date", Value::Null);
    }

    #[test]
    fn paths_reach_lists_and_odd_names() {
        check(".spec.list[0]", "integer", json!(1));
        check(".spec.list[-1]", "integer", json!(3));
        check(".spec.list[1:]", "integer", json!(2));
        check(".spec.list[*]", "integer", json!(1));
        check(".metadata.labels.example\\.com/name", "string", json!("x"));
        check(".metadata.labels['example.com/name']", "string", json!("x"));
        check("{.spec.replicas}", "integer", json!(3));
        check(".spec.list[7]", "integer", Value::Null);
        check("..status", "string", json!(text(&object()["status"])));
    }

    #[test]
    fn filters_choose_elements() {
        check(".status.conditions[?(@.type==\"Ready\")].status", "string", json!("True"));
        check(".status.conditions[?(@.type=='Nope')].status", "string", Value::Null);
        check(".status.conditions[?(@.type!='Synced')].status", "string", json!("True"));
        check(".status.conditions[?(@.count>=4)].type", "string", json!("Ready"));
        check(".status.conditions[?(@.count)].type", "string", json!("Ready"));
    }

    #[test]
    fn a_broken_path_prints_nothing() {
        check(".status[", "string", Value::Null);
        check(".a b", "string", Value::Null);
    }
}
