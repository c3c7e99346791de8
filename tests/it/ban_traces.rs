//! Random traces of bans: the Rust of the memory store is the specification of the Lua, and both must agree on every number, also
//! where the rule stands in the same ask, where clocks step, and where strikes come in batches.

use std::time::Duration;

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRng, TestRunner},
};
use sluicegate::{
    Ban, Limit, MemoryStore, Quota,
    store::{Ask, Change, Id, Line, Purpose, Scope, Settlement, Store, Time},
};

use crate::{
    support::{
        cluster::Cluster,
        server::{VERSIONS, Version},
        stores::{BEGIN, namespace, patient, patient_with_functions},
    },
    traces,
};

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Back(u64),
    /// Exactly until the last ban ends, less so many microseconds.
    Retry(u64),
    Spend,
    Peek,
    Strike(u64),
    /// The last strikes, asked for again.
    Again,
    /// By hand, for so many milliseconds.
    Hand(u64),
    /// Strikes in one call, for two keys in turn.
    Batch(Vec<u64>),
    Take(u64),
    Give(u64),
    /// Another ban: one of a few.
    Change(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let count = || prop_oneof![6 => Just(1u64), 2 => 0u64..4, 1 => Just(u64::MAX)];
    // Microseconds: within a window, a ban, or until bans are forgotten.
    let time = || prop_oneof![4 => 0u64..400_000, 3 => 0u64..3_000_000, 1 => 0u64..60_000_000];
    prop_oneof![
        8 => time().prop_map(Step::Pass),
        1 => time().prop_map(Step::Back),
        3 => (0u64..2).prop_map(Step::Retry),
        6 => Just(Step::Spend),
        2 => Just(Step::Peek),
        10 => count().prop_map(Step::Strike),
        1 => Just(Step::Again),
        1 => prop_oneof![1u64..3_000, Just(u64::MAX)].prop_map(Step::Hand),
        3 => prop::collection::vec(count(), 1..6).prop_map(Step::Batch),
        1 => count().prop_map(Step::Take),
        1 => count().prop_map(Step::Give),
        1 => (0usize..5).prop_map(Step::Change),
    ]
}

fn ban(choice: usize) -> Limit {
    let millis = Duration::from_millis;
    let ban = match choice % 5 {
        0 => Ban::after(3).within(millis(1_000)).lasting(millis(700)).forgotten_after(millis(5_000)),
        1 => Ban::after(1).within(millis(1)).lasting(millis(1)).escalating(100.0).at_most(millis(86_400_000)),
        2 => Ban::after(2).within(millis(300)).lasting(millis(333)).escalating(1.0).forgotten_after(millis(1)),
        3 => Ban::after(4).within(millis(2_000)).lasting(millis(17)).escalating(1.337).at_most(millis(1_234)),
        _ => Ban::after(2).within(millis(500)).lasting(millis(100)).at_most(millis(250)).forgotten_after(millis(900)),
    };
    ban.check("r").expect("sound")
}

/// `tolerance`: by an application's clocks that differ by so many microseconds.
async fn compare(server: &dyn Store, round: usize, steps: &[Step], skews: &[u64], tolerance: Option<u64>) {
    let memory = MemoryStore::new();
    let namespace = namespace();
    let name = traces::NAMES[round % traces::NAMES.len()];
    let rate = traces::rule(name, Quota::per(9, Duration::from_millis(700)), 5).check().expect("sound");
    let scope = Scope::new(&namespace, name);
    let (ban_scope, mut limit) = (scope.for_ban(), ban(round));
    let (mut now, mut last, mut wait) = (BEGIN, Id::random(), 0);
    // Every count is there from the beginning: in memory a new one may take the place of one that is over, and with it what a clock that
    // goes back would still find.
    for store in [&memory, server] {
        for (scope, key, limit, purpose) in [
            (&scope, "k", &rate, Purpose::Spend),
            (&ban_scope, "k", &limit, Purpose::Owe(last)),
            (&ban_scope, "other", &limit, Purpose::Owe(Id::random())),
        ] {
            let lines = [Line::new(scope, key.as_bytes(), limit, 1)];
            let ask = Ask { lines: &lines, purpose, time: Time::Injected(BEGIN.as_micros() as u64) };
            assert!(store.acquire(&ask).await.expect("an answer").fits());
        }
    }
    for (place, step) in steps.iter().enumerate() {
        let strikes = |cost| Line::new(&ban_scope, b"k", &limit, cost);
        let beside = Line::new(&scope, b"k", &rate, 1);
        // A shadow of a ban keeps nobody from being charged.
        let both = vec![beside, Line { shadow: round % 2 == 1 && place % 3 == 0, ..strikes(0) }];
        let (purpose, lines) = match step {
            Step::Pass(micros) => {
                now += Duration::from_micros(*micros);
                continue;
            }
            Step::Back(micros) => {
                now -= Duration::from_micros(*micros);
                continue;
            }
            Step::Change(choice) => {
                limit = ban(*choice);
                continue;
            }
            Step::Retry(early) => {
                now += Duration::from_micros(u64::saturating_sub(wait, *early));
                (Purpose::Spend, both)
            }
            Step::Spend => (Purpose::Spend, both),
            Step::Peek => (Purpose::Peek, both),
            Step::Strike(count) => (Purpose::Owe(Id::random()), vec![strikes(*count)]),
            Step::Again => (Purpose::Owe(last), vec![strikes(1)]),
            Step::Hand(millis) => (Purpose::Owe(Id::random()), vec![Line { receipt: *millis, ..strikes(1) }]),
            Step::Batch(_) => (Purpose::Peek, both),
            Step::Take(count) => (Purpose::Take(Id::random()), vec![strikes(*count)]),
            Step::Give(count) => (Purpose::Give(Id::random()), vec![strikes(*count)]),
        };
        let time = match tolerance {
            None => Time::Injected(now.as_micros() as u64),
            Some(tolerance) => {
                Time::Application { now: now.as_micros() as u64 + skews[place % skews.len()], tolerance }
            }
        };
        if let Step::Batch(counts) = step {
            let settlements: Vec<Settlement<'_>> = (0..)
                .zip(counts)
                .map(|(place, count)| {
                    let key: &[u8] = if place % 2 == 0 { b"k" } else { b"other" };
                    Settlement { line: Line { key, ..strikes(*count) }, id: Id::random(), change: Change::Owe }
                })
                .collect();
            let (expected, got) = (memory.settle(&settlements, time).await, server.settle(&settlements, time).await);
            assert!(expected.iter().chain(&got).all(Result::is_ok), "{got:?}");
        }
        let ask = Ask { lines: &lines, purpose, time };
        let (expected, got) = (memory.acquire(&ask).await, server.acquire(&ask).await);
        assert_eq!(expected, got, "round {round}, step {place} {step:?} {limit:?}\n{server:?}\n{:?}", &steps[..=place]);
        last = purpose.id().unwrap_or(last);
        if let (Purpose::Spend, Ok(answer)) = (purpose, got) {
            wait = match answer.verdicts()[1].wait {
                sluicegate::store::Wait::Micros(micros) => micros,
                _ => 0,
            };
        }
    }
}

fn rounds(seed: u8) -> impl Iterator<Item = (usize, Vec<Step>, Vec<u64>)> {
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(Default::default(), &[seed; 32]));
    let strategy = (prop::collection::vec(step(), 150), prop::collection::vec(0u64..150_000, 20));
    (0..).map(move |round| {
        let (steps, skews) = strategy.new_tree(&mut runner).expect("a trace").current();
        (round, steps, skews)
    })
}

#[tokio::test]
async fn bans_agree_with_their_scripts() {
    for version in VERSIONS {
        let server = patient(&version.shared().url());
        for (round, steps, skews) in rounds(41).take(60) {
            compare(&server, round, &steps, &skews, None).await;
        }
    }
}

#[tokio::test]
async fn bans_agree_with_functions_and_clusters() {
    let functions = patient_with_functions(&Version::Redis7.shared().url());
    let cluster = Cluster::shared(Version::Valkey9).patient();
    for (round, steps, skews) in rounds(42).take(20) {
        compare(&functions, round, &steps, &skews, None).await;
        compare(&cluster, round, &steps, &skews, None).await;
    }
}

#[tokio::test]
async fn bans_agree_where_clocks_differ() {
    let server = patient(&Version::Valkey9.shared().url());
    for (round, steps, skews) in rounds(43).take(60) {
        compare(&server, round, &steps, &skews, Some(100_000)).await;
    }
}
