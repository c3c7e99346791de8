//! Which charge it is that is given back: one that was made long ago must not give what is not there any more.

use std::time::Duration;

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRng, TestRunner},
};
use sluicegate::{
    Limit, MemoryStore, Quota,
    store::{Answer, Ask, Id, Line, Purpose, Scope, Store, Time},
};

use crate::{
    support::{
        server::{Server, VERSIONS, Version},
        stores::{BEGIN, namespace, patient},
    },
    traces::{NAMES, rule},
};

/// One rule and one key.
struct Count {
    scope: Scope,
    limit: Limit,
}

impl Count {
    fn new(name: &'static str, quota: Quota, burst: u64) -> Count {
        Count { scope: Scope::new(&namespace(), name), limit: rule(name, quota, burst).check().expect("sound") }
    }

    async fn ask(&self, store: &dyn Store, purpose: Purpose, cost: u64, now: Duration, receipt: u64) -> Answer {
        let lines = [Line { receipt, ..Line::new(&self.scope, b"k", &self.limit, cost) }];
        let time = Time::Injected(now.as_micros() as u64);
        store.acquire(&Ask { lines: &lines, purpose, time }).await.expect("an answer")
    }

    /// The receipt, if it was admitted.
    async fn spend(&self, store: &dyn Store, cost: u64, now: Duration) -> Option<u64> {
        let answer = self.ask(store, Purpose::Spend, cost, now, 0).await;
        answer.fits().then(|| answer.verdicts()[0].receipt)
    }

    async fn give(&self, store: &dyn Store, cost: u64, now: Duration, receipt: u64) -> Answer {
        self.ask(store, Purpose::Give(Id::random()), cost, now, receipt).await
    }

    async fn left(&self, store: &dyn Store, now: Duration) -> u64 {
        self.ask(store, Purpose::Peek, 0, now, 0).await.verdicts()[0].remaining
    }
}

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    /// Of somebody else.
    Spend(u64),
    /// To be given back later.
    Reserve(u64),
    GiveBack(usize),
}

fn trace() -> impl Strategy<Value = Vec<Step>> {
    let pass = prop_oneof![3 => 0u64..400_000, 1 => 0u64..2_500_000, 1 => Just(1_000_000)];
    let step = prop_oneof![
        4 => pass.prop_map(Step::Pass),
        3 => (1u64..4).prop_map(Step::Spend),
        3 => (1u64..4).prop_map(Step::Reserve),
        3 => (0usize..4).prop_map(Step::GiveBack),
    ];
    prop::collection::vec(step, 1..40)
}

fn runner(seed: u8) -> TestRunner {
    TestRunner::new_with_rng(Config::default(), TestRng::from_seed(Default::default(), &[seed; 32]))
}

/// Beside each count runs one that was never charged what is given back. What is left is never more than there, so every request
/// that the first admits would have been admitted there too; and for counts that know which charge it was, it is no less.
#[tokio::test]
async fn what_is_given_back_leaves_no_more_than_if_it_had_never_been_charged() {
    // The others begin their windows with the first charge, which here is not the same for both.
    for (seed, name) in (0..).zip(["fixed", "log", "bucket", "gcra", "leaky"]) {
        let mut runner = runner(seed);
        for round in 0..400u64 {
            let amount = [7, 10, 999_983][(round % 3) as usize];
            let count = Count::new(name, Quota::per(amount, Duration::from_secs(1)), 7);
            let (store, never) = (MemoryStore::new(), MemoryStore::new());
            let steps = trace().new_tree(&mut runner).expect("a trace").current();
            let (mut now, mut reserved) = (BEGIN, Vec::new());
            for step in &steps {
                match *step {
                    Step::Pass(micros) => now += Duration::from_micros(micros),
                    Step::Spend(cost) => {
                        if count.spend(&store, cost, now).await.is_some() {
                            assert!(count.spend(&never, cost, now).await.is_some(), "{name} {steps:?}");
                        }
                    }
                    Step::Reserve(cost) => {
                        reserved.extend(count.spend(&store, cost, now).await.map(|receipt| (cost, receipt)));
                    }
                    Step::GiveBack(place) if place < reserved.len() => {
                        let (cost, receipt) = reserved.remove(place);
                        count.give(&store, cost, now, receipt).await;
                    }
                    Step::GiveBack(_) => {}
                }
                let (left, most) = (count.left(&store, now).await, count.left(&never, now).await);
                assert!(left <= most, "{name} has {left} left, not {most}: {:?} {steps:?}", count.limit);
                if reserved.is_empty() && matches!(name, "fixed" | "log") {
                    assert_eq!(left, most, "{name} {steps:?}");
                }
            }
        }
    }
}

/// Charged in one window and given back in the next, where somebody else was charged since.
#[tokio::test]
async fn nothing_is_given_back_once_the_charge_no_longer_counts() {
    let servers = VERSIONS.map(|version| (format!("{version:?}"), patient(&version.shared().url())));
    let memory = MemoryStore::new();
    let mut stores: Vec<(&str, &dyn Store)> = servers.iter().map(|(name, store)| (&**name, store as _)).collect();
    stores.push(("memory", &memory));
    for (store_name, store) in stores {
        for name in NAMES {
            let count = Count::new(name, Quota::per(4, Duration::from_secs(1)), 4);
            let receipt = count.spend(store, 4, BEGIN).await.expect("room");
            let later = match name {
                "counter" => 2,
                "month" => 31 * 86_400,
                _ => 1,
            };
            let later = BEGIN + Duration::from_secs(later);
            assert!(count.spend(store, 3, later).await.is_some(), "{store_name} {name}");
            let given = count.give(store, 4, later, receipt).await;
            assert_eq!(given.verdicts()[0].remaining, 1, "{store_name} {name}");
            assert_eq!(count.left(store, later).await, 1, "{store_name} {name}");
        }
    }
}

/// In time a charge is given back whole, whoever came since, and of a fading window as much as still weighs.
#[tokio::test]
async fn a_charge_is_given_back_whole_behind_others() {
    let servers = VERSIONS.map(|version| patient(&version.shared().url()));
    for store in &servers {
        for name in NAMES {
            let count = Count::new(name, Quota::per(10, Duration::from_secs(10)), 10);
            assert!(count.spend(store, 4, BEGIN).await.is_some());
            let receipt = count.spend(store, 2, BEGIN).await.expect("room");
            let later = BEGIN + Duration::from_millis(500);
            assert!(count.spend(store, 3, later).await.is_some(), "{name}");
            let before = count.left(store, later).await;
            assert_eq!(count.give(store, 2, later, receipt).await.verdicts()[0].remaining, before + 2, "{name}");
        }
        let counter = Count::new("counter", Quota::per(10, Duration::from_secs(10)), 10);
        let receipt = counter.spend(store, 8, BEGIN).await.expect("room");
        let later = BEGIN + Duration::from_secs(15);
        assert!(counter.spend(store, 2, later).await.is_some());
        assert_eq!(counter.left(store, later).await, 4);
        assert_eq!(counter.give(store, 6, later, receipt).await.verdicts()[0].remaining, 7);
    }
}

/// More entries than are written anew: the log gives back from its oldest, alike in Rust and Lua.
#[tokio::test]
async fn a_long_log_gives_back_alike_in_rust_and_lua() {
    for version in VERSIONS {
        let server = patient(&version.shared().url());
        let mut runner = runner(9);
        for _ in 0..10 {
            let memory = MemoryStore::new();
            let count = Count::new("log", Quota::per(300, Duration::from_secs(1)), 1);
            let costs = prop::collection::vec((1u64..4, 0u64..8_000), 140);
            let gives = prop::collection::vec((0usize..140, 1u64..40, 0u64..40_000), 30);
            let (costs, gives) = (costs, gives).new_tree(&mut runner).expect("a trace").current();
            let (mut now, mut receipts) = (BEGIN, Vec::new());
            for (cost, pass) in costs {
                now += Duration::from_micros(pass);
                let answer = count.ask(&memory, Purpose::Spend, cost, now, 0).await;
                assert_eq!(answer, count.ask(&server, Purpose::Spend, cost, now, 0).await);
                receipts.push(answer.verdicts()[0].receipt);
            }
            for (which, cost, pass) in gives {
                now += Duration::from_micros(pass);
                let expected = count.give(&memory, cost, now, receipts[which]).await;
                assert_eq!(expected, count.give(&server, cost, now, receipts[which]).await, "{version:?}");
                for ask in [(Purpose::Peek, 290), (Purpose::Spend, 1)] {
                    let expected = count.ask(&memory, ask.0, ask.1, now, 0).await;
                    assert_eq!(expected, count.ask(&server, ask.0, ask.1, now, 0).await, "{version:?}");
                }
            }
        }
    }
}

/// What a user may do by the line in the guide is enough to give back from a long log, too.
#[tokio::test]
async fn a_long_log_gives_back_with_the_least_permissions() {
    let server = Server::start(Version::Redis7);
    let mut connection = server.connection().await;
    let guide = include_str!("../../src/docs/operations.md");
    let line = guide.lines().find(|line| line.starts_with("ACL SETUSER shop")).expect("the line");
    let mut words = line.split(' ').map(|word| if word == "~shop:*" { "~*" } else { word });
    let mut command = redis::cmd(words.next().expect("a command"));
    for word in words {
        command.arg(word);
    }
    command.query_async::<()>(&mut connection).await.expect("a user");
    let store = patient(&format!("redis://shop:password@127.0.0.1:{}", server.port));
    let count = Count::new("log", Quota::per(300, Duration::from_secs(1)), 1);
    let first = count.spend(&store, 1, BEGIN).await.expect("room");
    for _ in 0..100 {
        assert!(count.spend(&store, 1, BEGIN).await.is_some());
    }
    assert_eq!(count.give(&store, 1, BEGIN, first).await.verdicts()[0].remaining, 200);
}
