use std::borrow::Cow;

/// Takes percent-encoding away, so that a caller cannot write one thing in many ways. What is no encoding stays as it is.
pub(super) fn decode(bytes: &[u8]) -> Cow<'_, [u8]> {
    if !bytes.contains(&b'%') {
        return Cow::Borrowed(bytes);
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let encoded = match after {
            [high, low, ..] if *first == b'%' => digit(*high).zip(digit(*low)),
            _ => None,
        };
        match encoded {
            Some((high, low)) => {
                decoded.push(high << 4 | low);
                rest = after.get(2..).unwrap_or_default();
            }
            None => decoded.push(*first),
        }
    }
    Cow::Owned(decoded)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}
