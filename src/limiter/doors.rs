//! Those whom a rule has refused, and who wait to ask again: one of each kind asks, the others stand behind it. However many they
//! are, they ask no more than one would, and whoever came first is first.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::{BuildHasher, Hash, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, futures::Notified};

use super::{Call, Inner};

/// A door for each sort of call that somebody waits with; there is none where nobody does.
#[derive(Default)]
pub(super) struct Doors {
    /// With how many stand there.
    doors: Mutex<HashMap<u64, (Arc<Semaphore>, usize)>>,
    count: AtomicUsize,
    hasher: RandomState,
    changed: Notify,
}

/// Somebody stands at a door, or behind others.
pub(super) struct AtDoor<'a> {
    doors: &'a Doors,
    kind: u64,
    door: Arc<Semaphore>,
    /// Whether it is this one that asks.
    first: Option<OwnedSemaphorePermit>,
}

impl Doors {
    /// Calls with the same keys of one limiter, which may be a tier's, wait for the same, unless they may use more, or are another tenant's.
    pub(super) fn kind_of(&self, limiter: *const Inner, call: &mut Call<'_>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        limiter.hash(&mut hasher);
        for entry in call.entries_mut() {
            let tenant = entry.tenant.as_ref().map(|tenant| tenant.as_bytes());
            (entry.name, entry.pick.key.as_bytes(), entry.pick.critical, tenant).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// When other rules have taken the place of those that somebody was refused by.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Has everybody who waits ask anew.
    #[cfg_attr(not(feature = "policy"), allow(dead_code))]
    pub(super) fn tell_of_change(&self) {
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, (Arc<Semaphore>, usize)>> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Behind those who wait already, if any do.
    pub(super) fn stand_behind(&self, kind: u64) -> Option<AtDoor<'_>> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut doors = self.lock();
        let (door, standing) = doors.get_mut(&kind)?;
        *standing += 1;
        let door = Arc::clone(door);
        Some(AtDoor { doors: self, kind, door, first: None })
    }

    pub(super) fn stand(&self, kind: u64) -> AtDoor<'_> {
        let mut doors = self.lock();
        let (door, standing) = doors.entry(kind).or_insert_with(|| (Arc::new(Semaphore::new(1)), 0));
        *standing += 1;
        let door = Arc::clone(door);
        self.count.store(doors.len(), Ordering::Relaxed);
        AtDoor { doors: self, kind, door, first: None }
    }
}

impl AtDoor<'_> {
    /// Waits until those before have been let in. Answers whether there were any.
    pub(super) async fn be_first(&mut self) -> bool {
        if self.first.is_some() {
            return false;
        }
        if let Ok(first) = Arc::clone(&self.door).try_acquire_owned() {
            self.first = Some(first);
            return false;
        }
        // Nobody closes it.
        self.first = Arc::clone(&self.door).acquire_owned().await.ok();
        true
    }
}

impl Drop for AtDoor<'_> {
    fn drop(&mut self) {
        self.first = None;
        let mut doors = self.doors.lock();
        if let Some((_, standing)) = doors.get_mut(&self.kind) {
            *standing -= 1;
            if *standing == 0 {
                doors.remove(&self.kind);
                self.doors.count.store(doors.len(), Ordering::Relaxed);
            }
        }
    }
}
