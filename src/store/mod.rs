//! Where counts live, and the seam between a [`Limiter`](crate::Limiter) and them.
//!
//! A limiter asks a [`Store`] one thing: judge every line of an [`Ask`], and if all fit, charge all of them. Everything
//! else is the store's: [`MemoryStore`] keeps counts in this process, [`RedisStore`] on a server that many share. Stores
//! compose: one that wraps another is a store too.

mod ask;
mod memory;
#[cfg(feature = "redis")]
mod redis;

use std::{fmt, future::Future, pin::Pin, sync::Arc};

pub use ask::{Answer, Ask, Line, Purpose, Scope, Time, Verdict, Wait};
pub use memory::MemoryStore;
#[cfg(feature = "redis")]
pub use redis::{RedisStore, RedisStoreBuilder};

use crate::{error::StoreError, observer::Observer};

/// What a store's methods return.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Keeps counts and decides.
///
/// All lines of an ask are judged before any is charged, and either all are charged or none is, whoever else asks at the
/// same time.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Like [`acquire`](Store::acquire), where it needs no waiting: adds the verdicts to an empty `answer`. `None`: it does,
    /// and `acquire` is to be called.
    fn acquire_now(&self, ask: &Ask<'_>, answer: &mut Answer) -> Option<Result<(), StoreError>> {
        let _ = (ask, answer);
        None
    }

    /// Judges every line, and charges all if all fit and the purpose is to spend.
    fn acquire<'a>(&'a self, ask: &'a Ask<'a>) -> StoreFuture<'a, Answer>;

    /// Forgets what was counted for these lines.
    fn reset<'a>(&'a self, lines: &'a [Line<'a>]) -> StoreFuture<'a, ()>;

    /// Tells `observer` of this store's events from now on. A store that wraps another passes it on; one that keeps it, keeps
    /// a `Weak`.
    fn observe(&self, observer: &Arc<dyn Observer>) {
        let _ = observer;
    }
}
