//! Fields that may be written in more than one way.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, SeqAccess, Visitor},
};

/// A text, or a list of texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::policy) enum Texts {
    One(String),
    Several(Vec<String>),
}

impl Texts {
    pub(in crate::policy) fn as_slice(&self) -> &[String] {
        match self {
            Texts::One(text) => std::slice::from_ref(text),
            Texts::Several(texts) => texts,
        }
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Texts, D::Error> {
        struct Reads;

        impl<'de> Visitor<'de> for Reads {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text in quotes, or a list of such texts")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Texts, E> {
                Ok(Texts::One(text.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Texts, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element()? {
                    texts.push(text);
                }
                Ok(Texts::Several(texts))
            }
        }

        deserializer.deserialize_any(Reads)
    }
}

/// A whole number, or a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::policy) enum CostText {
    Units(u64),
    Name(String),
}

struct NumberOrText<T> {
    words: &'static str,
    of_number: fn(u64) -> T,
    of_text: fn(String) -> T,
}

impl<T> Visitor<'_> for NumberOrText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        Ok((self.of_number)(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        Ok((self.of_text)(text.into()))
    }
}

impl<'de> Deserialize<'de> for CostText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CostText, D::Error> {
        let words = "a whole number, or the name of a cost that code registers";
        deserializer.deserialize_any(NumberOrText { words, of_number: CostText::Units, of_text: CostText::Name })
    }
}

/// The code of a response, as 401, or a class of them, as `5xx`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::policy) enum StatusText {
    Code(u64),
    Class(String),
}

impl<'de> Deserialize<'de> for StatusText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StatusText, D::Error> {
        let words = "the code of a response, as 401, or a class, as \"5xx\"";
        deserializer.deserialize_any(NumberOrText { words, of_number: StatusText::Code, of_text: StatusText::Class })
    }
}

impl fmt::Display for StatusText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StatusText::Code(code) => code.fmt(f),
            StatusText::Class(class) => f.write_str(class),
        }
    }
}
