//! Extractors that need not wait, and how they are put together: all of them write into one buffer.

use http::{StatusCode, request::Parts};

use super::{
    Found, IntoKey, Key,
    text::{bound, close},
};

/// Most keys fit.
const USUAL: usize = 64;

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    Absent,
    Refuse(StatusCode),
}

impl From<Miss> for Found {
    fn from(miss: Miss) -> Found {
        match miss {
            Miss::Absent => Found::Absent,
            Miss::Refuse(status) => Found::Refuse(status),
        }
    }
}

/// Finds a key.
pub(super) trait Extract: Send + Sync {
    /// Appends the text of the key. Where there is none, what was appended is for the caller to take away.
    fn write(&self, head: &Parts, text: &mut Vec<u8>) -> Result<(), Miss>;

    fn find(&self, head: &Parts) -> Found {
        let mut text = Vec::with_capacity(USUAL);
        match self.write(head, &mut text) {
            Ok(()) => Found::Key(Key::written(text)),
            Err(miss) => miss.into(),
        }
    }
}

/// A closure of the user's.
pub(super) struct Closure<F>(pub(super) F);

impl<F, K> Extract for Closure<F>
where
    F: Fn(&Parts) -> K + Send + Sync,
    K: IntoKey,
{
    fn write(&self, head: &Parts, text: &mut Vec<u8>) -> Result<(), Miss> {
        match self.find(head) {
            Found::Key(key) => text.extend_from_slice(key.as_bytes()),
            Found::Absent => return Err(Miss::Absent),
            Found::Refuse(status) => return Err(Miss::Refuse(status)),
        }
        Ok(())
    }

    fn find(&self, head: &Parts) -> Found {
        match (self.0)(head).into_key() {
            // It was found by another extractor; the marks here are those of this one.
            Found::Key(key) if key.as_bytes().first() == Some(&MARK) => Found::Key(bracketed(&key)),
            found => found,
        }
    }
}

#[cold]
fn bracketed(key: &Key) -> Key {
    Key::written([b"(", key.as_bytes(), b")"].concat())
}

/// A ready-made extractor.
pub(super) struct Writer<F>(pub(super) F);

impl<F> Extract for Writer<F>
where
    F: Fn(&Parts, &mut Vec<u8>) -> Result<(), Miss> + Send + Sync,
{
    fn write(&self, head: &Parts, text: &mut Vec<u8>) -> Result<(), Miss> {
        (self.0)(head, text)
    }
}

pub(super) fn both(first: &dyn Extract, second: &dyn Extract, head: &Parts, text: &mut Vec<u8>) -> Result<(), Miss> {
    let from = text.len();
    first.write(head, text)?;
    close(text, from);
    text.push(b',');
    let middle = text.len();
    second.write(head, text)?;
    close(text, middle);
    bound(text, from);
    Ok(())
}

/// The second key begins with marks that no other does, so that nobody reaches a count of the one by way of the other.
pub(super) fn either(
    first: &dyn Extract,
    second: &dyn Extract,
    marks: usize,
    head: &Parts,
    text: &mut Vec<u8>,
) -> Result<(), Miss> {
    let from = text.len();
    match first.write(head, text) {
        Err(Miss::Absent) => {
            text.truncate(from);
            text.resize(from + marks, MARK);
            second.write(head, text)
        }
        found => found,
    }
}

/// Escaped text never has it.
const MARK: u8 = b'|';

/// The same of keys that are found.
pub(super) fn marked(key: &Key, marks: usize) -> Key {
    let mut text = vec![MARK; marks];
    text.extend_from_slice(key.as_bytes());
    Key::written(text)
}
