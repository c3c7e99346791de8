//! Elements of the `Forwarded` field (RFC 7239).

use std::net::IpAddr;

use smallvec::SmallVec;

use super::node::node;

/// The longest value of `for` that can be an address: longer ones are none.
const LONGEST: usize = 64;

/// Where the last comma stands that separates elements: those in quotes do not. Read from the right, since a caller may leave a
/// quote open, which must not swallow what our proxies wrote behind it.
pub(super) fn last_comma(bytes: &[u8]) -> Option<usize> {
    let mut quoted = false;
    let mut rest = bytes;
    while let Some((last, before)) = rest.split_last() {
        match last {
            b'"' if !is_escaped(before) => quoted = !quoted,
            b',' if !quoted => return Some(before.len()),
            _ => {}
        }
        rest = before;
    }
    None
}

/// Whether an odd number of backslashes stands at the end.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The address that an element says it is for; none when anything about the element is wrong.
pub(super) fn element(bytes: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    let mut rest = bytes.trim_ascii();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(b";") {
            rest = after.trim_ascii_start();
            continue;
        }
        let name;
        (name, rest) = token(rest)?;
        let value;
        (value, rest) = value_of(rest.strip_prefix(b"=")?)?;
        if name.eq_ignore_ascii_case(b"for") && found.replace(value).is_some() {
            return None;
        }
        rest = rest.trim_ascii_start();
        if !(rest.is_empty() || rest.starts_with(b";")) {
            return None;
        }
    }
    node(&found?)
}

type Value = SmallVec<[u8; LONGEST]>;

fn value_of(bytes: &[u8]) -> Option<(Value, &[u8])> {
    let Some(mut rest) = bytes.strip_prefix(b"\"") else {
        let (token, rest) = token(bytes)?;
        return Some((token.iter().copied().take(LONGEST + 1).collect(), rest));
    };
    let mut value = Value::new();
    loop {
        let (first, mut after) = rest.split_first()?;
        let mut byte = *first;
        match byte {
            b'"' => return Some((value, after)),
            b'\\' => {
                let (escaped, further) = after.split_first()?;
                (byte, after) = (*escaped, further);
            }
            _ => {}
        }
        // What is too long for an address need not be kept.
        if value.len() <= LONGEST {
            value.push(byte);
        }
        rest = after;
    }
}

fn token(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let end = bytes.iter().position(|byte| !is_token(byte)).unwrap_or(bytes.len());
    (end > 0).then(|| bytes.split_at(end))
}
