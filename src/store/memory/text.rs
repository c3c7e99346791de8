//! The text of a key as an entry keeps it, in 24 bytes: short ones whole, long ones elsewhere.

/// The longest that stands in the entry.
const LONGEST: usize = 22;

pub(super) enum Text {
    Short { length: u8, text: [u8; LONGEST] },
    Long(Box<[u8]>),
}

const _: () = assert!(size_of::<Text>() == 24);

impl Text {
    pub(super) fn new(text: &[u8]) -> Text {
        let mut short = [0; LONGEST];
        match short.get_mut(..text.len()) {
            Some(place) => {
                place.copy_from_slice(text);
                Text::Short { length: text.len() as u8, text: short }
            }
            None => Text::Long(text.into()),
        }
    }

    /// Whether it is this text.
    #[inline]
    pub(super) fn is(&self, wanted: &[u8]) -> bool {
        match self {
            Text::Short { length, text } => {
                usize::from(*length) == wanted.len() && text.get(..wanted.len()) == Some(wanted)
            }
            Text::Long(text) => **text == *wanted,
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Text::Short { length, text } => text.get(..usize::from(*length)).unwrap_or(text),
            Text::Long(text) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text() -> impl Strategy<Value = Vec<u8>> {
        // Of few letters, zeros among them, so that many are nearly the same.
        prop::collection::vec(0u8..2, 0..30)
    }

    proptest! {
        #[test]
        fn only_the_same_text_is_the_same(one in text(), other in text()) {
            let kept = Text::new(&one);
            prop_assert_eq!(kept.as_bytes(), &one[..]);
            prop_assert!(kept.is(&one));
            prop_assert_eq!(kept.is(&other), one == other);
        }
    }
}
