//! The leases that this process holds: renewed while they are held, and released off the path of requests.
//!
//! One task renews, another few release; requests start them, and each ends when it has nothing left to do.

mod release;
mod renew;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use smallvec::SmallVec;
use tokio::{runtime::Handle, time::Instant};

use self::{release::Ending, renew::Renewing};
use super::{Limiter, permit::Lease};
use crate::{
    error::StoreError,
    observer::StoreEvent,
    store::{Answer, Ask, Line, Purpose},
};

/// How many leases one call renews or releases at most.
const BATCH: usize = 64;

#[derive(Default)]
pub(super) struct Leases {
    held: Mutex<Held>,
    ending: Mutex<Ending>,
}

#[derive(Default)]
struct Held {
    by_id: HashMap<u64, Kept, foldhash::fast::RandomState>,
    /// Whether a task renews them.
    renewing: bool,
}

/// A lease that is held.
struct Kept {
    lease: Lease,
    lasts: Duration,
    renewed: Instant,
    /// It is being renewed now. Were it released meanwhile, the renewal might come after that, and take it anew.
    busy: bool,
    /// Nobody holds it any more: it is to be released once it is not busy.
    ended: bool,
    lost: bool,
}

impl Leases {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ending(&self) -> MutexGuard<'_, Ending> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets leases that nobody holds any more; answers those that can be released now.
    fn forget(&self, mut leases: SmallVec<[Lease; 1]>) -> SmallVec<[Lease; 1]> {
        let mut held = self.held();
        leases.retain(|lease| match held.by_id.get_mut(&lease.id) {
            Some(kept) if kept.busy => {
                kept.ended = true;
                false
            }
            _ => {
                held.by_id.remove(&lease.id);
                true
            }
        });
        leases
    }
}

impl Limiter {
    /// Renews these leases from now on.
    pub(super) fn keep<'a>(&self, leases: impl Iterator<Item = &'a Lease>, runtime: Option<&Handle>) {
        // Without a runtime nothing can be renewed; they expire by time.
        let Some(runtime) = runtime else { return };
        let mut leases = leases.peekable();
        if leases.peek().is_none() {
            return;
        }
        let mut held = self.0.leases.held();
        for lease in leases {
            let Some(lasts) = self.0.rules.get(lease.pick.rule).and_then(|rule| rule.limit().lease()) else { continue };
            let renewed = Instant::now();
            let kept = Kept { lease: lease.clone(), lasts, renewed, busy: false, ended: false, lost: false };
            held.by_id.insert(lease.id, kept);
        }
        if let Some(shortest) = self.0.rules.shortest_lease()
            && !std::mem::replace(&mut held.renewing, true)
        {
            drop(held);
            runtime.spawn(Renewing::new(Arc::downgrade(&self.0)).run(shortest / 6));
        }
    }

    /// Nobody holds these leases any more. `answered`: the store has said that it granted them.
    pub(super) fn end(&self, leases: SmallVec<[Lease; 1]>, runtime: Option<Handle>, answered: bool) {
        let leases = self.0.leases.forget(leases);
        if leases.is_empty() || self.release_now(&leases) {
            return;
        }
        // Without a runtime they expire by time.
        let Some(runtime) = runtime else { return };
        if !answered {
            self.release_again(leases.clone(), &runtime);
        }
        self.release(leases, &runtime);
    }

    /// Asks the store to renew or release leases.
    async fn change(&self, purpose: Purpose, leases: &[Lease]) -> Result<Answer, StoreError> {
        let lines = self.lines_of(leases);
        self.0.store.acquire(&Ask { lines: &lines, purpose, time: self.0.clock.time() }).await
    }

    fn lines_of<'a>(&'a self, leases: &'a [Lease]) -> SmallVec<[Line<'a>; 4]> {
        leases.iter().filter_map(|lease| Some(Line { receipt: lease.id, ..self.line(&lease.pick)? })).collect()
    }

    fn tell_observer(&self, event: &StoreEvent) {
        if let Some(observer) = &self.0.observer {
            observer.store(event);
        }
    }
}
