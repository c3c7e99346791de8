//! Lets attempts to connect to one server pass, one at a time and not too often while it is not to be had.

use tokio::{sync::watch, time::Instant};

use super::pace::{Pace, jitter};
use crate::error::{StoreError, StoreErrorKind};

#[derive(Debug, Default)]
pub(super) struct Gate {
    pace: Pace,
    /// Lasts as long as the attempt that was let through last.
    trying: Option<watch::Receiver<()>>,
    error: Option<StoreError>,
}

/// May an attempt begin?
pub(super) enum Leave {
    /// Yes; whoever waits for it has the receiver, and the sender's end is the attempt's.
    Go(watch::Sender<()>, watch::Receiver<()>),
    /// Another is under way.
    Wait(watch::Receiver<()>),
    /// Not yet; this is what came of the last.
    No(StoreError),
}

impl Gate {
    pub(super) fn leave(&mut self) -> Leave {
        if let Some(trying) = &self.trying
            && !self.pace.is_sound()
            && trying.has_changed().is_ok()
        {
            return Leave::Wait(trying.clone());
        }
        if self.pace.begin(Instant::now(), jitter()) {
            let (done, made) = watch::channel(());
            self.trying = Some(made.clone());
            return Leave::Go(done, made);
        }
        let unknown = || StoreError::new(StoreErrorKind::Unavailable, "no connection").uncharged();
        Leave::No(self.error.clone().unwrap_or_else(unknown))
    }

    /// Why there is no connection, if the last attempt failed or the last connection was lost.
    pub(super) fn error(&self) -> Option<StoreError> {
        self.error.clone()
    }

    pub(super) fn made(&mut self) {
        self.error = None;
        self.pace.made(Instant::now());
    }

    pub(super) fn failed(&mut self, error: StoreError) {
        self.error = Some(error);
        self.pace.failed(Instant::now(), jitter());
    }

    /// A connection was lost for this reason.
    pub(super) fn lost(&mut self, why: StoreError) {
        // Who asks while there is none has sent nothing.
        self.error = Some(why.uncharged());
        self.pace.lost(Instant::now());
    }

    /// Whether a connection could be replaced at once, were it given up now.
    pub(super) fn is_ready(&self) -> bool {
        self.pace.is_ready(Instant::now())
    }
}
