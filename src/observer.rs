//! The seam that metrics, tracing and alarms hang on.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use crate::{decision::Decision, error::StoreError};

/// Is told of every decision and of what happens to a store.
///
/// Every method does nothing unless written; they are called on the path of requests, so they must not wait.
///
/// ```
/// use sluicegate::{Decision, Observer};
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// #[derive(Default)]
/// struct Refusals(AtomicU64);
///
/// impl Observer for Refusals {
///     fn decided(&self, decision: &Decision) {
///         if decision.is_refused() {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
/// ```
pub trait Observer: Send + Sync + 'static {
    /// A decision was made; [`Decision::failure`] tells whether the store failed to make it.
    fn decided(&self, decision: &Decision) {
        let _ = decision;
    }

    /// Something happened to the store.
    fn store(&self, event: &StoreEvent) {
        let _ = event;
    }
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
    /// The server came to a call too late to charge it: it hung, or its clock stepped.
    Expired,
    /// The store is full: a new key was counted in its rule's overflow count.
    Overflowed,
}

/// Those who watch a store. Reading is all that requests do here.
#[derive(Default)]
pub(crate) struct Observers(RwLock<Vec<Arc<dyn Observer>>>);

impl Observers {
    pub(crate) fn add(&self, observer: Arc<dyn Observer>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(observer);
    }

    pub(crate) fn tell(&self, event: &StoreEvent) {
        for observer in self.0.read().unwrap_or_else(PoisonError::into_inner).iter() {
            observer.store(event);
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observers")
    }
}
