use std::fmt;

use sha2::{Digest, Sha256};

use super::hash::Hash;

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

    /// The one that keys share which are one too many. No other has this text.
    pub(crate) fn overflow() -> Key {
        Key(b"+new".to_vec())
    }

    pub(crate) fn is_absent(&self) -> bool {
        self.0.is_empty()
    }

    /// The key of a secret, which must not be read off the store: half of its SHA-256.
    ///
    /// Where secrets are short or guessable, use [`Key::keyed`]: whoever reads the store can try guesses against a plain hash.
    pub fn secret(secret: &[u8]) -> Key {
        Hash::default().key(secret)
    }

    /// The key of a secret under a random key of your own: half of its HMAC-SHA-256. Give it 16 bytes or more; nothing here
    /// checks that. Another `hmac_key` gives other keys, so changing it starts all counts afresh.
    ///
    /// ```
    /// use sluicegate::key::Key;
    ///
    /// let (one, other) = (b"a random hmac key", b"the one after it.");
    /// assert_eq!(Key::keyed(one, b"token"), Key::keyed(one, b"token"));
    /// assert_ne!(Key::keyed(one, b"token"), Key::keyed(other, b"token"));
    /// ```
    pub fn keyed(hmac_key: &[u8], secret: &[u8]) -> Key {
        Hash::keyed(hmac_key).key(secret)
    }

    /// A key whose text was written by the functions of this module.
    pub(super) fn written(text: Vec<u8>) -> Key {
        Key(text)
    }

    /// A key whose text is known as it stands in the store.
    #[cfg(feature = "policy")]
    pub(crate) fn stored(text: Vec<u8>) -> Key {
        Key(text)
    }

    /// The key of a count for each tenant under this key.
    pub(crate) fn of_tenant(&self, between: u8, tenant: Option<&Key>) -> Key {
        Key([&*self.0, &[between], tenant.map_or(&[], Key::as_bytes)].concat())
    }

    /// One key of several.
    pub(crate) fn join<const N: usize>(parts: [Key; N]) -> Key {
        let mut text = Vec::with_capacity(parts.iter().map(|part| part.0.len() + 3).sum());
        for (place, part) in parts.iter().enumerate() {
            if place > 0 {
                text.push(b',');
            }
            let from = text.len();
            text.extend_from_slice(&part.0);
            close(&mut text, from);
        }
        bound(&mut text, 0);
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
        Hash::default().write(part, text);
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

/// Ends a part of a join that was written from there on. A part with a comma is itself a join, since the text of other parts
/// escapes theirs: parentheses keep it apart.
pub(super) fn close(text: &mut Vec<u8>, from: usize) {
    if text.iter().skip(from).any(|byte| *byte == b',') {
        text.insert(from, b'(');
        text.push(b')');
    }
}

/// Ends a join that was written from there on.
pub(super) fn bound(text: &mut Vec<u8>, from: usize) {
    if text.len() - from > LONGEST {
        let digest = Sha256::digest(text.get(from..).unwrap_or_default());
        text.truncate(from);
        write_digest(b'&', &digest, text);
    }
}

/// Half of a SHA-256, behind a mark that escaped text never has.
pub(super) fn write_digest(mark: u8, digest: &[u8], text: &mut Vec<u8>) {
    text.push(mark);
    for byte in digest.iter().take(16) {
        text.extend_from_slice(&hex(*byte));
    }
}

pub(crate) fn hex(byte: u8) -> [u8; 2] {
    let digit = |half: u8| if half < 10 { b'0' + half } else { b'a' + half - 10 };
    [digit(byte >> 4), digit(byte & 15)]
}

#[inline]
fn is_all_plain(part: &[u8]) -> bool {
    // To the end in any case: parts are short and nearly always plain, and a branch for each byte takes longer.
    part.iter().fold(true, |all, byte| all & is_plain(*byte))
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
