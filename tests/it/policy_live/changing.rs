//! Policies that change while a limiter runs.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use sluicegate::{
    Call, Clock, Limiter, ManualClock, MemoryStore, Observer, PolicyEvent, Quota, RateLimitLayer, Rule, key,
    policy::{Policy, PolicySource, SourceError},
};
use tokio::sync::{Notify, watch};

use super::{app, ask, left, policy};
use crate::support::{
    app::field,
    stores::{BEGIN, every_store},
};

fn of(name: &str, quota: &str, more: &str) -> Policy {
    policy(&format!(
        "[[rules]]\nname = {name:?}\nalgorithm = \"fixed_window\"\nquota = {quota:?}\nkey = \"given|global\"\n{more}"
    ))
}

#[tokio::test]
async fn counts_stay_when_a_policy_changes_on_every_store() {
    for backend in every_store() {
        let clock = Clock::manual(ManualClock::new(BEGIN));
        let limiter = backend.builder().clock(clock).policy(of("a", "10/hour", "")).build().expect("sound");
        let app = app(&limiter);
        assert_eq!(left(&app, "/", &[]).await, (200, Some(9)), "{}", backend.name);
        limiter.set_policy(of("a", "20/hour", "")).expect("sound");
        assert_eq!(left(&app, "/", &[]).await, (200, Some(18)), "{}", backend.name);
        limiter.set_policy(of("a", "2/hour", "")).expect("sound");
        assert_eq!(left(&app, "/", &[]).await.0, 429, "{}", backend.name);
        // Under another name it is another rule.
        limiter.set_policy(of("b", "2/hour", "")).expect("sound");
        assert_eq!(left(&app, "/", &[]).await, (200, Some(1)), "{}", backend.name);
        limiter.set_policy(of("a", "3/hour", "")).expect("sound");
        assert_eq!(left(&app, "/", &[]).await, (200, Some(0)), "{}", backend.name);
    }
}

#[tokio::test]
async fn everything_a_limiter_does_is_by_the_newest_policy() {
    let limiter = Limiter::builder(MemoryStore::new())
        .rule(Rule::gcra("by-code", Quota::per_hour(5)).key(key::given()))
        .policy(of("old", "10/hour", ""))
        .build()
        .expect("sound");
    limiter.set_policy(of("new", "10/hour", "ban = { after = 3 }\n")).expect("sound");
    let call = || [("new", "a")];
    assert!(limiter.acquire(call()).await.failure().is_none());
    assert!(limiter.peek(call()).await.failure().is_none());
    assert!(limiter.acquire_when_ready(call()).await.failure().is_none());
    assert!(limiter.charge(call()).await.settle_rule("new", 1));
    limiter.penalize(Call::new().key("new", "a").cost(1)).expect("known");
    limiter.strike(call()).expect("known");
    limiter.ban("new", "b", Duration::from_secs(9)).await.expect("known");
    limiter.lift_ban("new", "b").await.expect("known");
    assert_eq!(limiter.usage_of(call()).await.expect("known").rule("new").and_then(|rule| rule.used()), Some(4));
    let usage = limiter.usage("a").await.expect("in memory");
    assert_eq!(usage.rules().map(|rule| rule.rule().to_owned()).collect::<Vec<_>>(), ["by-code", "new"]);
    limiter.reset(call()).await.expect("known");
    assert_eq!(limiter.usage("a").await.expect("in memory").rule("new").and_then(|rule| rule.used()), Some(0));
    // Rules of the code are there whatever the policy.
    assert!(limiter.acquire([("by-code", "a")]).await.failure().is_none());
    assert!(limiter.acquire([("old", "a")]).await.failure().is_some());
}

#[tokio::test]
async fn a_policy_that_cannot_be_used_changes_nothing() {
    let limiter = Limiter::builder(MemoryStore::new())
        .rule(Rule::gcra("by-code", Quota::per_hour(5)).key(key::given()))
        .policy(of("a", "10/hour", ""))
        .build()
        .expect("sound");
    let app = app(&limiter);
    assert_eq!(left(&app, "/", &[]).await, (200, Some(9)));
    for bad in [of("by-code", "1/hour", ""), of("a", "1/hour", "cost = \"weight\"\n")] {
        let error = limiter.set_policy(bad).expect_err("of no use").to_string();
        assert!(error.contains("by-code") || error.contains("weight"), "{error}");
    }
    assert_eq!(left(&app, "/", &[]).await, (200, Some(8)));
    assert_eq!(limiter.policy_status().map(|status| status.version()), Some(1));
    let plain =
        Limiter::builder(MemoryStore::new()).rule(Rule::gcra("a", Quota::per_hour(5)).key(key::given())).build();
    let plain = plain.expect("sound");
    assert!(plain.policy_status().is_none());
    let error = plain.set_policy(of("a", "1/hour", "")).expect_err("it has none").to_string();
    assert!(error.contains("LimiterBuilder::policy"), "{error}");
}

#[tokio::test]
async fn the_policy_says_which_quota_fields_there_are() {
    let limiter = Limiter::builder(MemoryStore::new()).policy(of("a", "10/hour", "")).build().expect("sound");
    let app = app(&limiter);
    let response = ask(&app, "/", &[]).await;
    assert!(field(&response, "x-ratelimit-limit").is_some() && field(&response, "ratelimit").is_some());
    let with = |headers: &str| {
        let rule = "[[rules]]\nname = \"a\"\nalgorithm = \"fixed_window\"\nquota = \"10/hour\"\nkey = \"global\"\n";
        policy(&format!("headers = {headers}\n{rule}"))
    };
    limiter.set_policy(with("[\"ietf\"]")).expect("sound");
    let response = ask(&app, "/", &[]).await;
    assert!(field(&response, "x-ratelimit-limit").is_none() && field(&response, "ratelimit").is_some());
    limiter.set_policy(with("[\"none\"]")).expect("sound");
    let response = ask(&app, "/", &[]).await;
    assert!(field(&response, "x-ratelimit-limit").is_none() && field(&response, "ratelimit").is_none());
}

#[tokio::test]
async fn places_taken_under_one_policy_are_given_back_under_the_next() {
    for backend in every_store() {
        let with = |limit: u64| {
            let rule = "[[rules]]\nname = \"a\"\nalgorithm = \"concurrency\"\nkey = \"given\"\nlimit";
            policy(&format!("{rule} = {limit}\n"))
        };
        let limiter = backend.builder().policy(with(2)).build().expect("sound");
        let (first, second) = (limiter.acquire([("a", "x")]).await, limiter.acquire([("a", "x")]).await);
        assert!(first.is_allowed() && second.is_allowed(), "{}", backend.name);
        limiter.set_policy(with(1)).expect("sound");
        assert!(limiter.acquire([("a", "x")]).await.is_refused(), "{}", backend.name);
        drop(first);
        drop(second);
        let free = async || {
            while limiter.usage("x").await.expect("an answer").rule("a").and_then(|rule| rule.used()) != Some(0) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), free()).await.expect("both places are free again");
        assert!(limiter.acquire([("a", "x")]).await.is_allowed(), "{}", backend.name);
    }
}

#[tokio::test]
async fn one_limiter_around_a_route_twice_counts_once_whatever_changes_between() {
    let limiter = Limiter::builder(MemoryStore::new()).policy(of("a", "10/hour", "")).build().expect("sound");
    let changed = limiter.clone();
    let between = axum::middleware::from_fn(move |request, next: axum::middleware::Next| {
        changed.set_policy(of("a", "20/hour", "")).expect("sound");
        next.run(request)
    });
    let app = app(&limiter).layer(between).layer(RateLimitLayer::new(limiter.clone()));
    let response = ask(&app, "/", &[]).await;
    // By the policy that it came under.
    assert_eq!(field(&response, "x-ratelimit-remaining"), Some("9"));
    // Once: of the twenty of the other policy this is the second.
    assert_eq!(left(&super::app(&limiter), "/", &[]).await, (200, Some(18)));
}

/// A body is read between the look for what must be read and the decision.
#[tokio::test]
async fn one_request_sees_one_policy_though_it_changes_while_its_body_is_read() {
    let by_code = Rule::fixed_window("by-code", Quota::per_hour(1_000)).key(key::global());
    let limiter = Limiter::builder(MemoryStore::new())
        .rule(by_code.cost_by_body(100, |_, body| body.len() as u64))
        .policy(of("a", "10/hour", ""))
        .build()
        .expect("sound");
    let app = axum::Router::new()
        .fallback(axum::routing::any(|| async { "hello" }))
        .layer(RateLimitLayer::new(limiter.clone()).read_bodies());
    let changed = limiter.clone();
    let body = futures_util::stream::once(async move {
        changed.set_policy(of("a", "20/hour", "")).expect("sound");
        Ok::<_, std::io::Error>("body")
    });
    let request = http::Request::post("/").body(axum::body::Body::from_stream(body)).expect("a request");
    let response = tower::ServiceExt::oneshot(app, request).await.expect("never");
    assert_eq!(field(&response, "ratelimit-policy"), Some("\"by-code\";q=1000;w=3600, \"a\";q=10;w=3600"));
    assert_eq!(limiter.policy_status().map(|status| status.version()), Some(2));
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_limit_asks_again_when_it_is_another() {
    let limiter = Limiter::builder(MemoryStore::new()).policy(of("a", "1/day", "")).build().expect("sound");
    let began = tokio::time::Instant::now();
    assert!(limiter.acquire([("a", "x")]).await.is_allowed());
    let worker = limiter.clone();
    let worker = tokio::spawn(async move { worker.acquire_when_ready([("a", "x")]).await.is_allowed() });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!worker.is_finished(), "it waits for tomorrow");
    limiter.set_policy(of("a", "2/day", "")).expect("sound");
    assert!(worker.await.expect("no panic"));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test]
async fn new_keys_are_counted_on_when_a_policy_changes() {
    let with = |quota: &str| {
        let rule = "[[rules]]\nname = \"a\"\nalgorithm = \"fixed_window\"\nkey = \"header:x-user\"\nmax_new_keys = 2";
        policy(&format!("{rule}\nquota = {quota:?}\n"))
    };
    let limiter = Limiter::builder(MemoryStore::new()).policy(with("100/hour")).build().expect("sound");
    let app = app(&limiter);
    let of = async |user: &str| left(&app, "/", &[("x-user", user)]).await;
    for (user, remaining) in [("a", 99), ("b", 99), ("one too many", 99), ("and another", 98)] {
        assert_eq!(of(user).await, (200, Some(remaining)), "{user}");
    }
    limiter.set_policy(with("200/hour")).expect("sound");
    assert_eq!(of("a").await, (200, Some(198)));
    assert_eq!(of("still too many").await, (200, Some(197)), "with the two before");
}

#[tokio::test]
async fn lists_stand_in_the_policy_or_in_code() {
    let lists = sluicegate::Lists::new();
    let builder = Limiter::builder(MemoryStore::new()).lists(&lists);
    let limiter = builder.policy(of("a", "10/hour", "")).build().expect("sound");
    let error = limiter.set_policy(of("a", "10/hour", "[lists]\nallow = { nets = [\"10.0.0.0/8\"] }\n"));
    let error = error.expect_err("in both").to_string();
    assert!(error.contains("in the policy and in code"), "{error}");
}

/// Notes what it is told of policies.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<PolicyEvent>>>, Arc<Notify>);

impl Observer for Told {
    fn policy(&self, event: &PolicyEvent) {
        self.0.lock().expect("no panic").push(event.clone());
        self.1.notify_one();
    }
}

/// A source that changes when the test says so.
struct Scripted(watch::Receiver<Result<Policy, SourceError>>);

impl PolicySource for Scripted {
    fn load(&self) -> sluicegate::policy::Loading<'_, Result<Policy, SourceError>> {
        let now = self.0.borrow().clone();
        Box::pin(async move { now })
    }

    fn changed(&self) -> sluicegate::policy::Loading<'_, ()> {
        let mut receiver = self.0.clone();
        Box::pin(async move {
            let _ = receiver.changed().await;
        })
    }
}

#[tokio::test]
async fn a_limiter_follows_its_source_and_says_once_what_it_cannot_use() {
    let told = Told::default();
    let builder = Limiter::builder(MemoryStore::new()).observer(told.clone());
    let limiter = builder.policy(of("a", "10/hour", "")).build().expect("sound");
    let (sender, receiver) = watch::channel(Ok(of("a", "10/hour", "")));
    let following = limiter.follow(Scripted(receiver));
    let events = |told: &Told| told.0.lock().expect("no panic").clone();
    let next = async || {
        tokio::time::timeout(Duration::from_secs(5), told.1.notified()).await.expect("it is told");
        events(&told).pop().expect("something")
    };

    let _ = sender.send_replace(Ok(of("a", "20/hour", "")));
    assert_eq!(next().await, PolicyEvent::Changed { version: 2 });
    for _ in 0..3 {
        let _ = sender.send_replace(Err(SourceError::new("the table is gone")));
    }
    assert_eq!(next().await, PolicyEvent::Refused { error: "the table is gone".into() });
    let _ = sender.send_replace(Ok(of("a", "30/hour", "cost = \"weight\"\n")));
    let PolicyEvent::Refused { error } = next().await else { panic!("it is of no use") };
    assert!(error.contains("weight"), "{error}");
    let status = limiter.policy_status().expect("it has one");
    assert_eq!((status.version(), status.refused()), (2, Some(&*error)));
    // One that is put in place by hand is as good.
    limiter.set_policy(of("a", "25/hour", "")).expect("sound");
    assert_eq!(next().await, PolicyEvent::Changed { version: 3 });
    assert_eq!(limiter.policy_status().and_then(|status| status.refused().map(str::to_owned)), None);
    let _ = sender.send_replace(Err(SourceError::new("the table is gone")));
    assert_eq!(next().await, PolicyEvent::Refused { error: "the table is gone".into() });
    // The last good one again: nothing changes, and nothing is wrong any more.
    let _ = sender.send_replace(Ok(of("a", "25/hour", "")));
    let good = async || {
        while limiter.policy_status().is_some_and(|status| status.refused().is_some()) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), good()).await.expect("it is good again");
    let _ = sender.send_replace(Ok(of("a", "40/hour", "")));
    assert_eq!(next().await, PolicyEvent::Changed { version: 4 });
    assert_eq!(events(&told).len(), 6);

    drop(following);
    tokio::task::yield_now().await;
    assert_eq!(sender.receiver_count(), 0, "whoever follows no more holds no source");
}

/// Who has no limit by a rule is not asked about by it, so not banned either.
#[tokio::test]
async fn bans_are_of_the_tiers_that_have_limits() {
    for backend in every_store() {
        let document = "[tier]\nby = \"header:x-plan\"\ndefault = \"free\"\n[tiers.free]\nr = \"1/hour\"\n[tiers.pro]\nr = \"unlimited\"\n\
                        [[rules]]\nname = \"r\"\nalgorithm = \"fixed_window\"\nkey = \"global\"\nban = { after = 2 }\n";
        let limiter = backend.builder().policy(policy(document)).build().expect("sound");
        let app = app(&limiter);
        let free = async || ask(&app, "/", &[]).await;
        let pro = async || ask(&app, "/", &[("x-plan", "pro")]).await.status().as_u16();
        assert_eq!(free().await.status(), 200, "{}", backend.name);
        for _ in 0..3 {
            assert_eq!((free().await.status().as_u16(), pro().await), (429, 200), "{}", backend.name);
        }
        limiter.settled().await;
        let problem = free().await.into_body();
        let problem = axum::body::to_bytes(problem, 10_000).await.expect("a body");
        assert!(String::from_utf8_lossy(&problem).contains("Banned"), "{problem:?}");
    }
}
