//! A store around a store, so that nothing the inner one does can hurt.
//!
//! Every ask goes past the breakers of the parts it needs. What comes back without an answer is decided here, rule by rule:
//! admitted, refused, or counted in this process.

mod breaker;
mod breakers;
mod commit;
mod fallback;
mod journal;
mod leases;
mod local;
mod settle;

use std::{
    fmt,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use smallvec::SmallVec;
use tokio::time::{Instant, timeout};

use self::{
    breakers::{Breakers, Gates},
    journal::Journal,
    local::{Instances, Local},
};
use crate::{
    error::{BuildError, StoreError, StoreErrorKind},
    limit::Limit,
    observer::{Observer, Observers, StoreEvent},
    store::{Answer, Ask, Checking, Line, MemoryStore, Purpose, Settlement, Settling, Store, StoreFuture, Time},
};

const DEADLINE: Duration = Duration::from_millis(10);
const SHARE: f64 = 0.8;

/// A store around a store that may fail: with a deadline, a circuit breaker, and counts in this process for the meantime.
///
/// A limiter puts one around every [`RedisStore`](crate::RedisStore) by itself. Made by hand, it can be told more:
///
/// ```
/// use sluicegate::{MemoryStore, Resilient};
/// use std::time::Duration;
///
/// # let store = MemoryStore::new();
/// Resilient::new(store)
///     .instances(8)                                    // processes that share the quotas
///     .share(0.9)                                      // of each quota is theirs while the store is away
///     .open_after(5, Duration::from_secs(10))
///     .open_for(Duration::from_secs(5));
/// ```
///
/// # The breaker
///
/// After 5 failures in a row within 10 s the store is not asked for 30 s, and requests no longer wait for it at all. Then one
/// request asks it (up to a tenth later, so that processes do not come back together); if that is answered, all do again. One
/// also asks as soon as the store has a new connection. A success in between resets the count, so a store that now and then is
/// slow is left alone; and calls that fail together, since the connection they share is lost, are one failure. What waiting does not mend
/// ([`StoreErrorKind::Permanent`]), like a missing permission, does not count: it is logged as an error until somebody mends it. Each
/// part of a store, like a node of a Cluster, has a breaker of its own.
///
/// # Rule by rule
///
/// What becomes of a request that the store gave no answer to is for each rule to [say](crate::OnFailure). With
/// [`Local`](crate::OnFailure::Local) it is counted in this process, under its share of the quota: the quota divided by the
/// [`instances`](Resilient::instances), times the [`share`](Resilient::share). 8,000 a second over 8 instances at 0.8 is 800 a second
/// each. **A process knows of no others unless told**: with the default of 1 each of 8 processes admits 0.8 of the whole quota.
///
/// When the store answers again, it is told what was admitted without it, as far as that still matters and fits. Of a call
/// whose fate is unknown it is not told: that one may have been charged already, and nothing is charged twice.
pub struct Resilient(Arc<Shared>);

struct Shared {
    store: Box<dyn Store>,
    local: Local,
    breakers: Breakers,
    journal: Journal,
    observers: Observers,
    /// How many charges are on their way back.
    returning: AtomicUsize,
}

impl Resilient {
    /// Around `store`.
    pub fn new(store: impl Store) -> Resilient {
        let deadline = store.deadline().unwrap_or(DEADLINE);
        Resilient(Arc::new(Shared {
            store: Box::new(store),
            local: Local { store: MemoryStore::new(), instances: Instances::Untold, share: SHARE },
            breakers: Breakers::new(deadline),
            journal: Journal::default(),
            observers: Observers::default(),
            returning: AtomicUsize::new(0),
        }))
    }

    /// The longest that a request waits for the store, 10 ms unless said otherwise. For stores that do not see to it themselves: of
    /// a [`RedisStore`](crate::RedisStore), set its [own](crate::store::RedisStoreBuilder::deadline).
    pub fn deadline(self, deadline: Duration) -> Resilient {
        self.set(|shared| shared.breakers.settings.deadline = deadline)
    }

    /// So many failures in a row, within this time, open the breaker: 5 within 10 s unless said otherwise. A store that hangs fails once in
    /// each [`deadline`](Resilient::deadline), so with a long one it is the time of twice as many deadlines, if that is more.
    pub fn open_after(self, failures: u32, within: Duration) -> Resilient {
        self.set(|shared| {
            shared.breakers.settings.failures = failures;
            shared.breakers.settings.within = within;
        })
    }

    /// How long the store is not asked then, 30 s unless said otherwise.
    pub fn open_for(self, time: Duration) -> Resilient {
        self.set(|shared| shared.breakers.settings.open_for = time)
    }

    /// How many processes share the quotas, 1 unless said otherwise. While the store gives no answer, each has its part.
    pub fn instances(self, instances: u32) -> Resilient {
        self.set(|shared| shared.local.instances = Instances::Fixed(instances))
    }

    /// Like [`instances`](Resilient::instances), asked live: for a fleet that grows and shrinks. It is called on the path of
    /// requests, so it must not wait; zero counts as one.
    ///
    /// ```
    /// # use sluicegate::{MemoryStore, Resilient};
    /// use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
    ///
    /// let fleet = Arc::new(AtomicU32::new(8));    // somebody keeps this up to date
    /// Resilient::new(MemoryStore::new()).instances_by(move || fleet.load(Ordering::Relaxed));
    /// ```
    pub fn instances_by(self, closure: impl Fn() -> u32 + Send + Sync + 'static) -> Resilient {
        self.set(|shared| shared.local.instances = Instances::By(Arc::new(closure)))
    }

    /// The share of the quotas that all processes together admit while the store gives no answer, 0.8 unless said otherwise:
    /// they spread their requests unevenly, and what was spent before is not known.
    pub fn share(self, share: f64) -> Resilient {
        self.set(|shared| shared.local.share = share)
    }

    fn set(mut self, change: impl FnOnce(&mut Shared)) -> Resilient {
        // Nobody else has it yet.
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            change(shared);
        }
        self
    }
}

impl Shared {
    /// Whether there is nothing but the store to think of.
    #[inline]
    fn calm(&self) -> bool {
        self.breakers.at_ease() && self.journal.is_empty()
    }

    /// The longest that a request waits for the store.
    #[inline]
    fn deadline(&self) -> Duration {
        self.breakers.settings.deadline
    }

    /// Asks the store, within the deadline.
    async fn ask(&self, ask: &Ask<'_>) -> Result<Answer, StoreError> {
        if self.store.deadline().is_some_and(|own| own <= self.deadline()) {
            return self.store.acquire(ask).await;
        }
        Box::pin(timeout(self.deadline(), self.store.acquire(ask))).await.unwrap_or_else(|_| Err(self.late()))
    }

    #[cold]
    fn late(&self) -> StoreError {
        StoreError::new(StoreErrorKind::Timeout, format!("no answer within {:?}", self.deadline()))
    }

    async fn decide(self: &Arc<Shared>, ask: &Ask<'_>) -> Result<Answer, StoreError> {
        if self.calm() {
            let began = Instant::now();
            return match self.ask(ask).await {
                Ok(answer) => Ok(answer),
                Err(error) => self.conclude(ask, self.breakers.open_gates(ask, &*self.store, began), Some(Err(error))),
            };
        }
        // Rare, so it takes its room elsewhere.
        Box::pin(self.decide_in_trouble(ask)).await
    }

    async fn decide_in_trouble(self: &Arc<Shared>, ask: &Ask<'_>) -> Result<Answer, StoreError> {
        if !ask.purpose.decides() {
            return self.ask_past_breakers(ask).await;
        }
        let gates = self.gates(ask);
        let lines: SmallVec<[Line<'_>; 4]> = through(ask, &gates).collect();
        if !lines.is_empty()
            && lines.len() < ask.lines.len()
            && let Some(refused) = self.refused_already(ask, &gates)
        {
            return Err(refused);
        }
        let outcome = if lines.is_empty() { None } else { Some(self.ask(&Ask { lines: &lines, ..*ask }).await) };
        self.conclude(ask, gates, outcome)
    }

    /// Asks for a change that nobody decides over. Where a breaker is open, nobody is asked.
    async fn ask_past_breakers(&self, ask: &Ask<'_>) -> Result<Answer, StoreError> {
        let gates = self.gates(ask);
        if through(ask, &gates).count() < ask.lines.len() {
            return Err(fallback::open());
        }
        let outcome = self.ask(ask).await;
        let error = outcome.as_ref().err();
        gates.report(|place| error?.of_line(place), &self.observers);
        outcome
    }

    fn gates(&self, ask: &Ask<'_>) -> Gates<'_> {
        let gates = self.breakers.gates(ask, &*self.store);
        // After that, so that a part that is asked now is probed and not forgotten.
        self.breakers.sweep(&self.observers);
        gates
    }
}

/// The lines that are let through.
fn through<'a>(ask: &Ask<'a>, gates: &Gates<'_>) -> impl Iterator<Item = Line<'a>> {
    (0..).zip(ask.lines).filter(|(place, _)| gates.let_through(*place)).map(|(_, line)| *line)
}

impl Store for Resilient {
    #[inline]
    fn acquire_now(&self, ask: &Ask<'_>, answer: &mut Answer) -> Option<Result<(), StoreError>> {
        if ask.purpose == Purpose::Release {
            self.0.local.release(ask);
        }
        if self.0.calm() {
            return match self.0.store.acquire_now(ask, answer)? {
                Ok(()) => Some(Ok(())),
                Err(error) => Some(self.0.failed_now(ask, error)),
            };
        }
        self.0.decide_now(ask, answer)
    }

    fn acquire<'a>(&'a self, ask: &'a Ask<'a>) -> StoreFuture<'a, Answer> {
        match ask.purpose {
            Purpose::Renew | Purpose::Release => Box::pin(self.0.keep_leases(ask)),
            _ => Box::pin(self.0.decide(ask)),
        }
    }

    fn settle<'a>(&'a self, settlements: &'a [Settlement<'a>], time: Time) -> Settling<'a> {
        Box::pin(self.0.settle(settlements, time))
    }

    fn reset<'a>(&'a self, lines: &'a [Line<'a>]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.0.local.store.reset(lines).await?;
            lines.iter().for_each(|line| self.0.journal.forget(line));
            timeout(self.0.deadline(), self.0.store.reset(lines)).await.unwrap_or_else(|_| Err(self.0.late()))
        })
    }

    fn observe(&self, observer: &Arc<dyn Observer>) {
        self.0.observers.add(observer);
        self.0.store.observe(observer);
        self.0.local.store.observe(observer);
    }

    fn accept(&self, rules: &[(&str, &Limit)]) -> Result<(), BuildError> {
        self.0.check()?;
        self.0.store.accept(rules)?;
        let listener: Arc<dyn Observer> = Arc::clone(&self.0) as _;
        self.0.store.observe(&listener);
        Ok(())
    }

    fn part(&self, line: &Line<'_>) -> usize {
        self.0.store.part(line)
    }

    fn check<'a>(&'a self, namespace: &'a str) -> Checking<'a> {
        Box::pin(async move {
            let mut report = self.0.store.check(namespace).await;
            self.0.local.tell(&mut report);
            report
        })
    }

    fn deadline(&self) -> Option<Duration> {
        Some(self.0.deadline())
    }
}

/// Listens to the store inside.
impl Observer for Shared {
    fn store(&self, event: &StoreEvent) {
        // Making a connection may take longer than a probe waits. Once it is there, the next request finds out what it is worth.
        if *event == StoreEvent::Connected {
            self.breakers.nudge();
        }
    }
}

impl Shared {
    fn check(&self) -> Result<(), BuildError> {
        let bad = |field, text: String| Err(BuildError::new(field, text));
        let breaker = &self.breakers.settings;
        if !(1..=10_000).contains(&breaker.failures) {
            return bad("open_after", format!("{} failures are out of range; give 1 to 10000", breaker.failures));
        }
        let times = [("deadline", breaker.deadline), ("open_after", breaker.within), ("open_for", breaker.open_for)];
        for (field, time) in times {
            if !(Duration::from_millis(1)..=Duration::from_secs(3_600)).contains(&time) {
                return bad(field, format!("{time:?} is out of range; give 1 ms to 1 h"));
            }
        }
        if let Some(own) = self.store.deadline().filter(|own| *own > breaker.deadline) {
            // It would be cut off before it has noted that a call timed out.
            let text = format!(
                "is shorter than the store's own of {own:?}; set that one, RedisStore::builder(..).deadline(..)"
            );
            return bad("deadline", text);
        }
        if !(self.local.share > 0.0 && self.local.share <= 1.0) {
            return bad("share", format!("{} is out of range; give more than 0 and at most 1", self.local.share));
        }
        if let Instances::Fixed(0) = self.local.instances {
            return bad("instances", "0 processes share nothing; give 1 or more".into());
        }
        Ok(())
    }
}

impl fmt::Debug for Resilient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resilient")
            .field("store", &self.0.store)
            .field("breaker", &self.0.breakers.settings)
            .field("local", &self.0.local)
            .finish_non_exhaustive()
    }
}
