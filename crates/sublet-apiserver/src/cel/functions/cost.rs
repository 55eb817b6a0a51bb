//! What a call costs, as cel-go and the Kubernetes libraries count it.

use super::super::value::{List, Map, Opaque, Val};

fn tenth(size: u64) -> u64 {
    size.div_ceil(10)
}

fn scaled(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// The part of the cost that the arguments decide.
pub(in super::super) fn before(function: &str, args: &[Val<'_>]) -> u64 {
    let size = |index: usize| args.get(index).map_or(1, Val::size);
    match function {
        "startsWith" | "endsWith" => tenth(size(1)),
        // At most two authorization checks fit into one call.
        "check" => 350_000,
        "@in" if matches!(args.get(1), Some(Val::List(_))) => size(1),
        "_==_" if matches!(args.first(), Some(Val::Opaque(_))) => 1,
        "_==_" | "_!=_" => tenth(size(0).min(size(1))),
        "_<_" | "_<=_" | "_>_" | "_>=_" if is_text(args) => tenth(size(0).min(size(1))),
        "_+_" if is_text(args) => tenth(size(0) + size(1)),
        "matches" | "find" | "findAll" => scaled(1 + size(0), 0.1) * scaled(size(1), 0.25),
        "contains" => tenth(size(0)) * tenth(size(1)),
        "bytes" | "strings.quote" | "format" | "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "cidr" | "isIP" | "isCIDR"
        | "quantity" | "isQuantity" | "semver" | "isSemver" => tenth(size(0)),
        "string" if matches!(args, [Val::Bytes(_)]) => tenth(size(0)),
        "ip" if matches!(args, [Val::String(_)]) => tenth(size(0)),
        "ip.isCanonical" | "replace" | "split" => scaled(size(0), 0.2),
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => args.first().map_or(0, traversal),
        "join" => 0,
        "containsIP" | "containsCIDR" => contains(function, args),
        "validate" => match args {
            [Val::Opaque(Opaque::Format(name)), text] => scaled(1 + text.size(), 0.1) * scaled(super::formats::pattern_size(name), 0.25),
            _ => 1,
        },
        "sets.contains" | "sets.intersects" => 1 + size(0) * size(1),
        "sets.equivalent" => 1 + 2 * size(0) * size(1),
        "distinct" => 10 + size(0) * size(0),
        "flatten" | "slice" | "reverse" | "sort" => 10 + size(0),
        "lists.range" => match args {
            [Val::Int(n)] => 10 + u64::try_from(*n).unwrap_or_default(),
            _ => 1,
        },
        _ => 1,
    }
}

/// The part that depends on the result.
pub(in super::super) fn after(function: &str, result: &Val<'_>) -> u64 {
    if function == "join" { scaled(result.size(), 0.2) } else { 0 }
}

fn is_text(args: &[Val<'_>]) -> bool {
    matches!(args, [Val::String(_), Val::String(_)] | [Val::Bytes(_), Val::Bytes(_)])
}

fn contains(function: &str, args: &[Val<'_>]) -> u64 {
    let bytes = match args.first() {
        Some(Val::Opaque(Opaque::Cidr(ip, _))) if ip.is_ipv6() => 16,
        _ => 4,
    };
    let text = match args.get(1) {
        Some(text @ Val::String(_)) => tenth(text.size()),
        _ => 0,
    };
    let masked = if function == "containsCIDR" { tenth(bytes) + 1 } else { 0 };
    tenth(2 * bytes) + masked + text
}

/// One walk over everything below a value.
fn traversal(value: &Val<'_>) -> u64 {
    match value {
        Val::String(_) | Val::Bytes(_) => scaled(value.size(), 0.1),
        Val::List(list @ (List::Json(..) | List::Items(_))) => {
            list.to_vec().map(|items| items.iter().map(|item| 1 + traversal(item)).sum()).unwrap_or_default()
        }
        Val::Map(map @ (Map::Json(_) | Map::Entries(_))) => map.len() as u64,
        _ => 1,
    }
}
