//! What is written to a server, checked before.

use crate::policy::{Format, Override, Policy, SourceError, Tree, check};

/// Stands for a customer of any kind: secrets are written so, and nothing else is taken for them.
const ANYBODY: &str = "#00000000000000000000000000000000";

impl Format {
    pub(super) fn named(name: &str) -> Option<Format> {
        [Format::Toml, Format::Json].into_iter().find(|format| format.name() == name)
    }
}

impl Policy {
    /// The document, as it was written.
    pub(super) fn written(&self) -> (&str, Format) {
        (&self.source.text, self.source.format)
    }

    /// Looks whether an override goes with this policy: whether its tier and rules are there, and the rules can be so.
    pub(super) fn check_override(&self, own: &Override) -> Result<(), SourceError> {
        let mut document = self.document.clone();
        document.overrides.insert(ANYBODY.to_owned(), own.clone());
        let Err(error) = check::check(&document, Tree::again(&self.source), None) else { return Ok(()) };
        // Their places are those of the document, where the override does not stand.
        let told = error.iter().map(|problem| {
            let message = problem.message().replace(&format!("override {ANYBODY:?}"), "the override");
            if problem.help().is_empty() { message } else { format!("{message}; {}", problem.help()) }
        });
        Err(SourceError::new(told.collect::<Vec<_>>().join("\n")))
    }
}
