use std::{borrow::Cow, collections::HashSet};

use super::{DEEPEST, Entry, Node, TOO_DEEP, Unreadable, Value};
use crate::policy::text::Wrong;

/// The tree of a JSON document, as RFC 8259 has it: no comments, no trailing commas.
pub(super) fn read(text: &str) -> Result<Node<'_>, Unreadable> {
    // Some editors put a byte order mark there.
    let mut reader = Reader { text, at: if text.starts_with('\u{feff}') { 3 } else { 0 } };
    let node = reader.value(0)?;
    reader.space();
    match reader.peek() {
        None => Ok(node),
        Some(_) => Err(reader.wrong("something stands behind the end of the document", "remove it")),
    }
}

struct Reader<'a> {
    text: &'a str,
    /// Always between two characters.
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Passes this ASCII character, if it is the next.
    fn pass(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn pass_while(&mut self, is: impl Fn(u8) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.bytes().position(|byte| !is(byte)).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }

    fn space(&mut self) {
        self.pass_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    }

    fn wrong(&self, message: impl Into<String>, help: &str) -> Unreadable {
        let length = self.rest().chars().next().map_or(0, char::len_utf8);
        Unreadable { span: self.at..self.at + length, wrong: Wrong::new(message, help), twice: false }
    }

    fn unexpected(&self, wanted: &str) -> Unreadable {
        let message = match self.rest().chars().next() {
            Some(found) => format!("{found:?} stands here, where {wanted} is expected"),
            None => format!("the document ends here, where {wanted} is expected"),
        };
        let comment = self.rest().starts_with("//") || self.rest().starts_with("/*") || self.rest().starts_with('#');
        let comma = self.text.get(..self.at).is_some_and(|before| before.trim_end().ends_with(','));
        let help = if comment {
            "JSON has no comments; remove it, or write the policy in TOML"
        } else if comma && matches!(self.peek(), Some(b']' | b'}')) {
            "JSON has no comma behind the last entry; remove the one before this"
        } else {
            "write JSON, as in https://www.json.org; names and texts stand in double quotes"
        };
        self.wrong(message, help)
    }

    fn value(&mut self, depth: usize) -> Result<Node<'a>, Unreadable> {
        self.space();
        let start = self.at;
        if depth > DEEPEST {
            return Err(self.wrong(TOO_DEEP.0, TOO_DEEP.1));
        }
        let value = match self.peek() {
            Some(b'{') => self.table(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => Value::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => self.word()?,
        };
        Ok(Node { span: start..self.at, value })
    }

    fn word(&mut self) -> Result<Value<'a>, Unreadable> {
        for (word, value) in [("true", Value::Bool(true)), ("false", Value::Bool(false)), ("null", Value::Null)] {
            if self.rest().starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.unexpected("a value"))
    }

    fn list(&mut self, depth: usize) -> Result<Value<'a>, Unreadable> {
        let mut nodes = Vec::new();
        self.at += 1;
        self.space();
        if self.pass(b']') {
            return Ok(Value::List(nodes));
        }
        loop {
            nodes.push(self.value(depth + 1)?);
            self.space();
            if self.pass(b']') {
                return Ok(Value::List(nodes));
            }
            if !self.pass(b',') {
                return Err(self.unexpected("`,` or `]`"));
            }
        }
    }

    fn table(&mut self, depth: usize) -> Result<Value<'a>, Unreadable> {
        let mut entries: Vec<Entry<'_>> = Vec::new();
        let mut names = HashSet::new();
        self.at += 1;
        self.space();
        if self.pass(b'}') {
            return Ok(Value::Table(entries));
        }
        loop {
            self.space();
            let start = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a name in double quotes"));
            }
            let key = self.string()?;
            let key_span = start..self.at;
            if !names.insert(key.clone()) {
                let wrong = Wrong::new("this name stands twice", "give each name once");
                return Err(Unreadable { span: key_span, wrong, twice: true });
            }
            self.space();
            if !self.pass(b':') {
                return Err(self.unexpected("`:`"));
            }
            let node = self.value(depth + 1)?;
            entries.push(Entry { key, key_span, node });
            self.space();
            if self.pass(b'}') {
                return Ok(Value::Table(entries));
            }
            if !self.pass(b',') {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
    }

    fn number(&mut self) -> Result<Value<'a>, Unreadable> {
        let start = self.at;
        self.pass(b'-');
        let whole = self.pass_while(|byte| byte.is_ascii_digit());
        if whole.is_empty() || (whole.len() > 1 && whole.starts_with('0')) {
            self.at = start;
            return Err(self.wrong("this is no number", "write it as 10, -1 or 0.5, without zeros in front"));
        }
        let mut is_whole = true;
        if self.pass(b'.') {
            is_whole = false;
            if self.pass_while(|byte| byte.is_ascii_digit()).is_empty() {
                return Err(self.unexpected("a digit"));
            }
        }
        if self.pass(b'e') || self.pass(b'E') {
            is_whole = false;
            if !self.pass(b'+') {
                self.pass(b'-');
            }
            if self.pass_while(|byte| byte.is_ascii_digit()).is_empty() {
                return Err(self.unexpected("a digit"));
            }
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        let too_large = Value::Other("a number that is too large");
        if !is_whole {
            let finite = text.parse().ok().filter(|number: &f64| number.is_finite());
            return Ok(finite.map_or(too_large, Value::Float));
        }
        let negative = || text.parse().map_or(too_large, Value::Negative);
        Ok(text.parse().map_or_else(|_| negative(), Value::Unsigned))
    }

    /// From the opening quote to behind the closing one.
    fn string(&mut self) -> Result<Cow<'a, str>, Unreadable> {
        let mut string = Cow::Borrowed("");
        self.at += 1;
        loop {
            string += self.pass_while(|byte| byte != b'"' && byte != b'\\' && byte >= 0x20);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(string);
                }
                Some(b'\\') => string.to_mut().push(self.escape()?),
                Some(_) => {
                    let help = "close it with a double quote, or write line breaks and tabs as \\n and \\t";
                    return Err(self.wrong("a text cannot hold this character as it is", help));
                }
                None => return Err(self.wrong("a text has no end", "close it with a double quote")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Unreadable> {
        let help = "write \\\", \\\\, \\/, \\b, \\f, \\n, \\r, \\t, or \\u and four digits";
        let bad = |reader: &Reader<'_>| reader.wrong("this escape is none of JSON's", help);
        let simple = match self.text.as_bytes().get(self.at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let high = self.unit().ok_or_else(|| bad(self))?;
                if let Some(letter) = char::from_u32(high) {
                    return Ok(letter);
                }
                // One character of two units.
                let start = self.at;
                let low = self.unit().filter(|low| (0xd800..0xdc00).contains(&high) && (0xdc00..0xe000).contains(low));
                let letter = low.and_then(|low| char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00)));
                return letter.ok_or_else(|| {
                    self.at = start;
                    self.wrong("half a character stands before this", "write both halves, as \\ud83d\\ude00")
                });
            }
            _ => return Err(bad(self)),
        };
        self.at += 2;
        Ok(simple)
    }

    /// `\u` and four digits.
    fn unit(&mut self) -> Option<u32> {
        let digits = self.rest().strip_prefix("\\u")?.get(..4)?;
        let unit = digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?;
        self.at += 6;
        unit
    }
}
