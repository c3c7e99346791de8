use std::fmt;

use sha2::{Digest, Sha256};

/// The longest part that stands in a key as it is.
const LONGEST_PART: usize = 64;
/// The longest key of several parts.
const LONGEST: usize = 200;

/// A key in the form the store knows it by: escaped, bounded, free of braces. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Vec<u8>);

impl Key {
    /// The key of one part of any bytes.
    pub fn new(part: &[u8]) -> Key {
        let mut text = Vec::with_capacity(part.len());
        escape(part, &mut text);
        Key(text)
    }

    /// The same of bytes that are given away: what needs no escaping is not copied.
    #[inline]
    pub(crate) fn of(part: Vec<u8>) -> Key {
        if (1..=LONGEST_PART).contains(&part.len()) && is_all_plain(&part) { Key(part) } else { Key::new(&part) }
    }

    /// Stands for no key at all: the text of a key is never empty.
    pub(crate) fn absent() -> Key {
        Key(Vec::new())
    }

    pub(crate) fn is_absent(&self) -> bool {
        self.0.is_empty()
    }

    /// The key of a secret, which must not be read off the store: half of its SHA-256.
    pub fn secret(secret: &[u8]) -> Key {
        Key(digest(b'#', secret))
    }

    /// One key of several.
    pub(crate) fn join<const N: usize>(parts: [Key; N]) -> Key {
        let mut text = Vec::with_capacity(parts.iter().map(|part| part.0.len() + 3).sum());
        for (place, part) in parts.iter().enumerate() {
            if place > 0 {
                text.push(b',');
            }
            // A part with a comma is itself a join: its text escapes commas of its own.
            if part.0.contains(&b',') {
                text.push(b'(');
                text.extend_from_slice(&part.0);
                text.push(b')');
            } else {
                text.extend_from_slice(&part.0);
            }
        }
        if text.len() > LONGEST {
            text = digest(b'&', &text);
        }
        Key(text)
    }

    /// The text, as it stands in the store.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

/// Appends `part` so that no two parts give the same text, and none gives an empty one, a comma or a brace.
#[inline]
pub(crate) fn escape(part: &[u8], text: &mut Vec<u8>) {
    if part.is_empty() {
        text.push(b'~');
    } else if part.len() > LONGEST_PART {
        text.extend_from_slice(&digest(b'#', part));
    } else if is_all_plain(part) {
        text.extend_from_slice(part);
    } else {
        for byte in part {
            if is_plain(*byte) {
                text.push(*byte);
            } else {
                text.push(b'%');
                text.extend_from_slice(&hex(*byte));
            }
        }
    }
}

/// Half of a SHA-256, behind a mark that escaped text never has.
fn digest(mark: u8, bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(33);
    text.push(mark);
    for byte in Sha256::digest(bytes).iter().take(16) {
        text.extend_from_slice(&hex(*byte));
    }
    text
}

fn hex(byte: u8) -> [u8; 2] {
    let digit = |half: u8| if half < 10 { b'0' + half } else { b'a' + half - 10 };
    [digit(byte >> 4), digit(byte & 15)]
}

#[inline]
fn is_all_plain(part: &[u8]) -> bool {
    part.iter().all(|byte| is_plain(*byte))
}

/// Whether a byte stands for itself. A table, since every byte of every key is looked up.
#[inline]
#[allow(clippy::indexing_slicing)]
fn is_plain(byte: u8) -> bool {
    const PLAIN: [bool; 256] = {
        let mut plain = [false; 256];
        let mut byte = 0;
        while byte < 256 {
            let letter = byte as u8;
            plain[byte] = letter.is_ascii_alphanumeric() || matches!(letter, b'.' | b'-' | b'_' | b':' | b'@' | b'/');
            byte += 1;
        }
        plain
    };
    PLAIN[byte as usize]
}
