//! Addresses as Go's `net/netip` reads them.

use std::net::IpAddr;

/// An address, and whether a zone followed it. The error is Go's.
pub(super) fn parse_addr(text: &str) -> Result<(IpAddr, bool), String> {
    match text.chars().find(|c| matches!(c, '.' | ':' | '%')) {
        Some('.') => v4(text).map(|fields| (IpAddr::from(fields), false)).map_err(|e| shown(text, e)),
        Some(':') => v6(text).map_err(|e| shown(text, e)),
        Some(_) => Err(shown(text, ("missing IPv6 address", ""))),
        None => Err(shown(text, ("unable to parse IP", ""))),
    }
}

/// What is wrong, and from where on.
type Wrong<'t> = (&'static str, &'t str);

fn shown(text: &str, (why, at): Wrong<'_>) -> String {
    let place = if at.is_empty() { String::new() } else { format!(" (at {at:?})") };
    format!("ParseAddr({text:?}): {why}{place}")
}

fn v4(text: &str) -> Result<[u8; 4], Wrong<'_>> {
    let bytes = text.as_bytes();
    let (mut fields, mut field, mut value, mut digits) = ([0; 4], 0, 0u32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '0'..='9' => {
                if digits == 1 && value == 0 {
                    return Err(("IPv4 field has octet with leading zero", ""));
                }
                value = value * 10 + u32::from(bytes[at] - b'0');
                digits += 1;
                fields[field] = u8::try_from(value).map_err(|_| ("IPv4 field has value >255", ""))?;
            }
            '.' => {
                if at == 0 || at == text.len() - 1 || bytes[at - 1] == b'.' {
                    return Err(("IPv4 field must have at least one digit", &text[at..]));
                }
                if field == 3 {
                    return Err(("IPv4 address too long", ""));
                }
                (field, value, digits) = (field + 1, 0, 0);
            }
            _ => return Err(("unexpected character", &text[at..])),
        }
    }
    if field < 3 { Err(("IPv4 address too short", "")) } else { Ok(fields) }
}

fn v6(text: &str) -> Result<(IpAddr, bool), Wrong<'_>> {
    let (mut rest, zone) = text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)));
    if zone == Some("") {
        return Err(("zone must be a non-empty string", ""));
    }
    let mut groups: Vec<u16> = Vec::with_capacity(8);
    let mut ellipsis = None;
    if let Some(after) = rest.strip_prefix("::") {
        (ellipsis, rest) = (Some(0), after);
    }
    while groups.len() < 8 && !(rest.is_empty() && ellipsis == Some(groups.len())) {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        let group = match digits {
            0 => return Err(("each colon-separated field must have at least one digit", rest)),
            1..=4 => u16::from_str_radix(&rest[..digits], 16).unwrap_or_default(),
            _ => return Err(("each group must have 4 or less digits", rest)),
        };
        if rest[digits..].starts_with('.') {
            if ellipsis.is_none() && groups.len() != 6 {
                return Err(("embedded IPv4 address must replace the final 2 fields of the address", rest));
            }
            if groups.len() > 6 {
                return Err(("too many hex fields to fit an embedded IPv4 at the end of the address", rest));
            }
            let [a, b, c, d] = v4(rest)?;
            groups.extend([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]);
            rest = "";
            break;
        }
        groups.push(group);
        rest = &rest[digits..];
        if rest.is_empty() {
            break;
        }
        rest = match rest.strip_prefix(':') {
            None => return Err(("unexpected character, want colon", rest)),
            Some("") => return Err(("colon must be followed by more characters", rest)),
            Some(after) => after,
        };
        if let Some(after) = rest.strip_prefix(':') {
            if ellipsis.is_some() {
                return Err(("multiple :: in address", rest));
            }
            (ellipsis, rest) = (Some(groups.len()), after);
        }
    }
    if !rest.is_empty() {
        return Err(("trailing garbage after address", rest));
    }
    match (ellipsis, 8 - groups.len()) {
        (Some(_), 0) => return Err(("the :: must expand to at least one field of zeros", "")),
        (None, 1..) => return Err(("address string too short", "")),
        (Some(at), missing) => {
            groups.splice(at..at, std::iter::repeat_n(0, missing));
        }
        (None, 0) => {}
    }
    let groups: [u16; 8] = groups.try_into().unwrap_or_default();
    Ok((IpAddr::from(groups), zone.is_some()))
}

#[cfg(test)]
mod tests {
    use super::parse_addr;

    #[test]
    fn addresses_are_those_of_the_standard_library() {
        for text in
            ["1.2.3.4", "0.0.0.0", "::", "::1", "1::", "1:2:3:4:5:6:7:8", "1::8", "1:2::7:8", "::ffff:1.2.3.4", "1:2:3:4:5:6:1.2.3.4"]
        {
            assert_eq!(parse_addr(text), Ok((text.parse().unwrap(), false)), "{text}");
        }
        assert_eq!(parse_addr("fe80::1%eth0"), Ok(("fe80::1".parse().unwrap(), true)));
        for text in
            ["1:2:3:4:5:6:7:8:9", "1::2:3:4:5:6:7:8", "1:2", ":1", "1:", "1.2.3.4:5", "::1.2.3", "1..2.3", "::%", "%a", "ä", "1.ä", ":::"]
        {
            assert!(parse_addr(text).is_err(), "{text}");
        }
    }
}
