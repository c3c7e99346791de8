//! Overrides for customers: looked up off the path of requests, and remembered within bounds.

use std::{
    collections::{HashSet, VecDeque},
    hash::BuildHasher,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use quick_cache::{UnitWeighter, sync::Cache};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{Live, snapshot::Snapshot};
use crate::{
    key::Key,
    limiter::Limiter,
    policy::{Lookup, Override, SourceError},
};

/// How many customers are remembered, with an override or without.
const MOST: usize = 16_384;
/// How many calls there are at a time to a source that is asked for one customer by one.
const CALLS: usize = 16;
/// How many may wait to be looked up, and as many again of those whose override was changed. More are not: they come again with their next
/// request.
const MOST_WAITING: usize = 1_024;
/// In how many tiers a customer is remembered. One of several names, such as a header that its applications fill, may be in more than one.
const MOST_TIERS: usize = 4;
/// How many overrides that cannot be used are remembered as told.
const MOST_TOLD: usize = 1_024;
/// How long a look-up may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long after a look-up that failed the next one is tried.
const AGAIN: Duration = Duration::from_secs(1);

/// What is known of customers. Clones are one.
#[derive(Clone)]
pub(in crate::limiter) struct Overrides(Arc<Inner>);

struct Inner {
    lookup: Option<Lookup>,
    known: Cache<Box<[u8]>, Arc<Known>, UnitWeighter, foldhash::fast::RandomState>,
    /// Grows when everything that is known may have changed.
    epoch: AtomicU64,
    queue: Mutex<Queue>,
    /// What was said of overrides that cannot be used, by its hash.
    told: Mutex<HashSet<u64>>,
    hasher: std::hash::RandomState,
}

/// What is known of a customer.
struct Known {
    /// What the look-up found.
    found: Option<Arc<Override>>,
    /// The limiters that were made of it. They come and go without a new entry, which might replace one that somebody has doubted.
    made: ArcSwap<Vec<Made>>,
    epoch: u64,
    /// When it is to be looked up again.
    until: Instant,
    /// Whether somebody has said that it has changed.
    is_doubted: bool,
}

/// What a customer gets by one policy in one tier.
#[derive(Clone)]
struct Made {
    version: u64,
    tier: Option<usize>,
    /// `None`: the tier's.
    limiter: Option<Limiter>,
}

#[derive(Default)]
struct Queue {
    /// Those whose override was changed, or may have been. They go first: made-up names are not to keep them waiting.
    urgent: VecDeque<Box<str>>,
    waiting: VecDeque<Box<str>>,
    /// Those that wait, and those that are being looked up.
    asked: HashSet<Box<str>>,
    /// How many tasks see to it.
    attended: usize,
    /// When the next may be looked up.
    next: Option<Instant>,
    /// When it was last said that a look-up failed.
    warned: Option<Instant>,
}

impl Queue {
    /// The next to be looked up, at most so many, and when that may be.
    fn take(&mut self, most: usize, pace: Duration) -> (Vec<Box<str>>, Instant) {
        let urgent = self.urgent.len().min(most);
        let more = self.waiting.len().min(most - urgent);
        let batch: Vec<_> = self.urgent.drain(..urgent).chain(self.waiting.drain(..more)).collect();
        let now = Instant::now();
        let begin = self.next.map_or(now, |next| next.max(now));
        self.next = Some(begin + pace * u32::try_from(batch.len()).unwrap_or(u32::MAX));
        (batch, begin)
    }

    /// Whether a failure is to be said: one a second is enough.
    fn is_to_warn(&mut self) -> bool {
        let now = Instant::now();
        let is_news = self.warned.is_none_or(|last| now.duration_since(last) >= AGAIN);
        if is_news {
            self.warned = Some(now);
        }
        is_news
    }
}

impl Overrides {
    pub(super) fn new(lookup: Option<Lookup>) -> Overrides {
        let known = Cache::with(MOST, MOST as u64, UnitWeighter, Default::default(), Default::default());
        let hasher = std::hash::RandomState::new();
        Overrides(Arc::new(Inner {
            lookup,
            known,
            epoch: AtomicU64::new(0),
            queue: Mutex::default(),
            told: Mutex::default(),
            hasher,
        }))
    }

    /// Whether anybody may have one.
    pub(super) fn are_any(&self, snapshot: &Snapshot) -> bool {
        self.0.lookup.is_some() || !snapshot.overrides.is_empty()
    }

    /// The limiter of a customer; `None`: there is no override, or none is known yet, and it is the tier's.
    pub(super) fn find(&self, live: &Live, snapshot: &Snapshot, tier: Option<usize>, key: &Key) -> Option<Limiter> {
        let known = self.0.known.get(key.as_bytes());
        if let Some(lookup) = &self.0.lookup
            && known.as_ref().is_none_or(|known| self.is_old(known))
        {
            self.ask(lookup, key, known.as_ref().is_some_and(|known| known.is_doubted || known.found.is_some()));
        }
        match known {
            Some(known) => known.limiter(live, snapshot, tier, key),
            None if snapshot.overrides.contains_key(key.as_bytes()) => {
                let known = Arc::new(Known::unmade(None, 0, Instant::now()));
                self.0.known.insert(key.as_bytes().into(), Arc::clone(&known));
                known.limiter(live, snapshot, tier, key)
            }
            None => None,
        }
    }

    /// The same for whoever can wait for the look-up.
    pub(super) async fn look(
        &self,
        live: &Live,
        snapshot: &Snapshot,
        tier: Option<usize>,
        key: &Key,
    ) -> Option<Limiter> {
        let known = self.0.known.get(key.as_bytes());
        if let Some(lookup) = &self.0.lookup
            && known.is_none_or(|known| self.is_old(&known))
            && let Some(customer) = text(key)
        {
            let asking = Asking::new(&self.0, customer);
            let epoch = self.0.epoch.load(Ordering::Relaxed);
            let customers = std::slice::from_ref(&asking.customer);
            let answer = ask(lookup, customers).await;
            self.0.remember(lookup, customers, answer, epoch);
        }
        self.find(live, snapshot, tier, key)
    }

    /// Everything that is known is to be looked up again; until then it stays.
    pub(in crate::limiter) fn doubt_all(&self) {
        self.0.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// What is known of a customer is to be looked up again; until then it stays.
    pub(in crate::limiter) fn doubt(&self, customer: &[u8]) {
        // An answer that is on its way may be from before the change: it is not to be taken for one from after it.
        let is_asked = std::str::from_utf8(customer).is_ok_and(|customer| self.0.queue().asked.contains(customer));
        if is_asked {
            return self.doubt_all();
        }
        if let Some(known) = self.0.known.get(customer) {
            let Known { found, epoch, .. } = &*known;
            let known = Known { is_doubted: true, ..Known::unmade(found.clone(), *epoch, Instant::now()) };
            self.0.known.insert(customer.into(), Arc::new(known));
        }
    }

    /// Whether this was not said of the customer before, as far as is remembered.
    pub(super) fn is_news(&self, key: &Key, error: &str) -> bool {
        let hash = self.0.hasher.hash_one((key.as_bytes(), error));
        let mut told = self.0.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= MOST_TOLD {
            told.clear();
        }
        told.insert(hash)
    }

    fn is_old(&self, known: &Known) -> bool {
        known.epoch != self.0.epoch.load(Ordering::Relaxed) || Instant::now() >= known.until
    }

    /// Has a customer looked up. Outside a runtime that waits for the next.
    #[cold]
    fn ask(&self, lookup: &Lookup, key: &Key, is_urgent: bool) {
        let (Ok(runtime), Some(customer)) = (Handle::try_current(), text(key)) else { return };
        let mut queue = self.0.queue();
        let Queue { urgent, waiting, asked, .. } = &mut *queue;
        let line = if is_urgent { urgent } else { waiting };
        if line.len() < MOST_WAITING && asked.insert(customer.clone()) {
            line.push_back(customer);
        }
        let calls = if lookup.at_once() > 1 { 1 } else { CALLS };
        if queue.attended < calls && !(queue.urgent.is_empty() && queue.waiting.is_empty()) {
            queue.attended += 1;
            drop(queue);
            runtime.spawn(attend(
                Arc::clone(lookup),
                Attendance { inner: Arc::clone(&self.0), batch: Vec::new(), is_over: false },
            ));
        }
    }
}

impl Known {
    /// Of which no limiter was made yet.
    fn unmade(found: Option<Arc<Override>>, epoch: u64, until: Instant) -> Known {
        Known { found, made: ArcSwap::default(), epoch, until, is_doubted: false }
    }

    fn limiter(&self, live: &Live, snapshot: &Snapshot, tier: Option<usize>, key: &Key) -> Option<Limiter> {
        let is_it = |made: &&Made| made.version == snapshot.version && made.tier == tier;
        match self.made.load().iter().find(is_it) {
            Some(made) => made.limiter.clone(),
            None => self.make(live, snapshot, tier, key),
        }
    }

    /// Makes the limiter of a customer, and remembers it.
    #[cold]
    fn make(&self, live: &Live, snapshot: &Snapshot, tier: Option<usize>, key: &Key) -> Option<Limiter> {
        let written = snapshot.overrides.get(key.as_bytes());
        let own = self.found.as_deref().or(written);
        let limiter = own.and_then(|own| live.overridden(snapshot, tier, own, key));
        let version = snapshot.version;
        self.made.rcu(|made| {
            let first = made.len().saturating_sub(MOST_TIERS - 1);
            let still = made.iter().skip(first).filter(|made| made.version == version && made.tier != tier);
            still.cloned().chain([Made { version, tier, limiter: limiter.clone() }]).collect::<Vec<_>>()
        });
        limiter
    }
}

impl Inner {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers what a look-up came to. One that failed changes nothing that was known.
    fn remember(&self, lookup: &Lookup, customers: &[Box<str>], answer: Answer, epoch: u64) {
        let now = Instant::now();
        match answer {
            Ok(found) => {
                for (customer, found) in customers.iter().zip(found) {
                    let known = Known::unmade(found.map(Arc::new), epoch, now + lookup.fresh_for());
                    self.known.insert(customer.as_bytes().into(), Arc::new(known));
                }
            }
            Err(error) => {
                if self.queue().is_to_warn() {
                    tracing::warn!(%error, customers = customers.len(), "overrides could not be looked up; those known so far stay");
                }
                for customer in customers {
                    let key: Box<[u8]> = customer.as_bytes().into();
                    let found = self.known.get(&key).and_then(|known| known.found.clone());
                    self.known.insert(key, Arc::new(Known::unmade(found, epoch, now + AGAIN)));
                }
            }
        }
    }
}

type Answer = Result<Vec<Option<Override>>, SourceError>;

/// Asks for customers, and not for ever.
async fn ask(lookup: &Lookup, customers: &[Box<str>]) -> Answer {
    match timeout(PATIENCE, lookup.look_up(customers)).await {
        Ok(Ok(found)) if found.len() == customers.len() => Ok(found),
        Ok(Ok(found)) => Err(SourceError::new(format!("{} answers to {} customers", found.len(), customers.len()))),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(SourceError::new(format!("no answer within {PATIENCE:?}"))),
    }
}

/// A customer that somebody waits for to be looked up.
struct Asking<'a> {
    inner: &'a Inner,
    customer: Box<str>,
    /// Whether nobody else looks it up.
    is_alone: bool,
}

impl<'a> Asking<'a> {
    fn new(inner: &'a Inner, customer: Box<str>) -> Asking<'a> {
        let is_alone = inner.queue().asked.insert(customer.clone());
        Asking { inner, customer, is_alone }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.is_alone {
            self.inner.queue().asked.remove(&self.customer);
        }
    }
}

/// A task that looks customers up. However it ends, also with its runtime, another may begin.
struct Attendance {
    inner: Arc<Inner>,
    /// Those that it looks up now.
    batch: Vec<Box<str>>,
    /// Whether nobody was left to look up.
    is_over: bool,
}

async fn attend(lookup: Lookup, mut attendance: Attendance) {
    let inner = Arc::clone(&attendance.inner);
    let pace = Duration::from_secs(1) / lookup.most_a_second().max(1);
    loop {
        let (batch, begin) = {
            let mut queue = inner.queue();
            let (batch, begin) = queue.take(lookup.at_once().max(1), pace);
            if batch.is_empty() {
                queue.attended -= 1;
                attendance.is_over = true;
                return;
            }
            (batch, begin)
        };
        attendance.batch = batch;
        sleep_until(begin).await;
        let epoch = inner.epoch.load(Ordering::Relaxed);
        let answer = ask(&lookup, &attendance.batch).await;
        let failed = answer.is_err();
        inner.remember(&lookup, &attendance.batch, answer, epoch);
        attendance.is_done(&mut inner.queue());
        // Where customers are asked for one by one, the one that failed is not asked for again so soon, and others need not wait.
        if failed && lookup.at_once() > 1 {
            sleep(AGAIN).await;
        }
    }
}

impl Attendance {
    fn is_done(&mut self, queue: &mut Queue) {
        for customer in self.batch.drain(..) {
            queue.asked.remove(&customer);
        }
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        if !self.is_over {
            let inner = Arc::clone(&self.inner);
            let mut queue = inner.queue();
            self.is_done(&mut queue);
            queue.attended -= 1;
        }
    }
}

/// Keys are plain ASCII: everything else in them is escaped.
fn text(key: &Key) -> Option<Box<str>> {
    std::str::from_utf8(key.as_bytes()).ok().map(Box::from)
}
