use std::{error::Error, fmt, sync::Arc};

use super::{code::Code, source::Excerpt, text::Wrong};
use crate::error::BuildError;

/// More would not be read.
const MOST: usize = 100;

/// What is wrong with a document: every [`Problem`] that was found in it. Its text shows the places, with what would be right.
///
/// ```
/// use sluicegate::policy::Policy;
///
/// let error = Policy::from_toml("[[rules]]\nname = \"per-ip\"\nalgorithm = \"gcra\"\nquota = \"5/fortnight\"\nkey = \"ip\"\n").unwrap_err();
/// assert_eq!(error.to_string(), r#"policy:4:9: SG010: rule "per-ip": quota: "fortnight" is no unit of time
///   |
/// 4 | quota = "5/fortnight"
///   |         ^^^^^^^^^^^^^
///   = the units are ms, s, min, h, d, w, and calendar hour, calendar day, calendar month
/// "#);
/// let problem = error.iter().next().expect("a problem");
/// assert_eq!((problem.code(), problem.line(), problem.column()), ("SG010", 4, 9));
/// ```
///
/// All codes are on the page [`policy_errors`](crate::guide::policy_errors).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    name: Arc<str>,
    problems: Vec<Problem>,
    more: usize,
}

/// One thing that is wrong with a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    code: Code,
    message: String,
    help: String,
    line: usize,
    column: usize,
    excerpt: Option<Excerpt>,
}

impl Problem {
    pub(super) fn new(code: Code, wrong: Wrong, (line, column): (usize, usize), excerpt: Option<Excerpt>) -> Problem {
        Problem { code, message: wrong.message, help: wrong.help, line, column, excerpt }
    }

    /// Without its line, where that is not to be shown.
    pub(super) fn hidden(self, hidden: bool) -> Problem {
        Problem { excerpt: self.excerpt.filter(|_| !hidden), ..self }
    }

    /// What kind of problem it is: `SG012`. Codes do not change.
    pub fn code(&self) -> &'static str {
        self.code.text()
    }

    /// The line, from 1; 0 where it is no line's, such as a file that cannot be read.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The character of the line, from 1; 0 as with [`line`](Problem::line).
    pub fn column(&self) -> usize {
        self.column
    }

    /// Which rule and field, and what is wrong with it.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What would be right.
    pub fn help(&self) -> &str {
        &self.help
    }
}

impl PolicyError {
    pub(super) fn of(name: Arc<str>, problems: Problems) -> PolicyError {
        let Problems { mut found, more } = problems;
        found.sort_by_key(|problem| (problem.line, problem.column));
        PolicyError { name, problems: found, more }
    }

    pub(super) fn one(name: Arc<str>, code: Code, wrong: Wrong) -> PolicyError {
        PolicyError { name, problems: vec![Problem::new(code, wrong, (0, 0), None)], more: 0 }
    }

    /// Something that is wrong with the policy in a limiter, and not with the document alone.
    pub(crate) fn unusable(text: impl Into<String>) -> PolicyError {
        PolicyError::one("policy".into(), Code::Unusable, Wrong::new(text.into(), ""))
    }

    /// The problems, in the order of the document.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter()
    }

    /// Where the document came from: a file's name, or `policy`.
    pub fn source_name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, problem) in self.problems.iter().enumerate() {
            if place > 0 {
                f.write_str("\n")?;
            }
            f.write_str(&self.name)?;
            if problem.line > 0 {
                write!(f, ":{}:{}", problem.line, problem.column)?;
            }
            writeln!(f, ": {}: {}", problem.code(), problem.message)?;
            let width = problem.line.max(1).ilog10() as usize + 1;
            if let Some(excerpt) = &problem.excerpt {
                excerpt.write(f, problem.line, width)?;
            }
            if !problem.help.is_empty() {
                writeln!(f, "{:width$} = {}", "", problem.help)?;
            }
        }
        match self.more {
            0 => Ok(()),
            more => writeln!(f, "\nand {more} more"),
        }
    }
}

impl Error for PolicyError {}

/// What a limiter or its store says of rules that are sound by themselves.
impl From<BuildError> for PolicyError {
    fn from(error: BuildError) -> PolicyError {
        PolicyError::unusable(error.to_string())
    }
}

/// Problems as they are found.
#[derive(Debug, Default)]
pub(super) struct Problems {
    found: Vec<Problem>,
    more: usize,
}

impl Problems {
    /// Adds one, unless there are enough.
    pub(super) fn add(&mut self, problem: impl FnOnce() -> Problem) {
        if self.found.len() < MOST {
            self.found.push(problem());
        } else {
            self.more += 1;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.found.len() + self.more
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }
}
