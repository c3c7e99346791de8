//! Nodes of a Cluster that fail at the same time, each in its own way: each is judged by what it did itself.

use std::time::{Duration, Instant};

use redis::cmd;
use sluicegate::{
    Call, Limiter, LimiterBuilder, OnFailure, Quota, RedisStore, Rule, StoreError, StoreErrorKind, StoreEvent, key,
    store::{Line, Scope, Store},
};

use crate::support::{
    cluster::{CLUSTERS, Cluster, PLAIN, Shape, until},
    events::Events,
    log::Log,
    server::Version,
    stores::namespace,
};

const CAPACITY: u64 = 1_000_000;

/// Two rules, `denied` on the first node and `hung` on the second. Each has been asked once.
struct Two {
    cluster: Cluster,
    keys: [String; 2],
    store: RedisStore,
    limiter: Limiter,
    events: Events,
}

impl Two {
    async fn start(cluster: Cluster, on_failure: OnFailure) -> Two {
        let (keys, events) = ([0, 1].map(|place| cluster.key_at(place, &[])), Events::default());
        let store = cluster.builder().deadline(Duration::from_millis(300)).build().expect("sound");
        let rule = |name| Rule::fixed_window(name, Quota::per_day(CAPACITY)).key(key::given());
        let limiter = |builder| {
            let limiter = ["denied", "hung"].map(rule).into_iter().fold(builder, LimiterBuilder::rule);
            limiter.build().expect("sound")
        };
        let builder = Limiter::builder(store.clone()).namespace(namespace());
        let two = Two { cluster, keys, store: store.clone(), limiter: limiter(builder), events: Events::default() };
        let since = Instant::now();
        while two.peek().await.is_none() {
            assert!(since.elapsed() < Duration::from_secs(5), "not ready");
        }
        // Another one, which has neither failed nor logged anything.
        let builder = Limiter::builder(store).namespace(namespace()).observer(events.clone()).on_failure(on_failure);
        let two = Two { limiter: limiter(builder), events, ..two };
        assert!(two.limiter.acquire(two.both()).await.failure().is_none());
        two
    }

    fn both(&self) -> Call<'_> {
        Call::new().key("denied", &*self.keys[0]).key("hung", &*self.keys[1])
    }

    fn fail(&self) {
        self.cluster.nodes[0].ask::<()>(cmd("ACL").arg(&["SETUSER", "default", "-eval", "-evalsha"]));
        self.cluster.nodes[1].signal("STOP");
    }

    /// The number of the node that keeps the key at this place.
    fn part(&self, place: usize) -> usize {
        let limit = Rule::fixed_window("r", Quota::per_day(1)).key(key::given()).check().expect("sound");
        self.store.part(&Line::new(&Scope::new("ns", "r"), self.keys[place].as_bytes(), &limit, 1))
    }

    /// What is used of both, if both answer.
    async fn peek(&self) -> Option<[u64; 2]> {
        let decision = self.limiter.peek(self.both()).await;
        let used = |rule| CAPACITY - decision.standing(rule).map_or(CAPACITY, |standing| standing.remaining());
        decision.failure().is_none().then(|| [used("denied"), used("hung")])
    }
}

/// A missing permission opens no breaker, and keeps none from opening; and it is told of all the while.
#[tokio::test]
async fn one_that_hangs_opens_its_breaker_and_one_that_denies_shouts() {
    for version in CLUSTERS {
        let two = Two::start(Cluster::start(version, PLAIN), OnFailure::Allow).await;
        two.fail();
        let (log, _guard) = Log::begin();
        for _ in 0..5 {
            let decision = two.limiter.acquire(two.both()).await;
            assert!(decision.is_allowed() && decision.failure().is_some(), "{version:?}: {decision:?}");
        }
        let events = two.events.all();
        let opened = events.iter().filter_map(|event| match event {
            StoreEvent::Opened { part, error } => Some((*part, error.kind())),
            _ => None,
        });
        // Parts are numbered in the order of the map, which begins at slot 0.
        assert_eq!(opened.collect::<Vec<_>>(), [(2, StoreErrorKind::Timeout)], "{version:?}");
        let log = log.text();
        let shouted = log.lines().find(|line| line.contains("ERROR")).unwrap_or_else(|| panic!("{version:?}: {log}"));
        assert!(shouted.contains("NOPERM"), "{version:?}: {shouted}");
        let decision = two.limiter.acquire(two.both()).await;
        let kind = decision.failure().map(StoreError::kind);
        assert_eq!(kind, Some(StoreErrorKind::Permanent), "{version:?}: the other is not asked");
    }
}

/// What one node certainly did not charge is charged when it can be, though another may have charged its part.
#[tokio::test]
async fn a_node_that_may_have_charged_keeps_no_others_lines_from_being_committed() {
    for version in CLUSTERS {
        let two = Two::start(Cluster::start(version, PLAIN), OnFailure::Local).await;
        two.fail();
        for _ in 0..3 {
            let decision = two.limiter.acquire(two.both()).await;
            assert!(decision.is_allowed(), "{version:?}: {decision:?}");
            let error = decision.failure().expect("both fail");
            assert!(error.may_have_charged(), "{version:?}: {error}");
            let own = error.partial().expect("each has its own").errors().iter().flatten();
            let own: Vec<bool> = own.map(|error| error.may_have_charged()).collect();
            assert_eq!(own, [false, true], "{version:?}");
        }
        two.cluster.nodes[0].ask::<()>(cmd("ACL").arg(&["SETUSER", "default", "+eval", "+evalsha"]));
        two.cluster.nodes[1].signal("CONT");
        assert!(two.limiter.acquire([("denied", &*two.keys[0])]).await.failure().is_none());
        let committed = |event: &StoreEvent| matches!(event, StoreEvent::Committed { .. });
        two.events.until(|events| events.count(committed) > 0).await;
        let committed: Vec<StoreEvent> = two.events.all().into_iter().filter(committed).collect();
        assert_eq!(committed, [StoreEvent::Committed { counts: 1, units: 3 }], "{version:?}");
        let since = Instant::now();
        let mut used = None;
        while used.is_none() {
            assert!(since.elapsed() < Duration::from_secs(10), "{version:?}: one does not come back");
            used = two.peek().await;
        }
        // What the one that hung came to after its deadline was not charged.
        assert_eq!(used, Some([5, 1]), "{version:?}");
    }
}

/// Two primaries die, and their replicas take over one after the other: the second is found too, though it was not the last to
/// fail, and before anybody asks for what it keeps.
#[tokio::test]
async fn the_successors_of_two_that_die_at_once_are_both_found() {
    // It takes ten seconds.
    for version in [Version::Valkey9] {
        // They take over when they are told to.
        let settings = [(); 6].map(|()| ["--cluster-replica-no-failover", "yes"].map(str::to_owned).to_vec());
        let shape = Shape { replicas: 1, settings: &settings, ..PLAIN };
        let two = Two::start(Cluster::start(version, shape), OnFailure::Allow).await;
        let ask =
            async |rule: &str, key: &str| two.limiter.acquire([(rule, key)]).await.failure().map(StoreError::kind);
        let [first, second] = [("denied", &*two.keys[0]), ("hung", &*two.keys[1])];
        let before = [two.part(0), two.part(1)];
        two.cluster.nodes[..2].iter().for_each(|node| node.signal("KILL"));
        // The first of them is the last to fail.
        for (rule, key) in [second, first] {
            let since = Instant::now();
            while ask(rule, key).await != Some(StoreErrorKind::Open) {
                assert!(since.elapsed() < Duration::from_secs(10), "{version:?}: its breaker does not open");
            }
        }
        for (place, (rule, key)) in [first, second].into_iter().enumerate() {
            let replica = &two.cluster.nodes[3 + place];
            replica.ask::<()>(cmd("CLUSTER").arg("FAILOVER").arg("TAKEOVER"));
            // With two of three primaries gone no node served anybody.
            until("it serves", || replica.ask::<String>(cmd("CLUSTER").arg("INFO")).contains("cluster_state:ok"));
            let since = Instant::now();
            while two.part(place) == before[place] {
                assert!(since.elapsed() < Duration::from_secs(6), "{version:?}: {place} was not found");
                tokio::task::yield_now().await;
            }
            assert_eq!(ask(rule, key).await, None, "{version:?}: {place}");
        }
    }
}
