//! Whose time counts.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{
    error::BuildError,
    limit::{Limit, micros},
    store::{Report, Time},
};

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

    /// This machine's clock. Those of processes that share a store may differ by 100 ms, or by the [`tolerance`](Clock::tolerance) that
    /// is given: **clocks further apart admit far too much.**
    ///
    /// So keep machines synchronised, and let the tolerance be larger than what is left. [`Limiter::check`](crate::Limiter::check) warns
    /// when this machine's clock differs from the server's by more than half the tolerance, since another may differ as much the other
    /// way; while decisions are made the same is told by [`StoreEvent::ClockSkewed`](crate::StoreEvent::ClockSkewed) and in the log.
    /// The store's clock has none of these cares.
    pub fn application() -> Clock {
        Clock(Source::Application { tolerance: 100_000 })
    }

    /// A clock that a test moves.
    pub fn manual(clock: ManualClock) -> Clock {
        Clock(Source::Manual(clock))
    }

    /// How far the clocks of processes may differ, and what a request may take on its way to the store besides: the difference and the
    /// deadline.
    ///
    /// Within it, time stands still for a count that a faster clock has written. All together then admit no more than one clock would
    /// in a time that is longer by the difference; and what a faster clock has written blocks nobody for longer than it would
    /// block that process, and the difference.
    ///
    /// A count from further ahead is moved back to now, since it looks like that of a clock that stepped back. Clocks that stay further
    /// apart do that at each turn from one process to another, and each turn may refill a bucket or begin a window: what they admit has no bound.
    ///
    /// So a large tolerance is safe. It costs as much waiting when a clock really steps back; and a [lease](crate::Rule::lease) must be three
    /// times as long, which is an error when the limiter is built.
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

impl Clock {
    /// Adds what a difference from the store's clock means for limits that go by this one.
    pub(crate) fn tell(&self, report: &mut Report) {
        let Source::Application { tolerance } = self.0 else { return };
        let Some(ahead) = report.clock_ahead() else { return };
        if is_far(ahead, tolerance) {
            report.warn(warning(ahead, tolerance));
        } else {
            report.note("this machine's clock is near enough to the server's");
        }
    }

    /// Whether the leases of a rule outlast the difference: a faster clock takes them for expired so much earlier, and they are renewed
    /// every third of their time.
    pub(crate) fn suits(&self, rule: &str, limit: &Limit) -> Result<(), BuildError> {
        let (Source::Application { tolerance }, Some(lease)) = (&self.0, limit.lease()) else { return Ok(()) };
        let least = Duration::from_micros(tolerance.saturating_mul(3));
        if lease >= least {
            return Ok(());
        }
        let text = format!(
            "{lease:?} is too short for clocks of applications that may differ by {:?}; give {least:?} or more, or use the store's clock",
            Duration::from_micros(*tolerance)
        );
        Err(BuildError::rule(rule, "lease", text))
    }
}

/// Whether another clock that is as far from the store's, the other way, is further from this one than the tolerance.
pub(crate) fn is_far(ahead: i64, tolerance: u64) -> bool {
    ahead.unsigned_abs() > tolerance / 2
}

/// What a clock so far ahead of the store's means, and the remedy.
pub(crate) fn warning(ahead: i64, tolerance: u64) -> String {
    let word = if ahead > 0 { "ahead of" } else { "behind" };
    let [apart, tolerance] = [ahead.unsigned_abs(), tolerance].map(Duration::from_micros);
    format!(
        "this machine's clock is {apart:?} {word} the rate limit server's, more than half the tolerance of {tolerance:?}: processes whose \
         clocks differ by more than the tolerance admit too much; synchronise the clocks, raise Clock::tolerance(..), or use Clock::store()"
    )
}

pub(crate) fn wall() -> u64 {
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
