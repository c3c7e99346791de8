use super::Verdict;

/// What a store knows of an ask that it could not answer whole: see [`StoreError::with`](crate::StoreError::with).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partial {
    verdicts: Box<[Option<Verdict>]>,
    charged: bool,
    refuses: bool,
}

impl Partial {
    /// A verdict for each line of the ask, in order; `None` where there is none.
    pub fn new(verdicts: impl Into<Box<[Option<Verdict>]>>) -> Partial {
        Partial { verdicts: verdicts.into(), charged: false, refuses: false }
    }

    /// Says that the lines with a verdict were charged, and stay so until somebody gives them back.
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

    /// Whether the lines with a verdict were charged.
    pub fn is_charged(&self) -> bool {
        self.charged
    }

    /// Whether the request is to be refused, whatever the verdicts.
    pub fn refuses(&self) -> bool {
        self.refuses
    }
}
