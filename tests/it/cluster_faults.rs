//! Nodes of a Cluster that die or hang, and what the others make of it.

use std::time::{Duration, Instant};

use redis::cmd;
use sluicegate::{
    Call, Limiter, LimiterBuilder, OnFailure, Quota, RedisStore, Rule, StoreError, StoreErrorKind, key,
    store::{Answer, Ask, Line, Purpose, Scope, Store, Time},
};

use crate::support::{
    cluster::{CLUSTERS, Cluster, PLAIN, Shape},
    events::Events,
    server::{Version, free_port},
    stores::namespace,
};

const CAPACITY: u64 = 1_000_000;

fn rule(name: &str) -> Rule {
    Rule::fixed_window(name, Quota::per_hour(CAPACITY)).from_first_request().key(key::given())
}

/// Without the measures that limiters take around a store: this is about the store.
fn bare(cluster: &Cluster, deadline: Duration) -> RedisStore {
    cluster.builder().deadline(deadline).bare().build().expect("sound")
}

fn limiter(store: RedisStore) -> Limiter {
    Limiter::builder(store).namespace("faults").rule(rule("r")).build().expect("sound")
}

/// How long an answer takes, and why there was none.
async fn ask(limiter: &Limiter, key: &str) -> (Duration, Option<StoreError>) {
    let since = Instant::now();
    let decision = limiter.acquire([("r", key)]).await;
    (since.elapsed(), decision.failure().cloned())
}

async fn until_answered(limiter: &Limiter, key: &str, most: Duration) -> Duration {
    let since = Instant::now();
    while let (_, Some(error)) = ask(limiter, key).await {
        assert!(since.elapsed() < most, "no answer after {:?}: {error}", since.elapsed());
        tokio::task::yield_now().await;
    }
    since.elapsed()
}

/// How long answers of sound nodes take, and in turn with them those of a server that has nothing to do with it: what the
/// machine is busy with holds up both.
#[derive(Default)]
struct Times {
    sound: Vec<Duration>,
    elsewhere: Vec<Duration>,
}

impl Times {
    async fn measure(&mut self, limiter: &Limiter, keys: [&str; 2], elsewhere: &Limiter, rounds: usize) {
        for round in 0..rounds {
            for (limiter, times) in [(limiter, &mut self.sound), (elsewhere, &mut self.elsewhere)] {
                let (took, error) = ask(limiter, keys[round % 2]).await;
                assert_eq!(error, None);
                times.push(took);
            }
        }
    }

    /// Half of the answers take no longer than twice what they take elsewhere, and nineteen of twenty no longer than that and
    /// a slice of time, which a busy machine may give to somebody else first. What waits for a fault takes a deadline.
    fn check(self, version: Version) {
        let [sound, elsewhere] = [self.sound, self.elsewhere].map(|mut times| {
            times.sort_unstable();
            [times[times.len() / 2], times[times.len() * 95 / 100]]
        });
        let context = format!("{version:?}: {sound:?}, elsewhere {elsewhere:?}");
        assert!(sound[0] < elsewhere[0] * 2 + Duration::from_millis(1), "{context}");
        assert!(sound[1] < elsewhere[1] * 2 + Duration::from_millis(8), "{context}");
    }
}

/// A single server of the same version.
fn elsewhere(version: Version) -> Limiter {
    limiter(RedisStore::builder(version.shared().url()).deadline(Duration::from_secs(30)).build().expect("sound"))
}

fn parts(store: &RedisStore, keys: &[String; 3]) -> [usize; 3] {
    let (scope, limit) = (Scope::new("faults", "r"), rule("r").check().expect("sound"));
    keys.each_ref().map(|key| {
        let key = key.as_bytes();
        store.part(&Line::new(&scope, key, &limit, 1))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_is_killed_is_replaced_within_six_seconds_and_others_are_not_disturbed() {
    for version in CLUSTERS {
        let cluster = Cluster::start(version, Shape { replicas: 1, ..PLAIN });
        let keys = [0, 1, 2].map(|place| cluster.key_at(place, &[]));
        // Generous, so that a busy machine is not taken for a fault.
        let store = bare(&cluster, Duration::from_secs(1));
        let limiter = limiter(store.clone());
        for key in &keys {
            until_answered(&limiter, key, Duration::from_secs(5)).await;
        }
        let (others, elsewhere, mut times) = ([&*keys[0], &*keys[2]], elsewhere(version), Times::default());
        let before = parts(&store, &keys);
        cluster.nodes[1].signal("KILL");
        let (recovered, ()) = tokio::join!(
            until_answered(&limiter, &keys[1], Duration::from_secs(6)),
            times.measure(&limiter, others, &elsewhere, 1_000)
        );
        assert!(recovered > Duration::from_millis(500), "{version:?}: it was not down");
        crate::support::load::figure("failover", recovered);
        let after = parts(&store, &keys);
        assert_eq!([before[0], before[2]], [after[0], after[2]]);
        assert!(!before.contains(&after[1]), "the replica is another part: {before:?}, {after:?}");
        times.check(version);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_hangs_costs_its_own_slots_the_deadline_and_others_nothing() {
    for version in CLUSTERS {
        let cluster = Cluster::start(version, PLAIN);
        let keys = [0, 1, 2].map(|place| cluster.key_at(place, &[]));
        let deadline = Duration::from_millis(100);
        let limiter = limiter(bare(&cluster, deadline));
        for key in &keys {
            until_answered(&limiter, key, Duration::from_secs(5)).await;
        }
        let (others, elsewhere, mut times) = ([&*keys[0], &*keys[2]], elsewhere(version), Times::default());
        let before = limiter.peek([("r", &*keys[1])]).await;
        cluster.nodes[1].signal("STOP");
        let hung = tokio::spawn({
            let (limiter, key) = (limiter.clone(), keys[1].clone());
            async move {
                let mut asks = Vec::new();
                for _ in 0..8 {
                    asks.push(ask(&limiter, &key).await);
                }
                asks
            }
        });
        while !hung.is_finished() {
            times.measure(&limiter, others, &elsewhere, 50).await;
        }
        let mut hung = hung.await.expect("no panic");
        assert!(hung.iter().all(|(_, error)| error.as_ref().is_some_and(StoreError::is_timeout)), "{hung:?}");
        hung.sort_unstable_by_key(|(took, _)| *took);
        let took = hung[hung.len() / 2].0;
        assert!(
            took < deadline + Duration::from_millis(20),
            "{version:?}: {took:?} though the deadline is {deadline:?}"
        );
        times.check(version);
        cluster.nodes[1].signal("CONT");
        until_answered(&limiter, &keys[1], Duration::from_secs(5)).await;
        let after = limiter.peek([("r", &*keys[1])]).await;
        let left = |decision: &sluicegate::Decision| decision.standing("r").expect("it applies").remaining();
        assert_eq!(left(&before) - left(&after), 1, "{version:?}: what was asked of the hung node charged nothing");
    }
}

/// One of two slots fails: the caller learns how the other stands, and that it was charged; unless it refused.
#[tokio::test]
async fn an_ask_that_fails_in_part_tells_what_it_knows() {
    let cluster = Cluster::start(Version::Redis7, PLAIN);
    let keys = [0, 1, 2].map(|place| cluster.key_at(place, &[]));
    let store = bare(&cluster, Duration::from_millis(300));
    let namespace = namespace();
    let limits = [rule("a"), rule("b"), Rule::fixed_window("c", Quota::per_hour(1)).key(key::given())];
    let limits = limits.map(|rule| (Scope::new(&namespace, rule.name()), rule.check().expect("sound")));
    let lines: Vec<Line<'_>> = limits
        .iter()
        .zip(&keys)
        .map(|((scope, limit), key)| Line {
            on_failure: OnFailure::Allow,
            ..Line::new(scope, key.as_bytes(), limit, 1)
        })
        .collect();
    let asked = async |lines: &[Line<'_>], purpose| -> Result<Answer, StoreError> {
        store.acquire(&Ask { lines, purpose, time: Time::Store }).await
    };
    let since = Instant::now();
    while asked(&lines, Purpose::Peek).await.is_err() {
        assert!(since.elapsed() < Duration::from_secs(5));
    }
    let parts: Vec<usize> = lines.iter().map(|line| store.part(line)).collect();
    assert_eq!(parts, [1, 2, 3], "each has a node of its own");
    cluster.nodes[1].signal("STOP");
    let known = |error: &StoreError| {
        let partial = error.partial().expect("two of three answered").clone();
        let left = partial.verdicts().iter().map(|verdict| verdict.map(|verdict| verdict.remaining));
        (left.collect::<Vec<_>>(), partial.is_charged())
    };
    let error = asked(&lines, Purpose::Peek).await.expect_err("one hangs");
    assert_eq!(known(&error), (vec![Some(CAPACITY), None, Some(1)], false));
    let error = asked(&lines, Purpose::Spend).await.expect_err("one hangs");
    assert_eq!(error.kind(), StoreErrorKind::Timeout);
    assert!(error.may_have_charged());
    assert_eq!(known(&error), (vec![Some(CAPACITY - 1), None, Some(0)], true));
    let error = asked(&lines, Purpose::Spend).await.expect_err("one hangs");
    assert_eq!(known(&error), (vec![Some(CAPACITY - 1), None, Some(0)], false), "c refuses, a gets it back");
    let error = asked(&lines[1..2], Purpose::Spend).await.expect_err("it hangs");
    assert_eq!(error.partial(), None);
    let alone = asked(&lines[..1], Purpose::Peek).await.expect("it does not hang");
    assert_eq!(alone.verdicts()[0].remaining, CAPACITY - 1);
    // A rule that refuses what cannot be judged has refused, and nobody around the store gives back.
    let strict = [lines[0], Line { on_failure: OnFailure::Refuse, ..lines[1] }];
    let error = asked(&strict, Purpose::Spend).await.expect_err("one hangs");
    assert_eq!(known(&error), (vec![Some(CAPACITY - 1), None], false));
    let alone = asked(&lines[..1], Purpose::Peek).await.expect("it does not hang");
    assert_eq!(alone.verdicts()[0].remaining, CAPACITY - 1);
}

/// A charge whose node dies before it can be given back is lost to time, and said so.
#[tokio::test]
async fn a_charge_that_cannot_be_given_back_is_told_of() {
    let cluster = Cluster::start(Version::Valkey9, PLAIN);
    let keys = [0, 1].map(|place| cluster.key_at(place, &[]));
    let events = Events::default();
    let builder =
        Limiter::builder(bare(&cluster, Duration::from_secs(5))).namespace(namespace()).observer(events.clone());
    let rules = [rule("r"), Rule::fixed_window("one", Quota::per_hour(1)).key(key::given())];
    let limiter = rules.into_iter().fold(builder, LimiterBuilder::rule).build().expect("sound");
    let call = || Call::new().key("r", &*keys[0]).key("one", &*keys[1]);
    assert!(limiter.acquire(call()).await.is_allowed());
    // It lets the charge pass, and not the record that giving back leaves.
    cluster.nodes[0].ask::<()>(cmd("ACL").arg(&["SETUSER", "default", "resetkeys", "~*}:*"]));
    assert!(limiter.acquire(call()).await.is_refused());
    events.until(|events| events.not_given_back() == 1).await;
}

/// The first address hangs, and the second tells all the same; with nobody there, one who comes later is found.
#[tokio::test]
async fn a_seed_that_hangs_is_passed_by_and_one_that_comes_late_is_found() {
    let port = free_port();
    let seeds = |cluster: Option<&Cluster>| {
        let more = cluster.map(|cluster| cluster.nodes[1].url());
        let first = cluster.map_or(format!("redis://127.0.0.1:{port}"), |cluster| cluster.nodes[0].url());
        let urls: Vec<String> = [Some(first), more].into_iter().flatten().collect();
        limiter(RedisStore::builder(urls).cluster().bare().deadline(Duration::from_secs(2)).build().expect("sound"))
    };
    let early = seeds(None);
    let (_, error) = ask(&early, "k").await;
    assert_eq!(error.map(|error| error.kind()), Some(StoreErrorKind::Unavailable));
    let ports = [port, free_port(), free_port()];
    let cluster = Cluster::start(Version::Valkey9, Shape { ports: &ports, ..PLAIN });
    until_answered(&early, "k", Duration::from_secs(5)).await;
    cluster.nodes[0].signal("STOP");
    let (took, error) = ask(&seeds(Some(&cluster)), &cluster_key(&cluster)).await;
    assert_eq!(error, None, "after {took:?}");
}

/// One that the last primary keeps; the first may hang.
fn cluster_key(cluster: &Cluster) -> String {
    let slot = |key: &str| cluster.nodes[2].ask::<u16>(cmd("CLUSTER").arg("KEYSLOT").arg(key));
    (0..).map(|number| format!("k{number}")).find(|key| cluster.owner(slot(key)) == 2).expect("some key")
}
