//! Plain TOML documents, whose trees are made while they are parsed.
//!
//! Nearly all are plain: each table in one place, no dates, and not very many names beside each other. Whatever else there is in TOML, and
//! whatever is wrong, is left to the `toml` crate, which gathers maps first and takes twice as long.

use std::{borrow::Cow, ops::Range};

use toml_parser::{
    ErrorSink, ParseError, Source, Span,
    decoder::{Encoding, ScalarKind},
    parser::{EventReceiver, ValidateWhitespace, parse_document},
};

use super::{DEEPEST, Entry, Node, Value, toml::integer};

/// Names are looked for one by one, which is quick among few.
const FEW: usize = 64;
/// The most dots in a name.
const MOST_DOTS: usize = 8;

/// The tree of a plain document. `None`: it is not one, or something is wrong with it.
///
/// # Errors
///
/// Where something stands too deep, plain or not. The `toml` crate bounds how deep brackets go and how many dots a name has, but not both
/// together, and whoever goes down into its tables, or drops them, runs out of stack.
pub(super) fn read(text: &str) -> Result<Option<Node<'_>>, Range<usize>> {
    let source = Source::new(text);
    let tokens = source.lex().into_vec();
    let mut tree = Tree::of(source);
    let mut wrong: Option<ParseError> = None;
    parse_document(&tokens, &mut ValidateWhitespace::new(&mut tree, source), &mut wrong);
    match tree.too_deep {
        Some(span) => Err(span),
        None => Ok(if wrong.is_some() { None } else { tree.finish() }),
    }
}

struct Name<'a> {
    text: Cow<'a, str>,
    span: Range<usize>,
    /// Whether it stands behind a dot, and so in the table that the name before it is of.
    is_below: bool,
}

/// A tree in the making.
struct Tree<'a> {
    source: Source<'a>,
    /// The tables that are done.
    root: Vec<Entry<'a>>,
    /// The one that is being written, and its header.
    table: Vec<Entry<'a>>,
    header: Option<Header<'a>>,
    /// Where a header begins that is being read.
    begun: Option<usize>,
    /// Whether a dot was the last thing.
    is_dotted: bool,
    /// Names whose values are still to come, or that of a header.
    names: Vec<Name<'a>>,
    /// How many of them are the one that was read last.
    parts: usize,
    /// Lists and tables that are not closed, each in the one before it.
    open: Vec<Open<'a>>,
    /// How many names and lists are around what comes next.
    depth: usize,
    too_deep: Option<Range<usize>>,
    is_plain: bool,
}

struct Header<'a> {
    above: Vec<Name<'a>>,
    name: Name<'a>,
    span: Range<usize>,
    is_list: bool,
}

struct Open<'a> {
    start: usize,
    /// How many names and lists it is below what is around it.
    depth: usize,
    value: Holding<'a>,
}

enum Holding<'a> {
    List(Vec<Node<'a>>),
    Table(Vec<Entry<'a>>),
}

impl<'a> Tree<'a> {
    fn of(source: Source<'a>) -> Tree<'a> {
        let (root, table, names, open) = Default::default();
        Tree {
            source,
            root,
            table,
            header: None,
            begun: None,
            is_dotted: false,
            names,
            parts: 0,
            open,
            depth: 0,
            too_deep: None,
            is_plain: true,
        }
    }

    fn finish(mut self) -> Option<Node<'a>> {
        self.is_plain &= self.names.is_empty() && self.open.is_empty() && self.begun.is_none();
        self.hang();
        // The whole text; an error that is nowhere else is at its start.
        self.is_plain.then_some(Node { span: 0..0, value: Value::Table(self.root) })
    }

    /// Hangs the table that is done where its header says.
    fn hang(&mut self) {
        let table = std::mem::take(&mut self.table);
        match self.header.take() {
            None => self.root = table,
            Some(header) => self.is_plain &= hang(&mut self.root, header, table).is_some(),
        }
    }

    fn close_header(&mut self, close: Span, is_list: bool) {
        self.hang();
        let (Some(begun), Some(name)) = (self.begun.take(), self.names.pop()) else {
            self.is_plain = false;
            return;
        };
        let above = std::mem::take(&mut self.names);
        self.header = Some(Header { above, name, span: begun..close.end(), is_list });
    }

    /// Whether it may be gone into.
    fn open(&mut self, span: Span, value: Holding<'a>) -> bool {
        let depth = std::mem::take(&mut self.parts) + usize::from(matches!(value, Holding::List(_)));
        self.depth += depth;
        self.open.push(Open { start: span.start(), depth, value });
        self.note_depth(span)
    }

    fn close(&mut self, span: Span) {
        let Some(Open { start, depth, value }) = self.open.pop() else {
            self.is_plain = false;
            return;
        };
        self.depth -= depth;
        let value = match value {
            Holding::List(nodes) => Value::List(nodes),
            Holding::Table(entries) => Value::Table(entries),
        };
        self.put(Node { span: start..span.end(), value });
    }

    /// Whether it is not too deep yet.
    fn note_depth(&mut self, span: Span) -> bool {
        let is_too_deep = self.depth + self.parts > DEEPEST;
        if is_too_deep {
            self.too_deep.get_or_insert(span.start()..span.end());
        }
        !is_too_deep
    }

    /// A value is whole.
    fn put(&mut self, node: Node<'a>) {
        let table = match self.open.last_mut().map(|open| &mut open.value) {
            Some(Holding::List(nodes)) => return nodes.push(node),
            Some(Holding::Table(entries)) => entries,
            None => &mut self.table,
        };
        self.is_plain &= put(table, &mut self.names, node).is_some();
    }
}

/// Puts a value under the name that was read last. `None`: something is there already.
fn put<'a>(table: &mut Vec<Entry<'a>>, names: &mut Vec<Name<'a>>, node: Node<'a>) -> Option<()> {
    let behind = names.iter().rev().take_while(|name| name.is_below).count();
    if behind > MOST_DOTS {
        return None;
    }
    let mut own = names.drain(names.len().checked_sub(behind + 1)?..);
    let mut entries = table;
    for name in own.by_ref().take(behind) {
        let is_dotted = |entry: &Entry<'_>| entry.node.span == entry.key_span;
        entries = below(entries, name, is_dotted)?;
    }
    let name = own.next()?;
    let None = place_of(entries, &name.text)? else { return None };
    entries.push(Entry { key: name.text, key_span: name.span, node });
    Some(())
}

/// The table under a name, where there is one that may be added to, or none yet.
fn below<'t, 'a>(
    entries: &'t mut Vec<Entry<'a>>,
    name: Name<'a>,
    may_be_added_to: fn(&Entry<'a>) -> bool,
) -> Option<&'t mut Vec<Entry<'a>>> {
    let place = match place_of(entries, &name.text)? {
        Some(place) => place,
        None => {
            let node = Node { span: name.span.clone(), value: Value::Table(Vec::new()) };
            entries.push(Entry { key: name.text, key_span: name.span, node });
            entries.len() - 1
        }
    };
    let entry = entries.get_mut(place).filter(|entry| may_be_added_to(entry))?;
    let value = match &mut entry.node.value {
        Value::List(nodes) => &mut nodes.last_mut()?.value,
        value => value,
    };
    match value {
        Value::Table(below) => Some(below),
        _ => None,
    }
}

/// `None`: something is there already, or cannot be reached so.
fn hang<'a>(root: &mut Vec<Entry<'a>>, header: Header<'a>, table: Vec<Entry<'a>>) -> Option<()> {
    let Header { above, name, span, is_list } = header;
    if above.len() > MOST_DOTS {
        return None;
    }
    let mut entries = root;
    for name in above {
        entries = below(entries, name, is_by_header)?;
    }
    let node = Node { span: span.clone(), value: Value::Table(table) };
    match place_of(entries, &name.text)? {
        None => {
            let value = if is_list { Node { span, value: Value::List(vec![node]) } } else { node };
            entries.push(Entry { key: name.text, key_span: name.span, node: value });
            Some(())
        }
        Some(place) => {
            let entry = entries.get_mut(place).filter(|entry| is_list && is_by_header(entry))?;
            match &mut entry.node.value {
                Value::List(nodes) => nodes.push(node),
                _ => return None,
            }
            Some(())
        }
    }
}

/// Where this name stands; `None` if there are too many to look.
fn place_of(entries: &[Entry<'_>], name: &str) -> Option<Option<usize>> {
    (entries.len() < FEW).then(|| entries.iter().position(|entry| entry.key == name))
}

/// Whether it is a table with a header, or above one, or a list of those: a value stands behind its name.
fn is_by_header(entry: &Entry<'_>) -> bool {
    entry.node.span.start <= entry.key_span.start
}

impl EventReceiver for Tree<'_> {
    fn std_table_open(&mut self, span: Span, _: &mut dyn ErrorSink) {
        self.begun = Some(span.start());
    }

    fn std_table_close(&mut self, span: Span, _: &mut dyn ErrorSink) {
        self.close_header(span, false);
    }

    fn array_table_open(&mut self, span: Span, _: &mut dyn ErrorSink) {
        self.begun = Some(span.start());
    }

    fn array_table_close(&mut self, span: Span, _: &mut dyn ErrorSink) {
        self.close_header(span, true);
    }

    fn inline_table_open(&mut self, span: Span, _: &mut dyn ErrorSink) -> bool {
        self.open(span, Holding::Table(Vec::new()))
    }

    fn inline_table_close(&mut self, span: Span, _: &mut dyn ErrorSink) {
        self.close(span);
    }

    fn array_open(&mut self, span: Span, _: &mut dyn ErrorSink) -> bool {
        self.open(span, Holding::List(Vec::new()))
    }

    fn array_close(&mut self, span: Span, _: &mut dyn ErrorSink) {
        self.close(span);
    }

    fn simple_key(&mut self, span: Span, kind: Option<Encoding>, error: &mut dyn ErrorSink) {
        let mut name = Cow::Borrowed("");
        match self.source.input().get(span.start()..span.end()) {
            Some(raw) => toml_parser::Raw::new_unchecked(raw, kind, span).decode_key(&mut name, error),
            None => self.is_plain = false,
        }
        let is_below = std::mem::take(&mut self.is_dotted);
        self.parts = if is_below { self.parts + 1 } else { 1 };
        self.note_depth(span);
        self.names.push(Name { text: name, span: span.start()..span.end(), is_below });
    }

    fn key_sep(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.is_dotted = true;
    }

    fn scalar(&mut self, span: Span, kind: Option<Encoding>, error: &mut dyn ErrorSink) {
        let mut text = Cow::Borrowed("");
        let Some(raw) = self.source.input().get(span.start()..span.end()) else {
            self.is_plain = false;
            return;
        };
        let value = match toml_parser::Raw::new_unchecked(raw, kind, span).decode_scalar(&mut text, error) {
            ScalarKind::String => Value::Text(text),
            ScalarKind::Boolean(yes) => Value::Bool(yes),
            ScalarKind::Float => text.parse().map_or(Value::Other("a number"), Value::Float),
            ScalarKind::Integer(radix) => integer(&text, radix.value()),
            ScalarKind::DateTime => {
                self.is_plain = false;
                return;
            }
        };
        self.put(Node { span: span.start()..span.end(), value });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::toml::read_any, read};

    /// Whether it is plain; if so, the tree is what the `toml` crate makes of it.
    fn is_plain(text: &str) -> bool {
        let Ok(Some(node)) = read(text) else { return false };
        let Ok(other) = read_any(text) else { panic!("something is wrong with it:\n{text}") };
        assert_eq!(format!("{node:#?}"), format!("{other:#?}"), "{text}");
        true
    }

    const LINES: &[&str] = &[
        "[a]",
        "[b]",
        "[a.b]",
        "[ a . 'c' ]",
        "[a.b.c]",
        "[[a]]",
        "[[b]]",
        "[[a.b]]",
        "a = 1",
        "b = \"text\"",
        "c = [1, [2.5, true], { a = 1, b = [] }]",
        "c = { d = 1, d = 2 }",
        "d = { e.f = 1, e.g = 2 }",
        "d = { e = {}, e.f = 1 }",
        "a.b = 2",
        "a.c = 2",
        "a.b.c = 2",
        "a.b.d = 2",
        "[d.e]",
        "\"b\" = 'more'",
        "e = \"\"\"\nof\\n\nlines\"\"\" # and why",
        "f = [[{}], [{}]]",
        "g = 2026-11-18",
        "h = 0xff",
        "i = -7",
        "j = 1_000.5e3",
        "k = 99999999999999999999",
        "l = [1 2]",
        "m =",
        "= 5",
        "[",
        "[a",
        "[]",
        "a = { b = 1",
        "}",
        "]",
        "n = \"no end",
        "o = \u{1}",
        "# \u{1}",
        "",
    ];

    #[test]
    fn documents_that_people_write_are_plain() {
        let gateway = include_str!("../../../examples/gateway.toml");
        assert!(is_plain(gateway));
        assert!(is_plain("") && is_plain("a = 1") && is_plain("\u{feff}a = 1\r\n[[b]]\r\n[b.c]\r\n[[b]]\r\n[b.c]"));
        // And what makes them not.
        for text in
            ["a.b = 1\na.b.c = 2", "a = 2026-11-18", "[a.b]\n[a]", "a = 1\na = 2", "[a]\n[a]", "a = {}\n[a.b]", "a ="]
        {
            assert!(!is_plain(text), "{text}");
        }
        let many: String = (0..100).map(|number| format!("[a.b{number}]\n")).collect();
        assert!(!is_plain(&many) && is_plain(&"[[a]]\nb.c = 1\nb.d = 2\n".repeat(100)));
    }

    #[test]
    fn depth_is_no_danger() {
        for depth in [60, 63, 64, 79, 80, 81, 10_000] {
            let lists = format!("a = {}{}", "[".repeat(depth), "]".repeat(depth));
            assert_eq!((is_plain(&lists), read(&lists).is_err()), (depth < 64, depth >= 64), "{depth}");
            is_plain(&format!("[{}a]", "a.".repeat(depth)));
            is_plain(&format!("{}a = 1", "a.".repeat(depth)));
            is_plain(&format!("a = {{ {}a = 1 }}", "a.".repeat(depth)));
            for dots in [0, 79] {
                let inner = format!("{{ {}a = ", "a.".repeat(dots));
                is_plain(&format!("a = {}1{}", inner.repeat(depth.min(100)), "}".repeat(depth.min(100))));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn what_is_plain_is_what_it_always_was(lines in prop::collection::vec(prop::sample::select(LINES), 0..8)) {
            is_plain(&lines.join("\n"));
        }

        #[test]
        fn so_is_what_was_spoiled(place in 0usize..4_000, with in "[\\[\\]{}=.,\"'#\n a-c0-9]{0,3}", less in 0usize..4) {
            let gateway = include_str!("../../../examples/gateway.toml");
            let cut = |place: usize| (0..=place.min(gateway.len())).rev().find(|at| gateway.is_char_boundary(*at)).unwrap_or(0);
            is_plain(&[&gateway[..cut(place)], &with, &gateway[cut(place + less)..]].concat());
        }
    }
}
