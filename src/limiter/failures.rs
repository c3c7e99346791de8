use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::error::{StoreError, StoreErrorKind};

/// Logs decisions that the store failed to make: of each kind one line a second, with how many there were since the last. What passes
/// by itself must not crowd out what does not.
#[derive(Debug, Default)]
pub(super) struct Failures {
    passing: Pace,
    lasting: Pace,
}

#[derive(Debug, Default)]
struct Pace(Mutex<(Option<Instant>, u64)>);

impl Pace {
    /// How many there were, if it is time for a line.
    fn count(&self) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, count) = &mut *state;
        *count += 1;
        last.is_none_or(|last| last.elapsed() >= Duration::from_secs(1)).then(|| {
            *last = Some(Instant::now());
            std::mem::take(count)
        })
    }
}

impl Failures {
    pub(super) fn log(&self, error: &StoreError) {
        // Nobody was asked; that it came to this was logged then.
        if error.kind() == StoreErrorKind::Open {
            return;
        }
        if error.is_transient()
            && let Some(failures) = self.passing.count()
        {
            tracing::warn!(%error, failures, "no rate limit decision");
        }
        if let Some(error) = lasting(error)
            && let Some(failures) = self.lasting.count()
        {
            tracing::error!(%error, failures, "no rate limit decision; this does not mend itself");
        }
    }
}

/// What needs an operator: that of one line must not hide behind another's that passes by itself.
fn lasting(error: &StoreError) -> Option<&StoreError> {
    let of_lines = error.partial().into_iter().flat_map(|partial| partial.errors().iter().flatten());
    std::iter::once(error).chain(of_lines).find(|error| !error.is_transient())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_does_not_crowd_out_what_lasts() {
        let failures = Failures::default();
        failures.log(&StoreError::new(StoreErrorKind::Timeout, "late"));
        failures.log(&StoreError::new(StoreErrorKind::Timeout, "late"));
        assert_eq!(failures.passing.count(), None);
        assert_eq!(failures.lasting.count(), Some(1));
    }
}
