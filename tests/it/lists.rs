//! Allow and deny lists: allow beats deny beats rules, from the next call on, and no store is asked.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use sluicegate::{
    Call, Clock, Decision, Limiter, LimiterBuilder, Listed, Lists, ManualClock, MemoryStore, Observer, Quota, Rule,
    key::{self, Key, TrustedProxies},
    store::Purpose,
};

use crate::support::{
    noting::Noting,
    stores::{BEGIN, every_store},
};

const NAMES: [&str; 3] = ["per-user", "per-team", "at-a-time"];

fn rules() -> [Rule; 4] {
    [
        Rule::token_bucket("per-user", Quota::per_minute(60).burst(2)).key(key::given()),
        Rule::sliding_log("per-team", Quota::per_minute(2)).key(key::given()),
        Rule::concurrency("at-a-time", 2).key(key::given()),
        Rule::gcra("gold", Quota::unlimited()).key(key::given()),
    ]
}

fn build(builder: LimiterBuilder, lists: &Lists) -> Limiter {
    rules().into_iter().fold(builder, LimiterBuilder::rule).lists(lists).build().expect("sound")
}

fn call<'a>(user: &'a str, team: &'a str) -> Call<'a> {
    Call::new().key("per-user", user).key("per-team", team).key("at-a-time", user)
}

async fn used(limiter: &Limiter, user: &str, team: &str) -> Vec<Option<u64>> {
    let usage = limiter.usage_of(call(user, team)).await.expect("an answer");
    NAMES.map(|rule| usage.rule(rule).and_then(|rule| rule.used())).to_vec()
}

fn assert_listed(decision: &Decision, listed: Listed, place: &str) {
    assert_eq!(decision.listed(), Some(listed), "{place}: {decision:?}");
    assert_eq!(decision.is_refused(), listed == Listed::Denied, "{place}: {decision:?}");
    assert!(decision.standings().next().is_none() && decision.failure().is_none(), "{place}: {decision:?}");
    assert!(decision.retry_after().is_none() && !decision.can_never_fit(), "{place}: {decision:?}");
}

#[tokio::test]
async fn allow_beats_deny_beats_rules_on_every_store() {
    for backend in every_store() {
        let (name, lists) = (&backend.name, Lists::new());
        let limiter = build(backend.builder().clock(Clock::manual(ManualClock::new(BEGIN))), &lists);
        let none = vec![Some(0); 3];
        // A list that is empty changes nothing.
        let first = limiter.acquire(call("alice", "red")).await;
        assert!(first.is_allowed() && first.listed().is_none() && first.standings().count() == 3, "{name}");
        assert_eq!(used(&limiter, "alice", "red").await, vec![Some(1); 3], "{name}");

        lists.deny("alice").expect("room");
        assert_listed(&limiter.acquire(call("alice", "red")).await, Listed::Denied, name);
        assert_listed(&limiter.peek(call("alice", "red")).await, Listed::Denied, name);
        assert_eq!(used(&limiter, "alice", "red").await, vec![Some(1); 3], "{name}");
        // Whoever has the key under any rule.
        assert_listed(&limiter.acquire(call("bob", "alice")).await, Listed::Denied, name);
        assert_eq!(used(&limiter, "bob", "alice").await, none, "{name}");

        // One key that is allowed outdoes another that is denied, and the rules.
        lists.allow("green").expect("room");
        for _ in 0..4 {
            let decision = limiter.acquire(call("alice", "green")).await;
            assert_listed(&decision, Listed::Allowed, name);
            assert!(decision.permit().is_none(), "{name}");
        }
        assert_eq!(used(&limiter, "carol", "green").await, none, "{name}");
        lists.allow("alice").expect("room");
        assert_listed(&limiter.acquire(call("alice", "red")).await, Listed::Allowed, name);
        lists.remove("alice").remove("green");
        assert!(lists.is_empty(), "{name}");
        let second = limiter.acquire(call("alice", "red")).await;
        assert!(second.is_allowed() && second.listed().is_none(), "{name}: {second:?}");
        let third = limiter.acquire(call("alice", "red")).await;
        assert!(third.is_refused() && third.listed().is_none() && third.retry_after().is_some(), "{name}: {third:?}");
    }
}

#[tokio::test]
async fn a_key_of_one_rule_is_no_key_of_another_on_every_store() {
    for backend in every_store() {
        let (name, lists) = (&backend.name, Lists::new());
        lists.deny_for("per-team", "x").and_then(|lists| lists.allow_for("at-a-time", 7)).expect("room");
        let limiter = build(backend.builder(), &lists);
        assert_listed(&limiter.acquire(call("alice", "x")).await, Listed::Denied, name);
        assert!(limiter.acquire(call("x", "red")).await.listed().is_none(), "{name}");
        assert_listed(&limiter.acquire([("at-a-time", 7)]).await, Listed::Allowed, name);
        assert!(limiter.acquire([("per-user", 7)]).await.listed().is_none(), "{name}");
        // The key that is not there is on no list, and what rules without a limit know people by is.
        lists.deny_for("gold", "y").expect("room");
        assert!(limiter.acquire(Call::new().key("per-team", None::<&str>)).await.listed().is_none(), "{name}");
        assert_listed(&limiter.acquire([("gold", "y")]).await, Listed::Denied, name);
        lists.remove("x").remove_for("gold", "x").remove_for("nobody", "x");
        assert_eq!(lists.len(), 3, "{name}");
        lists.remove_for("per-team", "x");
        assert!(limiter.acquire(call("bob", "x")).await.listed().is_none(), "{name}");
    }
}

#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Option<Listed>>>>);

impl Observer for Told {
    fn decided(&self, decision: &Decision) {
        self.0.lock().expect("no panic").push(decision.listed());
    }
}

#[tokio::test]
async fn no_store_is_asked_and_the_observer_is_told() {
    let (store, told, lists) = (Noting::default(), Told::default(), Lists::new());
    lists.deny("mallory").and_then(|lists| lists.allow("monitoring")).expect("room");
    let limiter = build(Limiter::builder(store.clone()).observer(told.clone()), &lists);
    assert!(limiter.acquire(call("mallory", "red")).await.is_refused());
    assert!(limiter.acquire(call("monitoring", "red")).await.is_allowed());
    let charge = limiter.charge([("per-user", "monitoring")]).await;
    assert!(charge.decision().is_allowed() && !charge.settle(9), "there is nothing to settle");
    limiter.settled().await;
    assert_eq!(store.asked(), []);
    let listed = std::mem::take(&mut *told.0.lock().expect("no panic"));
    assert_eq!(listed, [Some(Listed::Denied), Some(Listed::Allowed), Some(Listed::Allowed)]);
    assert!(limiter.acquire([("per-team", "red")]).await.is_allowed());
    assert_eq!(store.asked(), [(Purpose::Spend, 1)]);
    assert_eq!(*told.0.lock().expect("no panic"), [None]);
    // A mistake stays one.
    assert!(limiter.acquire([("nobody", "monitoring")]).await.failure().is_some());
}

#[tokio::test]
async fn one_handle_serves_several_limiters_and_is_replaced_at_once() {
    let lists = Lists::new();
    let limiters = [(); 2].map(|()| build(Limiter::builder(MemoryStore::new()), &lists.clone()));
    let fresh = Lists::new();
    fresh.deny(Key::secret(b"token")).and_then(|lists| lists.deny(("acme", 7))).expect("room");
    lists.deny("gone").expect("room").replace(&fresh);
    assert_eq!((lists.len(), fresh.len()), (2, 2));
    for limiter in &limiters {
        let denied = async |key: Key| limiter.acquire([("per-user", key)]).await.is_refused();
        assert!(denied(Key::secret(b"token")).await && !denied(Key::new(b"token")).await);
        assert!(limiter.acquire([("per-user", ("acme", 7))]).await.is_refused());
        assert!(!denied(Key::new(b"gone")).await);
    }
    assert_eq!(format!("{lists:?}"), "Lists(2 entries)");
    lists.replace(&Lists::new());
    assert!(limiters[0].acquire([("per-user", ("acme", 7))]).await.is_allowed());
}

#[test]
fn what_cannot_be_meant_is_said() {
    let lists = Lists::new();
    for (net, remedy) in [
        ("10.0.0.0/33", "give CIDRs such as 10.0.0.0/8"),
        ("10.0.0.1/8", "give 10.0.0.0/8 or 10.0.0.1"),
        ("2001:db8::1/32", "give 2001:db8::/32 or 2001:db8::1"),
        ("example.org", "or single addresses"),
        ("", "or single addresses"),
        ("10.0.0.0/", "or single addresses"),
    ] {
        for error in [lists.allow_net(net), lists.deny_net(net), lists.remove_net(net)].map(|done| done.expect_err(net))
        {
            assert_eq!(error.field(), "lists", "{net}");
            assert!(error.to_string().contains(remedy), "{net}: {error}");
        }
    }
    assert!(lists.is_empty());
    let build = |lists: &Lists| {
        let rule = Rule::gcra("per-user", Quota::per_second(1)).key(key::given());
        Limiter::builder(MemoryStore::new()).rule(rule).lists(lists).build()
    };
    lists.deny_for("per-usr", "x").expect("room");
    let error = build(&lists).expect_err("a rule that is not there");
    assert_eq!((error.rule_name(), error.field()), (Some("per-usr"), "lists"));
    lists.remove_for("per-usr", "x");
    assert!(build(&lists).is_ok());
    let error = build(&Lists::by(key::ip().behind(TrustedProxies::cidrs(["10.0.0.0/99"])))).expect_err("no network");
    assert!(error.field() == "lists" && error.to_string().contains("trusted proxies"), "{error}");
}

/// How long so many calls take at best, of a key that is on no list.
async fn pace(limiter: &Limiter) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..20 {
        let begin = Instant::now();
        for _ in 0..50 {
            assert!(limiter.peek([("per-team", "nobody")]).await.is_allowed());
        }
        best = best.min(begin.elapsed());
    }
    best
}

#[tokio::test]
async fn a_hundred_thousand_keys_are_as_fast_as_a_hundred() {
    let lists = Lists::new();
    let limiter = build(Limiter::builder(MemoryStore::new()), &lists);
    for number in 0..100u32 {
        lists.deny(number).expect("room");
    }
    let few = pace(&limiter).await;
    for number in 100..100_000u32 {
        let list = if number % 2 == 0 { lists.deny(number) } else { lists.deny_for("per-user", number) };
        list.expect("room");
    }
    let many = pace(&limiter).await;
    assert_eq!(lists.len(), 100_000);
    assert!(many < few * 10, "{many:?} against {few:?}; looking through all would take a thousand times as long");
    for number in [99_998, 50_000, 99] {
        assert!(limiter.acquire([("per-team", number)]).await.is_refused(), "{number}");
    }
    assert!(limiter.acquire([("per-user", 99_999)]).await.is_refused());
    assert!(limiter.acquire([("per-team", 99_999)]).await.is_allowed());
}

#[tokio::test]
async fn changes_under_way_disturb_nobody() {
    let (lists, done) = (Lists::new(), Arc::new(AtomicBool::new(false)));
    lists.deny("mallory").expect("room");
    let limiter = build(Limiter::builder(MemoryStore::new()), &lists);
    let changing = std::thread::spawn({
        let (lists, done) = (lists.clone(), Arc::clone(&done));
        move || {
            let mut changes = 0u32;
            while !done.load(Ordering::Relaxed) {
                lists.deny(changes).and_then(|lists| lists.deny_net("192.0.2.0/24")).expect("room");
                lists.remove(changes).remove_net("192.0.2.0/24").expect("a subnet");
                changes += 1;
            }
            changes
        }
    });
    for _ in 0..2_000 {
        assert!(limiter.acquire([("per-user", "mallory")]).await.is_refused());
        assert!(limiter.peek([("per-user", "alice")]).await.is_allowed());
    }
    done.store(true, Ordering::Relaxed);
    assert!(changing.join().expect("no panic") > 0);
    assert_eq!(lists.len(), 1);
}
