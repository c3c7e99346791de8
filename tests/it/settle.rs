//! Taking what was admitted elsewhere and giving back what was charged: alike on every store, once for each id, and never
//! above or below what there is.

use std::{sync::Arc, time::Duration};

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRng, TestRunner},
};
use sluicegate::{
    Limit, MemoryStore, Quota, RedisStore, StoreErrorKind,
    store::{Answer, Ask, GIVE_RECORD_TTL, Id, Line, Purpose, RECORD_TTL, Scope, Store, Time, Verdict, Wait},
};

use crate::{
    support::{
        server::{Server, VERSIONS, Version},
        stores::{BEGIN, namespace, patient, patient_with_functions},
    },
    traces::{ALL, NAMES, quotas, rule},
};

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    /// Time passes, in thousandths of the window.
    Pass(u64),
    Back(u64),
    Spend(u64),
    Peek(u64),
    Take(u64),
    Owe(u64),
    /// What was charged, so many charges before the last.
    Give(u64, usize),
    /// The last change is asked for again, as one or the other.
    Again(bool, u64),
    /// Another quota: one of a few.
    Change(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let cost = || prop_oneof![4 => Just(1u64), 3 => 0u64..6, 1 => 0u64..60, 1 => Just(u64::MAX)];
    prop_oneof![
        8 => prop_oneof![3 => 0u64..300, 1 => 0u64..3_000].prop_map(Step::Pass),
        1 => (0u64..2_000).prop_map(Step::Back),
        12 => cost().prop_map(Step::Spend),
        2 => cost().prop_map(Step::Peek),
        6 => cost().prop_map(Step::Take),
        4 => cost().prop_map(Step::Owe),
        10 => (cost(), 0usize..4).prop_map(|(cost, before)| Step::Give(cost, before)),
        3 => (any::<bool>(), cost()).prop_map(|(give, cost)| Step::Again(give, cost)),
        1 => (0usize..8).prop_map(Step::Change),
    ]
}

fn traces(seed: u8) -> impl Iterator<Item = (Vec<(Quota, u64)>, Vec<Step>)> {
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(Default::default(), &[seed; 32]));
    let strategy = (prop::collection::vec(quotas(), 64), prop::collection::vec(step(), 120));
    std::iter::from_fn(move || Some(strategy.new_tree(&mut runner).expect("a trace").current()))
}

/// Rules under one key.
struct Subject {
    scopes: Vec<Scope>,
    limits: Vec<Limit>,
}

impl Subject {
    fn new(names: &[&'static str]) -> Subject {
        let namespace = namespace();
        let scopes = (0..).zip(names).map(|(place, name)| Scope::new(&namespace, &format!("{name} {place}")));
        Subject { scopes: scopes.collect::<Vec<_>>(), limits: Vec::new() }
    }

    /// Quotas for its rules, if they can be counted.
    fn set(&mut self, names: &[&'static str], quotas: &[(Quota, u64)]) -> bool {
        let limits = names.iter().zip(quotas).map(|(name, (quota, burst))| rule(name, *quota, *burst).check());
        match limits.collect() {
            Ok(limits) => {
                self.limits = limits;
                true
            }
            Err(_) => false,
        }
    }

    fn line(&self, place: usize, cost: u64) -> Line<'_> {
        Line::new(&self.scopes[place], b"k", &self.limits[place], cost)
    }

    async fn ask(&self, store: &dyn Store, purpose: Purpose, cost: u64, now: Duration) -> Answer {
        self.ask_for(store, purpose, cost, now, &[]).await
    }

    /// Gives back what this answer has charged.
    async fn give(&self, store: &dyn Store, id: Id, cost: u64, now: Duration, charged: &Answer) -> Answer {
        self.ask_for(store, Purpose::Give(id), cost, now, charged.verdicts()).await
    }

    async fn ask_for(
        &self,
        store: &dyn Store,
        purpose: Purpose,
        cost: u64,
        now: Duration,
        charged: &[Verdict],
    ) -> Answer {
        let receipt = |place: usize| charged.get(place).map_or(0, |verdict| verdict.receipt);
        let lines = (0..self.scopes.len()).map(|place| Line { receipt: receipt(place), ..self.line(place, cost) });
        let (lines, time) = (lines.collect::<Vec<_>>(), Time::Injected(now.as_micros() as u64));
        store.acquire(&Ask { lines: &lines, purpose, time }).await.expect("an answer")
    }

    async fn peek(&self, store: &dyn Store, now: Duration) -> Vec<Verdict> {
        self.ask(store, Purpose::Peek, 0, now).await.verdicts().to_vec()
    }
}

/// Runs one trace over the memory store and a server, and compares every answer.
async fn compare(server: &dyn Store, names: &[&'static str], (quotas, steps): &(Vec<(Quota, u64)>, Vec<Step>)) {
    let memory = MemoryStore::new();
    let mut subject = Subject::new(names);
    let quotas_at = |choice: usize| &quotas[choice * names.len() % (quotas.len() - names.len())..];
    if !subject.set(names, quotas_at(0)) {
        return;
    }
    let (mut now, mut last) = (BEGIN, Id::random());
    // The oldest last.
    let mut charges: Vec<Answer> = vec![Answer::default()];
    for (place, step) in steps.iter().enumerate() {
        // A log on Redis keeps the lowest bits of times: what nobody has touched for years has long expired there.
        let window = subject.limits[0].quota().window().min(Duration::from_secs(30 * 86_400));
        let share = |thousandths: u64| Duration::from_micros(window.as_micros() as u64 * thousandths / 1_000);
        let (purpose, cost) = match *step {
            Step::Pass(thousandths) => {
                now += share(thousandths);
                continue;
            }
            Step::Back(thousandths) => {
                now = now.saturating_sub(share(thousandths));
                continue;
            }
            Step::Change(choice) => {
                subject.set(names, quotas_at(choice));
                continue;
            }
            Step::Spend(cost) => (Purpose::Spend, cost),
            Step::Peek(cost) => (Purpose::Peek, cost),
            Step::Take(cost) => (Purpose::Take(Id::random()), cost),
            Step::Owe(cost) => (Purpose::Owe(Id::random()), cost),
            Step::Give(cost, _) => (Purpose::Give(Id::random()), cost),
            Step::Again(true, cost) => (Purpose::Give(last), cost),
            Step::Again(false, cost) => (Purpose::Take(last), cost),
        };
        let before = if let Step::Give(_, before) = step { *before } else { 0 };
        let charged = charges.get(before).unwrap_or(&charges[0]).verdicts();
        let expected = subject.ask_for(&memory, purpose, cost, now, charged).await;
        let got = subject.ask_for(server, purpose, cost, now, charged).await;
        assert_eq!(expected, got, "step {place} {step:?} of {names:?}\n{:?}\n{:?}", subject.limits, &steps[..=place]);
        if let Some(id) = purpose.id() {
            assert!(got.fits());
            last = id;
        }
        if let Purpose::Spend | Purpose::Take(_) = purpose {
            charges.insert(0, got);
        }
    }
}

#[tokio::test]
async fn every_algorithm_takes_and_gives_alike_in_rust_and_lua() {
    for version in VERSIONS {
        let server = patient(&version.shared().url());
        for (seed, name) in (0..).zip(ALL) {
            for trace in traces(seed).take(20) {
                compare(&server, &[name], &trace).await;
            }
        }
    }
}

#[tokio::test]
async fn all_algorithms_in_one_change_agree() {
    // Twice over they are more than a script has local variables for.
    let twice = [ALL, ALL].concat();
    for version in VERSIONS {
        let server = patient(&version.shared().url());
        for trace in traces(78).take(20) {
            compare(&server, &ALL, &trace).await;
        }
        let functions = patient_with_functions(&version.shared().url());
        for trace in traces(79).take(10) {
            compare(&server, &twice, &trace).await;
            compare(&functions, &ALL, &trace).await;
        }
    }
}

/// The memory store and every server, by scripts and by functions.
fn stores() -> Vec<(String, Arc<dyn Store>)> {
    let servers = VERSIONS.map(|version| -> (String, Arc<dyn Store>) {
        (format!("{version:?}"), Arc::new(patient(&version.shared().url())))
    });
    let functions = [Version::Redis7, Version::Valkey9].map(|version| -> (String, Arc<dyn Store>) {
        (format!("{version:?} with functions"), Arc::new(patient_with_functions(&version.shared().url())))
    });
    let memory: (String, Arc<dyn Store>) = ("memory".to_owned(), Arc::new(MemoryStore::new()));
    std::iter::once(memory).chain(servers).chain(functions).collect()
}

/// Charges and gives back at random instants: what is left is never above the capacity, and at the same instant a charge that
/// is given back leaves everything as it was.
#[tokio::test]
async fn what_is_charged_and_given_back_was_never_charged() {
    for (store_name, store) in stores() {
        for name in NAMES {
            let mut subject = Subject::new(&[name]);
            assert!(subject.set(&[name], &[(Quota::per(7, Duration::from_micros(1_000_003)), 7)]));
            let mut now = BEGIN;
            for round in 0..40u64 {
                now += Duration::from_micros(round * 7_919 % 300_000);
                subject.ask(&*store, Purpose::Spend, round % 3, now).await;
                let before = subject.peek(&*store, now).await;
                let cost = round % 5;
                let charged = subject.ask(&*store, Purpose::Spend, cost, now).await;
                if !charged.fits() {
                    continue;
                }
                let given = subject.give(&*store, Id::random(), cost, now, &charged).await;
                let place = format!("{store_name} {name} round {round}");
                assert_eq!(given.verdicts(), before, "{place}");
                assert_eq!(subject.peek(&*store, now).await, before, "{place}");
            }
            // More than was ever charged.
            now += Duration::from_secs(60);
            let charged = subject.ask(&*store, Purpose::Spend, 5, now).await;
            let all = subject.give(&*store, Id::random(), 1_000, now, &charged).await;
            assert_eq!(all.verdicts()[0].remaining, 7, "{store_name} {name}");
            assert_eq!(subject.peek(&*store, now).await[0].reset_after, 0, "{store_name} {name}");
        }
    }
}

#[tokio::test]
async fn a_change_is_made_once_and_takes_no_more_than_there_is() {
    for (store_name, store) in stores() {
        for name in NAMES {
            let mut subject = Subject::new(&[name]);
            assert!(subject.set(&[name], &[(Quota::per_hour(10), 10)]));
            let charged = subject.ask(&*store, Purpose::Spend, 1, BEGIN).await;
            let remaining = async |purpose, cost| {
                let answer = subject.ask_for(&*store, purpose, cost, BEGIN, charged.verdicts()).await;
                assert_eq!(answer.verdicts()[0].wait, Wait::None);
                answer.verdicts()[0].remaining
            };
            let (taken, given) = (Purpose::Take(Id::random()), Purpose::Give(Id::random()));
            let place = format!("{store_name} {name}");
            assert_eq!(remaining(taken, 4).await, 5, "{place}");
            assert_eq!(remaining(taken, 4).await, 5, "{place}");
            assert_eq!(remaining(given, 1).await, 6, "{place}");
            assert_eq!(remaining(given, 1).await, 6, "{place}");
            assert_eq!(remaining(Purpose::Take(Id::random()), 50).await, 0, "{place}");
            assert_eq!(remaining(taken, 4).await, 0, "{place}");
            assert_eq!(remaining(Purpose::Take(Id::random()), 1).await, 0, "{place}");
            assert_eq!(remaining(Purpose::Give(Id::random()), 1).await, 1, "{place}");
        }
    }
}

/// Many ask for the same change at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_many_ask_for_at_once_is_made_once() {
    for (store_name, store) in stores() {
        let mut subject = Subject::new(&["bucket", "log"]);
        assert!(subject.set(&["bucket", "log"], &[(Quota::per_hour(100), 100), (Quota::per_hour(50), 1)]));
        let subject = Arc::new(subject);
        for round in 1..=5 {
            let id = Id::random();
            let asks: Vec<_> = (0..16)
                .map(|_| {
                    let (store, subject) = (Arc::clone(&store), Arc::clone(&subject));
                    tokio::spawn(async move { subject.ask(&*store, Purpose::Take(id), 7, BEGIN).await })
                })
                .collect();
            for ask in asks {
                let answer = ask.await.expect("no panic");
                let left: Vec<u64> = answer.verdicts().iter().map(|verdict| verdict.remaining).collect();
                assert_eq!(left, [100 - 7 * round, 50 - 7 * round], "{store_name}");
            }
        }
    }
}

#[tokio::test]
async fn giving_to_a_key_that_is_not_known_makes_none_and_a_record_stays_for_its_time() {
    let memory = MemoryStore::new();
    for name in NAMES {
        let mut subject = Subject::new(&[name]);
        assert!(subject.set(&[name], &[(Quota::per_hour(10), 10)]));
        subject.ask(&memory, Purpose::Give(Id::random()), 3, BEGIN).await;
        assert_eq!(memory.keys(), 0, "{name}");
        for version in VERSIONS {
            let (server, mut connection) = (patient(&version.shared().url()), version.shared().connection().await);
            let id = Id::random();
            subject.ask(&server, Purpose::Give(id), 3, BEGIN).await;
            let of = |piece: usize| String::from_utf8(subject.line(0, 0).name()[..piece].concat()).expect("text");
            let exists: bool = redis::cmd("EXISTS").arg(of(3)).query_async(&mut connection).await.expect("a reply");
            assert!(!exists, "{version:?} {name}");
            let record = format!("{}}}#{:032x}", of(2), id.bits());
            let ttl: i64 = redis::cmd("PTTL").arg(record).query_async(&mut connection).await.expect("a reply");
            let most = GIVE_RECORD_TTL.as_millis() as i64;
            assert!((most - 20_000..=most).contains(&ttl), "{version:?} {name}: {ttl}");
            let id = Id::random();
            subject.ask(&server, Purpose::Take(id), 3, BEGIN).await;
            let record = format!("{}}}#{:032x}", of(2), id.bits());
            let ttl: i64 = redis::cmd("PTTL").arg(record).query_async(&mut connection).await.expect("a reply");
            let most = RECORD_TTL.as_millis() as i64;
            assert!((most - 60_000..=most).contains(&ttl), "{version:?} {name}: {ttl}");
        }
    }
}

/// A change that lay in the socket of a server that hung is not made when the server wakes; asked for again it is made, once.
#[tokio::test]
async fn a_change_that_comes_too_late_is_made_when_it_is_asked_for_again() {
    for version in VERSIONS {
        let server = Server::start(version);
        let store =
            RedisStore::builder(server.url()).deadline(Duration::from_millis(300)).bare().build().expect("sound");
        let mut subject = Subject::new(&["gcra"]);
        assert!(subject.set(&["gcra"], &[(Quota::per_hour(10), 10)]));
        let lines = [subject.line(0, 4)];
        let ask = async |purpose| {
            let answer = store.acquire(&Ask { lines: &lines, purpose, time: Time::Store }).await;
            answer.map(|answer| answer.verdicts()[0].remaining).map_err(|error| error.kind())
        };
        while ask(Purpose::Peek).await != Ok(10) {}
        // A script that the server does not know yet would not be run by the late call in any case.
        assert_eq!(ask(Purpose::Take(Id::random())).await, Ok(6), "{version:?}");
        let taken = Purpose::Take(Id::random());
        server.signal("STOP");
        assert_eq!(ask(taken).await, Err(StoreErrorKind::Timeout));
        assert_eq!(ask(Purpose::Peek).await, Err(StoreErrorKind::Timeout), "and some time passes");
        server.signal("CONT");
        assert_eq!(ask(Purpose::Peek).await, Ok(6), "{version:?}");
        assert_eq!(ask(taken).await, Ok(2), "{version:?}");
        assert_eq!(ask(taken).await, Ok(2), "{version:?}");
    }
}

/// What was charged to the count that newcomers share is given back there.
#[tokio::test]
async fn a_full_memory_store_takes_and_gives_by_the_count_that_newcomers_share() {
    let store = MemoryStore::new().max_keys(0);
    let mut subject = Subject::new(&["gcra", "log"]);
    assert!(subject.set(&["gcra", "log"], &[(Quota::per_hour(10), 10), (Quota::per_hour(10), 1)]));
    let (taken, given) = (Purpose::Take(Id::random()), Purpose::Give(Id::random()));
    let charged = subject.ask(&store, Purpose::Spend, 4, BEGIN).await;
    for (purpose, left) in [(taken, 2), (taken, 2), (given, 6), (given, 6), (Purpose::Peek, 6)] {
        let answer = subject.ask_for(&store, purpose, 4, BEGIN, charged.verdicts()).await;
        let remaining: Vec<u64> = answer.verdicts().iter().map(|verdict| verdict.remaining).collect();
        assert_eq!(remaining, [left, left], "{purpose:?}");
    }
}

/// What a token bucket lacks it owes, and later requests wait it off; others are charged what is left.
#[tokio::test]
async fn a_debt_is_waited_off() {
    for (store_name, store) in stores() {
        for name in NAMES {
            let mut subject = Subject::new(&[name]);
            assert!(subject.set(&[name], &[(Quota::per(10, Duration::from_secs(10)), 10)]));
            let place = format!("{store_name} {name}");
            let owed = Purpose::Owe(Id::random());
            for _ in 0..2 {
                assert_eq!(subject.ask(&*store, owed, 25, BEGIN).await.verdicts()[0].remaining, 0, "{place}");
            }
            let refused = subject.ask(&*store, Purpose::Spend, 1, BEGIN).await.verdicts()[0];
            if name == "bucket" {
                assert_eq!(refused.wait, Wait::Micros(16_000_000), "{place}");
                assert_eq!(refused.reset_after, 25_000_000, "{place}");
                let earlier = BEGIN + Duration::from_micros(15_999_999);
                assert!(!subject.ask(&*store, Purpose::Spend, 1, earlier).await.fits(), "{place}");
            }
            assert_ne!(refused.wait, Wait::None, "{place}");
            // What costs nothing waits for nothing.
            assert!(subject.ask(&*store, Purpose::Spend, 0, BEGIN).await.fits(), "{place}");
            let later = BEGIN + Duration::from_secs(if name == "month" { 32 * 86_400 } else { 20 });
            assert!(subject.ask(&*store, Purpose::Spend, 1, later).await.fits(), "{place}");
        }
    }
}
