//! Counts in this process.

mod clock;
mod fair;
mod leases;
mod packed;
mod records;
mod settle;
mod shard;
mod table;
mod text;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use smallvec::SmallVec;

use self::{
    clock::Clock,
    records::Records,
    shard::{Change, Full, Hasher, Room, Shard},
};
use super::{Answer, Ask, Line, Purpose, Store, StoreFuture, Time};
use crate::{
    algorithm::Moment,
    error::{StoreError, StoreErrorKind},
    observer::{Observer, Observers, StoreEvent},
};

const SHARDS: usize = 64;

/// The name of a rule's overflow count. Escaped keys are never empty.
const OVERFLOW: &[u8] = b"";

/// Keeps counts in this process: for trying things out, for tests, and for services that run once.
///
/// It is bounded. Keys that no longer matter (their quota has come back in full) make room for new ones; when it is full of
/// keys that do matter none is forgotten, and new keys share one overflow count per rule until there is room again. That is
/// logged and told to the [`Observer`]. A key that has spent from the overflow count begins with a full quota when it gets a
/// count of its own, so it may spend that much twice.
///
/// ```
/// use sluicegate::MemoryStore;
///
/// let store = MemoryStore::new().max_keys(100_000);
/// ```
///
/// Clones share the counts.
#[derive(Clone)]
pub struct MemoryStore(Arc<Inner>);

struct Inner {
    shards: Box<[Mutex<Shard>]>,
    room: Arc<Room>,
    hasher: Hasher,
    clock: Clock,
    observers: Observers,
    /// The changes that were made of late.
    records: Mutex<Records>,
    /// The shard to look for idle keys in next.
    sweep: AtomicUsize,
}

/// The overflow counts in use by one ask: a bit for each line.
type Overflowing = u64;

/// The shards of all lines of an ask.
struct Locked<'a> {
    /// The hash and the key of each line.
    places: SmallVec<[(u64, &'a [u8]); 4]>,
    /// The numbers of the locked shards.
    order: SmallVec<[usize; 4]>,
    shards: SmallVec<[MutexGuard<'a, Shard>; 4]>,
}

impl MemoryStore {
    /// An empty store of at most a million keys.
    pub fn new() -> MemoryStore {
        MemoryStore::of(1_000_000)
    }

    /// At most about this many keys; what was counted before is forgotten.
    #[must_use]
    pub fn max_keys(self, keys: usize) -> MemoryStore {
        MemoryStore::of(keys)
    }

    fn of(keys: usize) -> MemoryStore {
        let room = Arc::new(Room::new(keys));
        let hasher = Hasher::default();
        MemoryStore(Arc::new(Inner {
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::new(Arc::clone(&room), hasher.clone()))).collect(),
            room,
            hasher,
            clock: Clock::new(),
            observers: Observers::default(),
            records: Mutex::default(),
            sweep: AtomicUsize::new(0),
        }))
    }

    /// How many keys are held.
    pub fn keys(&self) -> usize {
        self.0.room.keys()
    }
}

impl Inner {
    #[inline]
    fn hash(&self, line: &Line<'_>, key: &[u8]) -> u64 {
        shard::hash(&self.hasher, line.scope.number(), key)
    }

    #[inline]
    fn moment(&self, time: Time) -> Moment {
        match time {
            // The clock never steps back: state ahead of it was written by a thread that read it later and came first.
            Time::Store => Moment { now: self.clock.now(), tolerance: 1_000_000, peers: 0 },
            Time::Application { now, tolerance } => Moment { now, tolerance, peers: tolerance },
            Time::Injected(now) => Moment { now, tolerance: 0, peers: 0 },
        }
    }

    /// One line, one lock: by far the most common ask.
    #[inline]
    fn decide_one(&self, line: &Line<'_>, spend: bool, at: &Moment, answer: &mut Answer) -> Result<(), Full> {
        let hash = self.hash(line, line.key);
        lock(self.shard(hash)).decide(hash, line, at, spend, answer)
    }

    /// Locks the shards of all lines, in the order of the shards so that two asks cannot wait for each other.
    #[inline]
    fn lock_all<'a>(&'a self, lines: &'a [Line<'a>], overflowing: Overflowing) -> Locked<'a> {
        let places: SmallVec<[(u64, &[u8]); 4]> = (0u32..)
            .zip(lines)
            .map(|(place, line)| {
                let key = if overflowing >> place & 1 == 1 { OVERFLOW } else { line.key };
                (self.hash(line, key), key)
            })
            .collect();
        let mut order: SmallVec<[usize; 4]> = places.iter().map(|(hash, _)| shard_of(*hash)).collect();
        order.sort_unstable();
        order.dedup();
        let shards = order.iter().filter_map(|index| self.shards.get(*index)).map(lock).collect();
        Locked { places, order, shards }
    }

    fn decide_all(&self, ask: &Ask<'_>, at: Moment, overflowing: Overflowing) -> Result<Answer, Overflowing> {
        if ask.lines.iter().any(|line| line.tenant.is_some()) {
            return self.decide_fairly(ask, at, overflowing);
        }
        let Locked { places, order, shards: mut locked } = self.lock_all(ask.lines, overflowing);
        // Where each line's shard stands among the locked ones.
        let place_of = |hash: u64| order.binary_search(&shard_of(hash)).unwrap_or_default();

        let spend = ask.purpose == Purpose::Spend;
        let mut judged = SmallVec::<[_; 4]>::new();
        let mut full = overflowing;
        for (place, (line, (hash, key))) in (0u32..).zip(ask.lines.iter().zip(&places)) {
            let Some(shard) = locked.get_mut(place_of(*hash)) else { continue };
            match shard.judge(*hash, line, key, at, spend) {
                Ok(one) => judged.push((line, *hash, *key, one)),
                Err(Full) => full |= 1 << place,
            }
        }
        let fits = full == overflowing && judged.iter().all(|(line, .., one)| line.shadow || one.wait.fits());
        let mut verdicts = SmallVec::with_capacity(judged.len());
        for (line, hash, key, one) in judged {
            let Some(shard) = locked.get_mut(place_of(hash)) else { continue };
            // One that is only watched may not fit though the others do.
            let charge = spend && fits && one.wait.fits();
            verdicts.push(shard.finish(hash, line, key, at, one, charge));
        }
        if full == overflowing { Ok(Answer { verdicts }) } else { Err(full) }
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        // `SHARDS` shards are made and `shard_of` stays below that.
        #[allow(clippy::indexing_slicing)]
        &self.shards[shard_of(hash)]
    }

    #[inline]
    fn decide(&self, ask: &Ask<'_>, answer: &mut Answer) -> Result<(), StoreError> {
        let at = self.moment(ask.time);
        if !ask.purpose.decides() {
            return self.change(ask, at, answer);
        }
        if let [line @ Line { tenant: None, .. }] = ask.lines {
            return match self.decide_one(line, ask.purpose == Purpose::Spend, &at, answer) {
                Ok(()) => Ok(()),
                Err(Full) => self.decide_many(ask, at, answer),
            };
        }
        self.decide_many(ask, at, answer)
    }

    #[cold]
    fn change(&self, ask: &Ask<'_>, at: Moment, answer: &mut Answer) -> Result<(), StoreError> {
        if let Purpose::Renew | Purpose::Release = ask.purpose {
            *answer = self.keep_leases(ask, at);
            return Ok(());
        }
        self.decide_many(ask, at, answer)
    }

    /// Looks for idle keys in some of the other shards: that there are none in one says little about a small store.
    fn make_room(&self, now: u64) {
        for _ in 0..8 {
            let next = self.sweep.fetch_add(1, Ordering::Relaxed) % SHARDS;
            if let Some(Ok(mut shard)) = self.shards.get(next).map(Mutex::try_lock) {
                shard.make_room(now);
            }
        }
    }

    #[inline(never)]
    fn decide_many(&self, ask: &Ask<'_>, at: Moment, answer: &mut Answer) -> Result<(), StoreError> {
        if ask.lines.len() + ask.lines.iter().filter(|line| line.tenant.is_some()).count() > Overflowing::BITS as usize
        {
            return Err(StoreError::new(StoreErrorKind::Permanent, "more than 64 lines in one ask"));
        }
        let mut swept = false;
        let mut overflowing = Overflowing::default();
        loop {
            // Each turn but one adds a line to those that overflow, so this ends.
            let decided = match ask.purpose {
                Purpose::Spend | Purpose::Peek => self.decide_all(ask, at, overflowing),
                Purpose::Take(id) => self.settle_all(ask, at, overflowing, Change::Take, id),
                Purpose::Owe(id) => self.settle_all(ask, at, overflowing, Change::Owe, id),
                Purpose::Give(id) => self.settle_all(ask, at, overflowing, Change::Give, id),
                Purpose::Renew | Purpose::Release => Ok(self.keep_leases(ask, at)),
            };
            match decided {
                Ok(decided) => {
                    if overflowing != 0 {
                        self.observers.tell(&StoreEvent::Overflowed);
                    }
                    *answer = decided;
                    return Ok(());
                }
                Err(_) if !swept => {
                    self.make_room(at.now);
                    swept = true;
                }
                Err(more) => overflowing = more,
            }
        }
    }
}

#[inline]
fn shard_of(hash: u64) -> usize {
    // The table inside a shard uses the lower half, and a byte of the upper.
    (hash >> 48) as usize % SHARDS
}

#[inline]
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store for MemoryStore {
    #[inline]
    fn acquire_now(&self, ask: &Ask<'_>, answer: &mut Answer) -> Option<Result<(), StoreError>> {
        Some(self.0.decide(ask, answer))
    }

    fn acquire<'a>(&'a self, ask: &'a Ask<'a>) -> StoreFuture<'a, Answer> {
        Box::pin(async move {
            let mut answer = Answer::default();
            self.0.decide(ask, &mut answer).map(|()| answer)
        })
    }

    fn reset<'a>(&'a self, lines: &'a [Line<'a>]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            for line in lines {
                let hash = self.0.hash(line, line.key);
                lock(self.0.shard(hash)).forget(hash, line.scope.number(), line.key);
            }
            Ok(())
        })
    }

    fn observe(&self, observer: &Arc<dyn Observer>) {
        self.0.observers.add(observer);
    }
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("keys", &self.keys()).finish()
    }
}
