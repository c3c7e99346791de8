//! Limits that tenants share, and costs that turn out to be others: what is given back or owed is so in the tenant's use too.

use std::time::Duration;

use axum::{
    Router,
    http::{Request, StatusCode},
    routing::get,
};
use http::response::Parts;
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRng, TestRunner},
};
use sluicegate::{
    Call, Charge, Clock, Limiter, LimiterBuilder, ManualClock, Quota, Rule, key,
    store::{Answer, Ask, Line, Store, StoreFuture},
};

use crate::{
    support::{
        app::{ask, layer},
        server::{VERSIONS, Version},
        stores::{BEGIN, Backend, every_store, namespace, patient},
    },
    traces::{NAMES, rule},
};

fn hundred(name: &'static str) -> Rule {
    rule(name, Quota::per_minute(100), 100).fair_share(0.2, key::given())
}

async fn charge(limiter: &Limiter, name: &str, tenant: &str, cost: u64) -> Charge {
    let charge = limiter.charge(Call::new().key(name, "all").tenant(tenant).cost(cost)).await;
    assert!(charge.decision().failure().is_none(), "{:?}", charge.decision().failure());
    charge
}

async fn fits(limiter: &Limiter, name: &str, tenant: &str, cost: u64) -> bool {
    let decision = limiter.peek(Call::new().key(name, "all").tenant(tenant).cost(cost)).await;
    assert!(decision.failure().is_none(), "{:?}", decision.failure());
    decision.is_allowed()
}

/// What fits, to the unit, after a charge of the first number that is settled as the second.
#[tokio::test]
async fn a_tenant_has_had_what_its_requests_cost_in_the_end() {
    for backend in every_store() {
        for name in NAMES {
            for (reserved, settled, room) in [
                // Who has had one unit leaves one.
                (70, 1, 98),
                (70, 0, 100),
                // Who has had 50 leaves 14, and 50 are left.
                (1, 50, 36),
                (70, 50, 36),
                (50, 50, 36),
            ] {
                let limiter = backend.limiter(&ManualClock::new(BEGIN), [hundred(name)]);
                limiter.reset([(name, "all")]).await.expect("a store");
                let tenant = format!("{name}{reserved}-{settled}");
                let charged = charge(&limiter, name, &tenant, reserved).await;
                assert!(charged.settle(settled));
                limiter.settled().await;
                let fitting = [room, room + 1].map(|cost| fits(&limiter, name, &tenant, cost));
                let [last, first_above] = fitting;
                let context = format!("{} {name}: {settled} of {reserved}", backend.name);
                assert_eq!((last.await, first_above.await), (true, false), "{context}");
            }
        }
    }
}

/// A charge of a window that is over: the next owes it nothing.
#[tokio::test]
async fn nothing_is_given_back_into_a_later_window() {
    for backend in every_store() {
        for name in ["fixed", "log", "bucket", "gcra", "leaky"] {
            let clock = ManualClock::new(BEGIN);
            let limiter = backend.limiter(&clock, [hundred(name)]);
            limiter.reset([(name, "all")]).await.expect("a store");
            let before = charge(&limiter, name, "late", 30).await;
            clock.advance(Duration::from_secs(61));
            let since = charge(&limiter, name, "late", 20).await;
            assert!(since.decision().is_allowed());
            assert!(before.settle(0));
            limiter.settled().await;
            // Who has had 20 leaves 11, and 80 are left.
            let (last, above) = (fits(&limiter, name, "late", 69).await, fits(&limiter, name, "late", 70).await);
            assert_eq!((last, above), (true, false), "{} {name}", backend.name);
            // Its own window has it back.
            assert!(since.settle(10));
            limiter.settled().await;
            let (last, above) = (fits(&limiter, name, "late", 80).await, fits(&limiter, name, "late", 81).await);
            assert_eq!((last, above), (true, false), "{} {name}", backend.name);
        }
    }
}

/// Over HTTP: what a rule does not count, and what the response says, is no use of the tenant's.
#[tokio::test]
async fn responses_settle_the_use_of_tenants() {
    let is_failure = |response: &Parts| response.status == StatusCode::UNAUTHORIZED;
    let hourly = |name| Rule::fixed_window(name, Quota::per_hour(100)).key(key::global());
    for rule in [
        hourly("failures").count_if(is_failure),
        hourly("rows").settle_by(move |response| u64::from(is_failure(response))),
        hourly("bytes").settle_by_bytes(|bytes| bytes),
    ] {
        let name = rule.name().to_owned();
        let rule = rule.cost_by(|head| head.headers["x-cost"].to_str().expect("text").parse().expect("a number"));
        let app = Router::new()
            .route("/", get(|| async {}))
            .route("/fails", get(|| async { (StatusCode::UNAUTHORIZED, "!") }));
        let app = app.layer(layer([rule.fair_share(0.2, key::header("x-tenant"))]));
        // The second is given back. Who has had one unit leaves one, and 98 fit of 99; who has had more leaves more.
        for (path, cost, expected) in [("/fails", 1, 401), ("/", 70, 200), ("/fails", 98, 401)] {
            let request = Request::builder().uri(path).header("x-tenant", "a").header("x-cost", cost);
            let response = ask(&app, request).await;
            assert_eq!(response.status(), expected, "{name} {cost}");
            // The body ends.
            let _ = axum::body::to_bytes(response.into_body(), 1_000).await.expect("a body");
        }
    }
}

/// One change a call, by the script that gives back what a sibling refused.
#[derive(Debug)]
struct OneByOne<S>(S);

impl<S: Store> Store for OneByOne<S> {
    fn acquire<'a>(&'a self, ask: &'a Ask<'a>) -> StoreFuture<'a, Answer> {
        self.0.acquire(ask)
    }

    fn reset<'a>(&'a self, lines: &'a [Line<'a>]) -> StoreFuture<'a, ()> {
        self.0.reset(lines)
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// In 20,000ths of a window.
    Pass(u64),
    Charge(usize, u64),
    Settle(usize, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0u64..6_000).prop_map(Step::Pass),
        1 => (0u64..40_000).prop_map(Step::Pass),
        5 => (0usize..3, prop_oneof![3 => 1u64..4, 1 => 0u64..40]).prop_map(|(tenant, cost)| Step::Charge(tenant, cost)),
        4 => (0usize..5, prop_oneof![2 => 0u64..3, 1 => 0u64..60]).prop_map(|(place, units)| Step::Settle(place, units)),
    ];
    prop::collection::vec(step, 100)
}

/// Random charges of several tenants, settled later at random: the Rust is the specification of the Lua.
#[tokio::test]
async fn settled_use_agrees_with_the_scripts() {
    let strategy = (steps(), 2u64..200, 0.01f64..0.9);
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(Default::default(), &[6; 32]));
    for round in 0..80 {
        let (steps, amount, share) = strategy.new_tree(&mut runner).expect("a trace").current();
        let window = Duration::from_millis([1_000, 3_001, 60_000][round % 3]);
        let names: &[&str] = if round % 4 == 0 { &NAMES } else { &NAMES[round % 8..][..1] };
        let clock = ManualClock::new(BEGIN);
        let rules = || {
            names.iter().map(|name| {
                let plain = rule(name, Quota::per(amount, window), amount);
                let fair = plain.clone().fair_share(share, key::given());
                if fair.check().is_ok() { fair } else { plain }
            })
        };
        let servers = every_store();
        let server = &servers[1 + round % (servers.len() - 1)];
        let scripted = if round % 3 == 0 {
            let store = OneByOne(patient(&VERSIONS[round % VERSIONS.len()].shared().url()));
            let builder = Limiter::builder(store).namespace(namespace()).clock(Clock::manual(clock.clone()));
            rules().fold(builder, LimiterBuilder::rule).build().expect("sound")
        } else {
            server.limiter(&clock, rules())
        };
        let specified = Backend::memory().limiter(&clock, rules());
        let mut charges: Vec<(Charge, Charge)> = Vec::new();
        for (place, step) in steps.iter().enumerate() {
            match *step {
                Step::Pass(share) => clock.advance(window.mul_f64(share as f64 / 20_000.0)),
                Step::Charge(tenant, cost) => {
                    let call = || {
                        let tenant = format!("t{tenant}");
                        names.iter().fold(Call::new(), |call, name| call.key(name, "k").cost(cost).tenant(&*tenant))
                    };
                    let (expected, got) = (specified.charge(call()).await, scripted.charge(call()).await);
                    let context = format!("{} round {round} step {place}: {names:?}", server.name);
                    assert_eq!(format!("{expected:?}"), format!("{got:?}"), "{context}\n{:?}", &steps[..=place]);
                    charges.push((expected, got));
                }
                Step::Settle(which, units) if which < charges.len() => {
                    let (expected, got) = charges.remove(charges.len() - 1 - which);
                    assert_eq!(expected.settle(units), got.settle(units));
                    scripted.settled().await;
                }
                Step::Settle(..) => {}
            }
        }
    }
}

/// Many at once go in one batch, with tenants and without, of several algorithms.
#[tokio::test]
async fn a_batch_settles_each_in_the_use_of_its_own_tenant() {
    for backend in [Backend::redis(Version::Redis7), Backend::functions(Version::Valkey9)] {
        let names = ["bucket", "fixed", "log"];
        let rules = names.map(hundred).into_iter().chain([rule("gcra", Quota::per_minute(100), 100)]);
        let limiter = backend.limiter(&ManualClock::new(BEGIN), rules);
        let mut charges = Vec::new();
        for tenant in 0..5 {
            for name in names {
                charges.push(charge(&limiter, name, &format!("t{tenant}"), 2 + tenant).await);
            }
            charges.push(limiter.charge(Call::new().key("gcra", "all").cost(2)).await);
        }
        for charge in charges {
            assert!(charge.settle(1));
        }
        limiter.settled().await;
        for name in names {
            for tenant in (0..5).map(|tenant| format!("t{tenant}")) {
                // Each has had one unit and leaves one, and 95 are left.
                let fitting = (fits(&limiter, name, &tenant, 94).await, fits(&limiter, name, &tenant, 95).await);
                assert_eq!(fitting, (true, false), "{} {name} {tenant}", backend.name);
            }
        }
        let gcra = limiter.peek([("gcra", "all")]).await;
        assert_eq!(gcra.standing("gcra").map(|rule| rule.remaining()), Some(95), "{}", backend.name);
    }
}
