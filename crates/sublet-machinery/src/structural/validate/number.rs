//! Numbers: the range of their type, minimum, maximum, multiples.

use super::super::scan::float_value;
use super::problem::{Outcome, Problem};
use crate::schema::{SchemaNode, ValueType};
use serde_json::{Number, Value};

pub(super) fn check(number: &Number, node: SchemaNode<'_>, path: &str) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.merge(in_range(number, node, "Checked", path));
    if let Some(limits) = node.limits.as_deref() {
        if let Some(factor) = limits.multiple_of {
            outcome.merge(boundary(factor, node, "MultipleOf", path));
            outcome.merge(multiple_of(number, factor, path));
        }
        if let Some(minimum) = limits.minimum {
            outcome.merge(boundary(minimum, node, "Minimum boundary", path));
            let (words, broken) = if limits.exclusive_minimum {
                ("greater than", !exceeds(minimum, number, true))
            } else {
                ("greater than or equal to", !exceeds(minimum, number, false))
            };
            outcome.merge(limit(broken, number, minimum, words, path));
        }
        if let Some(maximum) = limits.maximum {
            outcome.merge(boundary(maximum, node, "Maximum boundary", path));
            let (words, broken) = if limits.exclusive_maximum {
                ("less than", exceeds(maximum, number, false))
            } else {
                ("less than or equal to", exceeds(maximum, number, true))
            };
            outcome.merge(limit(broken, number, maximum, words, path));
        }
    }
    outcome.matches += 1;
    outcome
}

/// `number > bound`, or `>=` unless strict. Integers are compared as integers, with the fraction of
/// the bound cut off as Go's conversion does.
fn exceeds(bound: f64, number: &Number, strict: bool) -> bool {
    match number.as_i64() {
        Some(value) if strict => value > bound as i64,
        Some(value) => value >= bound as i64,
        None if strict => number.as_f64().is_some_and(|v| v > bound),
        None => number.as_f64().is_some_and(|v| v >= bound),
    }
}

fn limit(broken: bool, number: &Number, bound: f64, words: &str, path: &str) -> Outcome {
    if !broken {
        return Outcome::default();
    }
    let bound = if number.is_f64() { go_float(bound) } else { (bound as i64).to_string() };
    Problem::invalid(path, Value::Number(number.clone()), format!("{path} in body should be {words} {bound}")).into()
}

fn multiple_of(number: &Number, factor: f64, path: &str) -> Outcome {
    let must_be_positive = |factor: String| {
        let value = factor.parse::<f64>().ok().and_then(float_value).unwrap_or_default();
        Problem::invalid(path, value, format!("factor MultipleOf declared for {path} must be positive: {factor}"))
    };
    let (fits, shown) = match number.as_i64() {
        Some(value) => {
            let factor = factor as i64;
            if factor <= 0 {
                return must_be_positive(factor.to_string()).into();
            }
            (value % factor == 0, factor.to_string())
        }
        None => {
            if factor <= 0.0 {
                return must_be_positive(go_float(factor)).into();
            }
            let value = number.as_f64().unwrap_or_default();
            let multiple = if factor < 1.0 { 1.0 / factor * value } else { value / factor };
            (is_whole(multiple), go_float(factor))
        }
    };
    if fits {
        return Outcome::default();
    }
    Problem::invalid(path, Value::Number(number.clone()), format!("{path} in body should be a multiple of {shown}")).into()
}

/// Whole within the error that division leaves behind.
fn is_whole(value: f64) -> bool {
    const EPSILON: f64 = 1e-9;
    let rounded = value.round();
    (value - rounded).abs() <= EPSILON * rounded.abs().max(1.0)
}

/// Whether the number can be held by the stated type.
fn in_range(number: &Number, node: SchemaNode<'_>, what: &str, path: &str) -> Outcome {
    let format = node.format.as_deref().unwrap_or_default();
    let type_name = match node.value_type {
        ValueType::Integer if !node.int_or_string => "integer",
        ValueType::Number => "number",
        _ => return Outcome::default(),
    };
    let fits = match (type_name, format) {
        ("integer", "int32") => whole(number).is_some_and(|n| i32::try_from(n).is_ok()),
        ("integer", _) => whole(number).is_some(),
        (_, "float") => number.as_f64().is_some_and(|n| n.abs() <= f64::from(f32::MAX)),
        _ => true,
    };
    if fits {
        return Outcome::default();
    }
    let kind = if format.is_empty() { format!("{type_name} (default format)") } else { format!("{type_name} with format {format}") };
    Problem::without_place(format!("{what} value must be of type {kind} in {path}")).into()
}

fn boundary(bound: f64, node: SchemaNode<'_>, what: &str, path: &str) -> Outcome {
    Number::from_f64(bound).map(|bound| in_range(&bound, node, what, path)).unwrap_or_default()
}

fn whole(number: &Number) -> Option<i64> {
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    number.as_i64().or_else(|| number.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < BOUND).map(|f| f as i64))
}

/// `%v` of a float64: the shortest text, with an exponent below 1e-4 and from 1e21 on.
fn go_float(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e21).contains(&magnitude) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_shown_as_go_shows_them() {
        for (value, text) in
            [(5.0, "5"), (0.5, "0.5"), (1e21, "1e+21"), (1.5e-7, "1.5e-07"), (-2.25, "-2.25"), (1e20, "100000000000000000000")]
        {
            assert_eq!(go_float(value), text);
        }
    }
}
