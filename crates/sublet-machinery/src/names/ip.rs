//! IP addresses and CIDR blocks. Old fields accept leading zeros and IPv4-mapped addresses ("sloppy").

use crate::error::{FieldError, FieldPath};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address as old fields take it; IPv4-mapped addresses come out as IPv4.
pub fn parse_ip_sloppy(text: &str) -> Option<IpAddr> {
    if !text.contains(':') {
        return parse_v4_sloppy(text).map(IpAddr::V4);
    }
    let address = parse_v6_sloppy(text)?;
    Some(address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4))
}

/// Address and prefix length as old fields take them.
pub fn parse_cidr_sloppy(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let length = parse_decimal(length, 128)?;
    let v6 = address.contains(':');
    if length > if v6 { 128 } else { 32 } {
        return None;
    }
    let address = if v6 { IpAddr::V6(parse_v6_sloppy(address)?) } else { IpAddr::V4(parse_v4_sloppy(address)?) };
    Some((address, length as u8))
}

/// The rule for fields that are older than the strict one.
pub fn validate_ip_legacy(path: &FieldPath, value: &str, strict: bool) -> Vec<FieldError> {
    if parse_ip_sloppy(value).is_none() {
        return vec![FieldError::invalid(path, value, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")];
    }
    let mut errors = Vec::new();
    if strict {
        match value.parse::<IpAddr>() {
            Err(_) => errors.push(FieldError::invalid(path, value, "must not have leading 0s")),
            Ok(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_some() => {
                errors.push(FieldError::invalid(path, value, "must not be an IPv4-mapped IPv6 address"));
            }
            Ok(_) => {}
        }
    }
    errors
}

/// The rule for new fields: valid, and in the one form.
pub fn validate_ip(path: &FieldPath, value: &str) -> Vec<FieldError> {
    let errors = validate_ip_legacy(path, value, true);
    match parse_ip_sloppy(value).map(|ip| ip.to_string()) {
        Some(canonical) if errors.is_empty() && canonical != value => {
            vec![FieldError::invalid(path, value, format!("must be in canonical form (\"{canonical}\")"))]
        }
        _ => errors,
    }
}

pub fn validate_cidr_legacy(path: &FieldPath, value: &str, strict: bool) -> Vec<FieldError> {
    let Some((address, length)) = parse_cidr_sloppy(value) else {
        return vec![FieldError::invalid(path, value, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")];
    };
    if !strict {
        return Vec::new();
    }
    let wrong = if !is_strict_cidr(value) {
        "must not have leading 0s in IP or prefix length"
    } else if is_mapped(address) {
        "must not have an IPv4-mapped IPv6 address"
    } else if mask(address, length) != address {
        "must not have bits set beyond the prefix length"
    } else {
        return Vec::new();
    };
    vec![FieldError::invalid(path, value, wrong)]
}

pub fn validate_cidr(path: &FieldPath, value: &str) -> Vec<FieldError> {
    let errors = validate_cidr_legacy(path, value, true);
    match parse_cidr_sloppy(value).map(block) {
        Some(canonical) if errors.is_empty() && canonical != value => {
            vec![FieldError::invalid(path, value, format!("must be in canonical form (\"{canonical}\")"))]
        }
        _ => errors,
    }
}

/// Warnings for a valid but unusual address.
pub fn ip_warnings(path: &FieldPath, value: &str) -> Vec<String> {
    let Some(ip) = parse_ip_sloppy(value) else { return Vec::new() };
    match value.parse::<IpAddr>() {
        Ok(address) if !is_mapped(address) => {
            if address.is_ipv6() && address.to_string() != value {
                return vec![format!("{path}: IPv6 address {value:?} should be in RFC 5952 canonical format (\"{address}\")")];
            }
            Vec::new()
        }
        _ => vec![format!("{path}: non-standard IP address {value:?} is invalid: use \"{ip}\"")],
    }
}

/// Warnings for a valid but unusual block.
pub fn cidr_warnings(path: &FieldPath, value: &str) -> Vec<String> {
    let Some((address, length)) = parse_cidr_sloppy(value) else { return Vec::new() };
    let masked = block((address, length));
    let mut warnings = Vec::new();
    if mask(address, length) != address {
        let bits = if address.is_ipv6() { 128 } else { 32 };
        let single = address.to_canonical();
        warnings
            .push(format!("{path}: CIDR value {value:?} is ambiguous in this context (should be \"{masked}\" or \"{single}/{bits}\"?)"));
    }
    if !is_strict_cidr(value) || is_mapped(address) {
        warnings.push(format!("{path}: non-standard CIDR value {value:?} is invalid: use \"{masked}\""));
    }
    if warnings.is_empty() && address.is_ipv6() && format!("{address}/{length}") != value {
        warnings.push(format!("{path}: IPv6 CIDR value {value:?} should be in RFC 5952 canonical format (\"{address}/{length}\")"));
    }
    warnings
}

/// The block of an address. A mapped address whose prefix covers the mapping prints as IPv4, as Go prints it.
fn block((address, length): (IpAddr, u8)) -> String {
    match mask(address, length) {
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) if length >= 96 => format!("{v4}/{}", length - 96),
            _ => format!("{v6}/{length}"),
        },
        v4 => format!("{v4}/{length}"),
    }
}

fn is_strict_cidr(value: &str) -> bool {
    value.split_once('/').is_some_and(|(address, length)| address.parse::<IpAddr>().is_ok() && (length == "0" || !length.starts_with('0')))
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

fn mask(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() & u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)).into()),
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)).into()),
    }
}

fn parse_v4_sloppy(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        *octet = u8::try_from(parse_decimal(parts.next()?, 255)?).ok()?;
    }
    parts.next().is_none().then_some(Ipv4Addr::from(octets))
}

/// Leading zeros are allowed in every group, also in those of a dotted end.
fn parse_v6_sloppy(text: &str) -> Option<Ipv6Addr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let mut plain = String::with_capacity(text.len());
    for (i, group) in text.split(':').enumerate() {
        if i > 0 {
            plain.push(':');
        }
        match group.trim_start_matches('0') {
            _ if group.contains('.') => plain.push_str(&parse_v4_sloppy(group)?.to_string()),
            "" if !group.is_empty() => plain.push('0'),
            digits => plain.push_str(digits),
        }
    }
    plain.parse().ok()
}

fn parse_decimal(text: &str, max: u32) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits = text.trim_start_matches('0');
    if digits.len() > 3 {
        return None;
    }
    digits.bytes().try_fold(0, |value, digit| Some(value * 10 + u32::from(digit - b'0')).filter(|v| *v <= max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_new_fields_are_canonical() {
        let path = FieldPath::new("ip");
        let details = |value: &str| validate_ip(&path, value).into_iter().map(|e| e.detail).collect::<Vec<_>>();
        assert!(details("10.0.0.1").is_empty() && details("2001:db8::1").is_empty());
        assert_eq!(details("010.0.0.1"), ["must not have leading 0s"]);
        assert_eq!(details("::ffff:10.0.0.1"), ["must not be an IPv4-mapped IPv6 address"]);
        assert_eq!(details("2001:DB8::1"), ["must be in canonical form (\"2001:db8::1\")"]);
    }

    #[test]
    fn blocks_have_no_bits_beyond_the_prefix() {
        let path = FieldPath::new("cidr");
        assert!(validate_cidr(&path, "10.0.0.0/8").is_empty() && validate_cidr(&path, "::/0").is_empty());
        assert_eq!(validate_cidr(&path, "10.0.0.1/8")[0].detail, "must not have bits set beyond the prefix length");
        assert!(validate_cidr_legacy(&path, "10.0.0.1/8", false).is_empty());
        assert!(parse_cidr_sloppy("10.0.0.0/33").is_none());
    }
}
