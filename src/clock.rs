//! Whose time counts.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{limit::micros, store::Time};

/// Whose time a limiter decides by. The store's, unless said otherwise: Redis `TIME` is one clock for every process.
///
/// ```
/// use sluicegate::{Clock, Limiter, MemoryStore, ManualClock};
/// use std::time::Duration;
///
/// let clock = ManualClock::new(Duration::from_secs(1_700_000_000));
/// let limiter = Limiter::builder(MemoryStore::new()).clock(Clock::manual(clock.clone()));
/// clock.advance(Duration::from_secs(60));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Clock(Source);

#[derive(Clone, Debug, Default)]
enum Source {
    #[default]
    Store,
    Application {
        tolerance: u64,
    },
    Manual(ManualClock),
}

impl Clock {
    /// The store's own clock.
    pub fn store() -> Clock {
        Clock(Source::Store)
    }

    /// This machine's clock. Clocks of processes that share a store may differ by 100 ms; see
    /// [`tolerance`](Clock::tolerance).
    pub fn application() -> Clock {
        Clock(Source::Application { tolerance: 100_000 })
    }

    /// A clock that a test moves.
    pub fn manual(clock: ManualClock) -> Clock {
        Clock(Source::Manual(clock))
    }

    /// How far the clocks of processes may differ. Within it, time stands still for a count that a faster clock has
    /// written; further ahead, the count is moved back to now.
    ///
    /// Clocks that stay further apart admit too much: each turn from one process to another looks like a clock that stepped, and may refill.
    #[must_use]
    pub fn tolerance(self, tolerance: Duration) -> Clock {
        match self.0 {
            Source::Application { .. } => Clock(Source::Application { tolerance: micros(tolerance) }),
            other => Clock(other),
        }
    }

    #[inline]
    pub(crate) fn time(&self) -> Time {
        match &self.0 {
            Source::Store => Time::Store,
            Source::Application { tolerance } => Time::Application { now: wall(), tolerance: *tolerance },
            Source::Manual(clock) => Time::Injected(clock.0.load(Ordering::Relaxed)),
        }
    }
}

fn wall() -> u64 {
    micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A clock that stands still until it is moved, for tests. Clones share the time.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Stands at this time since the Unix epoch.
    pub fn new(since_epoch: Duration) -> ManualClock {
        ManualClock(Arc::new(AtomicU64::new(micros(since_epoch))))
    }

    /// Moves on.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(micros(by), Ordering::Relaxed);
    }

    /// Jumps, also back.
    pub fn set(&self, since_epoch: Duration) {
        self.0.store(micros(since_epoch), Ordering::Relaxed);
    }
}
