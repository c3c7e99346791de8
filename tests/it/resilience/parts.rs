//! Rules over two parts of a store of which one is away: who is asked, who is told, and who is left alone.

use std::time::Duration;

use sluicegate::{Limiter, LimiterBuilder, OnFailure, Resilient, Rule, store::Purpose};
use tokio::time::advance;

use super::{DOWN, rule, settled};
use crate::support::{
    events::Events,
    flaky::{AtOnce, Flaky, Mood},
};

const KEYS: [(&str, &str); 2] = [("here", "2k"), ("there", "1k")];

/// The rule `here` counts in part 2, `there` in part 1.
fn limiter(store: Resilient, here: Rule) -> (Limiter, Events) {
    let events = Events::default();
    let builder = Limiter::builder(store).namespace("over-parts").observer(events.clone());
    (builder.rule(here).rule(rule("there", 1_000)).build().expect("sound"), events)
}

fn opening_at(store: &Flaky, failures: u32) -> Resilient {
    Resilient::new(store.clone()).open_after(failures, Duration::from_secs(10))
}

/// How many the store itself has counted for a rule.
async fn counted(store: &Flaky, (name, key): (&str, &str)) -> u64 {
    let rules = [rule("here", 1_000), rule("there", 1_000)];
    let builder = Limiter::builder(store.inside()).namespace("over-parts");
    let bare = rules.into_iter().fold(builder, LimiterBuilder::rule).build().expect("sound");
    let peek = bare.peek([(name, key)]).await;
    1_000 - peek.standing(name).expect("it applies").remaining()
}

/// The parts that were asked since the last look, but for look-ups.
fn asked(store: &Flaky) -> Vec<(usize, &'static str)> {
    let word = |purpose| match purpose {
        Purpose::Spend => "spend",
        Purpose::Take(_) => "take",
        Purpose::Owe(_) => "owe",
        Purpose::Give(_) => "give",
        Purpose::Peek => "peek",
        Purpose::Renew | Purpose::Release => "lease",
    };
    store.asked().into_iter().map(|(part, purpose)| (part, word(purpose))).filter(|(_, word)| *word != "peek").collect()
}

/// A refusal that is certain already costs the part that is well nothing, not even a call.
#[tokio::test(start_paused = true)]
async fn a_part_that_is_well_is_not_asked_where_the_other_refuses_anyway() {
    // By its own word, and by the local count of 4 in 5.
    for (here, admitted) in [(rule("here", 5).on_failure(OnFailure::Refuse), 0), (rule("here", 5), 4)] {
        let store = Flaky::default();
        let (limiter, _) = limiter(opening_at(&store, 1), here);
        store.set_part(2, DOWN);
        // Opens the breaker of part 2, and counts one where it counts.
        assert_eq!(limiter.acquire([KEYS[0]]).await.is_allowed(), admitted > 0);
        for _ in 1..admitted {
            assert!(limiter.acquire(KEYS).await.is_allowed());
        }
        asked(&store);
        for _ in 0..5 {
            assert!(limiter.acquire(KEYS).await.is_refused());
        }
        settled().await;
        assert_eq!(asked(&store), [], "{admitted}");
    }
}

/// The local count refuses: what the other part charged comes back, and nobody gives anything to the part that is away.
#[tokio::test(start_paused = true)]
async fn what_is_given_back_is_given_to_those_who_charged() {
    let store = Flaky::default();
    let (limiter, _) = limiter(opening_at(&store, 10_000), rule("here", 1));
    store.set_part(2, DOWN);
    assert!(limiter.acquire([KEYS[0]]).await.is_allowed());
    asked(&store);
    assert!(limiter.acquire(KEYS).await.is_refused());
    settled().await;
    assert_eq!(asked(&store), [(2, "spend"), (1, "spend"), (1, "give")]);
    assert_eq!(counted(&store, KEYS[1]).await, 0);
}

/// A look-up charges nothing, so nothing is given back, whatever the rules say.
#[tokio::test(start_paused = true)]
async fn a_look_up_gives_nothing_back() {
    let store = Flaky::default();
    let (limiter, _) = limiter(opening_at(&store, 10_000), rule("here", 5).on_failure(OnFailure::Refuse));
    assert!(limiter.acquire([KEYS[1]]).await.is_allowed());
    store.set_part(2, DOWN);
    for _ in 0..3 {
        assert!(limiter.peek(KEYS).await.is_refused());
    }
    settled().await;
    assert_eq!(asked(&store), [(1, "spend")]);
    assert_eq!(counted(&store, KEYS[1]).await, 1);
}

/// What a part has charged itself it is not told of once more, though it was told of others before.
#[tokio::test(start_paused = true)]
async fn only_the_part_that_was_away_is_told() {
    let store = Flaky::default();
    let (limiter, events) = limiter(opening_at(&store, 10_000), rule("here", 1_000));
    store.set_part(1, DOWN);
    for _ in 0..2 {
        assert!(limiter.acquire([KEYS[1]]).await.is_allowed());
    }
    store.set_part(1, Mood::Well);
    assert!(limiter.acquire([KEYS[1]]).await.failure().is_none());
    settled().await;
    assert_eq!(counted(&store, KEYS[1]).await, 3);
    store.set_part(2, DOWN);
    for _ in 0..3 {
        assert!(limiter.acquire(KEYS).await.is_allowed());
    }
    store.set_part(2, Mood::Well);
    advance(Duration::from_secs(1)).await;
    assert!(limiter.acquire([KEYS[1]]).await.failure().is_none());
    settled().await;
    assert_eq!((counted(&store, KEYS[0]).await, counted(&store, KEYS[1]).await), (3, 7));
    assert_eq!(events.not_given_back(), 0);
}

/// Of a part that was not asked it is sure that it charged nothing, whatever became of the other's reply.
#[tokio::test(start_paused = true)]
async fn a_reply_that_is_lost_makes_nobody_unsure_who_was_not_asked() {
    let store = Flaky::default();
    let (limiter, _) = limiter(opening_at(&store, 2), rule("here", 1_000));
    store.set_part(2, DOWN);
    for _ in 0..2 {
        assert!(limiter.acquire([KEYS[0]]).await.is_allowed());
    }
    store.set_part(1, Mood::LosesTheReply);
    assert!(limiter.acquire(KEYS).await.is_allowed());
    (1..=2).for_each(|part| store.set_part(part, Mood::Well));
    advance(Duration::from_secs(33)).await;
    for _ in 0..2 {
        assert!(limiter.acquire([KEYS[1]]).await.failure().is_none());
        settled().await;
        advance(Duration::from_secs(1)).await;
        assert!(limiter.acquire([KEYS[0]]).await.failure().is_none());
        settled().await;
    }
    assert_eq!(counted(&store, KEYS[0]).await, 3 + 2);
    assert_eq!(counted(&store, KEYS[1]).await, 1 + 2);
}

/// A store that answers where it is asked fares no worse: the part that is away is not asked, the other is.
#[tokio::test(start_paused = true)]
async fn a_store_that_answers_at_once_is_asked_in_parts_too() {
    let store = Flaky::default();
    let around = Resilient::new(AtOnce(store.clone())).open_after(2, Duration::from_secs(10));
    let (limiter, _) = limiter(around, rule("here", 5));
    store.set_part(2, DOWN);
    // The first two fail where they are asked, the others find the breaker open: four of five are local.
    for left in [3, 2, 1, 0] {
        let decision = limiter.acquire(KEYS).await;
        assert!(decision.is_allowed() && decision.failure().is_some());
        assert_eq!(decision.standing("here").map(|standing| standing.remaining()), Some(left));
    }
    let calls = asked(&store);
    assert_eq!(calls, [(2, "spend"), (1, "spend"), (2, "spend"), (1, "spend"), (1, "spend"), (1, "spend")]);
    assert!(limiter.acquire(KEYS).await.is_refused());
    assert_eq!((counted(&store, KEYS[0]).await, counted(&store, KEYS[1]).await), (0, 4));
}
