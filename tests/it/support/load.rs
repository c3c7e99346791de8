//! A steady stream of decisions, and how long each took.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sluicegate::{Limiter, StoreErrorKind};
use tokio::{task::JoinSet, time::MissedTickBehavior};

use super::{
    checker::{Checker, RULE},
    stall::stalled,
    watch,
};

/// Decisions a second.
pub const RATE: u32 = 2_000;

/// Whether the long forms of tests are to run.
pub fn soak() -> bool {
    std::env::var_os("SLUICEGATE_SOAK").is_some_and(|value| value == "1")
}

/// How long a part of a fault test takes: as said, or twenty seconds in the long form.
pub fn part(short: Duration) -> Duration {
    if soak() { Duration::from_secs(20) } else { short }
}

/// Fault tests run one by one: each has the machine to itself.
pub async fn alone() -> tokio::sync::MutexGuard<'static, ()> {
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let turn = TURN.lock().await;
    watch::begin();
    turn
}

#[derive(Clone)]
pub struct Load {
    pub limiter: Limiter,
    pub checker: Arc<Checker>,
    /// For how long the machine has kept the server of this decision from running, where that is not to be held against it.
    pub server_stalled: Arc<dyn Fn(u64) -> Duration + Send + Sync>,
    /// Decisions a second.
    pub rate: u32,
}

/// One decision.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Its number, which is its key.
    pub id: u64,
    pub sent: Instant,
    /// How long it took, less the time in which the machine was away or kept the thread, or the server, from running.
    pub took: Duration,
    /// How long it kept them from running.
    pub stalled: Duration,
    /// How long it was away.
    pub slept: Duration,
    pub failure: Option<StoreErrorKind>,
    pub allowed: bool,
}

impl Load {
    pub fn new(checker: Checker, limiter: Limiter) -> Load {
        Load { limiter, checker: Arc::new(checker), server_stalled: Arc::new(|_| Duration::ZERO), rate: RATE }
    }

    /// One decision, measured.
    pub async fn one(self) -> Sample {
        let id = self.checker.sent();
        let kept = || stalled() + (self.server_stalled)(id);
        let (sent, before) = (Instant::now(), kept());
        let decision = self.limiter.acquire([(RULE, id)]).await;
        self.checker.replied(id, &decision);
        let (elapsed, stalled) = (sent.elapsed(), kept().saturating_sub(before));
        let took = elapsed.saturating_sub(stalled);
        Sample {
            id,
            sent,
            took,
            stalled,
            slept: Duration::ZERO,
            failure: decision.failure().map(|error| error.kind()),
            allowed: decision.is_allowed(),
        }
    }

    /// The stream for so long, until its last answer.
    pub async fn run(&self, length: Duration) -> Phase {
        self.until(length, async || std::future::pending().await).await
    }

    /// The stream until `event`, and no longer than so long.
    pub async fn until(&self, length: Duration, event: impl AsyncFnOnce()) -> Phase {
        let mut event = std::pin::pin!(event());
        let (mut asked, mut samples) = (JoinSet::new(), Vec::new());
        let (begin, mut crowd) = (Instant::now(), 0);
        let mut ticks = tokio::time::interval(Duration::from_millis(1));
        // What a busy machine held up is not made up for: a crowd would be the stream's doing then.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                biased;
                () = &mut event => break,
                _ = ticks.tick() => {
                    for _ in 0..self.rate / 1_000 {
                        asked.spawn(self.clone().one());
                    }
                    crowd = crowd.max(asked.len());
                    if begin.elapsed() >= length {
                        break;
                    }
                }
                Some(sample) = asked.join_next() => samples.push(sample.expect("no panic")),
            }
        }
        while let Some(sample) = asked.join_next().await {
            samples.push(sample.expect("no panic"));
        }
        Phase::of(samples, crowd).await
    }

    /// The stream until the store answers again, and how long after `since` it did.
    pub async fn recovery(&self, since: Instant, limit: Duration) -> Duration {
        loop {
            let phase = self.run(Duration::from_millis(20)).await;
            if let Some(first) = phase.samples.iter().find(|sample| sample.failure.is_none()) {
                return (first.sent + first.took).saturating_duration_since(since);
            }
            assert!(since.elapsed() < limit, "no recovery within {limit:?}: {:?}", phase.failures());
        }
    }
}

/// What a stretch of the stream came to.
pub struct Phase {
    pub samples: Vec<Sample>,
    /// The most decisions that were waited for at a time.
    pub crowd: usize,
}

impl Phase {
    /// Of these decisions. The time in which the machine was away is taken off theirs.
    pub async fn of(mut samples: Vec<Sample>, crowd: usize) -> Phase {
        let end = Instant::now();
        while watch::seen() < end {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        samples.sort_by_key(|sample| sample.sent);
        for sample in &mut samples {
            sample.slept = watch::slept(sample.sent, sample.sent + sample.took + sample.stalled);
            sample.took = sample.took.saturating_sub(sample.slept);
        }
        Phase { samples, crowd }
    }

    /// The time that so many of a hundred stayed within.
    pub fn percentile(&self, share: usize) -> Duration {
        let mut times: Vec<_> = self.samples.iter().map(|sample| sample.took).collect();
        times.sort_unstable();
        times[(times.len() - 1) * share / 100]
    }

    /// How many failed in each way.
    pub fn failures(&self) -> std::collections::HashMap<StoreErrorKind, usize> {
        let mut failures = std::collections::HashMap::new();
        for kind in self.samples.iter().filter_map(|sample| sample.failure) {
            *failures.entry(kind).or_default() += 1;
        }
        failures
    }

    pub fn failed(&self) -> usize {
        self.samples.iter().filter(|sample| sample.failure.is_some()).count()
    }

    /// As fast as `before`, the median within twice and a quarter of a millisecond, and next to none failed that would not have
    /// failed then: a busy machine may hold up server and client for longer than a deadline.
    pub fn is_like(&self, before: &Phase) -> bool {
        let is_fast = self.percentile(50) <= before.percentile(50) * 2 + Duration::from_micros(250);
        is_fast
            && self.failed() * before.samples.len()
                <= (before.failed() + before.samples.len() / 50) * self.samples.len()
    }

    /// No decision took longer than this. Where the machine held up the thread, what had piled up meanwhile takes as long again.
    pub fn is_within(&self, bound: Duration) {
        let beyond = self.samples.iter().find(|sample| sample.took > bound);
        assert!(beyond.is_none(), "{beyond:?} took longer than {bound:?}");
        figure("longest wait", self.samples.iter().map(|sample| sample.took).max().unwrap_or_default());
        figure("99 of 100 within", self.percentile(99));
    }
}

/// Says what was measured, to those who run the tests with `--nocapture`.
#[allow(clippy::print_stderr)]
pub fn figure(what: &str, time: Duration) {
    eprintln!("{what}: {time:?}");
}

/// Asks until the store answers, as an application does that has just started. Nothing is charged: the first call knows nothing
/// of the server's clock, so its charge cannot be guarded.
pub async fn warm(limiter: &Limiter) {
    let since = Instant::now();
    while limiter.peek([(RULE, 0)]).await.failure().is_some() {
        assert!(since.elapsed() < Duration::from_secs(20), "no answer");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
