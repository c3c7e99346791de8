//! Bans that cannot be are said, when they are built or asked for.

use std::time::Duration;

use sluicegate::{Ban, Limiter, MemoryStore, Quota, RedisStore, Rule, StoreErrorKind, key};

use crate::bans::banning;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn what_cannot_be_banned_is_said() {
    let plain = Rule::gcra("plain", Quota::per_second(1)).key(key::given());
    let limiter = Limiter::builder(MemoryStore::new()).rule(banning()).rule(plain).build().expect("sound");
    let said = async |rule: &str, time: Duration| limiter.ban(rule, "k", time).await.expect_err("no ban");
    for (error, text) in [
        (said("plain", SECOND).await, "Rule::ban(..)"),
        (said("none", SECOND).await, "the limiter has r, plain"),
        (said("r", Duration::ZERO).await, "1 ms to 366 days"),
        (said("r", 367 * 86_400 * SECOND).await, "1 ms to 366 days"),
        (limiter.lift_ban("plain", "k").await.expect_err("no ban"), "has no ban"),
        (limiter.penalize([("none", "k")]).expect_err("no rule"), "the limiter has"),
        (limiter.strike([("none", "k")]).expect_err("no rule"), "the limiter has"),
    ] {
        assert_eq!(error.kind(), StoreErrorKind::Permanent);
        assert!(error.to_string().contains(text), "{error}");
    }
    // No key, nothing to ban.
    assert_eq!(limiter.ban("r", None::<String>, SECOND).await, Ok(()));
    assert_eq!(limiter.lift_ban("r", None::<String>).await, Ok(()));
}

#[test]
fn what_makes_no_sense_is_said_when_it_is_built() {
    let rule = || Rule::gcra("r", Quota::per_second(1)).key(key::given());
    let cell = || RedisStore::builder("redis://127.0.0.1:1").cell().build().expect("sound");
    let plain = || RedisStore::builder("redis://127.0.0.1:1").no_scripts().build().expect("sound");
    let window = Rule::fixed_window("r", Quota::per_second(1)).key(key::given());
    let unlimited = Rule::gcra("r", Quota::unlimited()).key(key::given());
    let nanos = Duration::from_nanos(1_500_000);
    let memory = || Limiter::builder(MemoryStore::new());
    for (builder, remedy) in [
        (memory().rule(rule().ban(Ban::after(0))), "give 1 to 1000000"),
        (memory().rule(rule().ban(Ban::after(1_000_001))), "give 1 to 1000000"),
        (memory().rule(rule().ban(Ban::after(1).within(Duration::ZERO))), "within 0ns"),
        (memory().rule(rule().ban(Ban::after(1).lasting(Duration::ZERO))), "lasting 0ns"),
        (memory().rule(rule().ban(Ban::after(1).lasting(nanos))), "whole milliseconds"),
        (memory().rule(rule().ban(Ban::after(1).lasting(Duration::MAX))), "366 days"),
        (memory().rule(rule().ban(Ban::after(1).forgotten_after(Duration::ZERO))), "forgotten_after 0ns"),
        (memory().rule(rule().ban(Ban::after(1).lasting(2 * SECOND).at_most(SECOND))), "give that or more"),
        (memory().rule(rule().ban(Ban::after(1).escalating(0.999))), "give 1 to 100"),
        (memory().rule(rule().ban(Ban::after(1).escalating(f64::NAN))), "give 1 to 100"),
        (memory().rule(rule().ban(Ban::after(1).escalating(f64::INFINITY))), "give 1 to 100"),
        (memory().rule(rule().ban(Ban::after(1).escalating(1.000_1))), "does not make it longer"),
        (memory().rule(unlimited.ban(Ban::after(1))), "give it a quota"),
        (Limiter::builder(cell()).rule(rule().ban(Ban::after(1))), "without cell()"),
        (Limiter::builder(plain()).rule(window.ban(Ban::after(1))), "without no_scripts()"),
    ] {
        let error = builder.build().expect_err("no sense");
        assert_eq!((error.rule_name(), error.field()), (Some("r"), "ban"), "{error}");
        assert!(error.to_string().contains(remedy), "{error}");
    }
    let many = |count: u32| {
        let named = |place: u32| Rule::gcra(&place.to_string(), Quota::per_second(1)).key(key::given());
        (0..count).fold(memory(), |builder, place| builder.rule(named(place).ban(Ban::after(1)))).build()
    };
    assert!(many(32).is_ok());
    assert!(many(33).expect_err("too many").to_string().contains("66 rules, bans"));
}
