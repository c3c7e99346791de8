//! Random traces over rules whose counts lie in several slots: what a Cluster decides is what the memory store decides, which
//! judges all of them at one moment.

use std::time::Duration;

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRng, TestRunner},
};
use sluicegate::{Call, Clock, Decision, Limiter, LimiterBuilder, ManualClock, Quota, key};

use crate::{
    support::{
        cluster::CLUSTERS,
        stores::{BEGIN, Backend},
    },
    traces::{NAMES, rule},
};

/// The amount of each rule, and then: what passes in thousandths of a minute, and what each rule's cost is.
type Trace = (Vec<u64>, Vec<(u64, Vec<u64>)>);

fn traces() -> impl Strategy<Value = Trace> {
    let pass = prop_oneof![3 => Just(0u64), 2 => 0u64..100, 1 => 0u64..2_000];
    let costs = prop::collection::vec(prop_oneof![4 => Just(1u64), 1 => 0u64..5], NAMES.len());
    (prop::collection::vec(2u64..12, NAMES.len()), prop::collection::vec((pass, costs), 40))
}

fn limiter(backend: &Backend, clock: &ManualClock, amounts: &[u64], shared: bool) -> Limiter {
    let builder = backend.builder().clock(Clock::manual(clock.clone()));
    let rules = NAMES.iter().zip(amounts).map(|(name, amount)| rule(name, Quota::per_minute(*amount), *amount));
    let rules = rules.map(|rule| if shared { rule.fair_share(0.5, key::given()) } else { rule });
    rules.fold(builder, LimiterBuilder::rule).build().expect("sound")
}

/// Everything but the time to full, which a refusal does not tell of what was given back.
fn outline(decision: &Decision) -> String {
    let standings = decision.standings().map(|standing| {
        let wait = standing.is_refused().then(|| standing.retry_after());
        (standing.rule().to_owned(), standing.remaining(), wait)
    });
    format!("{:?} {:?}", decision.is_refused(), standings.collect::<Vec<_>>())
}

#[tokio::test]
async fn decisions_over_several_slots_are_those_of_one_place() {
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(Default::default(), &[5; 32]));
    let mut refusals = 0;
    for (round, version) in CLUSTERS.into_iter().cycle().take(20).enumerate() {
        let (amounts, steps) = traces().new_tree(&mut runner).expect("a trace").current();
        let (memory, cluster) = (Backend::memory(), Backend::cluster(version, false));
        let clock = ManualClock::new(BEGIN);
        // Two clusters, each with tenants and without.
        let shared = round % 4 < 2;
        let [specified, spread] = [memory, cluster].map(|backend| limiter(&backend, &clock, &amounts, shared));
        let keys = NAMES.map(|name| format!("{name}{round}"));
        for (place, (pass, costs)) in steps.iter().enumerate() {
            clock.advance(Duration::from_millis(60 * pass));
            let entries = || NAMES.into_iter().zip(&keys).zip(costs);
            let tenant = |call: Call<'static>| if shared { call.tenant(place as u64 % 3) } else { call };
            let call = || {
                entries().fold(Call::new(), |call, ((rule, key), cost)| tenant(call.key(rule, key.clone()).cost(*cost)))
            };
            let (expected, got) = (specified.acquire(call()).await, spread.acquire(call()).await);
            let context = format!("{version:?}: step {place} of {amounts:?} {:?}", &steps[..=place]);
            assert!(got.failure().is_none(), "{context}: {:?}", got.failure());
            assert_eq!(outline(&expected), outline(&got), "{context}");
            refusals += usize::from(got.is_refused());
            // What was granted elsewhere is back: to the last unit and microsecond nothing was charged.
            let (expected, got) = (specified.peek(call()).await, spread.peek(call()).await);
            assert_eq!(format!("{expected:?}"), format!("{got:?}"), "{context}");
        }
    }
    assert!(refusals > 100, "{refusals}");
}
