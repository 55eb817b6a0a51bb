//! Amounts of resources (`500m`, `1.5Gi`, `2e3`) as exact decimals: `resource.Quantity` of Kubernetes.
//!
//! A value is `mantissa * 10^scale` with 38 significant digits, which is exact for everything a cluster
//! counts; sums beyond that drop low digits, rounded away from zero. Parsing rounds up to a nano unit and
//! caps binary quantities at the largest `i64`, as upstream does.

mod parse;

pub use parse::QuantityError;

use serde_json::Value;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// How a quantity is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`
    BinarySi,
    /// `12M`
    #[default]
    DecimalSi,
}

/// A quantity. Comparison is by value: `1` equals `1000m`.
#[derive(Clone, Debug, Default)]
pub struct Quantity {
    mantissa: i128,
    scale: i32,
    format: Format,
    /// The text it was parsed from, where upstream keeps it: canonical forms, and a few that nearly are.
    text: Option<Box<str>>,
}

impl Quantity {
    pub fn new(value: i64, format: Format) -> Self {
        Self { mantissa: i128::from(value), scale: 0, format, text: None }
    }

    /// `value` thousandths, in decimal notation.
    pub fn from_milli(value: i64) -> Self {
        Self { mantissa: i128::from(value), scale: -3, format: Format::DecimalSi, text: None }
    }

    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        parse::parse(text)
    }

    /// A quantity in an object: a string or a number; `null` and nothing read as zero.
    pub fn from_json(value: &Value) -> Result<Self, QuantityError> {
        match value {
            Value::Null => Ok(Self::default()),
            Value::String(text) => Self::parse(text.trim_matches([' ', '\t', '\n', '\r'])),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => Err(QuantityError::Format),
        }
    }

    /// The form in which an API server hands the text back; borrowed when it is unchanged.
    pub fn canonical(text: &str) -> Result<Cow<'_, str>, QuantityError> {
        let quantity = Self::parse(text)?;
        Ok(match quantity.text {
            Some(_) => Cow::Borrowed(text),
            None => {
                let canonical = quantity.to_string();
                if canonical == text { Cow::Borrowed(text) } else { Cow::Owned(canonical) }
            }
        })
    }

    pub fn format(&self) -> Format {
        self.format
    }

    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    /// -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        self.mantissa.signum() as i32
    }

    /// The value rounded away from zero to an integer; saturates at the ends of `i64`.
    pub fn value(&self) -> i64 {
        self.scaled_value(0)
    }

    /// Thousandths, rounded away from zero; saturates at the ends of `i64`.
    pub fn milli_value(&self) -> i64 {
        self.scaled_value(-3)
    }

    /// Units of `10^scale`, rounded away from zero; saturates at the ends of `i64`.
    pub fn scaled_value(&self, scale: i32) -> i64 {
        let shifted = match i64::from(self.scale) - i64::from(scale) {
            up @ 0.. => scale_up(self.mantissa, up).unwrap_or(if self.mantissa < 0 { i128::MIN } else { i128::MAX }),
            down => scale_down(self.mantissa, -down),
        };
        shifted.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    pub fn as_f64(&self) -> f64 {
        self.mantissa as f64 * 10f64.powi(self.scale)
    }

    /// Adds; a zero takes the other's format.
    pub fn add(&mut self, other: &Self) {
        if self.is_zero() {
            self.format = other.format;
        }
        self.text = None;
        (self.mantissa, self.scale) = sum((self.mantissa, self.scale), (other.mantissa, other.scale));
    }

    /// Subtracts; a zero takes the other's format.
    pub fn sub(&mut self, other: &Self) {
        if self.is_zero() {
            self.format = other.format;
        }
        self.text = None;
        (self.mantissa, self.scale) = sum((self.mantissa, self.scale), (-other.mantissa, other.scale));
    }

    pub fn neg(&mut self) {
        self.mantissa = -self.mantissa;
        self.text = None;
    }

    /// Multiplies; low digits are dropped when 38 digits do not hold the result.
    pub fn mul(&mut self, factor: i64) {
        self.text = None;
        let factor = i128::from(factor);
        while self.mantissa.checked_mul(factor).is_none() {
            self.mantissa = scale_down(self.mantissa, 1);
            self.scale += 1;
        }
        self.mantissa *= factor;
    }

    /// Rounds away from zero to a multiple of `10^scale`.
    pub fn round_up(&mut self, scale: i32) {
        if self.scale < scale {
            self.mantissa = scale_down(self.mantissa, i64::from(scale) - i64::from(self.scale));
            self.scale = scale;
            self.text = None;
        }
    }

    /// The integer value, when it is an integer within `i128`.
    fn exact_integer(&self) -> Option<i128> {
        if self.scale >= 0 {
            return scale_up(self.mantissa, i64::from(self.scale));
        }
        let rounded = scale_down(self.mantissa, -i64::from(self.scale));
        let back = scale_up(rounded, -i64::from(self.scale))?;
        (back == self.mantissa).then_some(rounded)
    }

    /// Writes the canonical form: no fraction digits, the largest suffix that allows it.
    fn write_canonical(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        if self.is_zero() {
            return f.write_str("0");
        }
        let mut format = self.format;
        if format == Format::BinarySi {
            match self.exact_integer() {
                // Small values and fractions lose nothing in decimal notation.
                Some(mut number) if !(-1023..=1023).contains(&number) => {
                    let mut steps = 0;
                    while number % 1024 == 0 && steps < BINARY.len() - 1 {
                        number /= 1024;
                        steps += 1;
                    }
                    return write!(f, "{number}{}", BINARY[steps]);
                }
                _ => format = Format::DecimalSi,
            }
        }
        let (number, exponent) = self.mantissa_by_thousands();
        if format == Format::DecimalExponent {
            return if exponent == 0 { write!(f, "{number}") } else { write!(f, "{number}e{exponent}") };
        }
        write_decimal(f, number, exponent)
    }

    /// Mantissa and exponent with the exponent a multiple of three and as large as possible.
    fn mantissa_by_thousands(&self) -> (i128, i32) {
        let (mut number, mut exponent) = (self.mantissa, self.scale);
        while number % 10 == 0 {
            number /= 10;
            exponent += 1;
        }
        let shift = exponent.rem_euclid(3);
        match scale_up(number, i64::from(shift)) {
            Some(larger) => (larger, exponent - shift),
            None => (scale_down(number, i64::from(3 - shift)), exponent + 3 - shift),
        }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Self::parse(text)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => f.write_str(text),
            None => self.write_canonical(f),
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_sign = self.sign().cmp(&other.sign());
        if by_sign != Ordering::Equal || self.is_zero() {
            return by_sign;
        }
        let difference = i64::from(self.scale) - i64::from(other.scale);
        // What overflows is larger in magnitude than anything that does not.
        let overflow = if self.mantissa < 0 { Ordering::Less } else { Ordering::Greater };
        if difference >= 0 {
            scale_up(self.mantissa, difference).map_or(overflow, |m| m.cmp(&other.mantissa))
        } else {
            scale_up(other.mantissa, -difference).map_or(overflow.reverse(), |m| self.mantissa.cmp(&m))
        }
    }
}

/// Decimal SI form. Beyond `E` the number grows instead: upstream has no larger suffix.
fn write_decimal(f: &mut fmt::Formatter<'_>, number: i128, exponent: i32) -> fmt::Result {
    const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    match exponent {
        -9..=18 => write!(f, "{number}{}", SUFFIXES[(exponent / 3 + 3) as usize]),
        // Parsing rounds to nano units, so smaller ones come from no input.
        ..-9 => write!(f, "{}n", scale_down(number, -i64::from(exponent) - 9)),
        19.. => match scale_up(number, i64::from(exponent) - 18) {
            Some(number) => write!(f, "{number}E"),
            None => write!(f, "{number}e{exponent}"),
        },
    }
}

fn pow10(exponent: i64) -> Option<i128> {
    10i128.checked_pow(u32::try_from(exponent).ok()?)
}

/// `value * 10^by`, unless it overflows.
fn scale_up(value: i128, by: i64) -> Option<i128> {
    if by == 0 || value == 0 {
        return Some(value);
    }
    value.checked_mul(pow10(by)?)
}

/// `value / 10^by`, rounded away from zero.
fn scale_down(value: i128, by: i64) -> i128 {
    let Some(divisor) = pow10(by) else { return value.signum() };
    let quotient = value / divisor;
    if value % divisor == 0 { quotient } else { quotient + value.signum() }
}

/// The sum at the finest scale at which it fits.
fn sum((a, a_scale): (i128, i32), (b, b_scale): (i128, i32)) -> (i128, i32) {
    if a == 0 {
        return (b, b_scale);
    }
    if b == 0 {
        return (a, a_scale);
    }
    let ((fine, fine_scale), (coarse, coarse_scale)) =
        if a_scale <= b_scale { ((a, a_scale), (b, b_scale)) } else { ((b, b_scale), (a, a_scale)) };
    // At most 38 steps up from the coarse scale can fit, so start there when the scales are far apart.
    let start = fine_scale.max(coarse_scale.saturating_sub(38));
    for scale in start..=coarse_scale {
        let fine = scale_down(fine, i64::from(scale) - i64::from(fine_scale));
        let total = scale_up(coarse, i64::from(coarse_scale) - i64::from(scale)).and_then(|c| c.checked_add(fine));
        if let Some(total) = total {
            return (total, scale);
        }
    }
    let fine = scale_down(fine, i64::from(coarse_scale) - i64::from(fine_scale) + 1);
    (scale_down(coarse, 1) + fine, coarse_scale.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn q(text: &str) -> Quantity {
        Quantity::parse(text).unwrap()
    }

    #[test]
    fn text_becomes_canonical() {
        let cases = [
            ("0", "0"),
            ("00", "0"),
            ("-0", "0"),
            ("1.5", "1500m"),
            ("0.5Gi", "512Mi"),
            ("1024Ki", "1Mi"),
            ("1000Ki", "1000Ki"),
            ("1000k", "1M"),
            ("0.001", "1m"),
            ("0.0000000001", "1n"),
            ("12e6", "12e6"),
            ("12e5", "1200e3"),
            ("1E6", "1E6"),
            ("100Ei", "9223372036854775807"),
            ("-5", "-5"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("0.1Ki", "102400m"),
        ];
        for (text, canonical) in cases {
            assert_eq!(q(text).to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn wrong_text_is_refused_with_upstream_words() {
        assert_eq!(
            Quantity::parse("1.1.M").unwrap_err().to_string(),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        );
        assert_eq!(Quantity::parse("1Mm").unwrap_err(), QuantityError::Suffix);
        assert_eq!(Quantity::parse("").unwrap_err(), QuantityError::Format);
        assert_eq!(Quantity::parse("1e99999999999").unwrap_err(), QuantityError::Suffix);
    }

    #[test]
    fn values_round_away_from_zero() {
        assert_eq!((q("1500m").value(), q("-1500m").value(), q("1n").value()), (2, -2, 1));
        assert_eq!((q("1").milli_value(), q("0.0001").milli_value()), (1000, 1));
        assert_eq!(q("1e30").value(), i64::MAX);
    }

    #[test]
    fn sums_are_exact_and_take_the_format_of_the_first() {
        let mut total = Quantity::default();
        total.add(&q("1Gi"));
        total.add(&q("512Mi"));
        assert_eq!(total.to_string(), "1536Mi");
        total.sub(&q("1Gi"));
        assert_eq!(total.to_string(), "512Mi");
        total.neg();
        assert_eq!(total.to_string(), "-512Mi");
        let mut far = q("1e100");
        far.add(&q("1n"));
        assert!(far > q("1e100"));
    }

    #[test]
    fn comparison_spans_scales() {
        assert_eq!(q("1"), q("1000m"));
        assert!(q("1Gi") > q("1G") && q("-1") < q("1n") && q("1e300") > q("100E") && q("-1e300") < q("-100E"));
    }
}
