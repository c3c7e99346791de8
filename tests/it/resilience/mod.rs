//! The store around a store: deadline, breaker, and what rules do meanwhile.

mod commit;
mod health;
mod interrupted;
mod parts;
mod returning;
mod store;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use sluicegate::{
    Decision, Limiter, LimiterBuilder, MemoryStore, OnFailure, Quota, Resilient, Rule, StoreErrorKind, StoreEvent, key,
};
use tokio::time::{Instant, advance};

use crate::support::{
    events::Events,
    flaky::{Flaky, Mood},
    log::Log,
};

const DOWN: Mood = Mood::Fails(StoreErrorKind::Unavailable);

fn rule(name: &str, units: u64) -> Rule {
    Rule::fixed_window(name, Quota::per_day(units)).from_first_request().key(key::given())
}

fn around(store: &Flaky) -> LimiterBuilder {
    Limiter::builder(Resilient::new(store.clone()))
}

/// One rule of a thousand a day.
fn limiter(store: &Flaky) -> Limiter {
    around(store).rule(rule("r", 1_000)).build().expect("sound")
}

async fn ask(limiter: &Limiter) -> Decision {
    limiter.acquire([("r", "k")]).await
}

fn kind(decision: &Decision) -> Option<StoreErrorKind> {
    decision.failure().map(|error| error.kind())
}

async fn fail(limiter: &Limiter, times: usize) {
    for _ in 0..times {
        assert!(ask(limiter).await.failure().is_some());
    }
}

/// Lets everybody else do what can be done now.
async fn settled() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn five_failures_in_a_row_open_the_breaker_and_one_probe_closes_it() {
    let (store, events) = (Flaky::default(), Events::default());
    let limiter = around(&store).rule(rule("r", 1_000)).observer(events.clone()).build().expect("sound");
    store.set(DOWN);
    fail(&limiter, 5).await;
    assert_eq!(store.spends(), 5);
    assert!(
        matches!(&events.take()[..], [StoreEvent::Opened { part: 0, error }] if error.kind() == StoreErrorKind::Unavailable)
    );

    store.set(Mood::Well);
    for _ in 0..100 {
        assert_eq!(kind(&ask(&limiter).await), Some(StoreErrorKind::Open));
    }
    advance(Duration::from_millis(29_990)).await;
    fail(&limiter, 100).await;
    assert_eq!(store.spends(), 0, "nobody asks while it is open");

    store.set(DOWN);
    advance(Duration::from_millis(3_010)).await;
    assert_eq!(kind(&ask(&limiter).await), Some(StoreErrorKind::Unavailable), "the probe is asked");
    fail(&limiter, 100).await;
    assert_eq!(store.spends(), 1, "one probe, and it failed");

    store.set(Mood::Well);
    advance(Duration::from_secs(33)).await;
    assert_eq!(kind(&ask(&limiter).await), None);
    assert_eq!(events.take().first(), Some(&StoreEvent::Closed { part: 0 }));
    for _ in 0..10 {
        assert_eq!(kind(&ask(&limiter).await), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_in_between_starts_the_count_again() {
    let store = Flaky::default();
    let limiter = limiter(&store);
    for _ in 0..20 {
        store.set(DOWN);
        fail(&limiter, 4).await;
        store.set(Mood::Well);
        assert_eq!(kind(&ask(&limiter).await), None);
    }
    assert_eq!(store.spends(), 100);
}

#[tokio::test(start_paused = true)]
async fn failures_far_apart_open_nothing() {
    let store = Flaky::default();
    let limiter = limiter(&store);
    store.set(DOWN);
    for _ in 0..20 {
        fail(&limiter, 1).await;
        advance(Duration::from_millis(2_501)).await;
    }
    assert_eq!(store.spends(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_hung_store_costs_the_deadline_and_an_open_breaker_nothing() {
    let store = Flaky::default();
    store.set(Mood::Hangs);
    let limiter = limiter(&store);
    for _ in 0..5 {
        let began = Instant::now();
        assert_eq!(kind(&ask(&limiter).await), Some(StoreErrorKind::Timeout));
        // Timers have a grain of a millisecond.
        let took = began.elapsed();
        assert!((Duration::from_millis(10)..=Duration::from_millis(11)).contains(&took), "{took:?}");
    }
    let began = Instant::now();
    for _ in 0..1_000 {
        assert_eq!(kind(&ask(&limiter).await), Some(StoreErrorKind::Open));
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    // Nor does it need a runtime any more: it is decided where it is asked.
    let mut asking = std::pin::pin!(limiter.acquire([("r", "k")]));
    let decided = asking.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
    assert!(decided.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_leaves_makes_room_for_the_next() {
    let store = Flaky::default();
    store.set(Mood::Hangs);
    let limiter = limiter(&store);
    fail(&limiter, 5).await;
    advance(Duration::from_secs(33)).await;
    {
        let mut probe = std::pin::pin!(limiter.acquire([("r", "k")]));
        assert!(probe.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending());
        assert_eq!(kind(&ask(&limiter).await), Some(StoreErrorKind::Open), "one probe at a time");
    }
    store.set(Mood::Well);
    assert_eq!(kind(&ask(&limiter).await), None);
}

/// A connection that is lost takes all calls with it that are on their way: that is one failure, not as many.
#[tokio::test(start_paused = true)]
async fn calls_that_fail_together_are_one_failure() {
    let store = Flaky::default();
    store.set(Mood::Hangs);
    let limiter = limiter(&store);
    let together = |calls: usize| {
        let calls: Vec<_> = (0..calls)
            .map(|_| {
                tokio::spawn({
                    let limiter = limiter.clone();
                    async move { kind(&ask(&limiter).await) }
                })
            })
            .collect();
        async {
            for call in calls {
                assert_eq!(call.await.expect("no panic"), Some(StoreErrorKind::Timeout));
            }
        }
    };
    for _ in 0..4 {
        together(50).await;
    }
    assert_eq!(store.spends(), 200);
    // The fifth failure in a row.
    together(50).await;
    assert_eq!(kind(&ask(&limiter).await), Some(StoreErrorKind::Open));
}

/// Making a connection may take longer than a probe: once it is made, nobody waits for the next turn.
#[tokio::test(start_paused = true)]
async fn a_new_connection_is_tried_at_once() {
    let (store, events) = (Flaky::default(), Events::default());
    let limiter = around(&store).rule(rule("r", 1_000)).observer(events.clone()).build().expect("sound");
    store.set(DOWN);
    fail(&limiter, 5).await;
    store.set(Mood::Well);
    assert_eq!(kind(&ask(&limiter).await), Some(StoreErrorKind::Open));
    // Nothing else speaks for asking.
    store.tell(&StoreEvent::ScriptSent);
    assert_eq!(kind(&ask(&limiter).await), Some(StoreErrorKind::Open));
    store.tell(&StoreEvent::Connected);
    assert_eq!((events.connected(), events.scripts_sent()), (1, 1), "what the store tells is passed on");
    assert_eq!(kind(&ask(&limiter).await), None);
    // One try for each connection: a server that takes connections and no calls is not asked more often.
    store.set(DOWN);
    fail(&limiter, 5).await;
    store.spends();
    store.tell(&StoreEvent::Connected);
    fail(&limiter, 10).await;
    assert_eq!(store.spends(), 1);
}

/// Each in its own way: one admits, one counts here, one refuses; and a refusal spends nothing anywhere.
#[tokio::test(start_paused = true)]
async fn each_rule_says_what_happens() {
    let store = Flaky::default();
    store.set(DOWN);
    let limiter = around(&store)
        .rule(rule("local", 10))
        .rule(rule("allow", 1).on_failure(OnFailure::Allow))
        .rule(rule("refuse", 10).on_failure(OnFailure::Refuse))
        .build()
        .expect("sound");
    // Before the breaker opens, and after.
    for _ in 0..2 {
        for _ in 0..3 {
            let refused = limiter.acquire([("local", "a"), ("refuse", "a")]).await;
            assert!(refused.is_refused() && refused.retry_after().is_none(), "{refused:?}");
            assert!(refused.standings().all(|standing| !standing.is_refused()));
            assert!(limiter.acquire([("allow", "a")]).await.is_allowed());
            assert!(limiter.acquire([("allow", "a")]).await.standings().next().is_none());
        }
        let allowed = limiter.acquire([("allow", "a"), ("local", "a")]).await;
        assert!(allowed.is_allowed());
    }
    // Ten of a day at 0.8 are eight, of which two are spent.
    let left = limiter.peek([("local", "a")]).await;
    assert_eq!(left.standing("local").map(|standing| standing.remaining()), Some(6));
    for _ in 0..6 {
        assert!(limiter.acquire([("local", "a"), ("allow", "b")]).await.is_allowed());
    }
    let refused = limiter.acquire([("local", "a"), ("allow", "b")]).await;
    assert!(refused.is_refused() && refused.failure().is_some());
    assert!(refused.retry_after().is_some_and(|wait| wait <= Duration::from_secs(86_400)), "{refused:?}");
    assert!(limiter.acquire([("local", "other")]).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn the_limiter_says_it_for_rules_that_do_not() {
    let store = Flaky::default();
    store.set(DOWN);
    let limiter = around(&store)
        .on_failure(OnFailure::Refuse)
        .rule(rule("r", 1))
        .rule(rule("kind", 1).on_failure(OnFailure::Allow))
        .build()
        .expect("sound");
    assert!(limiter.acquire([("r", "k")]).await.is_refused());
    assert!(limiter.acquire([("kind", "k")]).await.is_allowed());
}

async fn admitted(limiter: &Limiter, key: &str, most: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..most {
        admitted += usize::from(limiter.acquire([("r", key)]).await.is_allowed());
    }
    admitted
}

#[tokio::test(start_paused = true)]
async fn a_process_has_its_part_of_the_quota_as_many_as_there_are() {
    let store = Flaky::default();
    store.set(DOWN);
    let rule = || Rule::fixed_window("r", Quota::per_second(8_000)).from_first_request().key(key::given());
    let build = |store: Resilient| Limiter::builder(store).rule(rule()).build().expect("sound");
    let eight = build(Resilient::new(store.clone()).instances(8));
    assert_eq!(admitted(&eight, "k", 2_000).await, 800);

    let fleet = Arc::new(AtomicU32::new(8));
    let live = Arc::clone(&fleet);
    let live = build(Resilient::new(store.clone()).share(1.0).instances_by(move || live.load(Ordering::Relaxed)));
    assert_eq!(admitted(&live, "a", 2_000).await, 1_000);
    fleet.store(4, Ordering::Relaxed);
    assert_eq!(admitted(&live, "a", 3_000).await, 1_000, "what is spent stays spent");
    assert_eq!(admitted(&live, "b", 3_000).await, 2_000);
    let nobody = build(Resilient::new(store.clone()).share(0.5).instances_by(|| 0));
    assert_eq!(admitted(&nobody, "c", 9_000).await, 4_000, "this one is there");
}

/// Five a day over eight processes are less than one each: one every other day.
#[tokio::test(start_paused = true)]
async fn less_than_one_unit_a_window_is_one_in_a_longer_window() {
    let store = Flaky::default();
    store.set(DOWN);
    let quota = Rule::token_bucket("r", Quota::per_minute(5)).key(key::given());
    let limiter = Limiter::builder(Resilient::new(store).instances(8)).rule(quota).build().expect("sound");
    assert_eq!(admitted(&limiter, "k", 10).await, 1);
    let wait = ask(&limiter).await.retry_after().expect("a wait");
    // 5 a minute at 0.8 over 8 is one in two minutes.
    assert!((Duration::from_secs(119)..=Duration::from_secs(120)).contains(&wait), "{wait:?}");
}

/// The whole quota would hold it: the store may be back soon.
#[tokio::test(start_paused = true)]
async fn a_cost_above_the_share_waits_for_the_store() {
    let store = Flaky::default();
    store.set(DOWN);
    let limiter = Limiter::builder(Resilient::new(store).instances(8)).rule(rule("r", 80).cost(20)).build();
    let refused = ask(&limiter.expect("sound")).await;
    assert!(refused.is_refused() && !refused.can_never_fit());
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(1)));
}

#[tokio::test(start_paused = true)]
async fn what_waiting_does_not_mend_shouts_and_opens_nothing() {
    let (log, _guard) = Log::begin();
    let store = Flaky::default();
    store.set(Mood::Fails(StoreErrorKind::Permanent));
    let limiter = limiter(&store);
    for _ in 0..50 {
        assert_eq!(kind(&ask(&limiter).await), Some(StoreErrorKind::Permanent));
    }
    assert_eq!(store.spends(), 50, "every request still asks");
    assert!(log.text().contains("ERROR") && log.text().contains("does not mend itself"), "{}", log.text());
    assert!(!log.text().contains("breaker"));
}

/// A probe that is told off has reached the server, so the breaker closes: the fault is another, and is to be seen.
#[tokio::test(start_paused = true)]
async fn a_probe_that_is_told_off_closes_the_breaker() {
    let store = Flaky::default();
    let limiter = limiter(&store);
    store.set(DOWN);
    fail(&limiter, 5).await;
    store.set(Mood::Fails(StoreErrorKind::Permanent));
    advance(Duration::from_secs(33)).await;
    for _ in 0..3 {
        assert_eq!(kind(&ask(&limiter).await), Some(StoreErrorKind::Permanent));
    }
}

#[tokio::test(start_paused = true)]
async fn a_breaker_may_open_at_the_first_failure() {
    let store = Flaky::default();
    let around = Resilient::new(store.clone()).open_after(1, Duration::from_secs(10));
    let limiter = Limiter::builder(around).rule(rule("r", 1_000)).build().expect("sound");
    for _ in 0..2 {
        store.set(DOWN);
        assert_eq!(kind(&ask(&limiter).await), Some(StoreErrorKind::Unavailable));
        store.set(Mood::Well);
        assert_eq!(kind(&ask(&limiter).await), Some(StoreErrorKind::Open));
        advance(Duration::from_secs(33)).await;
        assert_eq!(kind(&ask(&limiter).await), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_that_hangs_leaves_the_others_alone() {
    let (store, events) = (Flaky::default(), Events::default());
    let limiter = around(&store).rule(rule("r", 1_000)).observer(events.clone()).build().expect("sound");
    store.set_part(2, Mood::Hangs);
    for _ in 0..5 {
        assert_eq!(kind(&limiter.acquire([("r", "2a")]).await), Some(StoreErrorKind::Timeout));
    }
    assert!(matches!(&events.take()[..], [StoreEvent::Opened { part: 2, .. }]));
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(kind(&limiter.acquire([("r", "1a")]).await), None);
        assert_eq!(kind(&limiter.acquire([("r", "2b")]).await), Some(StoreErrorKind::Open));
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    store.set_part(2, Mood::Well);
    advance(Duration::from_secs(33)).await;
    assert_eq!(kind(&limiter.acquire([("r", "2a")]).await), None);
    assert_eq!(events.take().first(), Some(&StoreEvent::Closed { part: 2 }));
}

/// A node that another has taken the place of is never asked again. Its breaker must not keep the store from being well.
#[tokio::test(start_paused = true)]
async fn a_part_that_nobody_asks_any_more_is_forgotten() {
    let (store, events) = (Flaky::default(), Events::default());
    let limiter = around(&store)
        .rule(rule("r", 1_000).on_failure(OnFailure::Allow))
        .observer(events.clone())
        .build()
        .expect("sound");
    store.set_part(2, DOWN);
    for _ in 0..5 {
        assert!(limiter.acquire([("r", "2a")]).await.failure().is_some());
    }
    assert!(matches!(&events.take()[..], [StoreEvent::Opened { part: 2, .. }]));
    for _ in 0..70 {
        assert!(limiter.acquire([("r", "1a")]).await.failure().is_none());
        advance(Duration::from_secs(1)).await;
    }
    assert!(events.take().contains(&StoreEvent::Closed { part: 2 }));
    // Asked again, it is asked.
    store.asked();
    assert!(limiter.acquire([("r", "2a")]).await.failure().is_some());
    assert_eq!(store.spends(), 1);
}

/// Rules over two parts of which one is away: the other is asked, the local count joins in, and it is all or nothing still.
#[tokio::test(start_paused = true)]
async fn rules_over_parts_are_all_or_nothing_while_one_is_away() {
    for failures in [1, 5, 1_000] {
        all_or_nothing_while_one_is_away(failures).await;
    }
}

async fn all_or_nothing_while_one_is_away(failures: u32) {
    let store = Flaky::default();
    let around = Resilient::new(store.clone()).open_after(failures, Duration::from_secs(10));
    let limiter = Limiter::builder(around).rule(rule("here", 5)).rule(rule("there", 3)).build().expect("sound");
    store.set_part(2, DOWN);
    // "here" is away (4 of 5 at 0.8), "there" is well.
    for turn in 0..3 {
        let decision = limiter.acquire([("here", "2k"), ("there", "1k")]).await;
        assert!(decision.is_allowed() && decision.failure().is_some());
        assert_eq!(decision.standing("there").map(|standing| standing.remaining()), Some(2 - turn));
        assert_eq!(decision.standing("here").map(|standing| standing.remaining()), Some(3 - turn));
    }
    let refused = limiter.acquire([("here", "2k"), ("there", "1k")]).await;
    assert_eq!(refused.standing("there").map(|standing| standing.is_refused()), Some(true));
    let left = limiter.peek([("here", "2k")]).await;
    assert_eq!(left.standing("here").map(|standing| standing.remaining()), Some(1), "the refusal spent nothing here");
    assert!(limiter.acquire([("here", "2k"), ("there", "1other")]).await.is_allowed());
    // Now the local count refuses. Whether the breaker is open or not, the part that is well is not charged in the end.
    for _ in 0..10 {
        let refused = limiter.acquire([("here", "2k"), ("there", "1other")]).await;
        assert_eq!(refused.standing("here").map(|standing| standing.is_refused()), Some(true));
        tokio::task::yield_now().await;
    }
    let left = limiter.peek([("there", "1other")]).await;
    assert_eq!(left.standing("there").map(|standing| standing.remaining()), Some(2));
}

#[test]
fn settings_out_of_range_are_said_at_build_time() {
    let new = || Resilient::new(MemoryStore::new());
    let bad = [
        (new().share(0.0), "share"),
        (new().share(f64::NAN), "share"),
        (new().share(1.1), "share"),
        (new().instances(0), "instances"),
        (new().open_after(0, Duration::from_secs(1)), "open_after"),
        (new().open_after(10_001, Duration::from_secs(1)), "open_after"),
        (new().open_after(5, Duration::ZERO), "open_after"),
        (new().open_after(5, Duration::from_secs(3_601)), "open_after"),
        (new().open_for(Duration::from_secs(3_601)), "open_for"),
        (new().open_for(Duration::ZERO), "open_for"),
        (new().deadline(Duration::ZERO), "deadline"),
        (Resilient::new(Resilient::new(MemoryStore::new())).deadline(Duration::from_millis(9)), "deadline"),
    ];
    for (store, field) in bad {
        let error = Limiter::builder(store).rule(rule("r", 1)).build().expect_err("out of range");
        assert_eq!(error.field(), field, "{error}");
        assert!(error.to_string().contains("give") || error.to_string().contains("set that one"), "{error}");
    }
}
