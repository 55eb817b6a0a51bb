//! As much of DER as it takes to put parts of a request into a certificate as they were written.

const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;

/// A tag, a length, and what they announce.
pub(crate) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len();
    if length < 0x80 {
        out.push(u8::try_from(length).expect("below 128"));
    } else {
        let bytes = length.to_be_bytes();
        let bytes = &bytes[bytes.iter().take_while(|b| **b == 0).count()..];
        out.push(0x80 | u8::try_from(bytes.len()).expect("a length has at most eight bytes"));
        out.extend_from_slice(bytes);
    }
    out.extend_from_slice(content);
    out
}

pub(crate) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    element(SEQUENCE, &parts.concat())
}

/// A string of bits that are whole bytes.
pub(crate) fn bit_string(bytes: &[u8]) -> Vec<u8> {
    element(BIT_STRING, &[&[0], bytes].concat())
}

/// The elements inside of an element, each with its tag and length; `None` when the text breaks off.
pub(crate) fn children(element: &[u8]) -> Option<Vec<&[u8]>> {
    let (start, end) = bounds(element)?;
    let mut rest = element.get(start..end)?;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (_, end) = bounds(rest)?;
        let (child, after) = rest.split_at_checked(end)?;
        found.push(child);
        rest = after;
    }
    Some(found)
}

/// Where the content of the first element begins and ends.
fn bounds(bytes: &[u8]) -> Option<(usize, usize)> {
    let first = *bytes.get(1)?;
    if first < 0x80 {
        return Some((2, 2 + usize::from(first)));
    }
    let digits = bytes.get(2..2 + usize::from(first & 0x7f)).filter(|d| d.len() <= 4)?;
    let length = digits.iter().fold(0usize, |length, digit| (length << 8) | usize::from(*digit));
    let start = 2 + digits.len();
    Some((start, start.checked_add(length)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_together_comes_apart_again() {
        let long = element(4, &[7; 300]);
        let whole = sequence(&[&bit_string(&[1, 2]), &long, &element(5, &[])]);
        assert_eq!(children(&whole).unwrap(), [&element(3, &[0, 1, 2])[..], &long, &[5, 0]]);
        assert_eq!(long[..4], [4, 0x82, 1, 44]);
        assert!(children(&whole[..whole.len() - 1]).is_none());
    }
}
