use std::fmt;

/// What a [check](crate::Limiter::check) found. `Display` prints it for people, problems first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Report {
    problems: Vec<String>,
    warnings: Vec<String>,
    notes: Vec<String>,
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

    /// Adds a warning, for those who know more of the application than the store does. It must hold no secrets.
    pub fn with_warning(mut self, text: impl Into<String>) -> Report {
        self.warnings.push(text.into());
        self
    }

    pub(crate) fn problem(&mut self, text: impl Into<String>) {
        self.problems.push(text.into());
    }

    pub(crate) fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Adds what was found of a node of a Cluster.
    pub(crate) fn add_node(&mut self, number: usize, other: Report) {
        let named = |text: String| format!("node {number}: {text}");
        self.problems.extend(other.problems.into_iter().map(named));
        self.warnings.extend(other.warnings.into_iter().map(named));
        self.notes.extend(other.notes.into_iter().map(named));
    }

    /// Adds what was found of a replica. The primary stands in for it, so nothing there keeps the store from deciding.
    pub(crate) fn add_replica(&mut self, other: Report) {
        let named = |text: String| format!("replica: {text}");
        self.warnings.extend(other.problems.into_iter().chain(other.warnings).map(named));
        self.notes.extend(other.notes.into_iter().map(named));
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
