//! Documents as trees that know where in the text each part stands, whatever the format.

mod decode;
mod json;
mod plain;
mod toml;

use std::{borrow::Cow, ops::Range};

pub(super) use decode::{Fault, Kind, decode};

use super::text::Wrong;

/// A value and where it stands, in bytes. Texts are those of the document, but for those with escapes.
#[derive(Clone, Debug)]
pub(super) struct Node<'a> {
    pub(super) span: Range<usize>,
    pub(super) value: Value<'a>,
}

#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Unsigned(u64),
    Negative(i64),
    Float(f64),
    Text(Cow<'a, str>),
    List(Vec<Node<'a>>),
    Table(Vec<Entry<'a>>),
    /// What no field takes, in words.
    Other(&'static str),
}

#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub(super) key: Cow<'a, str>,
    pub(super) key_span: Range<usize>,
    pub(super) node: Node<'a>,
}

/// A step from a node to one below it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step<'a> {
    Key(&'a str),
    Index(usize),
    /// The name itself, rather than what stands under it.
    Name(&'a str),
}

/// The formats of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// `.toml`.
    Toml,
    /// `.json`, without comments and trailing commas.
    Json,
}

/// Deeper is no policy, and would take a deep stack.
const DEEPEST: usize = 64;
const TOO_DEEP: (&str, &str) = ("this is too deep", "no policy has more than 64 levels");

/// What cannot be read, and where.
pub(super) struct Unreadable {
    pub(super) span: Range<usize>,
    pub(super) wrong: Wrong,
    /// Whether a name stands twice, rather than the text being none of the format.
    pub(super) twice: bool,
}

impl Format {
    pub(super) fn name(self) -> &'static str {
        match self {
            Format::Toml => "toml",
            Format::Json => "json",
        }
    }

    pub(super) fn read(self, text: &str) -> Result<Node<'_>, Vec<Unreadable>> {
        match self {
            Format::Toml => toml::read(text),
            Format::Json => json::read(text).map_err(|unreadable| vec![unreadable]),
        }
    }
}

impl Node<'_> {
    /// Where this path leads, or as far as it goes.
    pub(super) fn locate(&self, path: &[Step<'_>]) -> Range<usize> {
        let mut node = self;
        for step in path {
            match (step, &node.value) {
                (Step::Name(name), Value::Table(entries)) => {
                    let found = entries.iter().find(|entry| entry.key == *name);
                    return found.map_or(&node.span, |entry| &entry.key_span).clone();
                }
                (Step::Key(name), Value::Table(entries)) => match entries.iter().find(|entry| entry.key == *name) {
                    Some(entry) => node = &entry.node,
                    None => break,
                },
                (Step::Index(place), Value::List(nodes)) => match nodes.get(*place) {
                    Some(below) => node = below,
                    None => break,
                },
                _ => break,
            }
        }
        node.span.clone()
    }

    /// What stands under this name.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        match &self.value {
            Value::Table(entries) => entries.iter().find(|entry| entry.key == name).map(|entry| &entry.node),
            _ => None,
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}
