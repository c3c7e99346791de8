//! What cannot be is said when it is built: which rule, which field, and what would be right.

use std::time::Duration;

use sluicegate::{BuildError, Clock, Limiter, MemoryStore, Quota, RedisStore, Rule, key};

fn build(rules: impl IntoIterator<Item = Rule>) -> BuildError {
    let builder = Limiter::builder(MemoryStore::new());
    rules.into_iter().fold(builder, sluicegate::LimiterBuilder::rule).build().expect_err("a fault")
}

#[test]
fn every_fault_names_the_rule_the_field_and_the_remedy() {
    let second = Duration::from_secs(1);
    let day = Duration::from_secs(86_400);
    let bucket = |quota| Rule::token_bucket("r", quota).key(key::global());
    let window = |quota| Rule::fixed_window("r", quota).key(key::global());
    for (rule, field, remedy) in [
        (bucket(Quota::per_second(0)), "quota", "give 1 to"),
        (bucket(Quota::per_second(u64::MAX)), "quota", "give 1 to"),
        (bucket(Quota::per(5, Duration::ZERO)), "quota", "1 ms to 366 days"),
        (bucket(Quota::per(5, Duration::from_micros(999))), "quota", "1 ms to 366 days"),
        (bucket(Quota::per(5, Duration::from_nanos(1_000_500))), "quota", "whole microseconds"),
        (bucket(Quota::per(5, day * 367)), "quota", "1 ms to 366 days"),
        (bucket(Quota::per(5, Duration::MAX)), "quota", "1 ms to 366 days"),
        (bucket(Quota::per_second(5).burst(0)), "burst", "give 1 to"),
        (bucket(Quota::per_second(5).burst(u64::MAX)), "burst", "give 1 to"),
        (bucket(Quota::per(999_999_937, day * 366)), "quota", "lower the burst"),
        // Full again in thousands of years: times to come would not be exact.
        (bucket(Quota::per(1, day * 366).burst(200_000)), "quota", "lower the burst"),
        (window(Quota::per_second(5).burst(9)), "burst", "drop .burst(..)"),
        (Rule::sliding_log("r", Quota::per_second(5).burst(9)).key(key::global()), "burst", "drop .burst(..)"),
        (Rule::sliding_counter("r", Quota::per_second(5).burst(9)).key(key::global()), "burst", "drop .burst(..)"),
        (Rule::sliding_log("r", Quota::per_day(1 << 23)).key(key::global()), "quota", "sliding counter"),
        (Rule::sliding_counter("r", Quota::per(1 << 40, day * 366)).key(key::global()), "quota", "token bucket"),
        (window(Quota::per_second(5)).offset(second), "offset", "less than one window"),
        (bucket(Quota::per_second(5)).offset(second / 2), "window", "only fixed windows"),
        (bucket(Quota::per_second(5)).from_first_request(), "window", "only fixed windows"),
        (bucket(Quota::per_second(5)).cost(0), "cost", "closure that returns 0"),
        (bucket(Quota::per_second(5)).cost((1 << 32) + 1), "cost", "give 1 to 4294967296"),
        (Rule::gcra("r", Quota::per_second(5)), "key", ".key(key::ip())"),
        (Rule::gcra("r", Quota::per_second(5)).key(key::header("no spaces")), "key", "header name"),
    ] {
        let error = build([rule]);
        assert_eq!((error.rule_name(), error.field()), (Some("r"), field), "{error}");
        assert!(error.to_string().starts_with(&format!("rule `r`: {field}: ")), "{error}");
        assert!(error.to_string().contains(remedy), "{error}");
    }
}

/// A faster clock would take for expired what is renewed in time.
#[test]
fn leases_are_longer_than_application_clocks_may_differ() {
    let build = |clock: Clock, millis| {
        let rule = Rule::concurrency("r", 5).lease(Duration::from_millis(millis)).key(key::global());
        Limiter::builder(MemoryStore::new()).clock(clock).rule(rule).build()
    };
    let second = Clock::application().tolerance(Duration::from_secs(1));
    for (clock, least, text) in [(Clock::application(), 300, "300ms or more"), (second, 3_000, "3s or more")] {
        let error = build(clock.clone(), least - 1).expect_err("too short");
        assert_eq!((error.rule_name(), error.field()), (Some("r"), "lease"), "{error}");
        assert!(error.to_string().contains(text), "{error}");
        assert!(build(clock, least).is_ok());
    }
    assert!(build(Clock::store(), 100).is_ok());
}

#[test]
fn names_must_be_header_strings_and_differ() {
    let named = |name: &str| Rule::gcra(name, Quota::per_second(1)).key(key::global());
    for name in ["", "tab\there", "line\nbreak", "naïve", &"x".repeat(65)] {
        assert_eq!(build([named(name)]).field(), "name", "{name:?}");
    }
    let twice = build([named("same"), named("other"), named("same")]);
    assert_eq!((twice.rule_name(), twice.field()), (Some("same"), "name"));
    // Odd but printable is fine.
    let odd = Limiter::builder(MemoryStore::new()).rule(named(r#" {"a"} \ , ;% "#)).build();
    assert!(odd.is_ok());
}

#[test]
fn a_limiter_needs_rules_and_a_plain_namespace() {
    assert_eq!(build([]).field(), "rules");
    for namespace in ["", "a:b", "{x}", "späti", &"x".repeat(65)] {
        let rule = Rule::gcra("r", Quota::per_second(1)).key(key::global());
        let error = Limiter::builder(MemoryStore::new()).namespace(namespace).rule(rule).build().expect_err("a fault");
        assert_eq!(error.field(), "namespace", "{namespace:?}");
    }
}

#[test]
fn a_bad_address_is_named_without_its_secret() {
    for url in [
        "",
        "http://127.0.0.1",
        "redis://",
        "127.0.0.1:6379",
        "redis://user:hunter2@host:notaport",
        "redis://h/notanumber",
    ] {
        let error = RedisStore::connect(url).expect_err(url);
        assert_eq!(error.field(), "url", "{url}");
        assert!(error.to_string().contains("redis://"), "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }
    let slow = RedisStore::builder("redis://127.0.0.1").deadline(Duration::ZERO).build().expect_err("no deadline");
    assert_eq!(slow.field(), "deadline");
    let none = RedisStore::builder("redis://127.0.0.1").connections(0).build().expect_err("no connections");
    assert_eq!(none.field(), "connections");
    assert!(!format!("{:?}", RedisStore::builder("redis://u:hunter2@h")).contains("hunter2"));
}

#[test]
fn what_a_cluster_cannot_do_is_named() {
    let cluster = || RedisStore::builder(["redis://127.0.0.1:1", "redis://127.0.0.1:2"]).cluster();
    for (builder, field, remedy) in [
        (cluster().peek_from_replicas("redis://127.0.0.1:3"), "peek_from_replicas", "peek_from_cluster_replicas"),
        (cluster().sentinel("mymaster"), "sentinel", "not both"),
    ] {
        let error = builder.build().expect_err("a Cluster cannot");
        assert_eq!(error.field(), field, "{error}");
        assert!(error.to_string().contains(remedy), "{error}");
    }
}

#[tokio::test]
async fn a_call_that_names_no_rule_fails_and_says_which_there_are() {
    let rule = Rule::gcra("mails", Quota::per_second(1)).key(key::given());
    let limiter = Limiter::builder(MemoryStore::new()).rule(rule).build().expect("sound");
    let decision = limiter.acquire([("mail", "k")]).await;
    let error = decision.failure().expect("no such rule");
    assert!(error.to_string().contains("\"mail\"") && error.to_string().contains("mails"), "{error}");
    assert!(limiter.reset([("mail", "k")]).await.is_err());
    let absent = limiter.acquire([("mail", None::<u8>)]).await;
    assert!(absent.failure().is_some(), "a misspelt rule is one also without a key");
    let absent = limiter.acquire([("mails", None::<u8>)]).await;
    assert!(absent.is_allowed() && absent.failure().is_none() && absent.standings().next().is_none());
    let twice = limiter.acquire([("mails", "k"), ("mails", "l")]).await;
    assert!(twice.failure().is_some_and(|error| error.to_string().contains("twice")));
    assert_eq!(limiter.reset(sluicegate::Call::new()).await, Ok(()));
}
