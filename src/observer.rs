//! The seam that metrics, tracing and alarms hang on.

use std::{
    fmt,
    sync::{
        Arc, OnceLock, PoisonError, RwLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use crate::{decision::Decision, error::StoreError};

/// Is told of every decision and of what happens to a store. Apart from [refusals](Decision::is_refused), decisions say what
/// [shadow](crate::Rule::shadow) rules [would have refused](Decision::would_refuse).
///
/// Every method does nothing unless written; they are called on the path of requests, so they must not wait.
///
/// ```
/// use sluicegate::{Decision, Observer};
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// #[derive(Default)]
/// struct Refusals(AtomicU64, AtomicU64);
///
/// impl Observer for Refusals {
///     fn decided(&self, decision: &Decision) {
///         if decision.is_refused() {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         } else if decision.would_refuse() {
///             self.1.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
/// ```
pub trait Observer: Send + Sync + 'static {
    /// A decision was made; [`Decision::failure`] tells whether the store failed to make it, [`Decision::listed`] whether a list
    /// made it.
    fn decided(&self, decision: &Decision) {
        let _ = decision;
    }

    /// Something happened to the store.
    fn store(&self, event: &StoreEvent) {
        let _ = event;
    }

    /// Something happened to the [policy](crate::policy).
    #[cfg(feature = "policy")]
    fn policy(&self, event: &PolicyEvent) {
        let _ = event;
    }
}

/// What happens to the policy of a limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg(feature = "policy")]
pub enum PolicyEvent {
    /// Another policy holds.
    Changed {
        /// The number of the policy; the one that the limiter was built with is the first.
        version: u64,
    },
    /// A policy could not be loaded or used, and the last good one stays.
    Refused {
        /// What is wrong with it.
        error: String,
    },
}

/// What happens to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreEvent {
    /// A connection was made.
    Connected,
    /// No connection could be made.
    ConnectFailed(StoreError),
    /// A connection was given up for this reason; another is made when it is needed.
    Disconnected(StoreError),
    /// The server did not know a script and was sent it.
    ScriptSent,
    /// The server has no functions, or its user may not load or call them: scripts are sent to it from now on.
    NoFunctions,
    /// The server came to a call too late and charged nothing: its clock stepped, or it was slow. Of calls that were given up,
    /// nobody hears this.
    Expired,
    /// The circuit breaker of a part of the store has opened: the part is not asked for a while. A store that fails as a whole
    /// has the part 0; of a Cluster each node is one.
    Opened {
        /// Which part.
        part: usize,
        /// The last failure.
        error: StoreError,
    },
    /// The circuit breaker of a part of the store has closed: it answers again, or nobody needs it any more.
    Closed {
        /// Which part.
        part: usize,
    },
    /// The store was told what had been admitted without it.
    Committed {
        /// How many counts there were.
        counts: u64,
        /// How much they were charged, all together.
        units: u64,
    },
    /// The store was never told of some of what had been admitted without it.
    NotCommitted {
        /// How many.
        units: u64,
    },
    /// The store is full: a new key was counted in its rule's overflow count.
    Overflowed,
    /// What had been charged for a request that was refused or given up in the end was perhaps not given back; then it counts until the
    /// limit forgets it. The same of places under a concurrency rule; then they are free when their leases expire.
    NotGivenBack(StoreError),
    /// What turned out to be due, or to be given back, was perhaps not settled: the store did not answer for long, or too much waited
    /// for it.
    NotSettled {
        /// How much, all together.
        units: u64,
    },
    /// Requests at work have lost their places under a [concurrency](crate::Rule::concurrency) rule, and go on: their leases
    /// expired before they could be renewed, or the store forgot them, and others have the places now.
    LeasesLost {
        /// How many.
        leases: u64,
    },
    /// Somebody has earned a [ban](crate::Rule::ban), who is not told. Seen by the process whose strike was the last one it took. Bans by
    /// hand are not among these.
    Banned {
        /// The rule whose ban it is.
        rule: Arc<str>,
    },
    /// With [`Clock::application`](crate::Clock::application): this machine's clock differs from the server's by more than half the
    /// tolerance. Another process may be as far off the other way, and limits admit too much then. Looked for with the first decision,
    /// and twice a minute.
    ClockSkewed {
        /// By how many microseconds this machine's clock is ahead, at least; below zero, behind.
        ahead: i64,
        /// The tolerance, in microseconds.
        tolerance: u64,
    },
}

/// Those who watch a store, and the log.
#[derive(Default)]
pub(crate) struct Observers {
    /// Held by their limiters: one that is gone watches no more.
    list: RwLock<Vec<Weak<dyn Observer>>>,
    /// Microseconds of `since` at which each kind of event was last logged.
    logged: [AtomicU64; KINDS],
    since: OnceLock<Instant>,
}

const KINDS: usize = 16;

impl Observers {
    pub(crate) fn add(&self, observer: &Arc<dyn Observer>) {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        list.retain(|observer| observer.strong_count() > 0);
        list.push(Arc::downgrade(observer));
    }

    pub(crate) fn tell(&self, event: &StoreEvent) {
        self.log(event);
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        for observer in list.iter().filter_map(Weak::upgrade) {
            observer.store(event);
        }
    }

    /// One line a second of each kind at most: an outage must not drown the log.
    fn log(&self, event: &StoreEvent) {
        let kind = match event {
            StoreEvent::Connected => 0,
            StoreEvent::ConnectFailed(_) => 1,
            StoreEvent::Disconnected(_) => 2,
            StoreEvent::ScriptSent => 3,
            StoreEvent::Expired => 4,
            StoreEvent::Overflowed => 5,
            StoreEvent::Opened { .. } => 6,
            StoreEvent::Closed { .. } => 7,
            StoreEvent::Committed { .. } => 8,
            StoreEvent::NotCommitted { .. } => 9,
            StoreEvent::NoFunctions => 10,
            StoreEvent::NotGivenBack(_) => 11,
            StoreEvent::NotSettled { .. } => 12,
            StoreEvent::LeasesLost { .. } => 13,
            StoreEvent::Banned { .. } => 14,
            StoreEvent::ClockSkewed { .. } => 15,
        };
        let now = 1_000_000 + crate::limit::micros(self.since.get_or_init(Instant::now).elapsed());
        let Some(logged) = self.logged.get(kind) else { return };
        let last = logged.load(Ordering::Relaxed);
        // A breaker limits itself, and each of its changes matters.
        let always = matches!(event, StoreEvent::Opened { .. } | StoreEvent::Closed { .. });
        let due =
            now - last >= 1_000_000 && logged.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if !(always || due) {
            return;
        }
        match event {
            StoreEvent::Connected => tracing::info!("connected to the rate limit store"),
            StoreEvent::ConnectFailed(error) => tracing::warn!(%error, "cannot connect to the rate limit store"),
            StoreEvent::Disconnected(error) => tracing::warn!(%error, "gave up a connection to the rate limit store"),
            StoreEvent::ScriptSent => tracing::debug!("sent a script that the server did not have"),
            StoreEvent::NoFunctions => {
                tracing::warn!("the server has no functions, or none for this user: it is sent scripts instead");
            }
            StoreEvent::Expired => tracing::warn!("the rate limit store came to a call too late and charged nothing"),
            StoreEvent::Opened { part, error } => {
                tracing::warn!(part, %error, "the rate limit store fails: its circuit breaker is open, rules fall back");
            }
            StoreEvent::Closed { part } => tracing::info!(part, "the rate limit store answers again: breaker closed"),
            StoreEvent::Committed { counts, units } => {
                tracing::info!(counts, units, "told the rate limit store what was admitted without it");
            }
            StoreEvent::NotCommitted { units } => {
                tracing::warn!(units, "the rate limit store was never told of some of what was admitted without it");
            }
            StoreEvent::NotGivenBack(error) => {
                tracing::warn!(%error, "a charge for a refused request was not given back")
            }
            StoreEvent::NotSettled { units } => {
                tracing::warn!(units, "costs that became known late never reached the rate limit store")
            }
            StoreEvent::LeasesLost { leases } => tracing::warn!(leases, "places under a concurrency rule were lost"),
            StoreEvent::Banned { rule } => tracing::info!(%rule, "a key was banned"),
            StoreEvent::ClockSkewed { ahead, tolerance } => {
                tracing::warn!("{}", crate::clock::warning(*ahead, *tolerance))
            }
            StoreEvent::Overflowed => {
                tracing::warn!(
                    "the memory store is full: new keys share one count per rule; raise MemoryStore::max_keys"
                );
            }
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observers")
    }
}
