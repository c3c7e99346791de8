//! Takes settlements to the store, off the path of requests: in batches, soon, and each once.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{Notify, Semaphore},
    time::{Instant, sleep},
};

use super::{Inner, Limiter};
use crate::{
    error::StoreError,
    observer::StoreEvent,
    store::{Answer, Ask, Change, Id, OwnedLine, Settlement},
};

/// How long a settlement waits for others to go with.
const LINGER: Duration = Duration::from_millis(20);
/// How many go together.
const BATCH: usize = 64;
/// How many batches are on their way at once.
const AT_ONCE: usize = 4;
/// How many may wait. More are not made, which is told.
const MOST: usize = 65_536;
/// For how long a settlement is asked for again, with its id: shorter than stores remember ids.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a batch that failed waits for its next turn.
const PAUSE: Duration = Duration::from_millis(250);

pub(super) struct Settler {
    queue: Mutex<Queue>,
    batches: Arc<Semaphore>,
    /// Told when nothing is left.
    done: Notify,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// How many have left the queue.
    gone: u64,
    /// Where strikes against a key wait, by its scope and text: which in the line, counted with those that are gone.
    strikes: HashMap<(u32, Box<[u8]>), u64>,
    /// How many wait or are on their way.
    open: usize,
    /// Whether a task sees to it.
    attended: bool,
    /// Whether somebody waits for the end.
    hurried: bool,
}

struct Waiting {
    line: OwnedLine,
    id: Id,
    change: Change,
    since: Instant,
}

impl Settler {
    pub(super) fn new() -> Settler {
        Settler { queue: Mutex::default(), batches: Arc::new(Semaphore::new(AT_ONCE)), done: Notify::new() }
    }

    fn close(&self, count: usize) {
        let mut queue = self.lock();
        queue.open = queue.open.saturating_sub(count);
        if queue.open == 0 {
            self.done.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Limiter {
    /// Sees to it that the change is made.
    pub(super) fn settle(&self, line: OwnedLine, change: Change) {
        let waiting = Waiting { line, id: Id::random(), change, since: Instant::now() };
        if self.settle_now(&waiting) {
            return;
        }
        let units = waiting.line.cost;
        {
            let mut queue = self.0.settler.lock();
            if queue.joined(&waiting) {
                return;
            }
            if queue.waiting.len() >= MOST {
                drop(queue);
                return self.not_settled(units);
            }
            queue.push(waiting);
            queue.open += 1;
        }
        self.attend();
    }

    /// Starts the task that sees to settlements, where there is none. Outside a runtime they wait for the next.
    fn attend(&self) {
        let Ok(runtime) = Handle::try_current() else { return };
        if !std::mem::replace(&mut self.0.settler.lock().attended, true) {
            runtime.spawn(attend(Attendance { inner: Arc::clone(&self.0), over: false }));
        }
    }

    /// Waits until everything that was [settled](super::Charge::settle) so far has reached the store, or has been given up. For the end
    /// of an application: what still waits then, some 20 ms as a rule, would be lost.
    pub async fn settled(&self) {
        loop {
            let done = self.0.settler.done.notified();
            {
                let mut queue = self.0.settler.lock();
                if queue.open == 0 {
                    queue.hurried = false;
                    return;
                }
                queue.hurried = true;
            }
            self.attend();
            done.await;
        }
    }

    /// Makes the change here and now, where the store can.
    fn settle_now(&self, waiting: &Waiting) -> bool {
        let settlement = waiting.settlement();
        let ask = Ask { lines: &[settlement.line], purpose: settlement.purpose(), time: self.0.clock.time() };
        matches!(self.0.store.acquire_now(&ask, &mut Answer::default()), Some(Ok(())))
    }

    fn not_settled(&self, units: u64) {
        self.0.observers.tell(&StoreEvent::NotSettled { units });
    }
}

impl Queue {
    fn push(&mut self, waiting: Waiting) {
        if let Some(key) = waiting.strike() {
            self.strikes.insert(key, self.gone + self.waiting.len() as u64);
        }
        self.waiting.push_back(waiting);
    }

    fn take(&mut self, count: usize) -> Vec<Waiting> {
        let taken: Vec<Waiting> = self.waiting.drain(..count).collect();
        self.gone += taken.len() as u64;
        for key in taken.iter().filter_map(Waiting::strike) {
            self.strikes.remove(&key);
        }
        taken
    }

    /// Adds strikes to others against the same key that wait: somebody who is refused a thousand times a second is not a thousand
    /// changes.
    fn joined(&mut self, strikes: &Waiting) -> bool {
        let Some(key) = strikes.strike() else { return false };
        let Some(place) = self.strikes.get(&key).and_then(|place| place.checked_sub(self.gone)) else { return false };
        let Some(first) = self.waiting.get_mut(place as usize) else { return false };
        first.line.cost = first.line.cost.saturating_add(strikes.line.cost);
        true
    }
}

impl Waiting {
    /// Whose strikes these are, if they are any.
    fn strike(&self) -> Option<(u32, Box<[u8]>)> {
        let line = self.line.line();
        line.limit.is_ban().then(|| (line.scope.number(), line.key.into()))
    }

    fn settlement(&self) -> Settlement<'_> {
        Settlement { line: self.line.line(), id: self.id, change: self.change }
    }
}

/// The duty of one task. However that ends, also with its runtime, the next settlement finds another.
struct Attendance {
    inner: Arc<Inner>,
    over: bool,
}

impl Drop for Attendance {
    fn drop(&mut self) {
        if !self.over {
            self.inner.settler.lock().attended = false;
        }
    }
}

async fn attend(mut duty: Attendance) {
    let inner = Arc::clone(&duty.inner);
    loop {
        let is_ready = || {
            let queue = inner.settler.lock();
            queue.hurried || queue.waiting.len() >= BATCH
        };
        if !is_ready() {
            sleep(LINGER).await;
        }
        let Ok(permit) = Arc::clone(&inner.settler.batches).acquire_owned().await else { return };
        let batch = {
            let mut queue = inner.settler.lock();
            if queue.waiting.is_empty() {
                // Under the lock, so that whoever comes next finds nobody here.
                queue.attended = false;
                duty.over = true;
                return;
            }
            let count = queue.waiting.len().min(BATCH);
            Batch { inner: Arc::clone(&inner), waiting: queue.take(count) }
        };
        tokio::spawn(async move {
            batch.settle().await;
            drop(permit);
        });
    }
}

/// Settlements on their way.
struct Batch {
    inner: Arc<Inner>,
    waiting: Vec<Waiting>,
}

impl Batch {
    async fn settle(mut self) {
        loop {
            let settlements: Vec<Settlement<'_>> = self.waiting.iter().map(Waiting::settlement).collect();
            let outcomes = self.inner.store.settle(&settlements, self.inner.clock.time()).await;
            drop(settlements);
            let mut outcomes = outcomes.into_iter();
            let (mut lost, before) = (0, self.waiting.len());
            self.waiting.retain(|waiting| match outcomes.next() {
                Some(Ok(())) => false,
                Some(Err(error)) if !worth_another_try(&error, waiting) => {
                    lost += waiting.line.cost;
                    false
                }
                _ => true,
            });
            self.inner.settler.close(before - self.waiting.len());
            if lost > 0 {
                self.inner.observers.tell(&StoreEvent::NotSettled { units: lost });
            }
            if self.waiting.is_empty() {
                return;
            }
            sleep(PAUSE).await;
        }
    }
}

/// A runtime that ends takes nothing with it: another goes on.
impl Drop for Batch {
    fn drop(&mut self) {
        if !self.waiting.is_empty() {
            self.inner.settler.lock().waiting.extend(self.waiting.drain(..));
        }
    }
}

fn worth_another_try(error: &StoreError, waiting: &Waiting) -> bool {
    error.is_transient() && waiting.since.elapsed() + PAUSE < PATIENCE
}
