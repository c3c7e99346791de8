use std::fmt;

/// What a [check](crate::Limiter::check) found. `Display` prints it for people, problems first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Report {
    problems: Vec<String>,
    warnings: Vec<String>,
    notes: Vec<String>,
    /// How many microseconds this machine's clock is ahead of the store's, if that is known.
    clock: Option<i64>,
}

impl Report {
    /// Whether decisions can be made. There may be warnings all the same.
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }

    /// What keeps the store from deciding, and the remedy.
    pub fn problems(&self) -> impl Iterator<Item = &str> {
        self.problems.iter().map(String::as_str)
    }

    /// What works and is unsafe.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.warnings.iter().map(String::as_str)
    }

    /// What was found, and what could not be seen.
    pub fn notes(&self) -> impl Iterator<Item = &str> {
        self.notes.iter().map(String::as_str)
    }

    /// Adds what keeps the store from deciding, and the remedy. It must hold no secrets, here and below.
    pub fn problem(&mut self, text: impl Into<String>) {
        self.problems.push(text.into());
    }

    /// Adds what works and is unsafe.
    pub fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    /// Adds how many microseconds this machine's clock is ahead of that of a part of the store. The largest difference counts.
    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    pub(crate) fn clock(&mut self, ahead: Option<i64>) {
        self.clock = self.clock.into_iter().chain(ahead).max_by_key(|ahead| ahead.unsigned_abs());
    }

    pub(crate) fn clock_ahead(&self) -> Option<i64> {
        self.clock
    }

    /// Adds what was found.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_ok() { "the rate limit store is ready" } else { "the rate limit store cannot decide" })?;
        for (word, lines) in [("problem", &self.problems), ("warning", &self.warnings), ("note", &self.notes)] {
            for line in lines {
                write!(f, "\n{word}: {line}")?;
            }
        }
        Ok(())
    }
}
