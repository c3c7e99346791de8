//! The memory store's own promises: bounded, forgetful of what does not matter, and of nothing else.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use sluicegate::{
    Clock, Limiter, ManualClock, MemoryStore, Observer, Quota, Rule, StoreErrorKind, StoreEvent, key,
    store::{Answer, Ask, Line, Store, StoreFuture},
};

use crate::support::stores::BEGIN;

#[derive(Clone, Default)]
struct Overflows(Arc<AtomicU64>);

impl Observer for Overflows {
    fn store(&self, event: &StoreEvent) {
        if *event == StoreEvent::Overflowed {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn limiter(store: &MemoryStore, clock: &ManualClock) -> (Limiter, Overflows) {
    let overflows = Overflows::default();
    let rule = Rule::token_bucket("r", Quota::per_minute(60).burst(10)).key(key::given());
    let other = Rule::fixed_window("other", Quota::per_minute(1_000_000)).from_first_request().key(key::given());
    let builder = Limiter::builder(store.clone()).clock(Clock::manual(clock.clone())).observer(overflows.clone());
    (builder.rule(rule).rule(other).build().expect("sound"), overflows)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
}

async fn take(limiter: &Limiter, key: u64, units: u64) -> Option<u64> {
    let decision = limiter.acquire(sluicegate::Call::new().key("r", key).cost(units)).await;
    decision.standing("r").filter(|_| decision.is_allowed()).map(|standing| standing.remaining())
}

#[tokio::test]
async fn keys_whose_quota_has_come_back_make_room() {
    let (store, clock) = (MemoryStore::new().max_keys(6_400), ManualClock::new(BEGIN));
    let (limiter, overflows) = limiter(&store, &clock);
    for key in 0..200_000 {
        assert_eq!(take(&limiter, key, 1).await, Some(9));
        // After ten milliseconds each, a hundred keys at a time are not yet full again.
        clock.advance(Duration::from_millis(10));
    }
    assert!(store.keys() < 1_000, "{}", store.keys());
    assert_eq!(overflows.0.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_full_store_forgets_no_spent_quota_and_newcomers_share() {
    let (store, clock) = (MemoryStore::new().max_keys(640), ManualClock::new(BEGIN));
    let (limiter, overflows) = limiter(&store, &clock);
    for key in 0..5_000 {
        take(&limiter, key, 10).await;
    }
    assert!(store.keys() <= 640 + 2, "{}", store.keys());
    assert!(overflows.0.load(Ordering::Relaxed) > 4_000);
    // Whoever has spent is remembered.
    let mut remembered = 0;
    for key in 0..5_000 {
        remembered += u32::from(take(&limiter, key, 1).await.is_none());
    }
    assert_eq!(remembered, 5_000, "the first are known, the others find the overflow count spent");
    // Another rule of the same request overflows for itself, and a request with both stays all or nothing.
    let both = limiter.acquire([("r", 77_777u64), ("other", 77_777)]).await;
    assert!(both.is_refused());
    assert_eq!(both.standing("other").map(|standing| standing.remaining()), Some(1_000_000));
    // When quota comes back there is room again.
    clock.advance(Duration::from_secs(10));
    assert_eq!(take(&limiter, 99_999, 1).await, Some(9));
}

#[tokio::test]
async fn refusals_and_peeks_leave_no_keys_behind() {
    let (store, clock) = (MemoryStore::new(), ManualClock::new(BEGIN));
    let (limiter, _) = limiter(&store, &clock);
    for key in 0..1_000u64 {
        assert_eq!(take(&limiter, key, 11).await, None);
        assert!(limiter.peek([("r", key)]).await.is_allowed());
        assert_eq!(take(&limiter, key, 0).await, Some(10));
    }
    assert_eq!(store.keys(), 0);
}

#[tokio::test]
async fn its_own_clock_moves_and_windows_stand_at_the_wall_clock() {
    let rule = Rule::fixed_window("day", Quota::per_day(5)).key(key::given());
    let limiter = Limiter::builder(MemoryStore::new()).rule(rule).build().expect("sound");
    let decision = limiter.acquire([("day", "k")]).await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after it").as_secs();
    let until_midnight = 86_400 - now % 86_400;
    let reset = decision.standing("day").expect("it applies").reset_after().as_secs();
    assert!(reset.abs_diff(until_midnight) <= 2, "{reset} {until_midnight}");
}

/// Threads read the clock and then wait for the lock, so they come to a count out of order. Nothing may be earned twice by
/// that: neither a refill nor a window.
#[test]
fn threads_that_come_out_of_order_earn_nothing_twice() {
    let window = Duration::from_millis(2);
    let rules = [
        Rule::token_bucket("bucket", Quota::per_second(1_000).burst(10)).key(key::given()),
        Rule::leaky_bucket("leaky", Quota::per_second(1_000).burst(10)).key(key::given()),
        Rule::fixed_window("window", Quota::per(5, window)).key(key::given()),
        Rule::sliding_log("log", Quota::per(5, window)).key(key::given()),
    ];
    for rule in rules {
        let name = rule.name().to_owned();
        let limiter = Limiter::builder(MemoryStore::new()).rule(rule).build().expect("sound");
        let since = std::time::Instant::now();
        let admitted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    runtime().block_on(async {
                        while since.elapsed() < Duration::from_millis(300) {
                            let decision = limiter.acquire([(&*name, "k")]).await;
                            admitted.fetch_add(u64::from(decision.is_allowed()), Ordering::Relaxed);
                        }
                    });
                });
            }
        });
        let passed = since.elapsed();
        let most = match &*name {
            "window" | "log" => 5 * (passed.as_micros().div_ceil(window.as_micros()) as u64 + 1),
            _ => 10 + passed.as_millis() as u64 + 1,
        };
        let admitted = admitted.into_inner();
        assert!(admitted <= most, "{name}: {admitted} of {most}");
    }
}

/// Two threads in one count, two rules in other shards: all or nothing, and never over.
#[test]
fn threads_never_over_admit() {
    let store = MemoryStore::new();
    let rule = |name, amount| Rule::fixed_window(name, Quota::per_day(amount)).from_first_request().key(key::given());
    let limiter = Limiter::builder(store).rule(rule("a", 5_000)).rule(rule("b", 7_000)).build().expect("sound");
    let admitted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                runtime().block_on(async {
                    for _ in 0..5_000 {
                        let decision = limiter.acquire([("a", "k"), ("b", "k")]).await;
                        admitted.fetch_add(u64::from(decision.is_allowed()), Ordering::Relaxed);
                    }
                });
            });
        }
    });
    assert_eq!(admitted.into_inner(), 5_000);
    let left = runtime().block_on(limiter.peek([("b", "k")]));
    assert_eq!(left.standing("b").map(|standing| standing.remaining()), Some(2_000), "refusals by a cost nothing in b");
}

/// A store of one's own that answers too little is a failure, and does not admit.
#[tokio::test]
async fn a_store_that_leaves_out_a_line_admits_nothing() {
    #[derive(Debug)]
    struct Forgetful;

    impl Store for Forgetful {
        fn acquire<'a>(&'a self, _: &'a Ask<'a>) -> StoreFuture<'a, Answer> {
            Box::pin(async { Ok(Answer::default()) })
        }

        fn reset<'a>(&'a self, _: &'a [Line<'a>]) -> StoreFuture<'a, ()> {
            Box::pin(async { Ok(()) })
        }
    }

    let rule = Rule::gcra("r", Quota::per_minute(1)).key(key::given());
    let limiter = Limiter::builder(Forgetful).rule(rule).build().expect("sound");
    let decision = limiter.acquire([("r", "k")]).await;
    assert_eq!(decision.failure().map(|error| error.kind()), Some(StoreErrorKind::Garbled));
}
