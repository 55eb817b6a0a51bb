//! Addresses and URLs.

use super::super::eval::{EvalError, Evaluated, failed};
use super::super::value::{Map, Opaque, Val};
use super::netip::parse_addr;
use std::net::IpAddr;
use std::rc::Rc;
use sublet_machinery::structural::url::{Url, parse_request_uri};

pub(super) fn call<'v>(function: &str, is_member: bool, args: &[Val<'v>]) -> Option<Evaluated<'v>> {
    use Opaque::{Cidr, Ip};
    let bool = |value: bool| Ok(Val::Bool(value));
    Some(match (function, args) {
        ("ip", [Val::String(text)]) if !is_member => parse_ip(text.as_str()).map(|ip| Val::Opaque(Ip(ip))),
        ("isIP", [Val::String(text)]) => bool(parse_ip(text.as_str()).is_ok()),
        ("ip.isCanonical", [Val::String(text)]) => parse_ip(text.as_str()).map(|ip| Val::Bool(ip.to_string() == text.as_str())),
        ("cidr", [Val::String(text)]) => parse_cidr(text.as_str()).map(|(ip, bits)| Val::Opaque(Cidr(ip, bits))),
        ("isCIDR", [Val::String(text)]) => bool(parse_cidr(text.as_str()).is_ok()),
        ("url", [Val::String(text)]) => match parse_request_uri(text.as_str()) {
            Ok(url) => Ok(Val::Opaque(Opaque::Url(Rc::new(url)))),
            Err(why) => Err(failed(format!("URL parse error during conversion from string: {why}"))),
        },
        ("isURL", [Val::String(text)]) => bool(parse_request_uri(text.as_str()).is_ok()),
        (_, [Val::Opaque(Ip(ip))]) => address(function, *ip)?,
        ("ip", [Val::Opaque(Cidr(ip, _))]) => Ok(Val::Opaque(Ip(*ip))),
        ("prefixLength", [Val::Opaque(Cidr(_, bits))]) => Ok(Val::Int(i64::from(*bits))),
        ("masked", [Val::Opaque(Cidr(ip, bits))]) => Ok(Val::Opaque(Cidr(mask(*ip, *bits), *bits))),
        ("containsIP", [Val::Opaque(Cidr(ip, bits)), other]) => match other {
            Val::Opaque(Ip(other)) => bool(contains(*ip, *bits, *other)),
            Val::String(text) => parse_ip(text.as_str()).map(|other| Val::Bool(contains(*ip, *bits, other))),
            _ => return None,
        },
        ("containsCIDR", [Val::Opaque(Cidr(ip, bits)), other]) => {
            let inner = match other {
                Val::Opaque(Cidr(other, other_bits)) => Ok((*other, *other_bits)),
                Val::String(text) => parse_cidr(text.as_str()),
                _ => return None,
            };
            inner.map(|(other, other_bits)| Val::Bool(*bits <= other_bits && contains(*ip, *bits, other)))
        }
        (_, [Val::Opaque(Opaque::Url(url))]) => part_of_url(function, url)?,
        _ => return None,
    })
}

fn parse_ip(text: &str) -> Result<IpAddr, EvalError> {
    let (parsed, has_zone) =
        parse_addr(text).map_err(|why| failed(format!("IP Address {text:?} parse error during conversion from string: {why}")))?;
    match parsed {
        _ if has_zone => Err(failed(format!("IP address {text:?} with zone value is not allowed"))),
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Err(failed(format!("IPv4-mapped IPv6 address {text:?} is not allowed"))),
        ip => Ok(ip),
    }
}

fn parse_cidr(text: &str) -> Result<(IpAddr, u8), EvalError> {
    const DURING: &str = "network address parse error during conversion from string: ";
    let (ip, bits) = parse_prefix(text).map_err(|why| failed(format!("{DURING}{DURING}netip.ParsePrefix({text:?}): {why}")))?;
    if matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        return Err(failed(format!("{DURING}IPv4-mapped IPv6 address {text:?} is not allowed")));
    }
    Ok((ip, bits))
}

fn parse_prefix(text: &str) -> Result<(IpAddr, u8), String> {
    let (address, bits) = text.rsplit_once('/').ok_or("no '/'")?;
    let (ip, has_zone) = parse_addr(address)?;
    if has_zone {
        return Err("IPv6 zones cannot be present in a prefix".into());
    }
    let is_plain = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit()) && (bits == "0" || !bits.starts_with('0'));
    if !is_plain {
        return Err(format!("bad bits after slash: {bits:?}"));
    }
    let bits = bits.parse().ok().filter(|b| *b <= if ip.is_ipv4() { 32 } else { 128 });
    Ok((ip, bits.ok_or("prefix length out of range")?))
}

fn mask(ip: IpAddr, bits: u8) -> IpAddr {
    match ip {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

fn contains(network: IpAddr, bits: u8, ip: IpAddr) -> bool {
    network.is_ipv4() == ip.is_ipv4() && mask(network, bits) == mask(ip, bits)
}

fn address<'v>(function: &str, ip: IpAddr) -> Option<Evaluated<'v>> {
    let is_link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    };
    let is_link_local_multicast = match ip {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    };
    let is_broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    Some(Ok(match function {
        "family" => Val::Int(if ip.is_ipv4() { 4 } else { 6 }),
        "isUnspecified" => Val::Bool(ip.is_unspecified()),
        "isLoopback" => Val::Bool(ip.is_loopback()),
        "isLinkLocalMulticast" => Val::Bool(is_link_local_multicast),
        "isLinkLocalUnicast" => Val::Bool(is_link_local),
        "isGlobalUnicast" => Val::Bool(!ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast() && !is_link_local && !is_broadcast),
        _ => return None,
    }))
}

fn part_of_url<'v>(function: &str, url: &Url) -> Option<Evaluated<'v>> {
    let (name, port) = match url.host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, port)) => (name, port.strip_prefix(':').unwrap_or_default()),
        None => url.host.rsplit_once(':').unwrap_or((&url.host, "")),
    };
    Some(Ok(match function {
        "getScheme" => Val::text(&url.scheme),
        "getHost" => Val::text(&url.host),
        "getHostname" => Val::text(name),
        "getPort" => Val::text(port),
        "getEscapedPath" => Val::text(&url.escaped_path),
        "getQuery" => {
            let mut members: Vec<(String, Vec<Val<'v>>)> = Vec::new();
            for (key, value) in form_urlencoded::parse(url.query.as_bytes()) {
                match members.iter_mut().find(|(k, _)| *k == key) {
                    Some((_, values)) => values.push(Val::text(&value)),
                    None => members.push((key.into_owned(), vec![Val::text(&value)])),
                }
            }
            let members = members.into_iter().map(|(key, values)| (Val::text(&key), Val::items(values))).collect();
            Val::Map(Map::Entries(Rc::new(members)))
        }
        _ => return None,
    }))
}
