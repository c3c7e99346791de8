use http::HeaderValue;
use smallvec::SmallVec;

/// The largest Integer of a structured field.
pub(super) const LARGEST: u64 = 999_999_999_999_999;

/// Text that becomes a header value: gathered on the stack, so that the value takes one allocation of its size.
pub(super) struct Text(SmallVec<[u8; 128]>);

impl Text {
    pub(super) fn new() -> Text {
        Text(SmallVec::new())
    }

    #[inline]
    pub(super) fn text(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    #[inline]
    pub(super) fn number(&mut self, number: u64) {
        self.text(itoa::Buffer::new().format(number.min(LARGEST)));
    }

    /// With leading zeros.
    pub(super) fn digits(&mut self, number: u64, width: usize) {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(number.min(LARGEST));
        (digits.len()..width).for_each(|_| self.0.push(b'0'));
        self.text(digits);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Only printable ASCII is written, which every header value may hold.
    #[inline]
    pub(super) fn value(&self) -> Option<HeaderValue> {
        HeaderValue::from_bytes(&self.0).ok()
    }
}

/// The value that `write` makes.
pub(super) fn value(write: impl FnOnce(&mut Text)) -> Option<HeaderValue> {
    let mut text = Text::new();
    write(&mut text);
    text.value()
}

/// The value of one number.
#[inline]
pub(super) fn number(number: u64) -> Option<HeaderValue> {
    HeaderValue::from_bytes(itoa::Buffer::new().format(number.min(LARGEST)).as_bytes()).ok()
}

/// Quotes and backslashes escaped, as structured-field strings and JSON both have it. Rule names are printable ASCII.
pub(crate) fn push_escaped(text: &mut String, name: &str) {
    for letter in name.chars() {
        if matches!(letter, '"' | '\\') {
            text.push('\\');
        }
        text.push(letter);
    }
}
