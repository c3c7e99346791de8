//! Rules that are watched before they are enforced.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::Limiter;
use crate::decision::{Decision, Standing};

/// Whether no rule refuses, and the log of those that would have.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    all: AtomicBool,
    /// When it was last written to, and how many there were since.
    log: Mutex<(Option<Instant>, u64)>,
}

impl Shadow {
    pub(super) fn new(all: bool) -> Shadow {
        Shadow { all: all.into(), ..Shadow::default() }
    }

    /// One line a second, with how many there were since the last.
    #[cold]
    pub(super) fn log(&self, rule: &str) {
        let mut state = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, count) = &mut *state;
        *count += 1;
        if last.is_none_or(|last| last.elapsed() >= Duration::from_secs(1)) {
            let requests = std::mem::take(count);
            *last = Some(Instant::now());
            drop(state);
            tracing::info!(rule, requests, "a shadow rule would have refused");
        }
    }

    #[cold]
    pub(super) fn log_decision(&self, decision: &Decision) {
        if let Some(standing) = decision.standings().find(Standing::would_refuse) {
            self.log(standing.rule());
        }
    }
}

impl Limiter {
    /// Makes shadows of all rules, or ends that: the switch to reach for when a limit turns out wrong. While it is on, nothing is
    /// refused, and everything is charged and reported as for a rule that is a [shadow](crate::Rule::shadow) by itself; those are
    /// shadows whatever this says. It holds from the next request on, in this process.
    ///
    /// ```
    /// use sluicegate::{key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), sluicegate::BuildError> {
    /// let limiter = Limiter::builder(MemoryStore::new())
    ///     .rule(Rule::gcra("emails", Quota::per_hour(1)).key(key::given()))
    ///     .build()?;
    /// assert!(limiter.acquire([("emails", "alice")]).await.is_allowed());
    /// assert!(limiter.acquire([("emails", "alice")]).await.is_refused());
    ///
    /// limiter.set_shadow(true);
    /// let decision = limiter.acquire([("emails", "alice")]).await;
    /// assert!(decision.is_allowed() && decision.would_refuse());
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_shadow(&self, shadow: bool) {
        self.0.shadow.all.store(shadow, Ordering::Relaxed);
    }

    /// Whether all rules are shadows: see [`set_shadow`](Limiter::set_shadow).
    #[inline]
    pub fn is_shadow(&self) -> bool {
        self.0.shadow.all.load(Ordering::Relaxed)
    }
}
