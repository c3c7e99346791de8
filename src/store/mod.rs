//! Where counts live, and the seam between a [`Limiter`](crate::Limiter) and them.
//!
//! A limiter asks a [`Store`] one thing: judge every line of an [`Ask`], and if all fit, charge all of them. Everything
//! else is the store's: [`MemoryStore`] keeps counts in this process, [`RedisStore`] on a server that many share. Stores
//! compose: one that wraps another is a store too.

mod ask;
mod id;
mod memory;
mod owned;
mod partial;
#[cfg(feature = "redis")]
mod redis;
mod report;
mod settlement;
mod tenant;

use std::{
    fmt,
    future::{Future, ready},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

pub use ask::{Answer, Ask, Line, Purpose, Scope, Time, Verdict, Wait};
pub use id::{GIVE_RECORD_TTL, Id, RECORD_TTL};
pub use memory::MemoryStore;
pub(crate) use owned::OwnedLine;
pub use partial::Partial;
#[cfg(all(feature = "redis", feature = "policy"))]
pub(crate) use redis::{Counts, Listening, PolicyKeys, Written};
#[cfg(feature = "redis")]
pub use redis::{RedisStore, RedisStoreBuilder, Urls};
pub use report::Report;
pub use settlement::{Change, Settlement};
pub use tenant::Tenant;
pub(crate) use tenant::TenantCount;

use crate::{
    error::{BuildError, StoreError},
    limit::Limit,
    observer::Observer,
};

/// What a store's methods return.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// What [`Store::check`] returns.
pub type Checking<'a> = Pin<Box<dyn Future<Output = Report> + Send + 'a>>;

/// What [`Store::settle`] returns: what came of each settlement.
pub type Settling<'a> = Pin<Box<dyn Future<Output = Vec<Result<(), StoreError>>> + Send + 'a>>;

/// Keeps counts and decides.
///
/// All lines of an ask are judged before any is charged, and either all are charged or none is, whoever else asks at the
/// same time. Those that are only [watched](Line::shadow) keep no other from it, and are charged with the others if they fit.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Like [`acquire`](Store::acquire), where it needs no waiting: adds the verdicts to an empty `answer`. `None`: it does,
    /// and `acquire` is to be called.
    fn acquire_now(&self, ask: &Ask<'_>, answer: &mut Answer) -> Option<Result<(), StoreError>> {
        let _ = (ask, answer);
        None
    }

    /// Judges every line, and does what the [purpose](Purpose) is: charges all if all fit, for one.
    fn acquire<'a>(&'a self, ask: &'a Ask<'a>) -> StoreFuture<'a, Answer>;

    /// Makes every change that was not made before, and answers what came of each. Nobody waits for it, so a store does as many as
    /// it can in one call. One by one unless written.
    fn settle<'a>(&'a self, settlements: &'a [Settlement<'a>], time: Time) -> Settling<'a> {
        Box::pin(async move {
            let mut outcomes = Vec::with_capacity(settlements.len());
            for settlement in settlements {
                let ask = Ask { lines: &[settlement.line], purpose: settlement.purpose(), time };
                outcomes.push(self.acquire(&ask).await.map(drop));
            }
            outcomes
        })
    }

    /// Forgets what was counted for these lines.
    fn reset<'a>(&'a self, lines: &'a [Line<'a>]) -> StoreFuture<'a, ()>;

    /// Tells `observer` of this store's events from now on. A store that wraps another passes it on; one that keeps it, keeps
    /// a `Weak`.
    fn observe(&self, observer: &Arc<dyn Observer>) {
        let _ = observer;
    }

    /// Whether the store can keep these limits of rules. Asked once, when a limiter is built.
    ///
    /// # Errors
    ///
    /// Which rule it cannot keep, why, and what would be right.
    fn accept(&self, rules: &[(&str, &Limit)]) -> Result<(), BuildError> {
        let _ = rules;
        Ok(())
    }

    /// Which part of the store keeps this line's count, by a small number. Parts fail separately, like the nodes of a
    /// Cluster; a store that fails as a whole has one.
    fn part(&self, line: &Line<'_>) -> usize {
        let _ = line;
        0
    }

    /// The longest that an ask takes, where the store itself sees to it.
    fn deadline(&self) -> Option<Duration> {
        None
    }

    /// Looks whether the store can decide over counts in this namespace, and what is unsafe about it. Asked when an application
    /// starts, or by an operator; no request waits for it.
    fn check<'a>(&'a self, namespace: &'a str) -> Checking<'a> {
        let _ = namespace;
        Box::pin(ready(Report::default()))
    }

    /// The store as a limiter keeps it. A store over a network puts itself into a [`Resilient`](crate::Resilient) here.
    fn boxed(self) -> Box<dyn Store>
    where
        Self: Sized,
    {
        Box::new(self)
    }
}
