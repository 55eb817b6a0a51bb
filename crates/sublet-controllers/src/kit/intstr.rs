//! `intstr.IntOrString`: a number, or a percentage of a total.

use serde_json::Value;

/// The number that an int-or-string means for `total`. `None`: not a number and not a percentage.
pub(crate) fn scaled(value: Option<&Value>, total: i64, round_up: bool) -> Option<i64> {
    match value? {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            let product = percent.checked_mul(total)?;
            Some(if round_up { product.div_euclid(100) + i64::from(product.rem_euclid(100) > 0) } else { product.div_euclid(100) })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn percentages_round_as_asked() {
        let check = |value: Value, total, up, expected| assert_eq!(scaled(Some(&value), total, up), expected, "{value} of {total}");
        check(json!(3), 10, true, Some(3));
        check(json!("25%"), 10, true, Some(3));
        check(json!("25%"), 10, false, Some(2));
        check(json!("100%"), 7, false, Some(7));
        check(json!("x"), 7, false, None);
    }
}
