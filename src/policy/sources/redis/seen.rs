//! What a source has seen of its server.

use std::sync::Arc;

use super::Unread;
use crate::{
    policy::{ChangedOverrides, Policy, SourceError},
    store::Counts,
};

#[derive(Clone, Default)]
pub(super) struct Seen {
    /// When it was last looked at.
    counts: Option<Counts>,
    /// What the document came to, and after how many changes.
    loaded: Option<(u64, Arc<Result<Policy, SourceError>>)>,
    /// Why the server gives no answer, since it does not.
    away: Option<SourceError>,
    doubt: ChangedOverrides,
}

impl Seen {
    /// Of which document it is known what it came to.
    pub(super) fn document(&self) -> Option<u64> {
        self.loaded.as_ref().map(|(document, _)| *document)
    }

    pub(super) fn loaded(&self, document: u64) -> Option<Result<Policy, SourceError>> {
        let loaded = self.loaded.as_ref().filter(|(known, _)| *known == document);
        loaded.map(|(_, loaded)| Result::clone(loaded))
    }

    pub(super) fn take(&mut self, counts: Counts, read: &Result<Policy, SourceError>) {
        self.counts.get_or_insert(counts);
        self.loaded = Some((counts.documents(), Arc::new(read.clone())));
    }

    /// How it was before these, if that is not how it is.
    pub(super) fn before(&self, counts: Counts) -> Option<Counts> {
        match self.counts {
            None => Some(Counts::default()),
            Some(before) => (before != counts).then_some(before),
        }
    }

    /// Notes how it is now, and whose overrides have changed since. Where nobody knows that, it may be anybody's.
    pub(super) fn note(&mut self, before: Counts, now: Counts, changed: Option<Vec<Box<str>>>) {
        self.counts = Some(now);
        let lost = now.version < before.version || now.overrides < before.overrides;
        if lost {
            // A server that has lost what it had counts anew, and numbers mean something else.
            self.loaded = None;
        }
        match changed {
            // Any other change may have been one of overrides, by hand.
            Some(customers) if !lost && now.documents() == before.documents() => self.doubt.add(customers),
            _ => self.doubt = ChangedOverrides::All,
        }
    }

    /// Whose overrides are to be looked up again. They are told once.
    pub(super) fn doubt(&mut self) -> ChangedOverrides {
        std::mem::take(&mut self.doubt)
    }

    /// Why the server gives no answer, or gave none until now. Then what is known of the policy is to be told anew.
    pub(super) fn away(&self) -> Option<SourceError> {
        self.away.clone()
    }

    pub(super) fn is_back(&mut self) {
        self.away = None;
    }

    /// Notes that the server gives no answer, and whether that is news: it is told once, however the words for it change.
    pub(super) fn is_away(&mut self, unread: &Unread) -> bool {
        // It may come back without what it had, and count up to where it was with something else.
        self.loaded = None;
        self.doubt = ChangedOverrides::All;
        match &self.away {
            Some(known) if unread.passes || *known == unread.error => false,
            _ => {
                self.away = Some(unread.error.clone());
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(version: u64, overrides: u64) -> Counts {
        Counts { version, overrides }
    }

    #[test]
    fn a_server_that_has_lost_what_it_had_is_believed_nothing_it_said_before() {
        let read = Err(SourceError::new("of no use"));
        let mut seen = Seen::default();
        seen.take(counts(5, 2), &read);
        assert_eq!((seen.document(), seen.before(counts(5, 2))), (Some(3), None));
        // As many documents as before, and perhaps others.
        seen.note(counts(5, 2), counts(3, 0), Some(Vec::new()));
        assert_eq!((seen.document(), seen.doubt()), (None, ChangedOverrides::All));
        assert_eq!(seen.doubt(), ChangedOverrides::None);
        // Nobody has an override. Once it has counted up to where it was, the document would pass for the one before.
        seen.take(counts(5, 0), &read);
        seen.note(counts(5, 0), counts(3, 0), Some(Vec::new()));
        assert_eq!(seen.document(), None);
    }

    #[test]
    fn an_outage_is_news_once_and_what_needs_an_operator_again() {
        let unread = |text: &str, passes| Unread { error: SourceError::new(text), passes };
        let mut seen = Seen::default();
        assert!(seen.is_away(&unread("closed", true)));
        assert!(!seen.is_away(&unread("refused", true)));
        assert_eq!(seen.away(), Some(SourceError::new("closed")));
        assert!(seen.is_away(&unread("NOPERM", false)) && !seen.is_away(&unread("NOPERM", false)));
        seen.is_back();
        assert!(seen.away().is_none() && seen.is_away(&unread("closed", true)));
    }

    /// As many documents and overrides as before may be others.
    #[test]
    fn what_was_known_of_a_server_that_was_away_is_read_again() {
        let mut seen = Seen::default();
        seen.take(counts(5, 2), &Err(SourceError::new("of no use")));
        seen.is_away(&Unread { error: SourceError::new("closed"), passes: true });
        assert_eq!((seen.document(), seen.before(counts(5, 2)), seen.doubt()), (None, None, ChangedOverrides::All));
    }
}
