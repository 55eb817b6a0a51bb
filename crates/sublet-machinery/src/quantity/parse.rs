//! Reading quantities.

use super::{Format, Quantity, scale_down, scale_up};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// The pieces of a quantity: `-12.5Mi` is negative, `12`, `5`, `Mi`.
struct Parts<'a> {
    negative: bool,
    integer: &'a str,
    fraction: &'a str,
    suffix: &'a str,
    /// Nothing but sign and zeros was there, so the number is `0`.
    has_number: bool,
}

pub(super) fn parse(text: &str) -> Result<Quantity, QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::Format);
    }
    let parts = split(text)?;
    let (base, exponent, format) = interpret(parts.suffix).ok_or(QuantityError::Suffix)?;
    if let Some(short) = parse_short(text, &parts, base, exponent, format) {
        return Ok(short);
    }
    if !parts.has_number {
        return Err(QuantityError::Numeric);
    }
    Ok(parse_long(&parts, base, exponent, format))
}

/// Numbers whose digits fit an `i64`: nearly all. Some of them keep their text, as upstream decides it.
fn parse_short(text: &str, parts: &Parts<'_>, base: i32, exponent: i32, format: Format) -> Option<Quantity> {
    const DIGITS_MAX: i32 = 18;
    let digits = i32::try_from(parts.integer.len() + parts.fraction.len()).ok()?;
    let (factor, scale, precision) = if base == 10 {
        (1, exponent, DIGITS_MAX - digits)
    } else if parts.fraction.is_empty() {
        (1i64.checked_shl(exponent as u32)?, 0, 15 - parts.integer.len() as i32 - exponent * 3 / 10 - 1)
    } else {
        return None;
    };
    let scale = scale.checked_sub(parts.fraction.len() as i32)?;
    if precision < 0 || scale < -9 {
        return None;
    }
    let number = digits_value(parts.integer, parts.fraction)?;
    let mantissa = i64::try_from(number).ok()?.checked_mul(factor)?;
    let last_digits_zero = || {
        let digits = parts.integer.bytes().chain(parts.fraction.bytes());
        digits.rev().take(3).filter(|d| *d == b'0').count() == 3
    };
    let keeps_text = match format {
        Format::BinarySi => number & 7 != 0,
        _ => scale % 3 == 0 && !parts.integer.starts_with('0') && !last_digits_zero(),
    };
    let mantissa = i128::from(if parts.negative { -mantissa } else { mantissa });
    Some(Quantity { mantissa, scale, format, text: keeps_text.then(|| text.into()) })
}

fn digits_value(integer: &str, fraction: &str) -> Option<u64> {
    let mut value = 0u64;
    for digit in integer.bytes().chain(fraction.bytes()) {
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    Some(value)
}

fn parse_long(parts: &Parts<'_>, base: i32, exponent: i32, mut format: Format) -> Quantity {
    let (mut mantissa, mut scale) = significant(parts);
    if base == 10 {
        scale = scale.saturating_add(exponent);
    } else {
        let factor = 1i128 << exponent;
        while mantissa.checked_mul(factor).is_none() {
            mantissa = scale_down(mantissa, 1);
            scale = scale.saturating_add(1);
        }
        mantissa *= factor;
    }
    if mantissa == 0 {
        scale = 0;
    }
    // Some of a resource is some, however little was asked for.
    if scale < -9 {
        mantissa = scale_down(mantissa, -9 - i64::from(scale));
        scale = -9;
    }
    if format == Format::BinarySi {
        if integer_part(mantissa, scale).is_none_or(|whole| whole > i128::from(i64::MAX)) {
            (mantissa, scale) = (i128::from(i64::MAX), 0);
        }
        if mantissa != 0 && integer_part(mantissa, scale) == Some(0) {
            format = Format::DecimalSi;
        }
    }
    Quantity { mantissa: if parts.negative { -mantissa } else { mantissa }, scale, format, text: None }
}

/// The whole part, rounded up by what a fraction adds only at the cap; `None` beyond 38 digits.
fn integer_part(mantissa: i128, scale: i32) -> Option<i128> {
    if scale >= 0 {
        return scale_up(mantissa, i64::from(scale));
    }
    let divisor = 10i128.checked_pow(scale.unsigned_abs());
    let whole = divisor.map_or(0, |d| mantissa / d);
    let has_fraction = divisor.is_none_or(|d| mantissa % d != 0);
    Some(if has_fraction && whole == i128::from(i64::MAX) { whole + 1 } else { whole })
}

/// The first 38 digits as a number, rounded up by those that follow, and its scale.
fn significant(parts: &Parts<'_>) -> (i128, i32) {
    const DIGITS_MAX: u32 = 38;
    let fraction = parts.fraction.trim_end_matches('0');
    let (mut mantissa, mut taken, mut dropped, mut round_up) = (0i128, 0, 0i64, false);
    for digit in parts.integer.bytes().chain(fraction.bytes()) {
        let digit = i128::from(digit - b'0');
        if mantissa == 0 && digit == 0 {
            continue;
        }
        if taken < DIGITS_MAX {
            mantissa = mantissa * 10 + digit;
            taken += 1;
        } else {
            dropped += 1;
            round_up |= digit != 0;
        }
    }
    let scale = dropped - fraction.len() as i64;
    (mantissa + i128::from(round_up), scale.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32)
}

fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    let (negative, unsigned) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let digits_end = |s: &str| s.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(s.len());
    let stripped = unsigned.trim_start_matches('0');
    if stripped.is_empty() {
        return Ok(Parts { negative, integer: "0", fraction: "", suffix: "", has_number: true });
    }
    let (integer, rest) = stripped.split_at(digits_end(stripped));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits_end(rest)),
        None => ("", rest),
    };
    let letters = suffix.bytes().position(|b| !b"eEinumkKMGTP".contains(&b)).unwrap_or(suffix.len());
    let exponent = suffix[letters..].strip_prefix(['-', '+']).unwrap_or(&suffix[letters..]);
    if digits_end(exponent) != exponent.len() {
        return Err(QuantityError::Format);
    }
    let has_number = stripped.len() < unsigned.len() || !integer.is_empty() || !fraction.is_empty();
    let integer = if integer.is_empty() { "0" } else { integer };
    Ok(Parts { negative, integer, fraction, suffix, has_number })
}

/// Base, exponent and notation of a suffix.
fn interpret(suffix: &str) -> Option<(i32, i32, Format)> {
    let (base, exponent) = match suffix {
        "" => (10, 0),
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            return Some((10, exponent, Format::DecimalExponent));
        }
    };
    Some((base, exponent, if base == 2 { Format::BinarySi } else { Format::DecimalSi }))
}
