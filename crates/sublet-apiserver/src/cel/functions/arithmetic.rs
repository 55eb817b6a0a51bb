//! `+ - * / %` of numbers.

use super::super::eval::{Evaluated, failed};
use super::super::value::{Text, Val};

pub(super) fn call<'v>(function: &str, args: &[Val<'v>]) -> Option<Evaluated<'v>> {
    Some(match (function, args) {
        ("-_", [Val::Int(n)]) => integer(n.checked_neg()),
        ("-_", [Val::Double(n)]) => Ok(Val::Double(-n)),
        ("_+_", [Val::String(a), Val::String(b)]) => Ok(Val::String(Text::Shared(format!("{}{}", a.as_str(), b.as_str()).into()))),
        ("_+_", [Val::Bytes(a), Val::Bytes(b)]) => Ok(Val::Bytes([a.as_ref(), b.as_ref()].concat().into())),
        (_, [Val::Int(a), Val::Int(b)]) => integers(function, *a, *b)?,
        (_, [Val::Uint(a), Val::Uint(b)]) => unsigned(function, *a, *b)?,
        (_, [Val::Double(a), Val::Double(b)]) => Ok(Val::Double(match function {
            "_+_" => a + b,
            "_-_" => a - b,
            "_*_" => a * b,
            "_/_" => a / b,
            _ => return None,
        })),
        _ => return None,
    })
}

fn integer<'v>(result: Option<i64>) -> Evaluated<'v> {
    result.map(Val::Int).ok_or_else(|| failed("integer overflow"))
}

fn integers<'v>(function: &str, a: i64, b: i64) -> Option<Evaluated<'v>> {
    Some(match function {
        "_+_" => integer(a.checked_add(b)),
        "_-_" => integer(a.checked_sub(b)),
        "_*_" => integer(a.checked_mul(b)),
        "_/_" if b == 0 => Err(failed("division by zero")),
        "_/_" => integer(a.checked_div(b)),
        "_%_" if b == 0 => Err(failed("modulus by zero")),
        "_%_" => integer(a.checked_rem(b)),
        _ => return None,
    })
}

fn unsigned<'v>(function: &str, a: u64, b: u64) -> Option<Evaluated<'v>> {
    let checked = |result: Option<u64>| result.map(Val::Uint).ok_or_else(|| failed("unsigned integer overflow"));
    Some(match function {
        "_+_" => checked(a.checked_add(b)),
        "_-_" => checked(a.checked_sub(b)),
        "_*_" => checked(a.checked_mul(b)),
        "_/_" if b == 0 => Err(failed("division by zero")),
        "_/_" => checked(a.checked_div(b)),
        "_%_" if b == 0 => Err(failed("modulus by zero")),
        "_%_" => checked(a.checked_rem(b)),
        _ => return None,
    })
}
