//! Functions of lists and sets.

use super::super::eval::{EvalError, Evaluated, failed, no_overload};
use super::super::value::{List, Val};
use super::arithmetic;
use std::cmp::Ordering;

/// Items that `lists.range` makes at most.
const RANGE_MAX: i64 = 1_000_000;

pub(super) fn call<'v>(function: &str, is_member: bool, args: &[Val<'v>]) -> Option<Evaluated<'v>> {
    if let ("lists.range", [Val::Int(n)]) = (function, args) {
        return Some(range(*n));
    }
    let Some((Val::List(list), rest)) = args.split_first() else { return None };
    let items = match list.to_vec() {
        Ok(items) => items,
        Err(error) => return Some(Err(failed(error))),
    };
    if function.starts_with("sets.") {
        return sets(function, &items, rest);
    }
    if !is_member {
        return None;
    }
    Some(match (function, rest) {
        ("isSorted", []) => ordered(&items).map(Val::Bool),
        ("sum", []) => sum(&items),
        ("min", []) => extreme("min", &items, Ordering::Less),
        ("max", []) => extreme("max", &items, Ordering::Greater),
        ("indexOf", [item]) => Ok(Val::Int(items.iter().position(|i| i.equals(item)).map_or(-1, |at| at as i64))),
        ("lastIndexOf", [item]) => Ok(Val::Int(items.iter().rposition(|i| i.equals(item)).map_or(-1, |at| at as i64))),
        ("slice", [Val::Int(start), Val::Int(end)]) => slice(&items, *start, *end),
        ("flatten", []) => flatten(&items, 1).map(Val::items),
        ("flatten", [Val::Int(depth)]) if *depth < 0 => Err(failed("level must be non-negative")),
        ("flatten", [Val::Int(depth)]) => flatten(&items, *depth).map(Val::items),
        ("reverse", []) => Ok(Val::items(items.into_iter().rev().collect())),
        ("distinct", []) => {
            let mut kept: Vec<Val<'v>> = Vec::new();
            for item in items {
                if !kept.iter().any(|k| k.equals(&item)) {
                    kept.push(item);
                }
            }
            Ok(Val::items(kept))
        }
        ("sort", []) => {
            if items.windows(2).any(|pair| pair[0].compare(&pair[1]).is_none()) {
                return Some(Err(failed("list elements must have the same type")));
            }
            let mut sorted = items;
            sorted.sort_by(|a, b| a.compare(b).unwrap_or(Ordering::Equal));
            Ok(Val::items(sorted))
        }
        _ => return None,
    })
}

fn range<'v>(n: i64) -> Evaluated<'v> {
    if n < 0 {
        return Err(failed(format!("lists.range: size must be non-negative, got {n}")));
    }
    if n > RANGE_MAX {
        return Err(failed(format!("lists.range size {n} exceeds the limit of {RANGE_MAX}")));
    }
    Ok(Val::items((0..n).map(Val::Int).collect()))
}

fn sets<'v>(function: &str, left: &[Val<'v>], rest: &[Val<'v>]) -> Option<Evaluated<'v>> {
    let [Val::List(right)] = rest else { return None };
    let right = match right.to_vec() {
        Ok(items) => items,
        Err(error) => return Some(Err(failed(error))),
    };
    let within = |inner: &[Val<'v>], outer: &[Val<'v>]| inner.iter().all(|i| outer.iter().any(|o| o.equals(i)));
    Some(Ok(Val::Bool(match function {
        "sets.contains" => within(&right, left),
        "sets.equivalent" => within(&right, left) && within(left, &right),
        "sets.intersects" => left.iter().any(|l| right.iter().any(|r| r.equals(l))),
        _ => return None,
    })))
}

fn ordered(items: &[Val<'_>]) -> Result<bool, EvalError> {
    let mut sorted = true;
    for pair in items.windows(2) {
        sorted &= pair[0].compare(&pair[1]).ok_or_else(no_overload)?.is_le();
    }
    Ok(sorted)
}

fn sum<'v>(items: &[Val<'v>]) -> Evaluated<'v> {
    let Some((first, rest)) = items.split_first() else { return Ok(Val::Int(0)) };
    rest.iter().try_fold(first.clone(), |total, item| match (&total, item) {
        (Val::Duration(a), Val::Duration(b)) => a.checked_add(*b).map(Val::Duration).ok_or_else(|| failed("integer overflow")),
        _ => arithmetic::call("_+_", &[total.clone(), item.clone()]).unwrap_or_else(|| Err(no_overload())),
    })
}

fn extreme<'v>(name: &str, items: &[Val<'v>], wanted: Ordering) -> Evaluated<'v> {
    let Some((first, rest)) = items.split_first() else { return Err(failed(format!("{name} called on empty list"))) };
    let mut best = first.clone();
    for item in rest {
        if item.compare(&best).ok_or_else(no_overload)? == wanted {
            best = item.clone();
        }
    }
    Ok(best)
}

fn slice<'v>(items: &[Val<'v>], start: i64, end: i64) -> Evaluated<'v> {
    if start < 0 || end < 0 {
        return Err(failed(format!("cannot slice({start}, {end}), negative indexes not supported")));
    }
    if start > end {
        return Err(failed(format!("cannot slice({start}, {end}), start index must be less than or equal to end index")));
    }
    match items.get(start as usize..end as usize) {
        Some(part) => Ok(Val::items(part.to_vec())),
        None => Err(failed(format!("cannot slice({start}, {end}), list is length {}", items.len()))),
    }
}

fn flatten<'v>(items: &[Val<'v>], depth: i64) -> Result<Vec<Val<'v>>, EvalError> {
    let mut flat = Vec::new();
    for item in items {
        match item {
            Val::List(list @ (List::Json(..) | List::Items(_))) if depth > 0 => flat.extend(flatten(&list.to_vec()?, depth - 1)?),
            other => flat.push(other.clone()),
        }
    }
    Ok(flat)
}
