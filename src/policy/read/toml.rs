use std::ops::Range;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{Entry, Node, TOO_DEEP, Unreadable, Value, plain};
use crate::policy::text::Wrong;

/// The tree of a TOML document, or all that is wrong with its text.
pub(super) fn read(text: &str) -> Result<Node<'_>, Vec<Unreadable>> {
    match plain::read(text) {
        Ok(Some(node)) => Ok(node),
        Ok(None) => read_any(text),
        Err(span) => Err(vec![Unreadable { span, wrong: Wrong::new(TOO_DEEP.0, TOO_DEEP.1), twice: false }]),
    }
}

/// The same, plain or not, where nothing stands too deep.
pub(super) fn read_any(text: &str) -> Result<Node<'_>, Vec<Unreadable>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(errors.iter().map(|error| unreadable(error, text.len())).collect());
    }
    // The whole text; an error that is nowhere else is at its start.
    Ok(Node { span: 0..0, value: Value::Table(entries(table.into_inner())) })
}

fn unreadable(error: &toml::de::Error, end: usize) -> Unreadable {
    let span = error.span().unwrap_or(end..end);
    let message = error.message().lines().collect::<Vec<_>>().join(", ");
    let twice = message.starts_with("duplicate key");
    let wrong = if twice {
        Wrong::new("this name stands twice", "give each name once; a table can be written in one place only")
    } else {
        Wrong::new(message, "write TOML, as in https://toml.io/en/v1.0.0; texts stand in double quotes")
    };
    Unreadable { span, wrong, twice }
}

/// In the order of the document.
fn entries(table: DeTable<'_>) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry<'_>> = table
        .into_iter()
        .map(|(key, value)| Entry { key_span: key.span(), key: key.into_inner(), node: node(value) })
        .collect();
    entries.sort_by_key(|entry| entry.key_span.start);
    entries
}

fn node(value: Spanned<DeValue<'_>>) -> Node<'_> {
    let span: Range<usize> = value.span();
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text),
        DeValue::Integer(number) => integer(number.as_str(), number.radix()),
        DeValue::Float(number) => number.as_str().parse().map_or(Value::Other("a number"), Value::Float),
        DeValue::Boolean(yes) => Value::Bool(yes),
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Array(values) => Value::List(values.into_iter().map(node).collect()),
        DeValue::Table(table) => Value::Table(entries(table)),
    };
    Node { span, value }
}

pub(super) fn integer(digits: &str, radix: u32) -> Value<'static> {
    // Its sign stands in front of all digits or none.
    if let Ok(number) = u64::from_str_radix(digits, radix) {
        return Value::Unsigned(number);
    }
    i64::from_str_radix(digits, radix).map_or(Value::Other("a number that is too large"), Value::Negative)
}
