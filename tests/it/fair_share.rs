//! Limits that tenants share: whoever has had less comes first.

use std::{collections::HashMap, time::Duration};

use axum::{Router, http::Request, routing::get};
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRng, TestRunner},
};
use sluicegate::{Call, Decision, Limiter, ManualClock, MemoryStore, Quota, RedisStore, Rule, key};

use crate::{
    support::{
        app::{ask, layer},
        server::Version,
        stores::{BEGIN, Backend, every_store},
    },
    traces::{NAMES, rule},
};

const TICK: Duration = Duration::from_micros(1);

fn shared(name: &'static str, quota: Quota, burst: u64, share: f64) -> Rule {
    rule(name, quota, burst).fair_share(share, key::given())
}

fn hundred(name: &'static str) -> Rule {
    shared(name, Quota::per_minute(100), 100, 0.2)
}

async fn spend(limiter: &Limiter, name: &str, tenant: &str, cost: u64) -> Decision {
    let decision = limiter.acquire(Call::new().key(name, "all").tenant(tenant).cost(cost)).await;
    assert!(decision.failure().is_none(), "{:?}", decision.failure());
    decision
}

/// One tenant alone has everything but a share; whoever comes then finds something, and the first waits.
#[tokio::test]
async fn one_tenant_leaves_something_to_the_next() {
    for backend in every_store() {
        for name in NAMES {
            let limiter = backend.limiter(&ManualClock::new(BEGIN), [hundred(name)]);
            let mut had = 0;
            while spend(&limiter, name, "greedy", 1).await.is_allowed() {
                had += 1;
            }
            assert_eq!(had, 82, "{} {name}", backend.name);
            let mut newcomer = 0;
            while spend(&limiter, name, "newcomer", 1).await.is_allowed() {
                newcomer += 1;
            }
            // It has had little, and leaves little: half of the rest, for others that may come.
            assert_eq!(newcomer, 9, "{} {name}", backend.name);
            assert!(spend(&limiter, name, "third", 1).await.is_allowed(), "{} {name}", backend.name);
            assert!(spend(&limiter, name, "greedy", 1).await.is_refused(), "{} {name}", backend.name);
        }
    }
}

/// What nobody asks for is used by whoever asks: in the long run a bucket hands out all that flows in, to one tenant too.
#[tokio::test]
async fn idle_shares_are_used() {
    let clock = ManualClock::new(BEGIN);
    let limiter = Backend::memory().limiter(&clock, [shared("bucket", Quota::per_second(100), 100, 0.2)]);
    let mut had = 0;
    for _ in 0..20_000 {
        clock.advance(Duration::from_millis(5));
        had += u64::from(spend(&limiter, "bucket", "only", 1).await.is_allowed());
    }
    // A hundred seconds, and what was in the bucket but for a share.
    assert!((10_000..=10_100).contains(&had), "{had}");
}

/// The law of exact waits: repeated alone exactly then it is admitted, and a tick earlier refused.
#[tokio::test]
async fn waits_are_exact() {
    for backend in every_store() {
        for (place, name) in (0..).zip(NAMES.into_iter().filter(|name| *name != "month")) {
            // The second begins shortly before the tenant's window ends.
            for begin in
                [BEGIN, BEGIN + Duration::from_micros(60_000_000 - 1_763_251_200_123_456 % 60_000_000 - 2_000_000)]
            {
                let clock = ManualClock::new(begin);
                let limiter = backend.limiter(&clock, [hundred(name)]);
                let tenant = format!("t{place}");
                limiter.reset([(name, "all")]).await.expect("a store");
                let mut refused = None;
                for _ in 0..60 {
                    clock.advance(Duration::from_micros(10_007));
                    let decision = spend(&limiter, name, &tenant, 3).await;
                    if decision.is_refused() {
                        refused = Some(decision);
                        break;
                    }
                }
                let wait = refused.and_then(|decision| decision.retry_after()).expect("a wait");
                clock.advance(wait - TICK);
                assert!(spend(&limiter, name, &tenant, 3).await.is_refused(), "{} {name} {wait:?}", backend.name);
                clock.advance(TICK);
                assert!(spend(&limiter, name, &tenant, 3).await.is_allowed(), "{} {name} {wait:?}", backend.name);
            }
        }
    }
}

/// What fits an untouched limit is never told that it can never fit, however much its tenant has had.
#[tokio::test]
async fn large_costs_wait_and_are_not_turned_away_for_good() {
    for backend in every_store() {
        let limiter = backend.limiter(&ManualClock::new(BEGIN), [hundred("gcra")]);
        assert!(spend(&limiter, "gcra", "a", 70).await.is_allowed());
        let decision = spend(&limiter, "gcra", "a", 100).await;
        assert!(decision.is_refused() && !decision.can_never_fit(), "{}", backend.name);
        assert!(spend(&limiter, "gcra", "a", 101).await.can_never_fit(), "{}", backend.name);
    }
}

/// A refusal by another rule leaves the tenant's use as it was: nothing is spent anywhere. Where the other rule is asked elsewhere at the
/// same time, the limit and the tenant have it back.
#[tokio::test]
async fn a_refusal_counts_in_nobodys_use() {
    for backend in every_store() {
        let small = Rule::gcra("small", Quota::per_minute(1)).key(key::given());
        let limiter = backend.limiter(&ManualClock::new(BEGIN), [hundred("counter"), small]);
        let both = |cost| Call::new().key("small", "s").cost(1).key("counter", "all").tenant("a").cost(cost);
        assert!(limiter.acquire(both(1)).await.is_allowed(), "{}", backend.name);
        for _ in 0..10 {
            assert!(limiter.acquire(both(70)).await.is_refused(), "{}", backend.name);
        }
        // With a use of 1 this fits to the unit; with any more it would not.
        assert!(spend(&limiter, "counter", "a", 98).await.is_allowed(), "{}", backend.name);
    }
}

/// Random asks of several tenants: the Rust is the specification of the Lua.
#[tokio::test]
async fn shared_limits_agree_with_their_scripts() {
    let step = (0usize..6, prop_oneof![4 => 1u64..3, 1 => 0u64..40], 0u64..2_000, prop::bool::weighted(0.2));
    let strategy = (prop::collection::vec(step, 120), 2u64..200, 0.01f64..0.9);
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(Default::default(), &[5; 32]));
    for round in 0..60 {
        let (steps, amount, share) = strategy.new_tree(&mut runner).expect("a trace").current();
        let window = Duration::from_millis([1_000, 3_001, 60_000][round % 3]);
        let (memory, servers) = (Backend::memory(), every_store());
        let names: &[&str] = if round % 4 == 0 { &NAMES } else { &NAMES[round % 8..][..1] };
        let clock = ManualClock::new(BEGIN);
        let rules = || {
            names.iter().map(|name| {
                let plain = rule(name, Quota::per(amount, window), amount);
                let fair = plain.clone().fair_share(share, key::given()).reserve(0.1, |_| false);
                let rule = if fair.check().is_ok() { fair } else { plain };
                if round % 5 == 1 || *name == "log" && round % 4 == 0 { rule.shadow() } else { rule }
            })
        };
        let server = &servers[1 + round % (servers.len() - 1)];
        let (specified, scripted) = (memory.limiter(&clock, rules()), server.limiter(&clock, rules()));
        for (place, (tenant, cost, millis, critical)) in steps.iter().enumerate() {
            clock.advance(window.mul_f64(*millis as f64 / 20_000.0));
            let call = || {
                let call = names.iter().fold(Call::new(), |call, name| {
                    let call = call.key(name, "k").cost(*cost);
                    if *tenant > 0 { call.tenant(format!("t{tenant}")) } else { call }
                });
                if *critical { call.critical() } else { call }
            };
            let (expected, got) = (specified.acquire(call()).await, scripted.acquire(call()).await);
            assert_eq!(
                format!("{expected:?}"),
                format!("{got:?}"),
                "{} round {round} step {place}: {names:?}",
                server.name
            );
        }
    }
}

/// Runs seconds of demand against a limit of a hundred a second, in steps of a millisecond; how much each tenant was given.
async fn simulate(
    limiter: &Limiter,
    clock: &ManualClock,
    demand: impl Fn(u64) -> Vec<usize>,
    seconds: u64,
) -> HashMap<usize, u64> {
    let mut given = HashMap::new();
    for milli in 0..seconds * 1_000 {
        clock.advance(Duration::from_millis(1));
        for tenant in demand(milli) {
            let decision = limiter.acquire(Call::new().key("bucket", "all").tenant(tenant as u64)).await;
            *given.entry(tenant).or_default() += u64::from(decision.is_allowed());
        }
    }
    given
}

/// A thousand tenants with Zipf demand of ten times the limit: the five busiest do not starve the others.
#[tokio::test]
async fn a_thousand_tenants_are_not_starved_by_the_top_five() {
    let harmonic: f64 = (1..=1_000).map(|rank| 1.0 / f64::from(rank)).sum();
    // What each asks for in a second, of a thousand in all; drawn by a fixed sequence.
    let cumulative: Vec<f64> = (1..=1_000)
        .scan(0.0, |sum, rank| {
            *sum += 1.0 / f64::from(rank) / harmonic;
            Some(*sum)
        })
        .collect();
    let draw = |milli: u64| {
        let hash = (milli + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let uniform = ((hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11) as f64 / (1u64 << 53) as f64;
        vec![cumulative.partition_point(|sum| *sum < uniform).min(999)]
    };
    let seconds = 60;
    let mut top_five = Vec::new();
    for share in [None, Some(0.2)] {
        let clock = ManualClock::new(BEGIN);
        let plain = rule("bucket", Quota::per_second(100), 100);
        let rule = match share {
            Some(share) => plain.fair_share(share, key::given()),
            None => plain,
        };
        let limiter = Backend::memory().limiter(&clock, [rule]);
        let given = simulate(&limiter, &clock, draw, seconds).await;
        let total: u64 = given.values().sum();
        assert!(total + 200 >= 100 * seconds, "nothing is wasted: {total}");
        let top: u64 = (0..5).map(|tenant| given.get(&tenant).copied().unwrap_or(0)).sum();
        top_five.push(top as f64 / total as f64);
        if share.is_some() {
            // Nobody has more than its share.
            let most = given.values().max().copied().unwrap_or(0);
            assert!(most <= 20 * seconds, "{most}");
            // A tenth of everything asked for is there. Those who ask for little are given more of it: some hundred ask in each
            // second, and nobody can have less than one unit.
            let asked = (0..seconds * 1_000).flat_map(draw).fold(HashMap::<usize, u64>::new(), |mut asked, tenant| {
                *asked.entry(tenant).or_default() += 1;
                asked
            });
            let (small_asked, small_given) = (300..1_000).fold((0, 0), |(asks, gets), tenant| {
                let of = |map: &HashMap<usize, u64>| map.get(&tenant).copied().unwrap_or(0);
                (asks + of(&asked), gets + of(&given))
            });
            let served = small_given as f64 / small_asked as f64;
            assert!(served > 0.16, "the smallest 700 tenants are given {served} of what they ask for");
        }
    }
    let [before, after] = top_five[..] else { panic!("two runs") };
    // By demand alone they have a third of everything.
    assert!(before > 0.28 && after < 0.06, "{before} without shares, {after} with them");
}

/// Five that ask without end have a share each; two of them have half each, since the other shares are idle.
#[tokio::test]
async fn the_greedy_have_equal_parts_whatever_they_ask_for() {
    for (tenants, part) in [(2, 0.5), (5, 0.2), (10, 0.1)] {
        let clock = ManualClock::new(BEGIN);
        let limiter = Backend::memory().limiter(&clock, [hundred_a_second()]);
        // The first asks ten times as often as the last.
        let demand = |milli: u64| -> Vec<usize> {
            let more = |tenant: usize| {
                if tenant == 0 {
                    1
                } else if tenant == tenants - 1 {
                    10
                } else {
                    3
                }
            };
            (0..tenants).filter(|tenant| milli.is_multiple_of(more(*tenant))).collect()
        };
        let given = simulate(&limiter, &clock, demand, 30).await;
        let total: u64 = given.values().sum();
        for tenant in 0..tenants {
            let got = given.get(&tenant).copied().unwrap_or(0) as f64 / total as f64;
            assert!((got - part).abs() < part * 0.25, "{tenant} of {tenants} has {got} of {total}");
        }
    }
}

fn hundred_a_second() -> Rule {
    shared("bucket", Quota::per_second(100), 100, 0.2)
}

#[tokio::test]
async fn over_http_a_tenant_is_told_by_a_key_of_its_own() {
    let rule = Rule::fixed_window("exports", Quota::per_hour(10)).key(key::global());
    let app = Router::new().route("/", get(|| async {})).layer(layer([rule.fair_share(0.4, key::header("x-tenant"))]));
    let get = async |tenant: Option<&str>| {
        let request = Request::builder().uri("/");
        ask(&app, tenant.into_iter().fold(request, |request, tenant| request.header("x-tenant", tenant))).await.status()
    };
    let mut had = 0;
    while get(Some("a")).await == 200 {
        had += 1;
    }
    assert_eq!(had, 7);
    // Those without a name are one tenant.
    assert_eq!((get(None).await.as_u16(), get(Some("b")).await.as_u16(), get(None).await.as_u16()), (200, 200, 429));
}

#[tokio::test]
async fn tenants_are_found_by_closures_that_wait_or_refuse() {
    let tenant = key::KeyBy::new_async(async |req: http::request::Parts| {
        tokio::task::yield_now().await;
        match req.headers.get("x-tenant") {
            Some(tenant) => Ok(tenant.as_bytes().to_vec()),
            None => Err(http::StatusCode::UNAUTHORIZED),
        }
    });
    let rule = Rule::fixed_window("exports", Quota::per_hour(10)).key(key::global()).fair_share(0.4, tenant);
    let app = Router::new().route("/", get(|| async {})).layer(layer([rule]));
    assert_eq!(ask(&app, Request::builder().uri("/")).await.status(), 401);
    for _ in 0..7 {
        assert_eq!(ask(&app, Request::builder().uri("/").header("x-tenant", "a")).await.status(), 200);
    }
    assert_eq!(ask(&app, Request::builder().uri("/").header("x-tenant", "a")).await.status(), 429);
    assert_eq!(ask(&app, Request::builder().uri("/").header("x-tenant", "b")).await.status(), 200);
}

/// A tenant's count lies beside the limit's own, in its slot, and has a TTL.
#[tokio::test]
async fn the_counts_of_tenants_expire() {
    let backend = Backend::redis(Version::Valkey9);
    let limiter = backend.builder().rule(hundred_a_second()).build().expect("sound");
    assert!(spend(&limiter, "bucket", "a{}b", 1).await.is_allowed());
    let mut connection = Version::Valkey9.shared().connection().await;
    let pattern = format!("{}:*", backend.namespace);
    let mut names: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(&mut connection).await.expect("keys");
    names.sort();
    let namespace = &backend.namespace;
    let expected = ["bucket", "bucket#share#a%7b%7db"].map(|name| format!("{namespace}:v1:{{all}}:{name}"));
    assert_eq!(names, expected);
    for name in names {
        let ttl: i64 = redis::cmd("PTTL").arg(name).query_async(&mut connection).await.expect("a TTL");
        assert!((1..=3_000).contains(&ttl), "{ttl}");
    }
}

#[test]
fn shares_that_cannot_be_are_build_errors() {
    let build = |rule: Rule| Limiter::builder(MemoryStore::new()).rule(rule).build();
    let gcra = |amount| Rule::gcra("r", Quota::per_minute(amount)).key(key::given());
    for (rule, remedy) in [
        (gcra(100).fair_share(0.0, key::given()), "more than 0"),
        (gcra(100).fair_share(1.0, key::given()), "less than 1"),
        (gcra(100).fair_share(f64::NAN, key::given()), "more than 0"),
        (gcra(1).fair_share(0.5, key::given()), "2 units or more"),
        (Rule::concurrency("r", 10).key(key::given()).fair_share(0.5, key::given()), "one of its own"),
        (Rule::fixed_window("r", Quota::per_day(1 << 30)).key(key::given()).fair_share(0.5, key::given()), "67108863"),
    ] {
        let error = build(rule).expect_err("no share");
        assert_eq!((error.rule_name(), error.field()), (Some("r"), "fair_share"), "{error}");
        assert!(error.to_string().contains(remedy), "{error}");
    }
    let hourly = Rule::fixed_window("r", Quota::per_hour(10)).key(key::given()).fair_share(0.5, key::given());
    let plain = RedisStore::builder("redis://127.0.0.1:1").no_scripts().build().expect("sound");
    let cell = RedisStore::builder("redis://127.0.0.1:1").cell().build().expect("sound");
    for (store, rule) in [(plain, hourly), (cell, gcra(60).fair_share(0.5, key::given()))] {
        let error = Limiter::builder(store).rule(rule).build().expect_err("no tenants");
        assert_eq!((error.rule_name(), error.field()), (Some("r"), "fair_share"), "{error}");
    }
}
