//! What was admitted without the store is charged when it is back, once.

use std::{
    task::{Context, Poll, Waker},
    time::Duration,
};

use sluicegate::{
    Call, Clock, Limiter, ManualClock, Quota, Resilient, Rule, StoreErrorKind, StoreEvent, key, store::Purpose,
};
use tokio::time::{Instant, advance};

use super::{DOWN, around, ask, fail, rule, settled};
use crate::support::{
    events::Events,
    flaky::{AtOnce, Flaky, Mood},
    stores::BEGIN,
};

/// Waits until the store was told: it is off the path of requests.
async fn until_committed(events: &Events) -> (u64, u64) {
    for _ in 0..10_000 {
        for event in events.take() {
            if let StoreEvent::Committed { counts, units } = event {
                return (counts, units);
            }
        }
        advance(Duration::from_millis(1)).await;
    }
    panic!("nothing was committed");
}

/// How many the store itself has counted, whatever stands around it.
async fn counted(store: &Flaky, namespace: &str, key: &str) -> u64 {
    let bare = Limiter::builder(store.inside()).namespace(namespace).rule(rule("r", 1_000)).build().expect("sound");
    let peek = bare.peek([("r", key)]).await;
    1_000 - peek.standing("r").expect("it applies").remaining()
}

fn watched(store: &Flaky, namespace: &str) -> (Limiter, Events) {
    let events = Events::default();
    let builder = around(store).namespace(namespace).observer(events.clone());
    (builder.rule(rule("r", 1_000)).build().expect("sound"), events)
}

#[tokio::test(start_paused = true)]
async fn what_was_admitted_meanwhile_is_committed_when_the_store_is_back() {
    let store = Flaky::default();
    let (limiter, events) = watched(&store, "committed");
    store.set(DOWN);
    for _ in 0..7 {
        assert!(ask(&limiter).await.is_allowed());
    }
    assert!(limiter.acquire([("r", "other")]).await.is_allowed());
    store.set(Mood::Well);
    assert_eq!(counted(&store, "committed", "k").await, 0);
    advance(Duration::from_secs(33)).await;
    assert!(ask(&limiter).await.failure().is_none());
    assert_eq!(until_committed(&events).await, (2, 8));
    assert_eq!(counted(&store, "committed", "k").await, 8, "seven and the one that found it well");
    assert_eq!(counted(&store, "committed", "other").await, 1);
    // Once.
    for _ in 0..3 {
        assert!(ask(&limiter).await.failure().is_none());
        advance(Duration::from_secs(1)).await;
    }
    assert_eq!(counted(&store, "committed", "k").await, 11);
}

/// The commit arrives, its reply does not: it is sent again, and counts once.
#[tokio::test(start_paused = true)]
async fn a_commit_whose_reply_is_lost_counts_once() {
    let (store, events) = (Flaky::default(), Events::default());
    let around = Resilient::new(store.clone()).open_after(7, Duration::from_secs(10));
    let builder = Limiter::builder(around).namespace("once").observer(events.clone());
    let limiter = builder.rule(rule("r", 1_000)).build().expect("sound");
    store.set(DOWN);
    fail(&limiter, 4).await;
    // The answer comes from a part that is well; the commit goes to the one that loses replies.
    store.set(Mood::LosesTheReply);
    for turn in 1..10 {
        assert!(limiter.acquire([("r", "1k")]).await.failure().is_none());
        // What is committed goes on elsewhere; after it did not go well it rests for a while.
        settled().await;
        advance(Duration::from_millis(300)).await;
        let taken = store.asked().iter().filter(|(_, purpose)| matches!(purpose, Purpose::Take(_))).count();
        // With the third its breaker opens. What is not sent then must not be taken for undone.
        assert_eq!(taken, usize::from(turn <= 3), "turn {turn}");
        assert_eq!(counted(&store, "once", "k").await, 4, "turn {turn}");
        assert!(events.take().iter().all(|event| !matches!(event, StoreEvent::Committed { .. })));
    }
    store.set(Mood::Well);
    advance(Duration::from_secs(33)).await;
    assert!(ask(&limiter).await.failure().is_none());
    assert_eq!(until_committed(&events).await, (1, 4));
    assert_eq!(counted(&store, "once", "k").await, 5);
}

/// It may have been charged already, so it is not charged again.
#[tokio::test(start_paused = true)]
async fn what_may_have_been_charged_is_not_committed() {
    let store = Flaky::default();
    let (limiter, events) = watched(&store, "unsure");
    store.set(Mood::LosesTheReply);
    fail(&limiter, 4).await;
    store.set(Mood::Well);
    for _ in 0..5 {
        assert!(ask(&limiter).await.failure().is_none());
        advance(Duration::from_secs(1)).await;
    }
    assert_eq!(counted(&store, "unsure", "k").await, 9);
    assert!(events.take().is_empty());
}

/// A window that is over, a bucket that has refilled: what no longer matters is not charged to the next.
#[tokio::test(start_paused = true)]
async fn what_has_come_back_meanwhile_is_not_committed() {
    let (store, events) = (Flaky::default(), Events::default());
    let clock = ManualClock::new(BEGIN);
    let quota = Rule::token_bucket("r", Quota::per_second(10)).key(key::given());
    let builder = around(&store).clock(Clock::manual(clock.clone())).observer(events.clone());
    let limiter = builder.rule(quota).build().expect("sound");
    store.set(DOWN);
    for _ in 0..8 {
        assert!(ask(&limiter).await.is_allowed());
    }
    // Eight a second come back here, so that in half a second four do.
    clock.advance(Duration::from_millis(500));
    store.set(Mood::Well);
    advance(Duration::from_secs(33)).await;
    assert!(limiter.acquire([("r", "other")]).await.failure().is_none());
    assert_eq!(until_committed(&events).await, (1, 4));
}

/// More than there is room for is charged as far as there is.
#[tokio::test(start_paused = true)]
async fn a_commit_takes_no_more_than_is_left() {
    let store = Flaky::default();
    let (limiter, events) = watched(&store, "capped");
    let other = Limiter::builder(store.clone()).namespace("capped").rule(rule("r", 1_000)).build().expect("sound");
    assert!(other.acquire(Call::new().key("r", "k").cost(995)).await.is_allowed());
    store.set(DOWN);
    for _ in 0..50 {
        assert!(ask(&limiter).await.is_allowed());
    }
    store.set(Mood::Well);
    advance(Duration::from_secs(33)).await;
    assert!(limiter.acquire([("r", "other")]).await.failure().is_none());
    assert_eq!(until_committed(&events).await, (1, 50));
    assert_eq!(counted(&store, "capped", "k").await, 1_000);
    assert!(ask(&limiter).await.is_refused());
}

/// A reset forgets what was to be committed.
#[tokio::test(start_paused = true)]
async fn a_reset_forgets_what_was_not_committed() {
    let store = Flaky::default();
    let (limiter, events) = watched(&store, "reset");
    store.set(DOWN);
    for _ in 0..5 {
        assert!(ask(&limiter).await.is_allowed());
    }
    store.set(Mood::Well);
    limiter.reset([("r", "k")]).await.expect("the store is well");
    advance(Duration::from_secs(33)).await;
    assert!(ask(&limiter).await.failure().is_none());
    advance(Duration::from_secs(1)).await;
    assert_eq!(counted(&store, "reset", "k").await, 1);
    assert!(events.take().iter().all(|event| !matches!(event, StoreEvent::Committed { .. })));
}

/// One part is away for long: the others' counts are committed all the same, and nobody is asked in a loop.
#[tokio::test(start_paused = true)]
async fn a_part_that_stays_away_keeps_no_other_from_being_told() {
    let (store, events) = (Flaky::default(), Events::default());
    // Its breaker stays closed, so that every commit reaches it.
    let around = Resilient::new(store.clone()).open_after(10_000, Duration::from_secs(10));
    let builder = Limiter::builder(around).namespace("parts").observer(events.clone());
    let limiter = builder.rule(rule("r", 1_000)).build().expect("sound");
    (1..=2).for_each(|part| store.set_part(part, DOWN));
    for key in 0..50 {
        for part in 1..=2 {
            assert!(limiter.acquire([("r", format!("{part}{key}"))]).await.is_allowed());
        }
    }
    store.set_part(2, Mood::Well);
    let (mut counts, mut rounds) = (0, 0);
    for _ in 0..100 {
        store.asked();
        assert!(limiter.acquire([("r", "2")]).await.failure().is_none());
        advance(Duration::from_millis(10)).await;
        let is_told = |part: usize, purpose: Purpose| part == 1 && matches!(purpose, Purpose::Take(_));
        rounds += usize::from(store.asked().iter().any(|(part, purpose)| is_told(*part, *purpose)));
        counts += events
            .take()
            .iter()
            .map(|event| if let StoreEvent::Committed { counts, .. } = event { *counts } else { 0 })
            .sum::<u64>();
    }
    assert_eq!(counts, 50);
    assert!((3..=5).contains(&rounds), "{rounds} rounds in a second");
    // What it missed meanwhile is still there to be told.
    store.set_part(1, Mood::Well);
    advance(Duration::from_millis(300)).await;
    assert!(limiter.acquire([("r", "2")]).await.failure().is_none());
    assert_eq!(until_committed(&events).await, (50, 50));
}

/// A part that denies it is not flooded with what it denies, and is told all once it may be.
#[tokio::test(start_paused = true)]
async fn a_part_that_denies_is_asked_ever_more_seldom_the_more_there_is() {
    const KEYS: u64 = 1_000;
    let store = Flaky::default();
    let (limiter, events) = watched(&store, "denied");
    store.set_part(2, Mood::Fails(StoreErrorKind::Permanent));
    for key in 0..KEYS {
        assert!(limiter.acquire([("r", format!("2{key}"))]).await.is_allowed());
    }
    let takes = || {
        let asked = store.asked();
        asked.iter().filter(|(part, purpose)| *part == 2 && matches!(purpose, Purpose::Take(_))).count() as u64
    };
    takes();
    for _ in 0..1_000 {
        assert!(limiter.acquire([("r", "1k")]).await.failure().is_none());
        settled().await;
        advance(Duration::from_millis(20)).await;
    }
    let tried = takes();
    assert!((2 * KEYS..=KEYS + 20 * 250).contains(&tried), "{tried} within 20 s");
    store.set_part(2, Mood::Well);
    for _ in 0..300 {
        assert!(limiter.acquire([("r", "1k")]).await.failure().is_none());
        settled().await;
        advance(Duration::from_millis(20)).await;
    }
    let told = |event: &StoreEvent| if let StoreEvent::Committed { units, .. } = event { *units } else { 0 };
    assert_eq!(events.all().iter().map(told).sum::<u64>(), KEYS);
}

/// The memory of stores ends some time: a commit whose fate is unknown is given up before that, and it is told.
#[tokio::test(start_paused = true)]
async fn a_commit_that_is_unsure_for_too_long_is_given_up() {
    let store = Flaky::default();
    let (limiter, events) = watched(&store, "too-long");
    store.set(DOWN);
    fail(&limiter, 4).await;
    store.set(Mood::Hangs);
    for _ in 0..9 {
        assert!(limiter.acquire([("r", "1k")]).await.failure().is_none());
        settled().await;
        advance(Duration::from_millis(11)).await;
        settled().await;
        advance(Duration::from_secs(34)).await;
        assert!(events.take().iter().all(|event| matches!(event, StoreEvent::Opened { .. })));
    }
    store.set(Mood::Well);
    assert!(limiter.acquire([("r", "1k")]).await.failure().is_none());
    settled().await;
    assert!(events.take().contains(&StoreEvent::NotCommitted { units: 4 }));
    assert_eq!(counted(&store, "too-long", "k").await, 0);
}

/// As many counts as there is room for are kept, and that there was none for others is told.
#[tokio::test(start_paused = true)]
async fn counts_beyond_the_room_there_is_are_not_committed_and_that_is_told() {
    let store = Flaky::default();
    let (limiter, events) = watched(&store, "room");
    store.set(DOWN);
    for key in 0..16_384 + 10 {
        let call = Call::new().key("r", format!("k{key}")).cost(2);
        assert!(limiter.acquire(call).await.is_allowed());
    }
    let told = |event: &StoreEvent| matches!(event, StoreEvent::NotCommitted { units: 2 });
    assert_eq!(events.count(told), 10);
    // Those that are known have room still.
    assert!(limiter.acquire([("r", "k0")]).await.is_allowed());
    events.take();
    store.set(Mood::Well);
    advance(Duration::from_secs(33)).await;
    assert!(limiter.acquire([("r", "1k")]).await.failure().is_none());
    assert_eq!(until_committed(&events).await, (16_384, 2 * 16_384 + 1));
}

/// The commit was sent and not heard of. After a reset it must not be sent again.
#[tokio::test(start_paused = true)]
async fn a_reset_forgets_a_commit_that_is_under_way() {
    let store = Flaky::default();
    let (limiter, events) = watched(&store, "reset-under-way");
    store.set(DOWN);
    fail(&limiter, 4).await;
    store.set(Mood::Hangs);
    assert!(limiter.acquire([("r", "1k")]).await.failure().is_none());
    settled().await;
    advance(Duration::from_secs(1)).await;
    settled().await;
    let began = Instant::now();
    let late = limiter.reset([("r", "k")]).await.expect_err("it hangs");
    assert!(late.is_timeout() && began.elapsed() <= Duration::from_millis(11), "{late} after {:?}", began.elapsed());
    store.set(Mood::Well);
    limiter.reset([("r", "k")]).await.expect("the store is well");
    assert_eq!(ask_locally(&store, &limiter).await, 799, "the local count is forgotten as well");
    events.take();
    advance(Duration::from_secs(33)).await;
    assert!(limiter.acquire([("r", "1k")]).await.failure().is_none());
    assert_eq!(until_committed(&events).await, (1, 1));
    assert_eq!(counted(&store, "reset-under-way", "k").await, 1);
}

/// What is left of this process's share after one more.
async fn ask_locally(store: &Flaky, limiter: &Limiter) -> u64 {
    store.set(DOWN);
    let left = ask(limiter).await.standing("r").expect("it applies").remaining();
    store.set(Mood::Well);
    left
}

/// A store that answers at once is asked without a runtime. What it missed waits for a request inside one.
#[test]
fn what_was_missed_outside_a_runtime_is_committed_inside_one() {
    let (store, events) = (Flaky::default(), Events::default());
    let builder = Limiter::builder(Resilient::new(AtOnce(store.clone()))).namespace("outside");
    let limiter = builder.observer(events.clone()).rule(rule("r", 1_000)).build().expect("sound");
    let ask_now = || {
        let mut asking = std::pin::pin!(ask(&limiter));
        match asking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(decision) => decision,
            Poll::Pending => panic!("it waits"),
        }
    };
    store.set(DOWN);
    assert!(ask_now().is_allowed());
    store.set(Mood::Well);
    assert!(ask_now().failure().is_none());
    assert_eq!(events.take(), []);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        assert!(ask(&limiter).await.failure().is_none());
        assert_eq!(until_committed(&events).await, (1, 1));
        assert_eq!(counted(&store, "outside", "k").await, 3);
    });
}
