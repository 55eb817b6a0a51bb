//! Resource amounts as whole numbers: CPU in thousandths, everything else in units.

use serde_json::Value;

/// The value of a quantity in thousandths, rounded up as the scheduler rounds. `None`: not a quantity.
pub(crate) fn milli(text: &str) -> Option<i128> {
    let text = text.trim();
    let number_end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '+' || c == '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(number_end);
    let (numerator, denominator): (i128, i128) = match suffix {
        "n" => (1, 1_000_000),
        "u" => (1, 1_000),
        "m" => (1, 1),
        "" => (1_000, 1),
        "k" => (1_000_000, 1),
        "M" => (10_i128.pow(9), 1),
        "G" => (10_i128.pow(12), 1),
        "T" => (10_i128.pow(15), 1),
        "P" => (10_i128.pow(18), 1),
        "E" => (10_i128.pow(21), 1),
        "Ki" => (1_000 << 10, 1),
        "Mi" => (1_000 << 20, 1),
        "Gi" => (1_000 << 30, 1),
        "Ti" => (1_000 << 40, 1),
        "Pi" => (1_000 << 50, 1),
        "Ei" => (1_000 << 60, 1),
        _ => exponent(suffix)?,
    };
    let negative = number.starts_with('-');
    let digits = number.trim_start_matches(['+', '-']);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let fraction = fraction.get(..fraction.len().min(FRACTION_DIGITS_MAX))?;
    let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    let unscaled: i128 = format!("{whole}{fraction}").parse().ok()?;
    let product = unscaled.checked_mul(numerator)?;
    let divisor = scale.checked_mul(denominator)?;
    let value = if negative { -(product / divisor) } else { product.div_euclid(divisor) + i128::from(product.rem_euclid(divisor) != 0) };
    Some(value)
}

const FRACTION_DIGITS_MAX: usize = 9;

fn exponent(suffix: &str) -> Option<(i128, i128)> {
    let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    match power {
        0..=18 => Some((1_000 * 10_i128.pow(power.unsigned_abs()), 1)),
        -9..=-1 => Some((1_000, 10_i128.pow(power.unsigned_abs()))),
        _ => None,
    }
}

/// Thousandths of a JSON quantity, which may be a number as well as a string.
pub(crate) fn milli_of(value: &Value) -> i64 {
    let milli = match value {
        Value::String(text) => milli(text).unwrap_or_default(),
        Value::Number(number) => number.as_i64().map_or_else(|| milli(&number.to_string()).unwrap_or_default(), |n| i128::from(n) * 1000),
        _ => 0,
    };
    i64::try_from(milli).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities_are_read_as_upstream_reads_them() {
        for (text, expected) in [
            ("1", 1000),
            ("100m", 100),
            ("0.5", 500),
            (".5", 500),
            ("1.5Gi", 1_610_612_736_000),
            ("1e3", 1_000_000),
            ("12e-1", 1200),
            ("1n", 1),
            ("-1", -1000),
            ("2k", 2_000_000),
        ] {
            assert_eq!(milli(text), Some(expected), "{text}");
        }
        for text in ["", "x", "1x", "Gi", "1 Gi"] {
            assert_eq!(milli(text), None, "{text}");
        }
        assert_eq!((milli_of(&json!(2)), milli_of(&json!("1500m"))), (2000, 1500));
    }
}
