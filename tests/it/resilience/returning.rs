//! Charges on their way back: by which time, and how many at once.

use std::{
    task::{Context, Waker},
    time::Duration,
};

use sluicegate::{
    Clock, Limiter, ManualClock, OnFailure, Resilient, StoreErrorKind, StoreEvent,
    store::{Purpose, Time},
};
use tokio::{runtime::Handle, time::advance};

use super::{DOWN, rule};
use crate::support::{
    events::Events,
    flaky::{AtOnce, Flaky, Mood},
    stores::BEGIN,
};

/// How many may be on their way at once.
const MOST: u64 = 1_024;
const CAPACITY: u64 = 100_000;

/// A rule whose part is away refuses what the other's part has charged.
fn refusing(store: &Flaky, clock: Clock) -> (Limiter, Events) {
    let events = Events::default();
    store.set_part(2, DOWN);
    let around = Resilient::new(AtOnce(store.clone())).open_after(10_000, Duration::from_secs(10));
    let builder = Limiter::builder(around).clock(clock).observer(events.clone());
    let rules = [rule("charged", CAPACITY), rule("refuses", 1).on_failure(OnFailure::Refuse)];
    (rules.into_iter().fold(builder, sluicegate::LimiterBuilder::rule).build().expect("sound"), events)
}

async fn refused(limiter: &Limiter) {
    assert!(limiter.acquire([("charged", "1k"), ("refuses", "2k")]).await.is_refused());
}

async fn charged(limiter: &Limiter) -> u64 {
    let peek = limiter.peek([("charged", "1k")]).await;
    CAPACITY - peek.standing("charged").expect("it applies").remaining()
}

/// The times of all asks for one purpose.
fn times(store: &Flaky, wanted: fn(&Purpose) -> bool) -> Vec<Time> {
    store.times().into_iter().filter(|(purpose, _)| wanted(purpose)).map(|(_, time)| time).collect()
}

/// Why the last was not given back.
fn why(events: &Events) -> String {
    let told = events.all().into_iter().rev();
    let errors = told.filter_map(|event| if let StoreEvent::NotGivenBack(error) = event { Some(error) } else { None });
    errors.map(|error| error.to_string()).next().unwrap_or_default()
}

/// In microseconds, of an application's clock.
fn micros(time: &Time) -> u64 {
    let Time::Application { now, .. } = time else { panic!("{time:?}") };
    *now
}

/// Each try carries the time at which it is made, or the store would take the clock for one that has gone back.
#[tokio::test(start_paused = true)]
async fn a_return_that_is_tried_again_has_the_time_of_its_try() {
    let store = Flaky::default();
    let (limiter, events) = refusing(&store, Clock::application());
    refused(&limiter).await;
    store.set_part(1, DOWN);
    let asked = micros(&store.times().pop().expect("one ask").1);
    events.until(|events| events.not_given_back() == 1).await;
    let tries: Vec<u64> = times(&store, |purpose| matches!(purpose, Purpose::Give(_))).iter().map(micros).collect();
    assert_eq!(tries.len(), 6, "{tries:?}");
    assert_eq!(tries[0], asked);
    for (tried, pair) in tries.windows(2).enumerate() {
        let (apart, pause) = (pair[1] - pair[0], 100_000 << tried);
        assert!((pause..=2 * pause + 1_000).contains(&apart), "{apart} after {pause}");
    }
    // Longer at random: what failed together does not come back together.
    assert!(tries[5] - tries[0] > 3_100_000 + 10_000, "{tries:?}");
    // A test's clock stands still.
    let (limiter, events) = refusing(&store, Clock::manual(ManualClock::new(BEGIN)));
    store.set_part(1, Mood::Well);
    refused(&limiter).await;
    store.set_part(1, DOWN);
    events.until(|events| events.not_given_back() == 1).await;
    let tries = times(&store, |purpose| matches!(purpose, Purpose::Give(_)));
    assert_eq!(tries, vec![Time::Injected(BEGIN.as_micros() as u64); 6]);
}

/// Those that wait for their turn among many have the time of their turn.
#[tokio::test(start_paused = true)]
async fn a_commit_that_had_to_wait_has_the_time_of_its_turn() {
    let store = Flaky::default();
    let around = Resilient::new(store.clone()).open_after(10_000, Duration::from_secs(10));
    let builder = Limiter::builder(around).clock(Clock::application()).rule(rule("r", 1_000));
    let limiter = builder.build().expect("sound");
    store.set_part(1, DOWN);
    for key in 0..20 {
        assert!(limiter.acquire([("r", format!("1{key}"))]).await.is_allowed());
    }
    store.set_part(1, Mood::Hangs);
    store.times();
    assert!(limiter.acquire([("r", "k")]).await.failure().is_none());
    let asked = micros(&store.times().pop().expect("one ask").1);
    let mut took = Vec::new();
    while took.len() < 20 {
        advance(Duration::from_millis(1)).await;
        took.extend(
            times(&store, |purpose| matches!(purpose, Purpose::Take(_))).iter().map(|time| micros(time) - asked),
        );
    }
    assert_eq!(took[..16], [0; 16]);
    assert!(took[16..].iter().all(|late| (10_000..=12_000).contains(late)), "{took:?}");
}

/// More than may be on their way at once are left to time, and said so; nothing piles up.
#[tokio::test(start_paused = true)]
async fn no_more_are_on_their_way_back_than_may_be() {
    let store = Flaky::default();
    let (limiter, events) = refusing(&store, Clock::store());
    let tasks = || Handle::current().metrics().num_alive_tasks() as u64;
    let before = tasks();
    for turn in 1..=2 {
        for _ in 0..MOST + 76 {
            refused(&limiter).await;
        }
        assert_eq!(events.not_given_back(), 76 * turn, "turn {turn}");
        assert_eq!(tasks() - before, MOST, "turn {turn}");
        assert!(why(&events).contains("others are on their way"), "{}", why(&events));
        // There is room again when they are back.
        while tasks() > before {
            tokio::task::yield_now().await;
        }
        assert_eq!(charged(&limiter).await, 76 * turn as u64, "turn {turn}");
    }
    refused(&limiter).await;
    while tasks() > before {
        tokio::task::yield_now().await;
    }
    assert_eq!((charged(&limiter).await, events.not_given_back()), (152, 152));
}

/// It arrives, and that it did is not heard of: tried again, it gives back nothing of another's.
#[tokio::test(start_paused = true)]
async fn a_return_whose_reply_is_lost_gives_back_once() {
    let store = Flaky::default();
    let (limiter, events) = refusing(&store, Clock::store());
    for _ in 0..5 {
        assert!(limiter.acquire([("charged", "1k")]).await.is_allowed());
    }
    refused(&limiter).await;
    store.set_part(1, Mood::LosesTheReply);
    events.until(|events| events.not_given_back() == 1).await;
    assert_eq!(times(&store, |purpose| matches!(purpose, Purpose::Give(_))).len(), 6);
    store.set_part(1, Mood::Well);
    assert_eq!(charged(&limiter).await, 5);
}

/// What needs an operator does not pass in seconds: it is told at once, unless another's part of it may still be given back.
#[tokio::test(start_paused = true)]
async fn a_return_that_is_denied_is_not_tried_again() {
    const DENIED: Mood = Mood::Fails(StoreErrorKind::Permanent);
    let gives = |store: &Flaky| times(store, |purpose| matches!(purpose, Purpose::Give(_))).len();
    let store = Flaky::default();
    let (limiter, events) = refusing(&store, Clock::store());
    refused(&limiter).await;
    store.set_part(1, DENIED);
    events.until(|events| events.not_given_back() == 1).await;
    assert_eq!((gives(&store), why(&events).as_str()), (1, "told to fail"));

    let store = Flaky::default();
    store.set_part(2, DOWN);
    let events = Events::default();
    let around = Resilient::new(store.clone()).open_after(10_000, Duration::from_secs(10));
    let rules = [rule("charged", 9), rule("also", 9), rule("refuses", 1).on_failure(OnFailure::Refuse)];
    let builder = Limiter::builder(around).observer(events.clone());
    let limiter = rules.into_iter().fold(builder, sluicegate::LimiterBuilder::rule).build().expect("sound");
    assert!(limiter.acquire([("charged", "1k"), ("also", "3k"), ("refuses", "2k")]).await.is_refused());
    store.set_part(1, DENIED);
    store.set_part(3, DOWN);
    events.until(|events| events.not_given_back() == 1).await;
    assert_eq!(gives(&store), 6);
}

/// Nobody is there to do it later.
#[test]
fn outside_a_runtime_nothing_is_given_back_and_that_is_told() {
    let store = Flaky::default();
    let (limiter, events) = refusing(&store, Clock::store());
    let mut asking = std::pin::pin!(refused(&limiter));
    assert!(asking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    assert_eq!(events.not_given_back(), 1);
    assert!(why(&events).contains("no runtime"), "{}", why(&events));
}
