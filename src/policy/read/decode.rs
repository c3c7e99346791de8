//! Plain structs from trees, by serde. Errors know where they are.

use std::{fmt, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor},
    forward_to_deserialize_any,
};

use super::{Entry, Node, Value};

/// What a tree holds that a struct cannot take.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) span: Option<Range<usize>>,
    /// The fields on the way to it, the innermost first.
    pub(crate) path: Vec<String>,
}

#[derive(Debug)]
pub(crate) enum Kind {
    UnknownField(String, &'static [&'static str]),
    UnknownChoice(String, &'static [&'static str]),
    Missing(&'static str),
    Type { found: String, expected: String },
    Other(String),
}

/// The struct that this node is written as.
pub(crate) fn decode<'a, T: Deserialize<'a>>(node: &'a Node<'a>) -> Result<T, Fault> {
    T::deserialize(node)
}

impl Fault {
    fn new(kind: Kind) -> Fault {
        Fault { kind, span: None, path: Vec::new() }
    }

    /// It is here, unless it is known to be further inside.
    fn at(mut self, span: &Range<usize>) -> Fault {
        self.span.get_or_insert_with(|| span.clone());
        self
    }

    fn under(mut self, entry: &Entry<'_>) -> Fault {
        self.path.push(entry.key.clone().into_owned());
        self.at(&entry.node.span)
    }

    pub(crate) fn fields(&self) -> String {
        self.path.iter().rev().map(String::as_str).collect::<Vec<_>>().join(".")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.kind)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(text: T) -> Fault {
        Fault::new(Kind::Other(text.to_string()))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Fault {
        Fault::new(Kind::Type { found: found_in_words(found), expected: expected_in_words(expected) })
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Fault {
        <Fault as de::Error>::invalid_type(found, expected)
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Fault {
        Fault::new(Kind::UnknownField(field.to_owned(), expected))
    }

    fn unknown_variant(choice: &str, expected: &'static [&'static str]) -> Fault {
        Fault::new(Kind::UnknownChoice(choice.to_owned(), expected))
    }

    fn missing_field(field: &'static str) -> Fault {
        Fault::new(Kind::Missing(field))
    }
}

fn found_in_words(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(yes) => yes.to_string(),
        Unexpected::Unsigned(number) => format!("the number {number}"),
        Unexpected::Signed(number) => format!("the number {number}"),
        Unexpected::Float(number) => format!("the number {number}"),
        Unexpected::Str(text) => format!("the text {:?}", short(text)),
        Unexpected::Unit | Unexpected::Option => "null".into(),
        Unexpected::Seq => "a list".into(),
        Unexpected::Map => "a table".into(),
        Unexpected::Other(words) => words.into(),
        other => other.to_string(),
    }
}

fn short(text: &str) -> String {
    if text.chars().count() > 40 { format!("{}...", text.chars().take(40).collect::<String>()) } else { text.into() }
}

fn expected_in_words(expected: &dyn Expected) -> String {
    let words = expected.to_string();
    match words.as_str() {
        "u16" | "u32" | "u64" | "usize" => "a whole number, zero or more".into(),
        "f64" => "a number".into(),
        "a boolean" => "true or false".into(),
        "a string" => "a text in quotes".into(),
        "a sequence" => "a list".into(),
        "a map" => "a table".into(),
        other if other.starts_with("struct ") => "a table".into(),
        _ => words,
    }
}

impl<'de> Deserializer<'de> for &'de Node<'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let visited = match &self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(yes) => visitor.visit_bool(*yes),
            Value::Unsigned(number) => visitor.visit_u64(*number),
            Value::Negative(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::List(nodes) => visitor.visit_seq(Seq(nodes.iter())),
            Value::Table(entries) => visitor.visit_map(Map { entries: entries.iter(), value: None }),
            Value::Other(words) => Err(de::Error::invalid_type(Unexpected::Other(words), &visitor)),
        };
        visited.map_err(|fault| fault.at(&self.span))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    /// Lists are no structs, whatever the order of fields.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match &self.value {
            Value::List(_) => Err(<Fault as de::Error>::invalid_type(Unexpected::Seq, &visitor).at(&self.span)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        choices: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let visited = match &self.value {
            Value::Text(text) => visitor.visit_enum((&**text).into_deserializer()),
            _ => self.deserialize_any(Choice).and_then(|text: &str| Err(de::Error::unknown_variant(text, choices))),
        };
        visited.map_err(|fault| fault.at(&self.span))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

/// Says what an enum is written as.
struct Choice;

impl<'a> Visitor<'a> for Choice {
    type Value = &'a str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text in quotes")
    }
}

struct Seq<'a>(std::slice::Iter<'a, Node<'a>>);

impl<'a> SeqAccess<'a> for Seq<'a> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let Some(node) = self.0.next() else { return Ok(None) };
        seed.deserialize(node).map(Some).map_err(|fault| fault.at(&node.span))
    }
}

struct Map<'a> {
    entries: std::slice::Iter<'a, Entry<'a>>,
    value: Option<&'a Entry<'a>>,
}

impl<'a> MapAccess<'a> for Map<'a> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let Some(entry) = self.entries.next() else { return Ok(None) };
        self.value = Some(entry);
        let key = de::value::BorrowedStrDeserializer::new(&entry.key);
        seed.deserialize(key).map(Some).map_err(|fault: Fault| fault.at(&entry.key_span))
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        match self.value.take() {
            Some(entry) => seed.deserialize(&entry.node).map_err(|fault| fault.under(entry)),
            None => Err(de::Error::custom("a value without its name")),
        }
    }
}
