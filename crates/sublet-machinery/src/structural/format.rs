//! String formats, as strfmt of kube-openapi judges them.

use crate::schema::ValueType;
use base64::Engine as _;
use regex::Regex;
use std::sync::LazyLock;

/// Formats are compared without dashes: `date-time` and `datetime` are one.
const STRING_FORMATS: [&str; 27] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
    "binary",
];

/// Whether custom resources are held to the format; others are only documentation.
pub fn is_enforced(format: &str, value_type: ValueType) -> bool {
    match value_type {
        ValueType::Any | ValueType::String => is_known(format) && format != "binary",
        ValueType::Integer => matches!(format, "int32" | "int64"),
        ValueType::Number => matches!(format, "float" | "double"),
        _ => false,
    }
}

fn is_known(format: &str) -> bool {
    STRING_FORMATS.contains(&normalized(format).as_str())
}

fn normalized(format: &str) -> String {
    format.replace('-', "")
}

/// Whether the text has the format. Unknown formats are not judged.
pub fn is_valid(format: &str, text: &str) -> bool {
    match normalized(format).as_str() {
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "uri" => super::url::parse_request_uri(text).is_ok(),
        "email" => is_email(text),
        "hostname" => is_hostname(text),
        "ipv4" => text.contains('.') && parse_ip_sloppy(text),
        "ipv6" => text.contains(':') && text.parse::<std::net::Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some('3')),
        "uuid4" => is_uuid(text, Some('4')),
        "uuid5" => is_uuid(text, Some('5')),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "creditcard" => is_credit_card(text),
        "ssn" => matches(&SSN, text),
        "hexcolor" => matches(&HEX_COLOR, text),
        "rgbcolor" => matches(&RGB_COLOR, text),
        "byte" => !text.is_empty() && base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "date" => is_date(text),
        "duration" => is_duration(text),
        "datetime" => is_date_time(text),
        "k8sshortname" => text.len() <= 63 && is_short_name(text),
        "k8slongname" => text.len() <= 253 && text.split('.').all(is_short_name),
        _ => true,
    }
}

type Pattern = LazyLock<Regex>;

fn matches(pattern: &Pattern, text: &str) -> bool {
    pattern.is_match(text)
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the patterns of this file are valid")
}

static SSN: Pattern = LazyLock::new(|| pattern(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"));
static HEX_COLOR: Pattern = LazyLock::new(|| pattern("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"));
static RGB_COLOR: Pattern = LazyLock::new(|| {
    let channel = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*";
    pattern(&format!(r"^rgb\({channel},{channel},{channel}\)$"))
});
static CREDIT_CARD: Pattern = LazyLock::new(|| {
    pattern(concat!(
        r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}",
        r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$"
    ))
});
static TIME_OF_DAY: Pattern = LazyLock::new(|| pattern(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"));
static SCALA_DURATION: Pattern = LazyLock::new(|| pattern(r"(\d+)\s*([A-Za-zµ]+)"));
static HOST_CHAR: Pattern = LazyLock::new(|| pattern(r"^[a-zA-Z0-9\p{S}\p{L}]$"));

fn is_short_name(text: &str) -> bool {
    let alphanumeric = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    alphanumeric(bytes.first())
        && alphanumeric(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

/// `mail.ParseAddress`: `a@b`, or `Name <a@b>`.
fn is_email(text: &str) -> bool {
    let text = text.trim();
    let address = match (text.strip_suffix('>'), text.rfind('<')) {
        (Some(inner), Some(open)) => &inner[open + 1..],
        (None, None) => text,
        _ => return false,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let is_atom = |c: char| c.is_alphanumeric() || !c.is_ascii() || "!#$%&'*+-/=?^_`{|}~".contains(c);
    let is_dotted = |text: &str| text.split('.').all(|part| !part.is_empty() && part.chars().all(is_atom));
    let is_quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    (is_quoted || is_dotted(local)) && (is_dotted(domain) || domain.starts_with('[') && domain.ends_with(']'))
}

fn is_hostname(text: &str) -> bool {
    if text.len() > 255 || text.split('.').any(|label| label.len() > 63) {
        return false;
    }
    let is_char = |c: char| HOST_CHAR.is_match(c.encode_utf8(&mut [0; 4]));
    let Some((labels, top)) = text.rsplit_once('.') else {
        // One label: letters, with at most one dash after the first.
        let mut chars = text.chars();
        let first = chars.next().is_some_and(is_char);
        let rest = chars.as_str();
        return first && rest.strip_prefix('-').unwrap_or(rest).chars().all(is_char);
    };
    let is_label = |label: &str| {
        label.chars().next().is_some_and(is_char)
            && label.chars().next_back().is_some_and(is_char)
            && label.chars().all(|c| c == '-' || is_char(c))
    };
    labels.split('.').all(is_label) && (2..=63).contains(&top.chars().count()) && top.chars().all(char::is_alphabetic)
}

/// Go's parser from before 1.17 took leading zeros in IPv4.
fn parse_ip_sloppy(text: &str) -> bool {
    let is_ipv4 = |text: &str| {
        let parts: Vec<&str> = text.split('.').collect();
        parts.len() == 4
            && parts.iter().all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()) && p.parse::<u32>().is_ok_and(|n| n < 256))
    };
    is_ipv4(text) || text.contains(':') && text.parse::<std::net::Ipv6Addr>().is_ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let bits_max = if address.contains(':') { 128 } else { 32 };
    let length_fits =
        !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit()) && length.parse::<u32>().is_ok_and(|n| n <= bits_max);
    length_fits && parse_ip_sloppy(address)
}

fn is_mac(text: &str) -> bool {
    let separator = if text.contains(':') {
        ':'
    } else if text.contains('-') {
        '-'
    } else {
        '.'
    };
    let width = if separator == '.' { 4 } else { 2 };
    let parts: Vec<&str> = text.split(separator).collect();
    let bytes = parts.len() * width / 2;
    matches!(bytes, 6 | 8 | 20) && parts.iter().all(|p| p.len() == width && p.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// 32 hexadecimal digits; the dashes are optional one by one.
fn is_uuid(text: &str, version: Option<char>) -> bool {
    let mut digits = String::with_capacity(32);
    for c in text.chars() {
        match c {
            '-' if matches!(digits.len(), 8 | 12 | 16 | 20) => {}
            c if c.is_ascii_hexdigit() => digits.push(c.to_ascii_lowercase()),
            _ => return false,
        }
    }
    let dashes = text.matches('-').count();
    let variant = |allowed: &str| digits.chars().nth(16).is_some_and(|c| allowed.contains(c));
    digits.len() == 32
        && dashes <= 4
        && !text.contains("--")
        && version.is_none_or(|v| digits.chars().nth(12) == Some(v) && (v == '3' || variant("89ab")))
}

fn is_isbn10(text: &str) -> bool {
    let text: String = text.chars().filter(|c| !(c.is_whitespace() || *c == '-')).collect();
    let mut sum = 0;
    for (index, c) in text.chars().enumerate() {
        let digit = match c.to_digit(10) {
            Some(digit) => digit,
            None if c == 'X' && index == 9 => 10,
            None => return false,
        };
        sum += (index as u32 + 1).min(10) * digit;
    }
    text.len() == 10 && sum % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let digits: Option<Vec<u32>> = text.chars().filter(|c| !(c.is_whitespace() || *c == '-')).map(|c| c.to_digit(10)).collect();
    let Some(digits) = digits.filter(|d| d.len() == 13) else { return false };
    let sum: u32 = digits[..12].iter().enumerate().map(|(i, d)| if i % 2 == 0 { *d } else { 3 * d }).sum();
    digits[12] == (10 - sum % 10) % 10
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let luhn: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(i, b)| {
            let doubled = u32::from(b - b'0') * if i % 2 == 1 { 2 } else { 1 };
            if doubled > 9 { doubled - 9 } else { doubled }
        })
        .sum();
    matches(&CREDIT_CARD, &digits) && luhn.is_multiple_of(10)
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.as_bytes()[4] == b'-' && text.as_bytes()[7] == b'-' && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let Some(found) = TIME_OF_DAY.captures(time) else { return false };
    is_date(date) && &found[1] <= "23" && &found[2] <= "59" && &found[3] <= "59"
}

fn is_duration(text: &str) -> bool {
    const UNITS: [&[&str]; 8] = [
        &["ns", "nano"],
        &["us", "µs", "micro"],
        &["ms", "milli"],
        &["s", "sec"],
        &["m", "min"],
        &["h", "hr", "hour"],
        &["d", "day"],
        &["w", "wk", "week"],
    ];
    let is_unit = |unit: &str| UNITS.iter().any(|names| names.contains(&unit) || names.last().is_some_and(|long| unit.starts_with(long)));
    if parse_go_duration(text).is_some() {
        return true;
    }
    let mut found = SCALA_DURATION.captures_iter(text).peekable();
    found.peek().is_some() && found.any(|c| is_unit(&c[2].to_lowercase()))
}

/// `time.ParseDuration`: nanoseconds of `1h30m`, `-1.5s`, `0`.
pub fn parse_go_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: f64 = 0.0;
    let mut exact: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (number, after) = rest.split_at(end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        let nanos: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        exact += if whole.is_empty() { 0 } else { whole.parse::<i128>().ok()?.checked_mul(nanos)? };
        if !fraction.is_empty() {
            total += format!("0.{fraction}").parse::<f64>().ok()? * nanos as f64;
        }
        rest = next;
    }
    let nanos = exact + total as i128;
    i64::try_from(if negative { -nanos } else { nanos }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(format: &str, good: &[&str], bad: &[&str]) {
        for text in good {
            assert!(is_valid(format, text), "{format}: {text} is valid");
        }
        for text in bad {
            assert!(!is_valid(format, text), "{format}: {text} is invalid");
        }
    }

    #[test]
    fn formats_are_judged_as_upstream_judges_them() {
        check(
            "date-time",
            &["2011-08-18T19:03:37.123Z", "2011-08-18t19:03:37z", "2011-08-18T19:03:37+02:00"],
            &["", "2011-08-18", "2011-08-18T25:03:37Z", "2011-13-18T19:03:37Z", "2011-08-18T19:03:37"],
        );
        check("date", &["2014-12-15"], &["2014-13-15", "2014-2-1", "x"]);
        check("duration", &["1h30m", "1.5s", "0", "10 ms", "3 days", "1 Hour"], &["", "1", "x", "1 fortnight"]);
        check("byte", &["ZWxpemFiZXRocG9zZXk=", "AAAA"], &["", "ZWxpemFiZXRocG9zZXk", "%%"]);
        check(
            "uuid",
            &["a8098c1a-f86e-11da-bd1a-00112444be1e", "A8098C1AF86E11DABD1A00112444BE1E"],
            &["a8098c1a-f86e-11da-bd1a", "g8098c1a-f86e-11da-bd1a-00112444be1e"],
        );
        check("uuid3", &["bcd02e22-68f0-3046-a512-327cca9def8f"], &["bcd02e22-68f0-4046-a512-327cca9def8f"]);
        check(
            "uuid4",
            &["025b0d74-00a2-4048-bf57-227c5111bb34"],
            &["025b0d74-00a2-3048-bf57-227c5111bb34", "025b0d74-00a2-4048-cf57-227c5111bb34"],
        );
        check("uuid5", &["886313e1-3b8a-5372-9b90-0c9aee199e5d"], &["886313e1-3b8a-4372-9b90-0c9aee199e5d"]);
        check("email", &["a@b.c", "A B <a@b.c>", "a+b@c"], &["", "a", "@b", "a@", "a b@c"]);
        check("ipv4", &["192.168.224.1", "010.0.0.1"], &["198.168.1", "::1", "256.1.1.1"]);
        check("ipv6", &["::1", "2001:db8::ffff"], &["127.0.0.1", "12345::"]);
        check("cidr", &["192.168.254.1/24", "2001:db8::/64", "010.0.0.0/8"], &["198.168.254.2", "1.2.3.4/33", "1.2.3.4/"]);
        check("mac", &["01:02:03:04:05:06", "01-02-03-04-05-06", "0102.0304.0506"], &["01:02:03:04:05", "01:02:03:04:05:gg"]);
        check(
            "uri",
            &["http://example.com/a b", "/path", "urn:x:y", "mailto:a@b"],
            &["", "somewhere", "http://a b/", "%zz", "/%zz", "http://h:x/"],
        );
        check("hostname", &["example.com", "a", "a-b", "1.2.com", "www.x-y.org"], &["", "-a.com", "a_b.com", "a.b.1", "a..com"]);
        check("hexcolor", &["#fff", "00FF00"], &["#ff", "red"]);
        check("rgbcolor", &["rgb(100,100,100)", "rgb( 0, 255, 1 )"], &["rgb(300,0,0)", "rgb(0,0)"]);
        check("ssn", &["111-11-1111", "111111111"], &["999 99-999 99"]);
        check("creditcard", &["4111-1111-1111-1111"], &["9999-9999-9999-9999", "4111-1111-1111-1112"]);
        check("isbn", &["0321751043", "978-0321751041"], &["836217463", "978-0321751042"]);
        check("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f1f77"]);
        check("k8s-short-name", &["a", "a-1"], &["", "-a", "A", "a.b"]);
        check("k8s-long-name", &["a.b-c", "a"], &["a..b", ".a"]);
        check("password", &["", "x"], &[]);
    }

    #[test]
    fn go_durations_are_counted_in_nanoseconds() {
        assert_eq!(parse_go_duration("1h1m1s1ms1us1ns"), Some(3_661_001_001_001));
        assert_eq!(parse_go_duration("-1.5h"), Some(-5_400_000_000_000));
        assert_eq!(parse_go_duration("100000000h"), None);
        assert_eq!(parse_go_duration("1"), None);
    }
}
