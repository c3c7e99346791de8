use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::error::{StoreError, StoreErrorKind};

/// Logs decisions that the store failed to make: one line a second, with how many there were since the last.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<(Option<Instant>, u64)>);

impl Failures {
    pub(super) fn log(&self, error: &StoreError) {
        // Nobody was asked; that it came to this was logged then.
        if error.kind() == StoreErrorKind::Open {
            return;
        }
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, count) = &mut *state;
        *count += 1;
        if last.is_none_or(|last| last.elapsed() >= Duration::from_secs(1)) {
            let failures = std::mem::take(count);
            *last = Some(Instant::now());
            drop(state);
            if error.is_transient() {
                tracing::warn!(%error, failures, "no rate limit decision");
            }
            if let Some(error) = lasting(error) {
                tracing::error!(%error, failures, "no rate limit decision; this does not mend itself");
            }
        }
    }
}

/// What needs an operator: that of one line must not hide behind another's that passes by itself.
fn lasting(error: &StoreError) -> Option<&StoreError> {
    let of_lines = error.partial().into_iter().flat_map(|partial| partial.errors().iter().flatten());
    std::iter::once(error).chain(of_lines).find(|error| !error.is_transient())
}
