//! Concurrency rules on every store: places are taken in the same decision as quotas, and come back.

use std::time::{Duration, Instant};

use sluicegate::{
    Algorithm, Call, Clock, Decision, Limiter, LimiterBuilder, ManualClock, MemoryStore, Quota, Resilient, Rule,
    StoreErrorKind, StoreEvent, key,
};

use crate::support::{
    events::Events,
    flaky::{Flaky, Mood},
    stores::{BEGIN, every_store},
};

const LEASE: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_micros(1);

fn places(name: &str, limit: u64) -> Rule {
    Rule::concurrency(name, limit).key(key::given())
}

fn build(builder: LimiterBuilder, rules: impl IntoIterator<Item = Rule>) -> Limiter {
    rules.into_iter().fold(builder, LimiterBuilder::rule).build().expect("sound")
}

async fn free(limiter: &Limiter, rule: &str, key: &str) -> u64 {
    let decision = limiter.peek([(rule, key)]).await;
    assert!(decision.failure().is_none(), "{:?}", decision.failure());
    decision.standing(rule).expect("it applies").remaining()
}

/// Waits until so many are free: they come back off the path of requests.
pub async fn until_free(limiter: &Limiter, rule: &str, key: &str, wanted: u64) {
    let since = Instant::now();
    while free(limiter, rule, key).await != wanted {
        assert!(since.elapsed() < Duration::from_secs(20), "{} are free", free(limiter, rule, key).await);
        // Where time is paused, this is what moves it.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn ask(limiter: &Limiter, key: &str) -> Decision {
    let decision = limiter.acquire([("c", key)]).await;
    assert!(decision.failure().is_none(), "{:?}", decision.failure());
    decision
}

/// What a process that dies leaves behind.
fn die(decision: Decision) {
    assert!(decision.permit().is_some());
    std::mem::forget(decision);
}

#[tokio::test]
async fn a_place_is_taken_until_its_decision_its_clones_and_its_permits_are_gone() {
    for backend in every_store() {
        let limiter = build(backend.builder(), [places("c", 2)]);
        let (one, other) = (ask(&limiter, "a").await, ask(&limiter, "a").await);
        assert!(one.is_allowed() && other.is_allowed(), "{}", backend.name);
        assert_eq!(other.standing("c").expect("it applies").remaining(), 0, "{}", backend.name);

        let refused = ask(&limiter, "a").await;
        let standing = refused.standing("c").expect("it applies");
        assert!(standing.is_refused() && refused.permit().is_none(), "{}", backend.name);
        assert_eq!(standing.remaining(), 0, "{}", backend.name);
        // Nobody knows when a place is free; whoever asks is told to look again soon.
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)), "{}", backend.name);
        assert!(ask(&limiter, "b").await.is_allowed(), "{}: others have places of their own", backend.name);

        let (clone, permit) = (one.clone(), one.permit());
        drop(one);
        drop(clone);
        assert_eq!(free(&limiter, "c", "a").await, 0, "{}: a permit holds it", backend.name);
        drop(permit);
        until_free(&limiter, "c", "a", 1).await;
        assert!(ask(&limiter, "a").await.is_allowed(), "{}", backend.name);
        drop(other);
        until_free(&limiter, "c", "a", 2).await;
    }
}

#[tokio::test]
async fn places_and_quotas_are_one_decision() {
    for backend in every_store() {
        let quota = Rule::gcra("q", Quota::per_day(3)).key(key::given());
        let limiter = build(backend.builder(), [places("c", 2), quota, places("d", 1)]);
        // On a Cluster the keys lie in several slots.
        let call = |user: &'static str| Call::new().key("c", user).key("q", "everyone").key("d", "the one");
        let held = limiter.acquire(call("a")).await;
        assert!(held.is_allowed(), "{}: {held:?}", backend.name);
        for _ in 0..3 {
            let refused = limiter.acquire(call("a")).await;
            assert!(refused.is_refused(), "{}", backend.name);
            assert!(!refused.standing("c").expect("it applies").is_refused(), "{}", backend.name);
        }
        until_free(&limiter, "c", "a", 1).await;
        until_free(&limiter, "q", "everyone", 2).await;
        drop(held);
        until_free(&limiter, "d", "the one", 1).await;

        // And the other way round: what a quota refuses takes no place.
        for _ in 0..2 {
            assert!(limiter.acquire(call("a")).await.is_allowed(), "{}", backend.name);
            until_free(&limiter, "d", "the one", 1).await;
        }
        assert!(limiter.acquire(call("b")).await.standing("q").expect("it applies").is_refused(), "{}", backend.name);
        until_free(&limiter, "c", "b", 2).await;
        until_free(&limiter, "d", "the one", 1).await;
    }
}

#[tokio::test]
async fn what_the_dead_leave_behind_is_free_after_the_lease_and_not_before() {
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        let limiter = backend.limiter(&clock, [places("c", 2)]);
        die(ask(&limiter, "a").await);
        clock.advance(LEASE / 2);
        die(ask(&limiter, "a").await);
        clock.advance(LEASE / 2 - TICK);
        let refused = ask(&limiter, "a").await;
        assert!(refused.is_refused(), "{}", backend.name);
        assert_eq!(refused.retry_after(), Some(TICK), "{}", backend.name);
        clock.advance(TICK);
        die(ask(&limiter, "a").await);
        assert!(ask(&limiter, "a").await.is_refused(), "{}", backend.name);
    }
}

#[tokio::test]
async fn a_clock_that_steps_back_blocks_nobody_for_longer_than_a_lease_and_one_that_steps_ahead_frees_once() {
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        let limiter = backend.limiter(&clock, [places("c", 2)]);
        die(ask(&limiter, "a").await);
        die(ask(&limiter, "a").await);
        clock.set(BEGIN - 100 * LEASE);
        assert!(ask(&limiter, "a").await.is_refused(), "{}: they may be at work", backend.name);
        clock.advance(LEASE - TICK);
        assert!(ask(&limiter, "a").await.is_refused(), "{}", backend.name);
        clock.advance(TICK);
        die(ask(&limiter, "a").await);
        die(ask(&limiter, "a").await);
        assert!(ask(&limiter, "a").await.is_refused(), "{}", backend.name);
        clock.advance(100 * LEASE);
        let held = [ask(&limiter, "a").await, ask(&limiter, "a").await];
        assert!(held.iter().all(Decision::is_allowed), "{}", backend.name);
        assert!(ask(&limiter, "a").await.is_refused(), "{}", backend.name);
    }
}

#[tokio::test]
async fn looking_takes_no_place_and_a_reset_forgets_all() {
    for backend in every_store() {
        let limiter = build(backend.builder(), [places("c", 3)]);
        for _ in 0..5 {
            assert_eq!(free(&limiter, "c", "a").await, 3, "{}", backend.name);
        }
        let held = [ask(&limiter, "a").await, ask(&limiter, "a").await];
        assert_eq!(free(&limiter, "c", "a").await, 1, "{}", backend.name);
        limiter.reset([("c", "a")]).await.expect("an answer");
        assert_eq!(free(&limiter, "c", "a").await, 3, "{}", backend.name);
        drop(held);
        let kept = [ask(&limiter, "a").await, ask(&limiter, "a").await, ask(&limiter, "a").await];
        assert!(kept.iter().all(Decision::is_allowed), "{}", backend.name);
    }
}

/// A smaller limit takes nothing from those who are at work, and admits nobody until there is room.
#[tokio::test]
async fn another_limit_goes_on_from_what_is_held() {
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        let wide = backend.limiter(&clock, [places("c", 3)]);
        let narrow = backend.limiter(&clock, [places("c", 1)]);
        let held = [ask(&wide, "a").await, ask(&wide, "a").await];
        assert!(ask(&narrow, "a").await.is_refused(), "{}", backend.name);
        assert_eq!(free(&narrow, "c", "a").await, 0, "{}", backend.name);
        drop(held);
        until_free(&narrow, "c", "a", 1).await;
        assert!(ask(&narrow, "a").await.is_allowed(), "{}", backend.name);
    }
}

#[tokio::test]
async fn a_cost_is_one_place_or_none() {
    let limiter = build(Limiter::builder(MemoryStore::new()), [places("c", 2)]);
    let dear = limiter.acquire(Call::new().key("c", "a").cost(50)).await;
    assert_eq!(dear.standing("c").map(|standing| (standing.cost(), standing.remaining())), Some((1, 1)));
    let other = limiter.acquire(Call::new().key("c", "a").cost(1)).await;
    let free = limiter.acquire(Call::new().key("c", "a").cost(0)).await;
    assert!(dear.is_allowed() && other.is_allowed() && free.is_allowed() && free.permit().is_none());
}

/// Leases are taken and released where there is no runtime at all.
#[test]
fn the_memory_store_needs_no_runtime() {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };
    let limiter = build(Limiter::builder(MemoryStore::new()), [places("c", 1)]);
    let now = |limiter: &Limiter| {
        let asked = pin!(limiter.acquire([("c", "a")]));
        match asked.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(decision) => decision,
            Poll::Pending => panic!("it waits"),
        }
    };
    let held = now(&limiter);
    assert!(held.is_allowed() && now(&limiter).is_refused());
    drop(held);
    assert!(now(&limiter).is_allowed());
}

/// While the store is away this process counts, under its share; what is at work then is told to the store when it is back.
#[tokio::test(start_paused = true)]
async fn places_are_counted_here_while_the_store_is_away() {
    let store = Flaky::default();
    let around = Resilient::new(store.clone()).instances(2).share(1.0).open_for(Duration::from_secs(1));
    let clock = Clock::manual(ManualClock::new(BEGIN));
    let limiter = build(Limiter::builder(around).clock(clock.clone()), [places("c", 4)]);
    let direct = build(Limiter::builder(store.inside()).clock(clock), [places("c", 4)]);
    let before = ask(&limiter, "a").await;

    store.set(Mood::Fails(StoreErrorKind::Unavailable));
    let here: Vec<Decision> = {
        let mut here = Vec::new();
        for _ in 0..3 {
            here.push(limiter.acquire([("c", "a")]).await);
        }
        here
    };
    assert_eq!(here.iter().filter(|decision| decision.is_allowed()).count(), 2, "half of four");
    drop(here);
    let again = limiter.acquire([("c", "a")]).await;
    assert!(again.is_allowed(), "what was released here is free here");

    store.set(Mood::Well);
    until_free(&direct, "c", "a", 2).await;
    drop((before, again));
    until_free(&direct, "c", "a", 4).await;
    until_free(&limiter, "c", "a", 4).await;
}

/// The reply is lost, so nobody knows whether there is a lease: it is released when the request ends, or at once if it is refused.
#[tokio::test(start_paused = true)]
async fn a_lost_reply_leaves_no_lease_behind() {
    let store = Flaky::default();
    let limiter = build(Limiter::builder(Resilient::new(store.clone())), [places("c", 4)]);
    let direct = build(Limiter::builder(store.inside()), [places("c", 4)]);
    store.set(Mood::LosesTheReply);
    let held = limiter.acquire([("c", "a")]).await;
    assert!(held.is_allowed() && held.failure().is_some());
    assert_eq!(free(&direct, "c", "a").await, 3);
    store.set(Mood::Well);
    drop(held);
    until_free(&direct, "c", "a", 4).await;
}

/// Others have taken the place meanwhile: the request goes on, and that is told.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_lost_is_told_of_and_never_makes_one_too_many() {
    let (store, clock, events) = (MemoryStore::new(), ManualClock::new(BEGIN), Events::default());
    let builder = || Limiter::builder(store.clone()).clock(Clock::manual(clock.clone())).namespace("n");
    let limiter = build(builder().observer(events.clone()), [places("c", 1)]);
    let other = build(builder(), [places("c", 1)]);
    let held = ask(&limiter, "a").await;
    clock.advance(LEASE);
    let thief = ask(&other, "a").await;
    assert!(held.is_allowed() && thief.is_allowed());
    // The next renewal finds out, which is at most half a lease away.
    tokio::time::sleep(LEASE / 2).await;
    assert_eq!(events.count(|event| *event == StoreEvent::LeasesLost { leases: 1 }), 1);
    assert_eq!(free(&other, "c", "a").await, 0);
    drop(thief);
    // There is room again, so it gets its place back.
    until_free(&other, "c", "a", 1).await;
    until_free(&other, "c", "a", 0).await;
    drop(held);
    until_free(&other, "c", "a", 1).await;
}

#[test]
fn what_cannot_be_is_said_when_it_is_built() {
    let field = |rule: Rule| rule.check().expect_err("an error").field().to_owned();
    assert_eq!(field(places("c", 0)), "limit");
    assert_eq!(field(places("c", 100_001)), "limit");
    assert_eq!(field(places("c", 1).lease(Duration::from_millis(99))), "lease");
    assert_eq!(field(places("c", 1).lease(Duration::from_secs(86_401))), "lease");
    assert_eq!(field(places("c", 1).cost(2)), "cost");
    assert_eq!(field(places("c", 1).cost_by(|_| 1)), "cost");
    assert_eq!(field(places("c", 1).offset(TICK)), "window");
    assert_eq!(field(Rule::gcra("g", Quota::per_second(1)).key(key::given()).lease(LEASE)), "lease");
    let limit = places("c", 20).check().expect("sound");
    assert_eq!((limit.algorithm(), limit.lease(), limit.quota().capacity()), (Algorithm::Concurrency, Some(LEASE), 20));
    assert_eq!(limit.to_string(), "20 at a time");
}
