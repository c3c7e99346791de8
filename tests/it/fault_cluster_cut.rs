//! Answers of a Cluster that are lost after a node has decided: each rule is charged once at most, whatever the caller saw.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use redis::aio::MultiplexedConnection;
use sluicegate::{Call, Decision, Limiter, LimiterBuilder, Quota, RedisStore, Resilient, Rule, key};
use tokio::sync::MutexGuard;

use crate::support::{
    checker::{Checker, RULE},
    cluster::{Cluster, PLAIN, Shape, slot},
    fault_proxy::{Counts, FaultProxy},
    faulted::{OPEN, PATIENT},
    leak::{Room, leaves, one_thread},
    load::{alone, soak, warm},
    server::{Version, free_port},
};

/// Each with connections of its own to three nodes: who has just lost one waits for the next.
const STORES: usize = 32;
const CALLERS: usize = 2 * STORES;

/// The second rule of decisions that have two, and how far its keys are from those of the first.
const OTHER: &str = "other";
const APART: u64 = 10_000_000;

/// What a caller was told of the charge of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Charged,
    NotCharged,
    Unknown,
}

/// What it was told of each of its rules.
fn told(decision: &Decision, rules: usize, resilient: bool) -> Vec<Told> {
    assert!(decision.is_allowed(), "there is room: {decision:?}");
    let Some(error) = decision.failure() else { return vec![Told::Charged; rules] };
    let partial = error.partial();
    // Each rule by the failure of its own node.
    let own = |rule: usize| partial.and_then(|known| known.errors().get(rule)?.as_ref()).unwrap_or(error);
    if resilient {
        // What the store missed it is told of later.
        let told = |rule| if own(rule).may_have_charged() { Told::Unknown } else { Told::Charged };
        return (0..rules).map(told).collect();
    }
    let is_charged = |rule: usize| partial.is_some_and(|known| known.is_charged() && known.verdicts()[rule].is_some());
    let told = |rule| match () {
        () if is_charged(rule) => Told::Charged,
        () if own(rule).may_have_charged() => Told::Unknown,
        () => Told::NotCharged,
    };
    (0..rules).map(told).collect()
}

type Records = Arc<Mutex<Vec<(u64, Vec<Told>)>>>;

/// One caller: so many decisions that reached a node.
async fn call(limiter: Limiter, checker: Arc<Checker>, records: Records, rules: usize, resilient: bool, mut left: u64) {
    while left > 0 {
        let id = checker.sent();
        let call = Call::new().key(RULE, id);
        let call = if rules == 2 { call.key(OTHER, id + APART) } else { call };
        let decision = limiter.acquire(call).await;
        records.lock().expect("no panic").push((id, told(&decision, rules, resilient)));
        if decision.failure().is_some_and(|error| !error.may_have_charged()) {
            // Nothing is told of the time at which a connection may be tried again, and nobody tries but who is asked.
            tokio::time::sleep(Duration::from_millis(20)).await;
        } else {
            left -= 1;
        }
    }
}

/// What the nodes charged of what callers know nothing of, for decisions of one rule and of two, and what is still to be charged.
fn compare(records: &Records, charged: impl Fn(usize, u64) -> u64) -> ([u64; 2], u64) {
    let (mut unanswered, mut owed) = ([0; 2], 0);
    for (id, rules) in &*records.lock().expect("no panic") {
        for (rule, told) in rules.iter().enumerate() {
            let charged = charged(rule, *id);
            let most = u64::from(*told != Told::NotCharged);
            assert!(charged <= most, "rule {rule} of decision {id} was charged {charged} times: {told:?}");
            unanswered[rules.len() - 1] += if *told == Told::Unknown { charged } else { 0 };
            owed += u64::from(*told == Told::Charged && charged == 0);
        }
    }
    (unanswered, owed)
}

/// Keys from here on are in no record.
const NOBODYS: u64 = 1 << 40;

/// Stores and callers around a Cluster behind proxies.
struct Cut {
    _cluster: Cluster,
    proxies: [FaultProxy; 3],
    limiters: Vec<Limiter>,
    checker: Arc<Checker>,
    records: Records,
    /// A key of each node that is in no record.
    of_each: Vec<u64>,
    direct: Vec<MultiplexedConnection>,
    _alone: MutexGuard<'static, ()>,
}

async fn begin(resilient: bool) -> Cut {
    let _alone = alone().await;
    let ports = [free_port(), free_port(), free_port()];
    let proxies = [0, 1, 2].map(|node| FaultProxy::start(ports[node], 5 + node as u64));
    let announced = proxies.each_ref().map(|proxy| proxy.port);
    let cluster = Cluster::start(Version::Redis7, Shape { ports: &ports, announced: &announced, ..PLAIN });
    let store = || cluster.builder().bare().deadline(PATIENT).build().expect("sound");
    let other = || Rule::fixed_window(OTHER, Quota::per_hour(1_000)).from_first_request().key(key::given());
    let builder = |store: RedisStore| -> LimiterBuilder {
        // As by default, but for the time that breakers are open.
        if resilient { Limiter::builder(Resilient::new(store).open_for(OPEN)) } else { Limiter::builder(store) }
    };
    let (checker, first) = Checker::begin(builder(store()).rule(other()));
    let more = (1..STORES).map(|_| checker.another(builder(store()).rule(other())));
    let limiters: Vec<Limiter> = std::iter::once(first.clone()).chain(more).collect();
    for limiter in &limiters {
        warm(limiter).await;
    }
    let (checker, records) = (Arc::new(checker), Records::default());
    // Every node gets its scripts.
    call(first, Arc::clone(&checker), Arc::clone(&records), 2, resilient, 20).await;
    let of_each: Vec<u64> =
        (0..3).map(|node| (NOBODYS..).find(|id| cluster.owner(slot(&id.to_string())) == node).expect("some")).collect();
    for (limiter, id) in limiters.iter().flat_map(|limiter| of_each.iter().map(move |id| (limiter, *id))) {
        assert!(limiter.acquire([(RULE, id)]).await.failure().is_none(), "every store has all its connections");
    }
    let mut direct = Vec::new();
    for node in &cluster.nodes {
        direct.push(node.connection().await);
    }
    Cut { _cluster: cluster, proxies, limiters, checker, records, of_each, direct, _alone }
}

/// Half of the decisions are over one rule, half over two, most of whose keys lie in two slots.
async fn cut(cut: &mut Cut, resilient: bool) {
    let Cut { proxies, limiters, checker, records, of_each, direct, .. } = cut;
    let decisions = if soak() { 100_000 } else { 9_600 };
    proxies.iter().for_each(|proxy| proxy.set(|faults| faults.cut = 10));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (limiter, checker, records) =
                (limiters[caller % STORES].clone(), Arc::clone(checker), Arc::clone(records));
            let rules = 1 + caller / STORES;
            tokio::spawn(call(limiter, checker, records, rules, resilient, decisions / CALLERS as u64))
        })
        .collect();
    for caller in callers {
        caller.await.expect("no panic");
    }
    proxies.iter().for_each(FaultProxy::heal);
    let since = Instant::now();
    let unanswered = loop {
        let (first, second) = (checker.counts(RULE, direct).await, checker.counts(OTHER, direct).await);
        let counts = [first, second];
        let (unanswered, owed) =
            compare(records, |rule, id| *counts[rule].get(&(id + APART * rule as u64)).unwrap_or(&0));
        if owed == 0 {
            break unanswered;
        }
        assert!(resilient, "{owed} that were admitted are not charged");
        assert!(since.elapsed() < Duration::from_secs(20), "{owed} are not charged");
        // An answer of any node makes a store tell what it owes.
        for limiter in &*limiters {
            for id in &*of_each {
                let _ = limiter.acquire([(RULE, *id)]).await;
            }
        }
    };
    let sum = |count: fn(&Counts) -> &std::sync::atomic::AtomicU64| -> u64 {
        proxies.iter().map(|proxy| Counts::of(count(&proxy.counts))).sum()
    };
    let (cut, along) = (sum(|counts| &counts.cut), sum(|counts| &counts.cut_along));
    assert!(cut >= decisions / 200, "{cut} answers were cut off");
    let say = || format!("{unanswered:?} charged without an answer, {cut} + {along} answers cut off");
    let [one, two] = unanswered;
    assert!(one > 0 && two > 0, "{}", say());
    if resilient {
        // The answers to what a store is told later may be lost as well. Of two rules one may have been answered.
        assert!(one <= cut + along, "{}", say());
    } else {
        assert_eq!(one + two, cut + along, "{}", say());
    }
    // The test's own notes.
    *records.lock().expect("no panic") = Vec::new();
}

fn cut_off(resilient: bool) {
    let runtime = one_thread();
    let mut begun = runtime.block_on(begin(resilient));
    // Each store's connections have other buffers now.
    let buffers = Room { pieces: 3, bytes: 32 << 10 };
    // Where it counted by itself, it has made tables for that: two for each of the 64 parts of a count in memory. They are made once, and
    // grow by the keys that were counted in them, which are remembered for an hour as their windows are.
    let tables = Room { pieces: 2 * 64, bytes: if soak() { 256 << 10 } else { 96 << 10 } };
    let each = if resilient {
        Room { pieces: buffers.pieces + tables.pieces, bytes: buffers.bytes + tables.bytes }
    } else {
        buffers
    };
    let room = Room { pieces: each.pieces * STORES as i64, bytes: each.bytes * STORES as i64 };
    leaves(&runtime, room, cut(&mut begun, resilient));
}

#[test]
fn one_answer_of_a_hundred_is_cut_off() {
    cut_off(false);
}

#[test]
fn one_answer_of_a_hundred_is_cut_off_and_the_store_is_told_later() {
    cut_off(true);
}
