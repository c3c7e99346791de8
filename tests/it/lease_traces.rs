//! Random traces of leases: the Rust of the memory store is the specification of the Lua, and both must agree on every number,
//! also where other rules stand in the same ask and where clocks step.

use std::time::Duration;

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRng, TestRunner},
};
use sluicegate::{
    Limit, MemoryStore, Quota, Rule, key,
    store::{Ask, Id, Line, Purpose, Scope, Store, Time},
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
    /// Time passes, in thousandths of the lease.
    Pass(u64),
    Back(u64),
    /// A new lease, for this cost.
    Spend(u64),
    Peek,
    Take,
    /// One of the last leases, counted from the newest; it may have ended or never been granted.
    Renew(usize),
    Release(usize),
    Give(usize),
    /// Another limit and lease time: one of a few.
    Change(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop_oneof![3 => 0u64..300, 1 => 900u64..1_100].prop_map(Step::Pass),
        1 => (0u64..2_000).prop_map(Step::Back),
        12 => prop_oneof![4 => Just(1u64), 1 => 0u64..4].prop_map(Step::Spend),
        2 => Just(Step::Peek),
        2 => Just(Step::Take),
        4 => (0usize..12).prop_map(Step::Renew),
        4 => (0usize..8).prop_map(Step::Release),
        2 => (0usize..8).prop_map(Step::Give),
        1 => (0usize..4).prop_map(Step::Change),
    ]
}

fn limits() -> [(u64, Duration); 4] {
    [(3, 1_000), (1, 250), (5, 400), (3, 60_000)].map(|(limit, millis)| (limit, Duration::from_millis(millis)))
}

/// A concurrency limit, and of two asks in three another rule beside it.
struct Subject {
    leases: (Scope, Limit),
    rate: Option<(Scope, Limit)>,
}

impl Subject {
    fn lines(&self, cost: u64, receipt: u64) -> Vec<Line<'_>> {
        // By its name, so that it is so whenever it is asked for again.
        let critical = receipt.count_ones().is_multiple_of(3);
        let lease = Line { receipt, critical, ..Line::new(&self.leases.0, b"k", &self.leases.1, cost) };
        let rate = self.rate.as_ref().map(|(scope, limit)| Line::new(scope, b"k", limit, cost));
        // A rate rule has receipts of its own, so it only stands beside leases where none is given back.
        std::iter::once(lease).chain(rate).collect()
    }
}

fn limit(choice: usize) -> Limit {
    let (limit, lease) = limits()[choice];
    let rule = Rule::concurrency("leases", limit).lease(lease).key(key::given());
    let rule = if choice == 2 { rule.reserve(0.4, |_| false) } else { rule };
    rule.check().expect("sound")
}

/// `tolerance`: by an application's clocks that differ by so many microseconds.
async fn compare(server: &dyn Store, round: usize, steps: &[Step], skews: &[i64], tolerance: Option<u64>) {
    let memory = MemoryStore::new();
    let namespace = namespace();
    let rate = (!round.is_multiple_of(3)).then(|| {
        let name = traces::NAMES[round % traces::NAMES.len()];
        let limit = traces::rule(name, Quota::per(9, Duration::from_millis(700)), 5).check().expect("sound");
        (Scope::new(&namespace, name), limit)
    });
    let mut subject = Subject { leases: (Scope::new(&namespace, "leases"), limit(round % 4)), rate };
    let mut now = BEGIN;
    let mut ids: Vec<u64> = Vec::new();
    for (place, step) in steps.iter().enumerate() {
        let share = |thousandths: u64| {
            let micros = subject.leases.1.lease().expect("leases").as_micros() as u64 * thousandths / 1_000;
            Duration::from_micros(micros)
        };
        let known =
            |back: usize| ids.len().checked_sub(1 + back).and_then(|place| ids.get(place)).copied().unwrap_or(7);
        let only_leases = |receipt| subject.lines(1, receipt)[..1].to_vec();
        let (purpose, lines) = match step {
            Step::Pass(thousandths) => {
                now += share(*thousandths);
                continue;
            }
            Step::Back(thousandths) => {
                now -= share(*thousandths);
                continue;
            }
            Step::Change(choice) => {
                subject.leases.1 = limit(*choice);
                continue;
            }
            Step::Spend(cost) => {
                ids.push(u64::MAX - place as u64 * 0x0101_0101);
                (Purpose::Spend, subject.lines(*cost, known_last(&ids)))
            }
            Step::Take => {
                ids.push(u64::MAX - place as u64 * 0x0101_0101);
                (Purpose::Take(Id::random()), subject.lines(1, known_last(&ids)))
            }
            Step::Peek => (Purpose::Peek, subject.lines(1, 0)),
            Step::Renew(back) => (Purpose::Renew, only_leases(known(*back))),
            Step::Release(back) => (Purpose::Release, only_leases(known(*back))),
            Step::Give(back) => (Purpose::Give(Id::random()), only_leases(known(*back))),
        };
        let time = match tolerance {
            None => Time::Injected(now.as_micros() as u64),
            Some(tolerance) => {
                let skew = skews[place % skews.len()];
                Time::Application { now: now.as_micros() as u64 + skew.unsigned_abs(), tolerance }
            }
        };
        let ask = Ask { lines: &lines, purpose, time };
        let (expected, got) = (memory.acquire(&ask).await, server.acquire(&ask).await);
        assert_eq!(expected, got, "round {round}, step {place} {step:?}\n{server:?}\n{:?}", &steps[..=place]);
    }
}

fn known_last(ids: &[u64]) -> u64 {
    ids.last().copied().unwrap_or(7)
}

fn rounds(seed: u8) -> impl Iterator<Item = (usize, Vec<Step>, Vec<i64>)> {
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(Default::default(), &[seed; 32]));
    let strategy = (prop::collection::vec(step(), 150), prop::collection::vec(0i64..150_000, 20));
    (0..).map(move |round| {
        let (steps, skews) = strategy.new_tree(&mut runner).expect("a trace").current();
        (round, steps, skews)
    })
}

#[tokio::test]
async fn leases_agree_with_their_scripts() {
    for version in VERSIONS {
        let server = patient(&version.shared().url());
        for (round, steps, skews) in rounds(31).take(60) {
            compare(&server, round, &steps, &skews, None).await;
        }
    }
}

#[tokio::test]
async fn leases_agree_with_functions_and_clusters() {
    let functions = patient_with_functions(&Version::Redis7.shared().url());
    let cluster = Cluster::shared(Version::Valkey9).patient();
    for (round, steps, skews) in rounds(32).take(20) {
        compare(&functions, round, &steps, &skews, None).await;
        compare(&cluster, round, &steps, &skews, None).await;
    }
}

#[tokio::test]
async fn leases_agree_where_clocks_differ() {
    let server = patient(&Version::Valkey9.shared().url());
    for (round, steps, skews) in rounds(33).take(60) {
        compare(&server, round, &steps, &skews, Some(100_000)).await;
    }
}

/// Members of a set of a thousand are kept in another way by the server than those of a small one.
#[tokio::test]
async fn many_leases_agree() {
    let rule = Rule::concurrency("many", 1_000).lease(Duration::from_secs(1)).key(key::given()).check().expect("sound");
    for version in VERSIONS {
        let (memory, server) = (MemoryStore::new(), patient(&version.shared().url()));
        let scope = Scope::new(&namespace(), "many");
        for step in 0u64..1_600 {
            let line = |id: u64| Line { receipt: id, ..Line::new(&scope, b"k", &rule, 1) };
            let (purpose, line) = match step % 8 {
                5 => (Purpose::Release, line(step / 3)),
                6 => (Purpose::Renew, line(step / 2)),
                _ => (Purpose::Spend, line(step)),
            };
            let time = Time::Injected(BEGIN.as_micros() as u64 + step * 700);
            let ask = Ask { lines: &[line], purpose, time };
            let (expected, got) = (memory.acquire(&ask).await, server.acquire(&ask).await);
            assert_eq!(expected, got, "{version:?}, step {step}");
        }
    }
}
