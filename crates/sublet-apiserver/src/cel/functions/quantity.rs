//! Quantities.

use super::super::eval::{Evaluated, failed};
use super::super::value::{Opaque, Val};
use std::cmp::Ordering;

/// Quantities are counted in billionths.
const ONE: i128 = 1_000_000_000;

pub(super) fn call<'v>(function: &str, args: &[Val<'v>]) -> Option<Evaluated<'v>> {
    use Opaque::Quantity;
    let bool = |value: bool| Ok(Val::Bool(value));
    let order = |order: Ordering| Ok(Val::Int(order as i64));
    Some(match (function, args) {
        ("quantity", [Val::String(text)]) => parse(text.as_str())
            .map(|q| Val::Opaque(Quantity(q)))
            .ok_or_else(|| failed("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")),
        ("isQuantity", [Val::String(text)]) => bool(parse(text.as_str()).is_some()),
        ("sign", [Val::Opaque(Quantity(q))]) => Ok(Val::Int(q.signum() as i64)),
        ("isInteger", [Val::Opaque(Quantity(q))]) => bool(q % ONE == 0 && i64::try_from(q / ONE).is_ok()),
        ("asInteger", [Val::Opaque(Quantity(q))]) => match i64::try_from(q / ONE) {
            Ok(value) if q % ONE == 0 => Ok(Val::Int(value)),
            _ => Err(failed("cannot convert value to integer")),
        },
        ("asApproximateFloat", [Val::Opaque(Quantity(q))]) => Ok(Val::Double(*q as f64 / ONE as f64)),
        ("add" | "sub", [Val::Opaque(Quantity(a)), other]) => {
            let other = match other {
                Val::Opaque(Quantity(b)) => *b,
                Val::Int(n) => i128::from(*n) * ONE,
                _ => return None,
            };
            let sum = if function == "add" { a.checked_add(other) } else { a.checked_sub(other) };
            sum.map(|q| Val::Opaque(Quantity(q))).ok_or_else(|| failed("quantity overflow"))
        }
        ("isGreaterThan", [Val::Opaque(Quantity(a)), Val::Opaque(Quantity(b))]) => bool(a > b),
        ("isLessThan", [Val::Opaque(Quantity(a)), Val::Opaque(Quantity(b))]) => bool(a < b),
        ("compareTo", [Val::Opaque(Quantity(a)), Val::Opaque(Quantity(b))]) => order(a.cmp(b)),
        _ => return None,
    })
}

/// Billionths of `1.5`, `100m`, `2Gi`, `1e3`; finer parts are rounded up as Kubernetes does.
fn parse(text: &str) -> Option<i128> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = unsigned.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || whole.len() > 38 {
        return None;
    }
    let (base, exponent): (i128, i32) = match suffix {
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "" => (10, 0),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (1024, 1),
        "Mi" => (1024, 2),
        "Gi" => (1024, 3),
        "Ti" => (1024, 4),
        "Pi" => (1024, 5),
        "Ei" => (1024, 6),
        _ => (10, suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    // The digits as one number, and by how many places they are below one.
    let fraction = &fraction[..fraction.len().min(18)];
    let digits: i128 = format!("{whole}{fraction}").parse().ok().or_else(|| (whole.len() + fraction.len() == 0).then_some(0))?;
    let places = fraction.len() as i32;
    let nanos = if base == 1024 {
        let scale = 1024i128.checked_pow(u32::try_from(exponent).ok()?)?;
        divide_up(digits.saturating_mul(scale).saturating_mul(ONE), 10i128.checked_pow(places as u32)?)
    } else {
        let shift = exponent.checked_add(9)?.checked_sub(places)?;
        let power = 10i128.checked_pow(shift.unsigned_abs());
        match (shift >= 0, power) {
            // What does not fit stays as much as fits.
            (true, Some(power)) => digits.saturating_mul(power),
            (true, None) if digits == 0 => 0,
            (true, None) => i128::MAX,
            (false, Some(power)) => divide_up(digits, power),
            (false, None) => i128::from(digits != 0),
        }
    };
    Some(if negative { -nanos } else { nanos })
}

fn divide_up(value: i128, by: i128) -> i128 {
    value / by + i128::from(value % by != 0)
}
