use std::{collections::VecDeque, time::Duration};

use smallvec::SmallVec;
use tokio::{
    runtime::Handle,
    time::{Instant, sleep},
};

use super::{
    super::{Limiter, permit::Lease},
    BATCH,
};
use crate::{
    error::{StoreError, StoreErrorKind},
    observer::StoreEvent,
    store::{Answer, Ask, Purpose},
};

/// How many calls are under way at once. What ends meanwhile goes together with the next.
const SENDERS: usize = 4;
/// More than these are left to time.
const MOST: usize = 65_536;
/// Between tries; twice as long each time, up to [`LONGEST`].
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);
/// How long an ask is under way at most, where a store does not say.
const DEADLINE: Duration = Duration::from_millis(10);

/// What is to be released.
#[derive(Default)]
pub(super) struct Ending {
    waiting: VecDeque<(Lease, Instant)>,
    senders: usize,
}

/// A task that releases. However it ends, also with its runtime, another may begin.
struct Sender {
    limiter: Limiter,
    ended: bool,
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.ended {
            self.limiter.0.leases.ending().senders -= 1;
        }
    }
}

impl Sender {
    async fn run(mut self) {
        let mut pause = PAUSE;
        while let Some(batch) = self.next() {
            let leases: SmallVec<[Lease; 4]> = batch.iter().map(|(lease, _)| lease.clone()).collect();
            match self.limiter.change(Purpose::Release, &leases).await {
                Ok(_) => pause = PAUSE,
                Err(error) => {
                    self.limiter.try_again(batch, error);
                    sleep(pause).await;
                    pause = LONGEST.min(pause * 2);
                }
            }
        }
    }

    fn next(&mut self) -> Option<Vec<(Lease, Instant)>> {
        let mut ending = self.limiter.0.leases.ending();
        if ending.waiting.is_empty() {
            // Under the lock: whoever adds something now finds one sender less.
            ending.senders -= 1;
            self.ended = true;
            return None;
        }
        let count = ending.waiting.len().min(BATCH);
        Some(ending.waiting.drain(..count).collect())
    }
}

impl Limiter {
    /// Releases them in no time, where the store can.
    pub(super) fn release_now(&self, leases: &[Lease]) -> bool {
        let lines = self.lines_of(leases);
        let ask = Ask { lines: &lines, purpose: Purpose::Release, time: self.0.clock.time() };
        matches!(self.0.store.acquire_now(&ask, &mut Answer::default()), Some(Ok(())))
    }

    /// Releases them by a task.
    pub(super) fn release(&self, leases: SmallVec<[Lease; 1]>, runtime: &Handle) {
        let now = Instant::now();
        let mut ending = self.0.leases.ending();
        if ending.waiting.len() >= MOST {
            drop(ending);
            let text = format!("{MOST} other places are on their way back");
            return self.not_released(&StoreError::new(StoreErrorKind::Unavailable, text));
        }
        ending.waiting.extend(leases.into_iter().map(|lease| (lease, now)));
        if ending.senders < SENDERS {
            ending.senders += 1;
            drop(ending);
            runtime.spawn(Sender { limiter: self.clone(), ended: false }.run());
        }
    }

    /// Releases them once more when the ask for them has come to nothing for certain: it may still be on its way, over another
    /// connection.
    pub(super) fn release_again(&self, leases: SmallVec<[Lease; 1]>, runtime: &Handle) {
        let (limiter, handle) = (self.clone(), runtime.clone());
        let deadline = self.0.store.deadline().unwrap_or(DEADLINE);
        runtime.spawn(async move {
            sleep(deadline + Duration::from_millis(5)).await;
            limiter.release(leases, &handle);
        });
    }

    /// After a failure: until they have expired by themselves.
    fn try_again(&self, mut batch: Vec<(Lease, Instant)>, error: StoreError) {
        let lasts = |lease: &Lease| self.0.rules.get(lease.pick.rule).and_then(|rule| rule.limit().lease());
        let before = batch.len();
        batch
            .retain(|(lease, since)| error.is_transient() && lasts(lease).is_some_and(|lasts| since.elapsed() < lasts));
        if batch.len() < before {
            self.not_released(&error);
        }
        self.0.leases.ending().waiting.extend(batch);
    }

    fn not_released(&self, error: &StoreError) {
        tracing::warn!(%error, "places under a concurrency rule were not given back; they are free when their leases expire");
        self.tell_observer(&StoreEvent::NotGivenBack(error.clone()));
    }
}
