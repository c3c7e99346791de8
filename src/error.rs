//! Errors one can ask: what failed, and whether trying again can help.

use std::{borrow::Cow, error::Error, fmt, sync::Arc};

use crate::store::Partial;

/// A limiter or store that cannot be built as described: which rule, which field, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildError {
    rule: Option<String>,
    field: &'static str,
    text: String,
}

impl BuildError {
    /// An error of the field `field` of a rule, for stores of one's own.
    pub fn rule(rule: &str, field: &'static str, text: String) -> BuildError {
        BuildError { rule: Some(rule.escape_debug().to_string()), field, text }
    }

    /// An error of the field `field`, for stores of one's own.
    pub fn new(field: &'static str, text: impl Into<String>) -> BuildError {
        BuildError { rule: None, field, text: text.into() }
    }

    /// The rule at fault, if it is one.
    pub fn rule_name(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// The field at fault: `quota`, `burst`, `key`, `cost`, `name`, `url` and so on.
    pub fn field(&self) -> &str {
        self.field
    }

    /// What is wrong, and what would be right.
    #[cfg(feature = "policy")]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rule) = &self.rule {
            write!(f, "rule `{rule}`: ")?;
        }
        write!(f, "{}: {}", self.field, self.text)
    }
}

impl Error for BuildError {}

/// Why a store gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError {
    kind: StoreErrorKind,
    text: Cow<'static, str>,
    uncharged: bool,
    code: Option<&'static str>,
    partial: Option<Arc<Partial>>,
}

/// The kinds of [`StoreError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// No answer within the deadline.
    Timeout,
    /// No connection could be made, or it was lost.
    Unavailable,
    /// The server answered that it cannot serve now: loading, read-only, out of memory, busy.
    Refused,
    /// The server will never serve this: missing permission, wrong type, a script error. Needs an operator.
    Permanent,
    /// The answer made no sense.
    Garbled,
    /// The store was not asked: it failed too often of late, and its circuit breaker is open.
    Open,
}

impl StoreError {
    /// An error of this kind, for stores of one's own. `text` must hold no secrets: it is logged.
    pub fn new(kind: StoreErrorKind, text: impl Into<Cow<'static, str>>) -> StoreError {
        let uncharged = matches!(kind, StoreErrorKind::Refused | StoreErrorKind::Permanent | StoreErrorKind::Open);
        StoreError { kind, text: text.into(), uncharged, code: None, partial: None }
    }

    /// What kind of failure it was.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// The server's own word for it, `OOM` or `BUSY` say, where it said one; `MAXCLIENTS` if it has as many clients as it takes. One of a
    /// few, so that it can be the label of a metric.
    pub fn code(&self) -> Option<&'static str> {
        self.code
    }

    /// Whether the deadline passed.
    pub fn is_timeout(&self) -> bool {
        self.kind == StoreErrorKind::Timeout
    }

    /// Says that nothing was charged for certain: the call was never sent, say. Of a timeout or a lost connection that is
    /// not known otherwise.
    pub fn uncharged(mut self) -> StoreError {
        self.uncharged = true;
        self
    }

    /// Says that part of it may have been charged all the same.
    #[cfg(feature = "redis")]
    pub(crate) fn doubtful(mut self) -> StoreError {
        self.uncharged = false;
        self
    }

    /// Says the server's own word for it.
    #[cfg(feature = "redis")]
    pub(crate) fn coded(mut self, code: Option<&'static str>) -> StoreError {
        self.code = code;
        self
    }

    /// Whether the ask may have been charged although no answer came.
    pub fn may_have_charged(&self) -> bool {
        !self.uncharged
    }

    /// Adds what is known of the ask all the same.
    pub fn with(mut self, partial: Partial) -> StoreError {
        self.partial = Some(Arc::new(partial));
        self
    }

    /// Why the line at this place of the ask was not judged: its [own](Partial::errors) error, or else this one. `None` if it was.
    pub(crate) fn of_line(&self, place: usize) -> Option<&StoreError> {
        let Some(partial) = self.partial() else { return Some(self) };
        match (partial.verdicts().get(place), partial.errors().get(place)) {
            (Some(Some(_)), _) => None,
            (_, Some(Some(own))) => Some(own),
            _ => Some(self),
        }
    }

    /// What is known of the ask all the same.
    pub fn partial(&self) -> Option<&Partial> {
        self.partial.as_deref()
    }

    /// Whether it may pass by itself. What is not transient needs an operator.
    pub fn is_transient(&self) -> bool {
        !matches!(self.kind, StoreErrorKind::Permanent | StoreErrorKind::Garbled)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for StoreError {}
