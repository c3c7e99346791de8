//! What holds for every algorithm on every store: all or nothing, stepping clocks, keys that go by themselves, rules that
//! change their algorithm. What a changed quota leaves is a table, and stands with the scenarios.

use std::{collections::BTreeSet, time::Duration};

use redis::{FromRedisValue, aio::MultiplexedConnection};
use sluicegate::{Call, Clock, Decision, Limiter, LimiterBuilder, ManualClock, MemoryStore, Quota};

use crate::{
    scenarios::{KINDS, capacity, longest_wait, rule},
    support::{
        server::{Server, VERSIONS, Version},
        stores::{BEGIN, Backend, every_store, patient},
    },
};

const HOUR: Duration = Duration::from_secs(3_600);

fn cost(name: &'static str, units: u64) -> Call<'static> {
    Call::new().key(name, "k").cost(units)
}

/// Asks for a decision; a store that gives none would let everything pass.
async fn acquire(limiter: &Limiter, call: Call<'_>) -> Decision {
    let decision = limiter.acquire(call).await;
    assert!(decision.failure().is_none(), "{decision:?}");
    decision
}

/// Everything about how a call would stand.
async fn look(limiter: &Limiter, call: Call<'_>) -> String {
    let decision = limiter.peek(call).await;
    assert!(decision.failure().is_none(), "{decision:?}");
    format!("{decision:?}")
}

/// Units left under the rule.
async fn remaining(limiter: &Limiter, name: &'static str) -> u64 {
    limiter.peek(cost(name, 0)).await.standing(name).expect("a standing").remaining()
}

/// Spends one unit at a time until that is refused; answers how many there were.
async fn drain(limiter: &Limiter, name: &'static str) -> u64 {
    let mut units = 0;
    while acquire(limiter, cost(name, 1)).await.is_allowed() {
        units += 1;
        assert!(units < 10_000, "nothing is ever refused");
    }
    units
}

#[tokio::test]
async fn a_refusal_by_the_last_rule_spends_nothing_in_the_others() {
    for backend in every_store() {
        for (place, kind) in KINDS.into_iter().enumerate() {
            let clock = ManualClock::new(BEGIN);
            let next = KINDS[(place + 1) % KINDS.len()];
            let rules = [(next, "one"), (kind, "two"), (kind, "last")]
                .map(|(kind, name)| rule(kind, name, Quota::per_minute(if name == "last" { 1 } else { 9 })));
            let limiter = backend.limiter(&clock, rules);
            // A key of their own for each rule, so that nothing is shared by accident.
            let call =
                || Call::new().key("one", format!("1{kind}")).key("two", format!("2{kind}")).cost(3).key("last", kind);
            assert!(acquire(&limiter, call()).await.is_allowed());
            let before = look(&limiter, call()).await;
            for _ in 0..3 {
                let refused = acquire(&limiter, call()).await;
                let left = refused.standings().map(|standing| standing.remaining()).collect::<Vec<_>>();
                assert!(refused.is_refused() && left == [8, 6, 0], "{kind} on {}: {refused:?}", backend.name);
                assert!(refused.standing("last").is_some_and(|last| last.is_refused()));
            }
            assert_eq!(before, look(&limiter, call()).await, "{kind} on {}", backend.name);
        }
    }
}

/// A quota, a pause, and a quota under which what was spent matters for longer.
fn slower() -> [(Quota, Duration, Quota); 3] {
    let per = |hours| Quota::per(10, hours * HOUR);
    [
        (per(1), Duration::ZERO, per(900)),
        // The oldest of a log leaves long before its key would go, and the newest long after.
        (per(10), 9 * HOUR, per(15)),
        // A bucket of more at the same rate takes longer to fill.
        (per(1), Duration::ZERO, per(1).burst(9_000)),
    ]
}

/// Spends one unit and after the pause the rest; then one more is asked for under the slower quota, which few admit.
async fn slowed_down(backend: &Backend, kind: &'static str, case: (Quota, Duration, Quota)) -> (Limiter, ManualClock) {
    let (old, pause, new) = case;
    let clock = ManualClock::new(BEGIN);
    let quick = backend.limiter(&clock, [rule(kind, kind, old)]);
    assert!(acquire(&quick, cost(kind, 1)).await.is_allowed());
    clock.advance(pause);
    drain(&quick, kind).await;
    let slow = backend.limiter(&clock, [rule(kind, kind, new)]);
    let _ = acquire(&slow, cost(kind, 1)).await;
    (slow, clock)
}

#[tokio::test]
async fn room_is_not_made_of_what_a_slower_quota_still_needs() {
    for (case, kind) in slower().into_iter().flat_map(|case| KINDS.map(|kind| (case, kind))) {
        let (slow, clock) = slowed_down(&Backend::memory(), kind, case).await;
        let needed = slow.peek(cost(kind, capacity(kind, case.2))).await.retry_after().expect("a wait");
        clock.advance(needed - Duration::from_micros(1));
        // Other keys come, and the store makes room.
        for other in 0..2_000 {
            assert!(acquire(&slow, [(kind, other)].into()).await.is_allowed());
        }
        let left = remaining(&slow, kind).await;
        assert!(left < capacity(kind, case.2), "{kind}: a fresh burst of {}", case.2);
    }
}

#[tokio::test]
async fn a_key_lives_as_long_as_a_slower_quota_needs_it() {
    for version in VERSIONS {
        for (case, kind) in slower().into_iter().flat_map(|case| KINDS.map(|kind| (case, kind))) {
            let backend = Backend::redis(version);
            let (slow, _) = slowed_down(&backend, kind, case).await;
            let needed = slow.peek(cost(kind, capacity(kind, case.2))).await.retry_after().expect("a wait");
            let ttl = Keys::of(version, &backend).await.ttl(kind).await;
            let context = format!("{kind} on {} after {}", backend.name, case.2);
            assert!(ttl >= needed, "{context}: goes in {ttl:?}, needed for {needed:?}");
        }
    }
}

#[tokio::test]
async fn a_stepping_clock_blocks_nobody_for_long_and_frees_little() {
    let windows = [Duration::from_secs(10), HOUR, 24 * HOUR];
    for backend in every_store() {
        for (kind, window) in KINDS.into_iter().flat_map(|kind| windows.map(|window| (kind, window))) {
            let quota = Quota::per(5, window).burst(5);
            let longest = longest_wait(kind, quota);
            for (number, steps) in [&[-1i32][..], &[1], &[-1, 1], &[1, -1], &[-1, -1, 1, 1]].into_iter().enumerate() {
                let name = format!("{kind}-{number}-{}", window.as_secs());
                let clock = ManualClock::new(BEGIN);
                let limiter = backend.limiter(&clock, [rule(kind, &name, quota)]);
                let spend = async |units| acquire(&limiter, Call::new().key(&name, "k").cost(units)).await;
                assert!(spend(5).await.is_allowed());
                let mut now = BEGIN;
                for step in steps {
                    let context = format!("{kind} of {quota} on {}: {steps:?}", backend.name);
                    now = if *step > 0 { now + HOUR } else { now - HOUR };
                    clock.set(now);
                    let mut freed = 0;
                    while spend(1).await.is_allowed() {
                        freed += 1;
                    }
                    // What was used stays used when the clock goes back.
                    assert!(freed <= if *step > 0 { 5 } else { 0 }, "{context}: freed {freed}");
                    let wait = spend(5).await.retry_after().expect(&context);
                    assert!(wait <= longest, "{context}: waits {wait:?}");
                }
                let wait = spend(5).await.retry_after().expect("a wait");
                clock.advance(wait);
                assert!(spend(5).await.is_allowed(), "{name} on {}: refused after {wait:?}", backend.name);
            }
        }
    }
}

/// Looks into a server.
struct Keys {
    connection: MultiplexedConnection,
    namespace: String,
    version: Version,
}

impl Keys {
    async fn of(version: Version, backend: &Backend) -> Keys {
        Keys { connection: version.shared().connection().await, namespace: backend.namespace.clone(), version }
    }

    async fn ask<T: FromRedisValue>(&mut self, command: &str, key: &str) -> T {
        redis::cmd(command).arg(key).query_async(&mut self.connection).await.expect(command)
    }

    /// What the limiter must have named it.
    fn name(&self, rule: &str) -> String {
        format!("{}:v1:{{k}}:{rule}", self.namespace)
    }

    async fn all(&mut self) -> BTreeSet<String> {
        let pattern = format!("{}:*", self.namespace);
        self.ask("KEYS", &pattern).await
    }

    async fn ttl(&mut self, rule: &str) -> Duration {
        let millis: i64 = self.ask("PTTL", &self.name(rule)).await;
        Duration::from_millis(u64::try_from(millis).expect("a TTL"))
    }

    /// The value, and when it goes where the server can tell; Redis 6.2 cannot.
    async fn value(&mut self, rule: &str) -> (Vec<u8>, i64) {
        let name = self.name(rule);
        let goes = if self.version == Version::Redis6 { 0 } else { self.ask("PEXPIRETIME", &name).await };
        (self.ask("DUMP", &name).await, goes)
    }
}

#[tokio::test]
async fn a_refusal_leaves_keys_as_they_were_and_every_key_goes_by_itself() {
    for version in VERSIONS {
        let backend = Backend::redis(version);
        let mut keys = Keys::of(version, &backend).await;
        let clock = ManualClock::new(BEGIN);
        // Windows longer than the hour that injected time adds to every TTL, or that would hide one too short.
        for quota in [Quota::per(5, 3 * HOUR), Quota::per(7, Duration::from_micros(10_800_000_019))] {
            let limiter = backend.limiter(&clock, KINDS.map(|kind| rule(kind, kind, quota)));
            for kind in KINDS {
                let context = format!("{kind} of {quota} on {}", backend.name);
                limiter.reset(cost(kind, 0)).await.expect("a reset");
                let never = acquire(&limiter, cost(kind, 99)).await;
                assert!(never.can_never_fit() && !keys.all().await.contains(&keys.name(kind)), "{context}: {never:?}");
                drain(&limiter, kind).await;
                clock.advance(Duration::from_micros(1));
                let (value, ttl) = (keys.value(kind).await, keys.ttl(kind).await);
                for units in [1, 3, 5, 99] {
                    assert!(acquire(&limiter, cost(kind, units)).await.is_refused(), "{context}");
                    assert!(limiter.peek(cost(kind, units)).await.is_refused(), "{context}");
                    assert_eq!(value, keys.value(kind).await, "{context}: a refusal wrote");
                    assert!(keys.ttl(kind).await <= ttl, "{context}: a refusal made the key live longer");
                }
                // It outlives what it says, by that hour and no more, and is on its way.
                let matters = match kind {
                    "sliding_counter" => 2 * quota.window(),
                    "fixed_window" => limiter.peek(cost(kind, 1)).await.retry_after().expect("a wait"),
                    _ => quota.window(),
                };
                let bounds = matters..=matters + HOUR + Duration::from_millis(1);
                assert!(bounds.contains(&ttl), "{context}: goes in {ttl:?}, not {bounds:?}");
                while keys.ttl(kind).await >= ttl {}
            }
        }
        let expected: BTreeSet<String> = KINDS.map(|kind| keys.name(kind)).into();
        assert_eq!(keys.all().await, expected, "{}: other keys", backend.name);

        // By the server's own clock the margin is a second.
        let builder = backend.builder().namespace(format!("{}-own", backend.namespace));
        let limiter = KINDS.iter().fold(builder, |builder, kind| builder.rule(rule(kind, kind, Quota::per_minute(5))));
        let limiter = limiter.build().expect("sound rules");
        keys.namespace += "-own";
        for kind in KINDS {
            assert!(acquire(&limiter, cost(kind, 5)).await.is_allowed());
            let most = Duration::from_secs(if kind == "sliding_counter" { 121 } else { 61 });
            let ttl = keys.ttl(kind).await;
            assert!(!ttl.is_zero() && ttl <= most, "{kind} on {}: goes in {ttl:?}", backend.name);
        }
    }
}

#[tokio::test]
async fn namespaces_keep_counts_apart() {
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        for kind in KINDS {
            let of = |namespace: &str| {
                let builder = backend.builder().namespace(format!("{}{namespace}", backend.namespace));
                let builder = builder.clock(Clock::manual(clock.clone()));
                builder.rule(rule(kind, kind, Quota::per_minute(3))).build().expect("a sound rule")
            };
            let (one, same, other) = (of("-one"), of("-one"), of("-two"));
            assert_eq!(drain(&one, kind).await, 3);
            assert_eq!(remaining(&same, kind).await, 0, "{kind} on {}: not shared", backend.name);
            assert_eq!(remaining(&other, kind).await, 3, "{kind} on {}: shared", backend.name);
            other.reset(cost(kind, 0)).await.expect("a reset");
            assert_eq!(remaining(&one, kind).await, 0, "{kind} on {}: reset by another", backend.name);
        }
    }
}

#[tokio::test]
async fn a_rule_that_changes_its_algorithm_starts_afresh() {
    let quota = Quota::per_minute(4);
    for backend in every_store() {
        let pairs = KINDS.into_iter().flat_map(|from| KINDS.map(|to| (from, to)));
        for (from, to) in pairs.filter(|(from, to)| from != to) {
            let clock = ManualClock::new(BEGIN);
            let name = format!("{from}-{to}");
            // There, and back again: both find what the other has left.
            for (turn, kind) in [from, to, from].into_iter().enumerate() {
                let context = format!("{name} on {}: {kind}, turn {turn}", backend.name);
                let limiter = backend.limiter(&clock, [rule(kind, &name, quota)]);
                let spend = async |units| acquire(&limiter, Call::new().key(&name, "k").cost(units)).await;
                let first = spend(4).await;
                // Fixed windows of both kinds are one algorithm, and go on.
                let goes_on = turn > 0 && [from, to].iter().all(|kind| ["fixed_window", "first_window"].contains(kind));
                assert_eq!(first.is_refused(), goes_on, "{context}: {first:?}");
                let refused = spend(4).await;
                let wait = refused.retry_after().unwrap_or_else(|| panic!("{context}: {refused:?}"));
                assert!(wait <= longest_wait(kind, quota), "{context}: waits {wait:?}");
                clock.advance(wait);
                assert!(spend(4).await.is_allowed(), "{context}: refused after {wait:?}");
                if let Some(version) = backend.version() {
                    let mut keys = Keys::of(version, &backend).await;
                    let stored: String = keys.ask("TYPE", &keys.name(&name)).await;
                    assert_eq!(stored, if kind == "sliding_log" { "list" } else { "string" }, "{context}");
                    assert!(!keys.ttl(&name).await.is_zero(), "{context}");
                }
            }
        }
    }
}

/// Sixty-four rules, and a call under all of them.
fn many(builder: LimiterBuilder, names: &[String]) -> Limiter {
    let kinds = KINDS.iter().cycle();
    let builder = names.iter().zip(kinds).fold(builder, |builder, (name, kind)| {
        builder.rule(rule(kind, name, Quota::per_minute(if name == "r41" { 2 } else { 9 })))
    });
    builder.build().expect("64 rules")
}

#[tokio::test]
async fn sixty_four_rules_are_one_call() {
    let names: Vec<String> = (0..64).map(|place| format!("r{place}")).collect();
    let call = || names.iter().fold(Call::new(), |call, name| call.key(name, "k"));
    for backend in every_store() {
        let limiter = many(backend.builder().clock(Clock::manual(ManualClock::new(BEGIN))), &names);
        for left in [8, 7, 7, 7] {
            let decision = acquire(&limiter, call()).await;
            assert_eq!(decision.standings().count(), 64, "{}: {decision:?}", backend.name);
            for standing in decision.standings() {
                let expected = if standing.rule() == "r41" { left - 7 } else { left };
                assert_eq!(standing.remaining(), expected, "{} on {}", standing.rule(), backend.name);
            }
        }
        let last = acquire(&limiter, call()).await;
        assert!(last.standings().all(|standing| standing.is_refused() == (standing.rule() == "r41")), "{last:?}");
    }
    for version in VERSIONS {
        // A server of its own, to count what it is asked.
        let server = Server::start(version);
        let limiter = many(Limiter::builder(patient(&server.url())), &names);
        let mut connection = server.connection().await;
        let _ = acquire(&limiter, call()).await; // sends the script
        let _: () = redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut connection).await.expect("CONFIG");
        let _ = acquire(&limiter, call()).await;
        let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.expect("INFO");
        assert!(stats.contains("cmdstat_evalsha:calls=1,") && !stats.contains("cmdstat_eval:"), "{version:?}: {stats}");
    }
}

#[tokio::test]
async fn a_cost_of_zero_is_free() {
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        let limiter = backend.limiter(&clock, KINDS.map(|kind| rule(kind, kind, Quota::per_minute(2))));
        for kind in KINDS {
            let context = format!("{kind} on {}", backend.name);
            let free = acquire(&limiter, cost(kind, 0)).await;
            assert!(free.is_allowed(), "{context}: {free:?}");
            assert!(free.standing(kind).is_some_and(|free| free.remaining() == 2 && free.reset_after().is_zero()));
            if let Some(version) = backend.version() {
                let mut keys = Keys::of(version, &backend).await;
                assert!(!keys.all().await.contains(&keys.name(kind)), "{context}: wrote a key");
            }
            assert_eq!(drain(&limiter, kind).await, 2);
            let before = look(&limiter, cost(kind, 0)).await;
            assert_eq!(before, format!("{:?}", acquire(&limiter, cost(kind, 0)).await), "{context}: not free");
            assert_eq!(before, look(&limiter, cost(kind, 0)).await, "{context}: spent something");
            // Also when more is used than there is.
            let lower = backend.limiter(&clock, [rule(kind, kind, Quota::per_minute(1))]);
            assert!(acquire(&lower, cost(kind, 0)).await.is_allowed(), "{context}: not free under a lower quota");
        }
    }
    let store = MemoryStore::new();
    let builder = Limiter::builder(store.clone()).rule(rule("gcra", "r", Quota::per_minute(2)));
    let limiter = builder.build().expect("a sound rule");
    assert!(acquire(&limiter, cost("r", 0)).await.is_allowed());
    assert_eq!(store.keys(), 0, "a free request took room");
}
