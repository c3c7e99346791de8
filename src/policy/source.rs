use std::{cell::OnceCell, fmt, ops::Range, sync::Arc};

use super::{
    code::Code,
    error::{PolicyError, Problem, Problems},
    read::{Fault, Format, Kind, Node, Step},
    text::{Wrong, did_you_mean, listed},
};

/// The text of a document, so that errors can show it.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) name: Arc<str>,
    pub(super) text: Arc<str>,
    pub(super) format: Format,
}

/// A document that was read, in parts that know where they stand.
pub(super) struct Tree<'a> {
    pub(super) source: &'a Source,
    root: OnceCell<Option<Node<'a>>>,
}

/// The most of a line that is shown.
const WIDEST: usize = 100;

/// A line of the document, with the place of a problem in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Excerpt {
    line: String,
    /// In characters of `line`.
    from: usize,
    length: usize,
}

impl Source {
    pub(super) fn new(name: &str, text: &str, format: Format) -> Source {
        Source { name: name.into(), text: text.into(), format }
    }

    /// What stands in it.
    pub(super) fn read(&self) -> Result<Node<'_>, PolicyError> {
        self.format.read(&self.text).map_err(|unreadable| {
            let mut problems = Problems::default();
            for one in unreadable {
                let code = if one.twice { Code::Twice } else { Code::Syntax };
                problems.add(|| problem(&self.text, code, one.wrong, &one.span, true));
            }
            PolicyError::of(Arc::clone(&self.name), problems)
        })
    }

    /// What is wrong with the shape of something that is called `who`.
    pub(super) fn fault(&self, who: &str, fault: &Fault, node: &Node<'_>) -> Problem {
        let fields = fault.fields();
        let at = [who, &fields].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ");
        let (code, message, help) = match &fault.kind {
            Kind::UnknownField(field, known) => {
                let help =
                    format!("{}the fields are {}", did_you_mean(field, known.iter().copied()), listed_all(known));
                (Code::UnknownField, format!("there is no field {field:?}"), help)
            }
            Kind::UnknownChoice(choice, known) => {
                let help = format!("{}give one of {}", did_you_mean(choice, known.iter().copied()), listed_all(known));
                (Code::UnknownChoice, format!("{choice:?} is none of the choices"), help)
            }
            Kind::Missing(field) => (Code::Missing, format!("{field} is missing"), missing(field).to_owned()),
            Kind::Type { found, expected } => {
                (Code::Type, format!("{found} cannot stand here"), format!("give {expected}"))
            }
            Kind::Other(text) => (Code::Type, text.clone(), String::new()),
        };
        let message = if at.is_empty() { message } else { format!("{at}: {message}") };
        problem(&self.text, code, Wrong::new(message, help), fault.span.as_ref().unwrap_or(&node.span), true)
    }
}

impl<'a> Tree<'a> {
    /// One whose root is known.
    pub(super) fn new(source: &'a Source, root: Node<'a>) -> Tree<'a> {
        Tree { source, root: OnceCell::from(Some(root)) }
    }

    /// One that was read before, and is read again where something is to be found in it.
    pub(super) fn again(source: &'a Source) -> Tree<'a> {
        Tree { source, root: OnceCell::new() }
    }

    /// A problem at the end of a path through the document.
    pub(super) fn problem(&self, code: Code, wrong: Wrong, path: &[Step<'_>]) -> Problem {
        let root = self.root.get_or_init(|| self.source.read().ok());
        let span = root.as_ref().map_or(0..0, |root| root.locate(path));
        problem(&self.source.text, code, wrong, &span, code != Code::Secret)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes of {})", self.name, self.text.len(), self.format.name())
    }
}

fn listed_all(names: &[&str]) -> String {
    if names.len() > 16 { names.join(", ") } else { listed(names.iter().copied()) }
}

/// What a field would look like that is not there.
fn missing(field: &str) -> &'static str {
    match field {
        "name" => "give the rule a name, as name = \"per-user\"; it stands in response headers and in the store",
        "algorithm" => {
            "give one of fixed_window, sliding_log, sliding_counter, token_bucket, gcra, leaky_bucket, concurrency; \
             if in doubt, token_bucket"
        }
        "key" => "say whose requests count together, as key = \"ip\", or key = \"global\" for one count over all",
        "by" => "say where it is found, as by = \"header:NAME\"",
        "share" => "give more than 0 and less than 1, as share = 0.2",
        "for" => "say which requests it is for, as for = \"header:x-priority=high\"",
        "tenant" => "say who shares it, as tenant = \"header:x-tenant\"",
        "max_wait" => "say how long a request may wait, as max_wait = \"2s\"",
        "max_waiters" => "say how many requests may wait, as max_waiters = 50",
        "after" => "say how many strikes are a ban, as after = 5",
        _ => "",
    }
}

fn problem(text: &str, code: Code, wrong: Wrong, span: &Range<usize>, shown: bool) -> Problem {
    let start = (0..=span.start.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (before, after) = text.split_at(start);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let begin = before.rfind('\n').map_or(0, |at| at + 1);
    let head = before.get(begin..).unwrap_or_default();
    let column = head.chars().count() + 1;
    let tail = after.lines().next().unwrap_or_default();
    let inside = tail.char_indices().take_while(|(at, _)| start + at < span.end).count().max(1);
    let excerpt = shown.then(|| Excerpt::new(head, tail, inside));
    Problem::new(code, wrong, (line, column), excerpt)
}

impl Excerpt {
    /// A long line is cut on both sides: JSON may have but one.
    fn new(head: &str, tail: &str, inside: usize) -> Excerpt {
        // Control characters would play tricks on terminals.
        let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
        let room = WIDEST / 2;
        let before = head.chars().count();
        let cut = before > room;
        let skipped = if cut { before - room + 3 } else { 0 };
        let mut line = if cut { "...".to_owned() } else { String::new() };
        line.extend(head.chars().skip(skipped).map(plain));
        let from = line.chars().count();
        let mut rest = tail.chars();
        line.extend(rest.by_ref().take(WIDEST - from).map(plain));
        let length = inside.min(line.chars().count() - from).max(1);
        if rest.next().is_some() {
            line.push_str("...");
        }
        Excerpt { line: line.trim_end().to_owned(), from, length }
    }

    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, line: usize, width: usize) -> fmt::Result {
        writeln!(f, "{:width$} |", "")?;
        writeln!(f, "{line} | {}", self.line)?;
        writeln!(f, "{:width$} | {:from$}{:^<length$}", "", "", "", from = self.from, length = self.length)
    }
}
