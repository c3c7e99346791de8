//! Where a reply ends.

use redis::{ErrorKind, RedisError, Value};

/// What no server answers to anything that is asked of it here.
const LONGEST: usize = 64 << 20;
const DEEPEST: usize = 16;

/// The first reply and its length; `None` while it is not there whole.
pub(super) fn first(bytes: &[u8]) -> Result<Option<(usize, Value)>, RedisError> {
    if let Some(found) = numbers(bytes) {
        return Ok(Some(found));
    }
    let Some(length) = length(bytes, DEEPEST)? else { return Ok(None) };
    let reply = redis::parse_redis_value(bytes.get(..length).unwrap_or_default())?;
    Ok(Some((length, reply)))
}

/// The reply if it is an array of numbers, as every decision is.
fn numbers(bytes: &[u8]) -> Option<(usize, Value)> {
    let (count, mut at) = number(bytes, b'*')?;
    let count = usize::try_from(count).ok().filter(|count| *count <= bytes.len())?;
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        let (value, length) = number(bytes.get(at..)?, b':')?;
        values.push(Value::Int(value));
        at += length;
    }
    Some((at, Value::Array(values)))
}

/// The number of a line that begins with `mark`, and the length of the line. `None` if it is anything else, or not whole.
fn number(bytes: &[u8], mark: u8) -> Option<(i64, usize)> {
    let (first, rest) = bytes.split_first()?;
    if *first != mark {
        return None;
    }
    let (negative, digits) = match rest.split_first()? {
        (b'-', digits) => (true, digits),
        _ => (false, rest),
    };
    let mut value: i64 = 0;
    for (place, byte) in digits.iter().enumerate() {
        match byte {
            // Eighteen digits always fit; there are no longer ones in a decision.
            b'0'..=b'9' if place < 18 => value = value * 10 + i64::from(byte - b'0'),
            b'\r' if place > 0 && digits.get(place + 1) == Some(&b'\n') => {
                let value = if negative { -value } else { value };
                return Some((value, 1 + usize::from(negative) + place + 2));
            }
            _ => return None,
        }
    }
    None
}

/// The length of the first reply, in bytes.
fn length(bytes: &[u8], depth: usize) -> Result<Option<usize>, RedisError> {
    let Some(line) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() > LONGEST { Err(garbled("a line has no end")) } else { Ok(None) };
    };
    let head = bytes.get(..line).unwrap_or_default();
    let Some((mark, text)) = head.split_first() else { return Err(garbled("an empty line")) };
    let after = line + 2;
    match mark {
        b'+' | b'-' | b':' => Ok(Some(after)),
        b'$' => {
            let length = match count(text)? {
                None => after,
                Some(length) => after + length + 2,
            };
            Ok((length <= bytes.len()).then_some(length))
        }
        b'*' if depth == 0 => Err(garbled("arrays in arrays")),
        b'*' => {
            let mut at = after;
            for _ in 0..count(text)?.unwrap_or(0) {
                let Some(element) = length(bytes.get(at..).unwrap_or_default(), depth - 1)? else { return Ok(None) };
                at += element;
            }
            Ok(Some(at))
        }
        _ => Err(garbled("of no known kind")),
    }
}

/// How much follows; `None` for nothing at all, which is written -1.
fn count(text: &[u8]) -> Result<Option<usize>, RedisError> {
    if text == b"-1" {
        return Ok(None);
    }
    let count = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    count.filter(|count| *count <= LONGEST).map(Some).ok_or_else(|| garbled("too long, or of no length"))
}

fn garbled(what: &'static str) -> RedisError {
    (ErrorKind::Parse, "the server's reply cannot be read", what.to_owned()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Vec<u8>> {
        let bulk = prop::collection::vec(any::<u8>(), 0..40)
            .prop_map(|bytes| [format!("${}\r\n", bytes.len()).as_bytes(), &bytes, b"\r\n"].concat());
        let leaf = prop_oneof![
            4 => any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
            2 => (-2_000_000i64..2_000_000_000_000_000).prop_map(|number| format!(":{number}\r\n").into_bytes()),
            1 => "[A-Za-z ]{0,20}".prop_map(|text| format!("+{text}\r\n").into_bytes()),
            1 => "[A-Z]{1,8} [a-z ]{0,20}".prop_map(|text| format!("-{text}\r\n").into_bytes()),
            2 => bulk,
            1 => Just(b"$-1\r\n".to_vec()),
            1 => Just(b"*-1\r\n".to_vec()),
        ];
        leaf.prop_recursive(3, 24, 6, |inner| {
            prop::collection::vec(inner, 0..6)
                .prop_map(|values| [format!("*{}\r\n", values.len()).into_bytes(), values.concat()].concat())
        })
    }

    proptest! {
        /// However the bytes come in, each reply is found once, whole, and is what the client's own parser makes of it.
        #[test]
        fn replies_are_found_whole(values in prop::collection::vec(value(), 1..6), cut in 0usize..400) {
            let bytes = values.concat();
            let (mut at, mut seen) = (0, cut.min(bytes.len()));
            for value in &values {
                let found = loop {
                    match first(&bytes[at..seen]).expect("sound") {
                        Some(found) => break found,
                        None => {
                            prop_assert!(seen < bytes.len(), "{:?}", String::from_utf8_lossy(&bytes));
                            seen += 1;
                        }
                    }
                };
                prop_assert_eq!(found.0, value.len());
                prop_assert_eq!(found.1, redis::parse_redis_value(value).expect("sound"));
                at += found.0;
            }
            prop_assert_eq!(at, bytes.len());
        }

        #[test]
        fn nothing_panics(bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"*$:+-\r\n019".to_vec())], 0..60)) {
            let _ = first(&bytes);
        }
    }

    #[test]
    fn what_no_server_says_is_an_error() {
        for bytes in [&b"\r\n"[..], b"$99999999999\r\n", b"$x\r\n", b"*-2\r\n", b"!5\r\nhello\r\n", b"HTTP/1.1 400\r\n"]
        {
            assert!(first(bytes).is_err(), "{:?}", String::from_utf8_lossy(bytes));
        }
        let deep = b"*1\r\n".repeat(DEEPEST + 2);
        assert!(first(&deep).is_err());
        assert_eq!(first(b"*3\r\n:1\r\n:-2\r\n").ok(), Some(None));
    }
}
