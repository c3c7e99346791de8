//! Queues on every store: slots in order and at the rate, a line that is no longer than was said, and leaving it.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use sluicegate::{
    Call, Clock, Decision, Limiter, ManualClock, MemoryStore, OnFailure, Quota, RedisStore, Resilient, Rule,
    StoreErrorKind, key,
};

use crate::{
    leases::until_free,
    support::{
        flaky::{Flaky, Mood},
        stores::{BEGIN, every_store},
    },
};

const TICK: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);

fn queue(quota: Quota, max_wait: Duration, max_waiters: u64) -> Rule {
    Rule::leaky_bucket("q", quota).queue(max_wait, max_waiters).key(key::given())
}

async fn ask(limiter: &Limiter) -> Decision {
    let decision = limiter.acquire([("q", "k")]).await;
    assert!(decision.failure().is_none(), "{:?}", decision.failure());
    decision
}

async fn delay(limiter: &Limiter) -> Duration {
    let decision = ask(limiter).await;
    assert!(decision.is_allowed(), "{decision:?}");
    assert_eq!(decision.delay(), decision.standing("q").expect("it applies").delay());
    decision.delay().unwrap_or_default()
}

async fn free(limiter: &Limiter) -> u64 {
    limiter.peek([("q", "k")]).await.standing("q").expect("it applies").remaining()
}

#[tokio::test]
async fn slots_are_in_the_order_of_the_decisions_and_never_faster_than_the_rate() {
    for backend in every_store() {
        for (amount, micros) in
            [(10, 1_000_000u64), (3, 1_000_000), (7, 1_000_003), (1, 1_000), (999_983, 86_400_000_000)]
        {
            let clock = ManualClock::new(BEGIN);
            let quota = Quota::per(amount, Duration::from_micros(micros));
            // Each as in a process of its own.
            let limiters = [0; 3].map(|_| backend.limiter(&clock, [queue(quota, Duration::from_secs(3_600), 500)]));
            let _ = limiters[0].reset([("q", "k")]).await;
            let mut now = Duration::ZERO;
            for place in 0..60u64 {
                let begins = now + delay(&limiters[place as usize % 3]).await;
                let exact = Duration::from_micros((place * micros).div_ceil(amount));
                assert_eq!(begins, exact, "{}: place {place} of {quota}", backend.name);
                // Some come together, some a little later, and the line never runs dry.
                now += Duration::from_micros(micros / amount / 3 * (place % 2));
                clock.set(BEGIN + now);
            }
        }
    }
}

#[tokio::test]
async fn the_longest_wait_is_exact_and_so_is_the_time_to_come_back() {
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        let limiter = backend.limiter(&clock, [queue(Quota::per_second(10), 250 * MS, 100)]);
        for wait in [0, 100, 200] {
            assert_eq!(delay(&limiter).await, wait * MS, "{}", backend.name);
        }
        let refused = ask(&limiter).await;
        assert!(refused.is_refused() && refused.delay().is_none(), "{}", backend.name);
        assert_eq!(refused.retry_after(), Some(50 * MS), "{}", backend.name);
        clock.advance(50 * MS - TICK);
        assert_eq!(ask(&limiter).await.retry_after(), Some(TICK), "{}", backend.name);
        clock.advance(TICK);
        assert_eq!(delay(&limiter).await, 250 * MS, "{}: the longest there is", backend.name);
        clock.advance(350 * MS - TICK);
        assert_eq!(delay(&limiter).await, TICK, "{}", backend.name);
        clock.advance(100 * MS + TICK);
        assert_eq!(ask(&limiter).await.delay(), None, "{}: the line is empty", backend.name);
    }
}

#[tokio::test]
async fn no_more_wait_than_may_and_the_places_left_are_told() {
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        let limiter = backend.limiter(&clock, [queue(Quota::per_second(10), MINUTE, 2)]);
        assert_eq!(free(&limiter).await, 3, "{}: one whose turn it is, and two behind", backend.name);
        for (wait, left) in [(0, 2), (100, 1), (200, 0)] {
            let decision = ask(&limiter).await;
            let standing = decision.standing("q").expect("it applies");
            assert_eq!(
                (standing.delay().unwrap_or_default(), standing.remaining()),
                (wait * MS, left),
                "{}",
                backend.name
            );
            assert_eq!(standing.limit().quota().capacity(), 3);
        }
        assert_eq!(ask(&limiter).await.retry_after(), Some(100 * MS), "{}", backend.name);
        clock.advance(100 * MS - TICK);
        assert_eq!(ask(&limiter).await.retry_after(), Some(TICK), "{}", backend.name);
        clock.advance(TICK);
        assert_eq!(delay(&limiter).await, 200 * MS, "{}", backend.name);
        // Looking takes no place, and tells the wait.
        clock.advance(100 * MS);
        assert_eq!(limiter.peek([("q", "k")]).await.delay(), Some(200 * MS), "{}", backend.name);
        assert_eq!(free(&limiter).await, 1, "{}", backend.name);
    }
}

#[tokio::test]
async fn a_cost_takes_as_many_places() {
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        let limiter = backend.limiter(&clock, [queue(Quota::per_second(10), MINUTE, 5)]);
        let ask = async |cost| limiter.acquire(Call::new().key("q", "k").cost(cost)).await;
        assert_eq!(ask(3).await.delay(), None, "{}", backend.name);
        assert_eq!(ask(2).await.delay(), Some(300 * MS), "{}", backend.name);
        assert_eq!(ask(2).await.retry_after(), Some(100 * MS), "{}: one place is left", backend.name);
        assert_eq!(ask(0).await.delay(), None, "{}: what costs nothing waits for nothing", backend.name);
        assert_eq!(ask(1).await.delay(), Some(500 * MS), "{}", backend.name);
        assert!(ask(7).await.can_never_fit(), "{}", backend.name);
    }
}

#[tokio::test]
async fn a_request_that_another_rule_refuses_takes_no_slot() {
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        let once = Rule::fixed_window("once", Quota::per_hour(1)).key(key::given());
        let limiter = backend.limiter(&clock, [queue(Quota::per_second(10), MINUTE, 5), once]);
        // On a Cluster in other slots.
        let call = |who: &'static str| Call::new().key("q", "k").key("once", who);
        assert_eq!(limiter.acquire(call("one")).await.delay(), None, "{}", backend.name);
        assert_eq!(limiter.acquire(call("two")).await.delay(), Some(100 * MS), "{}", backend.name);
        let refused = limiter.acquire(call("two")).await;
        assert!(refused.is_refused() && refused.delay().is_none(), "{}", backend.name);
        until_free(&limiter, "q", "k", 4).await;
        assert_eq!(limiter.acquire(call("three")).await.delay(), Some(200 * MS), "{}", backend.name);
    }
}

/// Waits in line until the returned handle is dropped.
async fn wait_in_line(limiter: &Limiter) -> tokio::task::JoinHandle<()> {
    let before = free(limiter).await;
    let waiter = limiter.clone();
    let waiting = tokio::spawn(async move {
        let decision = waiter.acquire_when_ready([("q", "k")]).await;
        panic!("a minute is over: {decision:?}");
    });
    until_free(limiter, "q", "k", before - 1).await;
    waiting
}

async fn leave(limiter: &Limiter, waiting: tokio::task::JoinHandle<()>) {
    waiting.abort();
    assert!(waiting.await.is_err_and(|error| error.is_cancelled()));
    limiter.settled().await;
}

#[tokio::test]
async fn the_last_in_line_gives_its_slot_back_and_those_behind_another_keep_theirs() {
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        let limiter = backend.limiter(&clock, [queue(Quota::per_minute(1), 60 * MINUTE, 9)]);
        assert_eq!(delay(&limiter).await, Duration::ZERO);
        let (first, second) = (wait_in_line(&limiter).await, wait_in_line(&limiter).await);
        assert_eq!(free(&limiter).await, 7, "{}", backend.name);
        leave(&limiter, first).await;
        assert_eq!(free(&limiter).await, 7, "{}: the second is behind it", backend.name);
        leave(&limiter, second).await;
        assert_eq!(free(&limiter).await, 8, "{}: nobody is", backend.name);
        assert_eq!(delay(&limiter).await, 2 * MINUTE, "{}: behind the slot that stayed taken", backend.name);

        // Backwards, all of them come back. Time goes on meanwhile, and changes nothing.
        let (third, fourth) = (wait_in_line(&limiter).await, wait_in_line(&limiter).await);
        clock.advance(MINUTE / 2);
        leave(&limiter, fourth).await;
        clock.advance(MINUTE);
        leave(&limiter, third).await;
        assert_eq!(delay(&limiter).await, 3 * MINUTE - MINUTE * 3 / 2, "{}", backend.name);
    }
}

/// The clocks of a test stand still, so a slot that the store knows to have begun still has its waiter here. It never ran, and nobody
/// is behind: what is left of the slot is the next one's.
#[tokio::test]
async fn of_a_slot_that_has_begun_the_rest_comes_back_and_of_one_that_is_over_nothing() {
    for backend in every_store() {
        for passed in [90, 120, 150] {
            let clock = ManualClock::new(BEGIN);
            let limiter = backend.limiter(&clock, [queue(Quota::per_minute(1), 60 * MINUTE, 9)]);
            let _ = limiter.reset([("q", "k")]).await;
            assert_eq!(delay(&limiter).await, Duration::ZERO);
            let waiting = wait_in_line(&limiter).await;
            clock.advance(Duration::from_secs(passed));
            leave(&limiter, waiting).await;
            assert_eq!(delay(&limiter).await, Duration::ZERO, "{} {passed}", backend.name);
            assert_eq!(delay(&limiter).await, MINUTE, "{} {passed}: nothing is given twice", backend.name);
        }
    }
}

/// Polls once.
fn begin(future: std::pin::Pin<&mut impl Future<Output = Decision>>) -> Poll<Decision> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test(start_paused = true)]
async fn workers_run_at_the_rate() {
    let clock = ManualClock::new(BEGIN);
    let builder = Limiter::builder(MemoryStore::new()).clock(Clock::manual(clock.clone()));
    let limiter = builder.rule(queue(Quota::per_second(10), MINUTE, 20)).build().expect("sound");
    let began = tokio::time::Instant::now();
    let workers = [0; 8].map(|_| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let decision = limiter.acquire_when_ready([("q", "k")]).await;
            assert!(decision.is_allowed());
            began.elapsed()
        })
    });
    for (place, worker) in (0..).zip(workers) {
        assert_eq!(worker.await.expect("no panic"), place * 100 * MS);
    }
}

#[tokio::test(start_paused = true)]
async fn workers_come_back_when_a_rule_says_so_and_leave_when_no_waiting_helps() {
    let clock = ManualClock::new(BEGIN);
    let builder = Limiter::builder(MemoryStore::new()).clock(Clock::manual(clock.clone()));
    let bucket = Rule::token_bucket("b", Quota::per_second(1).burst(2)).key(key::given());
    let limiter = builder.rule(bucket).rule(queue(Quota::per_second(10), 100 * MS, 1)).build().expect("sound");

    let never = limiter.acquire_when_ready(Call::new().key("b", "k").cost(3)).await;
    assert!(never.is_refused() && never.can_never_fit());
    let unknown = limiter.acquire_when_ready([("c", "k")]).await;
    assert!(unknown.failure().is_some());

    assert!(limiter.acquire_when_ready(Call::new().key("b", "k").cost(2)).await.is_allowed());
    let began = tokio::time::Instant::now();
    let mut waiting = pin!(limiter.acquire_when_ready([("b", "k")]));
    assert!(begin(waiting.as_mut()).is_pending());
    clock.advance(Duration::from_secs(1));
    assert!(waiting.await.is_allowed());
    assert_eq!(began.elapsed(), Duration::from_secs(1), "not a moment later than it was told");

    // A line that is full is waited for outside of it.
    for wait in [0, 100] {
        assert_eq!(delay(&limiter).await, wait * MS);
    }
    let began = tokio::time::Instant::now();
    let mut waiting = pin!(limiter.acquire_when_ready([("q", "k")]));
    assert!(begin(waiting.as_mut()).is_pending());
    clock.advance(100 * MS);
    assert_eq!(waiting.await.delay(), Some(100 * MS));
    assert_eq!(began.elapsed(), 200 * MS);
}

/// However many wait outside a line that is full, one of them asks.
#[tokio::test(start_paused = true)]
async fn workers_outside_a_full_line_come_in_as_they_came_and_ask_no_more_than_they_must() {
    const WORKERS: u32 = 20;
    let (flaky, clock) = (Flaky::default(), ManualClock::new(BEGIN));
    let builder = Limiter::builder(flaky.clone()).clock(Clock::manual(clock.clone()));
    let limiter = builder.rule(queue(Quota::per_second(10), 100 * MS, 1)).build().expect("sound");
    let began = tokio::time::Instant::now();
    let (ran, mut order) = tokio::sync::mpsc::unbounded_channel();
    let mut workers = Vec::new();
    for worker in 0..WORKERS {
        let (limiter, ran) = (limiter.clone(), ran.clone());
        workers.push(tokio::spawn(async move {
            assert!(limiter.acquire_when_ready([("q", "k")]).await.is_allowed());
            ran.send((worker, began.elapsed())).expect("the test");
        }));
        tokio::task::yield_now().await;
    }
    // One in the middle leaves, and nobody is held up.
    workers.remove(10).abort();
    while !workers.iter().all(tokio::task::JoinHandle::is_finished) {
        clock.advance(MS);
        tokio::time::advance(MS).await;
    }
    for (place, worker) in (0..).zip((0..WORKERS).filter(|worker| *worker != 10)) {
        let (next, at) = order.recv().await.expect("it ran");
        assert!(next == worker && at >= place * 100 * MS, "{next} ran at {at:?} and not {worker}");
    }
    let asked = flaky.spends();
    assert!(asked <= 2 * WORKERS as usize, "{asked}");
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_away_the_line_is_in_this_process() {
    let (flaky, clock) = (Flaky::default(), ManualClock::new(BEGIN));
    let build = |on_failure| {
        let store = Resilient::new(flaky.clone()).share(0.5);
        let rule = queue(Quota::per_second(10), 600 * MS, 20).on_failure(on_failure);
        Limiter::builder(store).namespace("n").clock(Clock::manual(clock.clone())).rule(rule).build().expect("sound")
    };
    flaky.set(Mood::Fails(StoreErrorKind::Unavailable));
    let limiter = build(OnFailure::Local);
    let began = tokio::time::Instant::now();
    // Half the rate, as long a wait.
    for wait in [0, 200, 400, 600] {
        let decision = limiter.acquire_when_ready([("q", "k")]).await;
        assert!(decision.failure().is_some() && decision.is_allowed());
        assert_eq!(decision.delay().unwrap_or_default(), wait * MS);
    }
    assert_eq!(began.elapsed(), 1_200 * MS);
    let refused = limiter.acquire([("q", "k")]).await;
    assert_eq!(refused.retry_after(), Some(200 * MS));

    let refused = build(OnFailure::Refuse).acquire_when_ready([("q", "k")]).await;
    assert!(refused.is_refused() && refused.failure().is_some(), "nobody knows how long to wait");

    // The store is told of the four when it is back: the line there is as long as it may be.
    flaky.set(Mood::Well);
    let asked = async || limiter.acquire([("q", "other")]).await;
    while asked().await.failure().is_some() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    until_free(&limiter, "q", "k", 3).await;
    assert_eq!(limiter.acquire([("q", "k")]).await.delay(), Some(400 * MS));
}

/// One rule says when to come back, another cannot be judged and refuses: nobody knows how long to wait.
#[tokio::test(start_paused = true)]
async fn workers_do_not_wait_for_a_store_that_is_away_where_a_rule_refuses_then() {
    let (flaky, clock) = (Flaky::default(), ManualClock::new(BEGIN));
    let rule = |name| Rule::gcra(name, Quota::per_hour(1)).key(key::given()).on_failure(OnFailure::Refuse);
    let builder = Limiter::builder(flaky.clone()).clock(Clock::manual(clock.clone()));
    let limiter = builder.rule(rule("a")).rule(rule("b")).build().expect("sound");
    // In two parts of the store, one of which fails.
    let call = || Call::new().key("a", "0k").key("b", "1k");
    assert!(limiter.acquire_when_ready(call()).await.is_allowed());
    flaky.set_part(1, Mood::Fails(StoreErrorKind::Unavailable));
    let refused = tokio::time::timeout(MS, limiter.acquire_when_ready(call())).await.expect("at once");
    assert!(refused.failure().is_some() && refused.retry_after() == Some(60 * MINUTE), "{refused:?}");
}

#[test]
fn what_cannot_be_a_queue_is_said_when_it_is_built() {
    let message = |rule: Rule| rule.key(key::given()).check().expect_err("an error").to_string();
    let queue = |quota| Rule::leaky_bucket("q", quota).queue(MINUTE, 10);
    let second = Quota::per_second(10);
    for (rule, part) in [
        (Rule::gcra("q", second).queue(MINUTE, 10), "GCRA has no line to wait in; use Rule::leaky_bucket"),
        (queue(second.burst(5)), "a queue has no burst"),
        (queue(second).count_if(|_| true), "drop .count_if(..)"),
        (queue(second).settle_by(|_| 1), "drop .count_if(..) and .settle_by(..)"),
        (Rule::leaky_bucket("q", second).queue(Duration::ZERO, 10), "give whole microseconds from 1 ms to 1 day"),
        (Rule::leaky_bucket("q", second).queue(25 * 60 * MINUTE, 10), "give whole microseconds from 1 ms to 1 day"),
        (Rule::leaky_bucket("q", second).queue(MINUTE, 0), "give 1 or more"),
        (queue(Quota::per_second(2_000_000)), "more than one every 1 microseconds"),
    ] {
        let message = message(rule);
        assert!(message.contains(part) && message.contains("rule `q`"), "{message}");
    }
    let address = || RedisStore::builder("redis://127.0.0.1:1");
    for (store, part) in
        [(address().no_scripts(), "needs scripts"), (address().cell(), "redis-cell has no leaky bucket")]
    {
        let limiter = Limiter::builder(store.build().expect("sound")).rule(queue(second).key(key::given())).build();
        let message = limiter.expect_err("an error").to_string();
        assert!(message.contains(part), "{message}");
    }
    let limit = queue(second).key(key::given()).check().expect("sound");
    assert_eq!(limit.to_string(), "10 per 1s, 11 in line");
    assert!(queue(Quota::unlimited()).key(key::given()).check().is_ok());
    assert!(Rule::leaky_bucket("q", second).queue(MINUTE, u64::MAX).key(key::given()).check().is_ok());
}
