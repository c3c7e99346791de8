//! Bans: so many strikes in a window, each ban longer than the one before, forgotten by and by; alike on every store.

use std::time::Duration;

use sluicegate::{
    Ban, Call, Clock, Decision, Limiter, ManualClock, MemoryStore, Quota, Resilient, Rule, StoreErrorKind, StoreEvent,
    key,
    store::{Ask, Change, Id, Line, Purpose, Scope, Settlement, Store, Time, Wait},
};

use tokio::task::JoinSet;

use crate::{
    support::{
        events::Events,
        fault_proxy::{Counts, FaultProxy},
        flaky::{Flaky, Mood},
        server::{Server, VERSIONS, Version},
        stores::{BEGIN, Backend, bare, every_store, namespace, patient},
    },
    traces::{NAMES, rule},
};

const SECOND: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_micros(1);

/// One request a second, and a ban of ten seconds after three refusals within five; then of 20, 40 and 50.
pub fn banning() -> Rule {
    Rule::fixed_window("r", Quota::per_second(1))
        .key(key::given())
        .ban(Ban::after(3).within(5 * SECOND).lasting(10 * SECOND).at_most(50 * SECOND).forgotten_after(100 * SECOND))
}

/// The decision, after whatever it leads to has reached the store.
async fn ask(limiter: &Limiter, key: &str) -> Decision {
    let decision = limiter.acquire([("r", key)]).await;
    assert!(decision.failure().is_none(), "{:?}", decision.failure());
    limiter.settled().await;
    decision
}

/// Refused until it is banned, which takes three refusals.
async fn earn(limiter: &Limiter, key: &str) {
    assert!(ask(limiter, key).await.is_allowed());
    for _ in 0..3 {
        let refused = ask(limiter, key).await;
        assert!(refused.is_refused() && !refused.is_banned(), "{refused:?}");
    }
}

fn until(decision: &Decision) -> Duration {
    assert!(decision.is_banned() && decision.is_refused(), "{decision:?}");
    assert_eq!(decision.bans().map(|(rule, _)| rule).collect::<Vec<_>>(), ["r"]);
    decision.bans().map(|(_, time)| time).max().expect("a ban")
}

#[tokio::test]
async fn bans_escalate_and_are_forgotten() {
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        let limiter = backend.limiter(&clock, [banning()]);
        let mut now = BEGIN;
        for length in [10, 20, 40, 50, 50] {
            earn(&limiter, "k").await;
            let length = length * SECOND;
            assert_eq!(until(&ask(&limiter, "k").await), length, "{}", backend.name);
            assert!(ask(&limiter, "another").await.is_allowed(), "{}", backend.name);
            // Asking meanwhile makes it no longer, and a tick before its end it is still there.
            clock.set(now + length / 2);
            let decision = ask(&limiter, "k").await;
            assert_eq!((until(&decision), decision.retry_after()), (length / 2, Some(length / 2)), "{}", backend.name);
            // The quota has come back, and was not spent.
            assert!(!decision.standing("r").expect("it applies").is_refused(), "{}", backend.name);
            clock.set(now + length - TICK);
            assert_eq!(until(&ask(&limiter, "k").await), TICK, "{}", backend.name);
            now += length;
            clock.set(now);
        }
        // Three times count. After 100 s one less does, so the next lasts as long as the third.
        now += 199 * SECOND;
        clock.set(now);
        earn(&limiter, "k").await;
        assert_eq!(until(&ask(&limiter, "k").await), 40 * SECOND, "{}", backend.name);
        now += 40 * SECOND + 400 * SECOND;
        clock.set(now);
        earn(&limiter, "k").await;
        assert_eq!(until(&ask(&limiter, "k").await), 10 * SECOND, "{}", backend.name);
    }
}

#[tokio::test]
async fn strikes_of_a_window_that_has_ended_do_not_count() {
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        let limiter = backend.limiter(&clock, [banning()]);
        for window in 0..3 {
            clock.set(BEGIN + window * 5 * SECOND);
            assert!(ask(&limiter, "k").await.is_allowed());
            for _ in 0..2 {
                assert!(!ask(&limiter, "k").await.is_banned(), "{}", backend.name);
            }
            assert!(!ask_peek(&limiter).await.is_banned(), "{}", backend.name);
        }
    }
}

/// Not a strike, however often.
async fn ask_peek(limiter: &Limiter) -> Decision {
    for _ in 0..5 {
        assert!(limiter.peek([("r", "k")]).await.is_refused());
    }
    limiter.settled().await;
    limiter.peek([("r", "k")]).await
}

#[tokio::test]
async fn a_ban_is_lifted_and_made_by_hand() {
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        let limiter = backend.limiter(&clock, [banning()]);
        earn(&limiter, "k").await;
        until(&ask(&limiter, "k").await);
        limiter.lift_ban("r", "k").await.expect("an answer");
        // The quota is as it was, and so are the bans: the next is the first.
        let decision = ask(&limiter, "k").await;
        assert!(decision.is_refused() && !decision.is_banned(), "{}: {decision:?}", backend.name);
        clock.set(BEGIN + 20 * SECOND);
        earn(&limiter, "k").await;
        assert_eq!(until(&ask(&limiter, "k").await), 10 * SECOND, "{}", backend.name);
        // What resets the key lifts the ban too.
        limiter.reset([("r", "k")]).await.expect("an answer");
        assert!(ask(&limiter, "k").await.is_allowed(), "{}", backend.name);

        limiter.ban("r", "k", 100 * SECOND).await.expect("an answer");
        assert_eq!(until(&ask(&limiter, "k").await), 100 * SECOND, "{}", backend.name);
        limiter.ban("r", "k", 7 * SECOND).await.expect("an answer");
        assert_eq!(until(&ask(&limiter, "k").await), 100 * SECOND, "{}", backend.name);
        limiter.ban("r", "k", 400 * SECOND).await.expect("an answer");
        assert_eq!(until(&ask(&limiter, "k").await), 400 * SECOND, "{}", backend.name);
        clock.set(BEGIN + 420 * SECOND);
        earn(&limiter, "k").await;
        assert_eq!(until(&ask(&limiter, "k").await), 10 * SECOND, "{}", backend.name);
    }
}

/// A ban refuses before anything is charged, and nothing is charged under its neighbours either; whoever is refused by them is not
/// struck.
#[tokio::test]
async fn a_ban_is_part_of_the_one_decision() {
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        let others = NAMES.map(|name| rule(name, Quota::per_hour(100), 100));
        let strict = Rule::gcra("strict", Quota::per_hour(1)).key(key::given()).ban(Ban::after(2));
        let limiter = backend.limiter(&clock, others.into_iter().chain([banning(), strict]));
        let call = |strict: Option<&'static str>| {
            let call = NAMES.iter().fold(Call::new(), |call, name| call.key(name, *name));
            call.key("r", "k").key("strict", strict)
        };
        let acquire = async |strict| {
            let decision = limiter.acquire(call(strict)).await;
            assert!(decision.failure().is_none(), "{}: {:?}", backend.name, decision.failure());
            limiter.settled().await;
            decision
        };
        assert!(acquire(Some("s")).await.is_allowed());
        clock.set(BEGIN + SECOND);
        // Refused by the strict one alone, which is no strike against others.
        for _ in 0..2 {
            let decision = acquire(Some("s")).await;
            assert!(decision.is_refused() && !decision.is_banned(), "{}: {decision:?}", backend.name);
        }
        let decision = acquire(Some("s")).await;
        assert_eq!(decision.bans().collect::<Vec<_>>(), [("strict", 600 * SECOND)], "{}", backend.name);
        limiter.ban("r", "k", 1_000 * SECOND).await.expect("an answer");
        let decision = acquire(Some("s")).await;
        assert_eq!(decision.bans().count(), 2, "{}", backend.name);
        // The strict quota itself takes longer.
        assert_eq!(decision.retry_after(), Some(3_599 * SECOND), "{}", backend.name);
        let decision = acquire(None).await;
        assert_eq!(decision.retry_after(), Some(1_000 * SECOND), "{}", backend.name);
        for standing in decision.standings().filter(|standing| standing.rule() != "r") {
            assert_eq!(standing.remaining(), 99, "{} {}", backend.name, standing.rule());
        }
    }
}

/// However many there are: scripts keep their names in variables up to a number, and beyond it in a table.
#[tokio::test]
async fn any_number_of_bans_is_one_decision() {
    for backend in every_store().into_iter().filter(|backend| !backend.is_memory()) {
        for count in [1, 5, 6, 14] {
            let names: Vec<String> = (0..count).map(|place| format!("r{place}")).collect();
            let rules = names.iter().map(|name| {
                let rule = Rule::sliding_log(name, Quota::per_minute(2)).key(key::given()).reserve(0.5, |_| false);
                rule.ban(Ban::after(1).lasting(3 * SECOND))
            });
            let limiter = backend.limiter(&ManualClock::new(BEGIN), rules);
            let call = || names.iter().fold(Call::new(), |call, name| call.key(name, count));
            let place = format!("{}, {count}", backend.name);
            for (allowed, bans) in [(true, 0), (false, 0), (false, count)] {
                let decision = limiter.acquire(call()).await;
                assert!(decision.failure().is_none(), "{place}: {:?}", decision.failure());
                assert_eq!((decision.is_allowed(), decision.bans().count()), (allowed, bans), "{place}");
                limiter.settled().await;
            }
            limiter.reset(call()).await.expect("an answer");
        }
    }
}

/// Places are not held by those who are banned.
#[tokio::test]
async fn a_concurrency_rule_has_bans_too() {
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        let rule = Rule::concurrency("r", 2).key(key::given()).ban(Ban::after(2).lasting(10 * SECOND));
        let limiter = backend.limiter(&clock, [rule]);
        let (one, other) = (ask(&limiter, "k").await, ask(&limiter, "k").await);
        assert!(one.is_allowed() && other.is_allowed(), "{}", backend.name);
        for _ in 0..2 {
            assert!(!ask(&limiter, "k").await.is_banned());
        }
        let decision = ask(&limiter, "k").await;
        assert_eq!(until(&decision), 10 * SECOND, "{}", backend.name);
        assert!(decision.permit().is_none());
        clock.set(BEGIN + 10 * SECOND);
        let decision = ask(&limiter, "k").await;
        assert!(decision.is_refused() && !decision.is_banned(), "{}", backend.name);
    }
}

/// Also where nobody is refused and nothing is answered.
#[tokio::test]
async fn an_application_counts_strikes_of_its_own() {
    for backend in every_store() {
        let limiter = backend.limiter(&ManualClock::new(BEGIN), [banning()]);
        for _ in 0..3 {
            assert!(!limiter.peek([("r", "k")]).await.is_banned(), "{}", backend.name);
            limiter.strike([("r", "k")]).expect("a known rule");
            limiter.settled().await;
        }
        assert_eq!(until(&ask(&limiter, "k").await), 10 * SECOND, "{}", backend.name);
    }
}

/// What a shadow would have refused is no strike, and its ban refuses nobody; enforced, it does.
#[tokio::test]
async fn the_ban_of_a_shadow_is_a_shadow() {
    for backend in every_store() {
        let limiter = backend.limiter(&ManualClock::new(BEGIN), [banning()]);
        limiter.set_shadow(true);
        for _ in 0..9 {
            let decision = ask(&limiter, "k").await;
            assert!(decision.is_allowed() && !decision.is_banned(), "{}: {decision:?}", backend.name);
        }
        limiter.ban("r", "banned", 100 * SECOND).await.expect("an answer");
        assert!(ask(&limiter, "banned").await.is_allowed(), "{}", backend.name);
        limiter.set_shadow(false);
        let decision = ask(&limiter, "k").await;
        assert!(decision.is_refused() && !decision.is_banned(), "{}: {decision:?}", backend.name);
        assert_eq!(until(&ask(&limiter, "banned").await), 100 * SECOND, "{}", backend.name);
    }
}

/// A part of the store is away, and a ban in another refuses all the same.
#[tokio::test]
async fn a_ban_holds_where_another_part_of_the_store_is_away() {
    let store = Flaky::default();
    let other = Rule::gcra("other", Quota::per_second(5)).key(key::given()).ban(Ban::after(3));
    let builder = Limiter::builder(Resilient::new(store.clone())).clock(Clock::manual(ManualClock::new(BEGIN)));
    let limiter = builder.rule(other).rule(banning()).build().expect("sound");
    limiter.ban("r", "2", 100 * SECOND).await.expect("an answer");
    store.set_part(1, Mood::Fails(StoreErrorKind::Unavailable));
    let call = || Call::new().key("other", "1").key("r", "2");
    let decision = limiter.acquire(call()).await;
    assert!(decision.failure().is_some());
    assert_eq!(decision.bans().collect::<Vec<_>>(), [("r", 100 * SECOND)], "{decision:?}");
    store.set_part(1, Mood::Well);
    store.set_part(2, Mood::Fails(StoreErrorKind::Unavailable));
    let decision = limiter.acquire(call()).await;
    assert!(decision.failure().is_some() && decision.is_allowed(), "{decision:?}");
}

/// A clock that steps back blocks nobody for longer than the ban was long, and brings none back that is over and counted on.
#[tokio::test]
async fn a_clock_that_steps_back_blocks_nobody_for_longer() {
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        let limiter = backend.limiter(&clock, [banning()]);
        earn(&limiter, "k").await;
        clock.set(BEGIN - 3_600 * SECOND);
        assert_eq!(until(&ask(&limiter, "k").await), 10 * SECOND, "{}", backend.name);
        // The promise holds: that was written down.
        clock.set(BEGIN - 3_590 * SECOND - TICK);
        assert_eq!(until(&ask(&limiter, "k").await), TICK, "{}", backend.name);
        clock.set(BEGIN - 3_590 * SECOND);
        assert!(!ask(&limiter, "k").await.is_banned(), "{}", backend.name);
    }
}

/// Each strike once, also in one batch and where the reply was lost; and every key has an end.
#[tokio::test]
async fn a_strike_counts_once() {
    let limit = Ban::after(3).check("r").expect("sound");
    let scope = Scope::new(&namespace(), "r").for_ban();
    let line = Line::new(&scope, b"k", &limit, 1);
    let time = Time::Injected(BEGIN.as_micros() as u64);
    let memory: Vec<Box<dyn Store>> = vec![Box::new(MemoryStore::new())];
    let servers = VERSIONS.map(|version| -> Box<dyn Store> { Box::new(patient(&version.shared().url())) });
    for store in memory.into_iter().chain(servers) {
        let banned = async || {
            let lines = [Line { cost: 0, ..line }];
            let ask = Ask { lines: &lines, purpose: Purpose::Spend, time };
            store.acquire(&ask).await.expect("an answer").verdicts()[0]
        };
        let strike = Settlement { line, id: Id::random(), change: Change::Owe };
        for _ in 0..3 {
            let outcomes = store.settle(&[strike, strike], time).await;
            assert!(outcomes.iter().all(Result::is_ok));
            assert_eq!((banned().await.wait, banned().await.remaining), (Wait::None, 2), "{store:?}");
        }
        let more = [Settlement { id: Id::random(), ..strike }, Settlement { id: Id::random(), ..strike }];
        store.settle(&more, time).await;
        assert_eq!(banned().await.wait, Wait::Micros(600_000_000), "{store:?}");
        store.reset(&[line]).await.expect("an answer");
    }
    for version in VERSIONS {
        let store = patient(&version.shared().url());
        store
            .settle(&[Settlement { line: Line { cost: 3, ..line }, id: Id::random(), change: Change::Owe }], time)
            .await;
        let name = String::from_utf8(line.name().concat()).expect("text");
        assert!(name.ends_with("{k}:r#ban"), "{name}");
        let mut connection = version.shared().connection().await;
        let ttl: i64 = redis::cmd("PTTL").arg(name).query_async(&mut connection).await.expect("a reply");
        // Ten minutes, a day until it is forgotten, and an hour since the clock is a test's.
        let expected = 87_000_000 + 3_600_000;
        assert!((expected - 30_000..=expected).contains(&ttl), "{version:?}: {ttl}");
    }
}

/// The reply is lost, so it is asked for again; the strike counts once.
#[tokio::test]
async fn a_lost_reply_strikes_once() {
    let server = Server::start(Version::Redis7);
    let proxy = FaultProxy::start(server.port, 3);
    let builder = Limiter::builder(bare(&proxy.url())).namespace(namespace());
    let clock = ManualClock::new(BEGIN);
    let rule = Rule::fixed_window("r", Quota::per_hour(1)).key(key::given()).ban(Ban::after(3).lasting(10 * SECOND));
    let limiter = builder.clock(Clock::manual(clock)).rule(rule).build().expect("sound");
    assert!(ask(&limiter, "k").await.is_allowed());
    for _ in 0..3 {
        let refused = limiter.acquire([("r", "k")]).await;
        assert!(refused.is_refused() && !refused.is_banned() && refused.failure().is_none(), "{refused:?}");
        let cuts = Counts::of(&proxy.counts.cut);
        proxy.set(|faults| faults.cut = 1_000);
        while Counts::of(&proxy.counts.cut) == cuts {
            tokio::task::yield_now().await;
        }
        proxy.heal();
        limiter.settled().await;
    }
    assert_eq!(until(&ask(&limiter, "k").await), 10 * SECOND);
}

/// Whoever is refused a thousand times while a strike waits is one change, and all strikes of it count.
#[tokio::test]
async fn strikes_against_one_key_are_one_change() {
    let backend = Backend::redis(Version::Redis7);
    let (clock, events) = (ManualClock::new(BEGIN), Events::default());
    let rule = Rule::fixed_window("r", Quota::per_hour(1)).key(key::given()).ban(Ban::after(1_001));
    let builder = backend.builder().clock(Clock::manual(clock)).observer(events.clone()).rule(rule);
    let limiter = builder.build().expect("sound");
    assert!(ask(&limiter, "k").await.is_allowed());
    let mut asks = JoinSet::new();
    for _ in 0..1_000 {
        let limiter = limiter.clone();
        asks.spawn(async move { limiter.acquire([("r", "k")]).await });
    }
    for decision in asks.join_all().await {
        assert!(decision.is_refused() && !decision.is_banned());
    }
    limiter.settled().await;
    let banned = |events: &Events| events.count(|event| matches!(event, StoreEvent::Banned { .. }));
    assert_eq!(banned(&events), 0);
    assert!(!ask(&limiter, "k").await.is_banned());
    assert!(ask(&limiter, "k").await.is_banned());
    assert_eq!(banned(&events), 1);
    let mut connection = Version::Redis7.shared().connection().await;
    let pattern = format!("{}:v1:{{k}}#*", backend.namespace);
    let records: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(&mut connection).await.expect("a reply");
    assert!(records.len() <= 250, "{} changes", records.len());
}

#[tokio::test]
async fn observers_hear_of_each_ban_once_and_of_no_key() {
    for backend in every_store() {
        let (clock, events) = (ManualClock::new(BEGIN), Events::default());
        let builder = backend.builder().clock(Clock::manual(clock)).observer(events.clone());
        let limiter = builder.rule(banning()).build().expect("sound");
        earn(&limiter, "secret").await;
        assert!(ask(&limiter, "secret").await.is_banned());
        let banned = || events.all().into_iter().filter(|event| matches!(event, StoreEvent::Banned { .. }));
        assert_eq!(banned().collect::<Vec<_>>(), [StoreEvent::Banned { rule: "r".into() }], "{}", backend.name);
        assert!(!format!("{:?}", events.all()).contains("secret"));
        limiter.ban("r", "another", SECOND).await.expect("an answer");
        assert_eq!(banned().count(), 1, "{}", backend.name);
    }
}

/// Newcomers to a full store share a count, but are not banned for each other.
#[tokio::test]
async fn a_full_memory_store_bans_nobody_for_what_others_did() {
    let clock = ManualClock::new(BEGIN);
    let (store, events) = (MemoryStore::new().max_keys(0), Events::default());
    let builder = Limiter::builder(store.clone()).clock(Clock::manual(clock)).observer(events.clone());
    let limiter = builder.rule(banning()).build().expect("sound");
    for round in 0..20 {
        let decision = ask(&limiter, &round.to_string()).await;
        assert!(!decision.is_banned(), "{decision:?}");
    }
    assert_eq!(events.count(|event| matches!(event, StoreEvent::Banned { .. })), 0);
    // Strikes take no more room than there is: the two that newcomers share.
    assert_eq!(store.keys(), 2);
}

/// While the store is away nobody knows who is banned: the rule's own word for such a case holds.
#[tokio::test]
async fn while_the_store_is_away_rules_fall_back() {
    let store = Flaky::default();
    let limiter = Limiter::builder(Resilient::new(store.clone())).rule(banning()).build().expect("sound");
    limiter.ban("r", "k", 100 * SECOND).await.expect("an answer");
    assert!(limiter.acquire([("r", "k")]).await.is_banned());
    store.set(Mood::Fails(StoreErrorKind::Unavailable));
    let decision = limiter.acquire([("r", "k")]).await;
    assert!(decision.failure().is_some() && decision.is_allowed() && !decision.is_banned());
    store.set(Mood::Well);
    assert!(limiter.acquire([("r", "k")]).await.is_banned());
}
