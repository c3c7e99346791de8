use super::Verdict;
use crate::error::StoreError;

/// What a store knows of an ask that it could not answer whole: see [`StoreError::with`](crate::StoreError::with).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partial {
    verdicts: Box<[Option<Verdict>]>,
    /// None at all where the error that this is added to holds for every line.
    errors: Box<[Option<StoreError>]>,
    charged: bool,
    refuses: bool,
}

impl Partial {
    /// A verdict for each line of the ask, in order; `None` where there is none.
    pub fn new(verdicts: impl Into<Box<[Option<Verdict>]>>) -> Partial {
        Partial { verdicts: verdicts.into(), ..Partial::default() }
    }

    /// Says why lines were not judged, where that differs: for each line of the ask, in order, the error of the part of the store that
    /// keeps it. `None`, and none at all: it was judged, or the error holds that this is added to.
    ///
    /// Whoever decides on then treats each line by its own: a line that certainly was not charged may be charged later, though
    /// another's fate is unknown.
    pub fn failing(mut self, errors: impl Into<Box<[Option<StoreError>]>>) -> Partial {
        self.errors = errors.into();
        self
    }

    /// Says that the lines with a verdict were charged, those that fit, and stay so until somebody gives them back.
    pub fn charged(mut self, charged: bool) -> Partial {
        self.charged = charged;
        self
    }

    /// Says that the request is to be refused, whatever the verdicts: a rule refuses what cannot be judged.
    pub fn refusing(mut self, refuses: bool) -> Partial {
        self.refuses = refuses;
        self
    }

    /// One for each line of the ask; `None` where there is none.
    pub fn verdicts(&self) -> &[Option<Verdict>] {
        &self.verdicts
    }

    /// Why lines were not judged, where that differs: one for each line of the ask, or none at all. A line may have a verdict all
    /// the same, that somebody around the store gave in its stead.
    pub fn errors(&self) -> &[Option<StoreError>] {
        &self.errors
    }

    /// Whether the lines with a verdict were charged, those that fit.
    pub fn is_charged(&self) -> bool {
        self.charged
    }

    /// Whether the request is to be refused, whatever the verdicts.
    pub fn refuses(&self) -> bool {
        self.refuses
    }
}
