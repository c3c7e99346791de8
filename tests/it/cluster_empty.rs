//! Nodes of a Cluster that own no slots: one that has just joined, and one whose slots were all moved away.

use std::time::Duration;

use redis::cmd;
use sluicegate::{Limiter, Quota, RedisStore, Rule, key, store::Report};

use crate::support::{
    cluster::{CLUSTERS, Cluster, PLAIN, Shape, calls_of},
    server::Server,
};

const CAPACITY: u64 = 1_000_000;

fn limiter(store: RedisStore) -> Limiter {
    let rule = Rule::fixed_window("r", Quota::per_hour(CAPACITY)).from_first_request().key(key::given());
    Limiter::builder(store).namespace("empty").rule(rule).build().expect("sound")
}

/// Charges one to each of these keys; answers how much each has in use.
async fn charge(limiter: &Limiter, keys: impl IntoIterator<Item = String>) -> Vec<u64> {
    let mut used = Vec::new();
    for key in keys {
        let decision = limiter.acquire([("r", &*key)]).await;
        assert!(decision.failure().is_none(), "{:?}", decision.failure());
        used.push(CAPACITY - decision.standing("r").expect("it applies").remaining());
    }
    used
}

/// The server says how often it has turned somebody away.
fn turned_away(node: &Server) -> bool {
    node.ask::<String>(cmd("INFO").arg("errorstats")).contains("errorstat_MOVED:")
}

fn is_sound(report: &Report, primaries: usize) {
    assert!(report.is_ok() && report.warnings().all(|warning| !warning.starts_with("node")), "{report}");
    assert_eq!(report.notes().next(), Some(&*format!("a Cluster of {primaries} primaries")), "{report}");
    assert_eq!(report.notes().filter(|note| note.ends_with("scripts run")).count(), primaries, "{report}");
}

/// The only node that the store is told of has no slots yet: it names the others, and is not asked to decide.
#[tokio::test]
async fn one_that_has_just_joined_tells_of_the_others_and_decides_nothing() {
    for version in CLUSTERS {
        let cluster = Cluster::start(version, Shape { slotless: 1, ..PLAIN });
        let newcomer = &cluster.nodes[3];
        let store = RedisStore::builder(newcomer.url()).cluster().deadline(Duration::from_secs(30)).build();
        let limiter = limiter(store.expect("sound"));
        let keys = [0, 1, 2].map(|place| cluster.key_at(place, &[]));
        assert_eq!(charge(&limiter, keys.clone()).await, [1; 3], "{version:?}");
        is_sound(&limiter.check().await, 3);
        assert_eq!(calls_of(newcomer, "eval"), 0, "{version:?}");
        assert!(!turned_away(newcomer), "{version:?}");
        // Nobody needs it.
        newcomer.signal("KILL");
        assert_eq!(charge(&limiter, keys).await, [2; 3], "{version:?}");
        is_sound(&limiter.check().await, 3);
    }
}

/// Whoever asks first after the slots have moved, a request or a check: counts go on where they are now, and the empty node is let alone.
#[tokio::test]
async fn one_whose_slots_were_all_moved_away_is_let_alone_and_not_called_broken() {
    for version in CLUSTERS {
        // Or it would become a replica of the one that has its slots.
        let settings = [(); 3].map(|()| ["--cluster-allow-replica-migration", "no"].map(str::to_owned).to_vec());
        let cluster = Cluster::start(version, Shape { settings: &settings, ..PLAIN });
        let [asking, checking] = [(); 2].map(|()| limiter(cluster.patient()));
        let keys: Vec<String> = (0..30).map(|number| format!("k{number}")).collect();
        for (limiter, times) in [(&asking, 1), (&checking, 2)] {
            assert!(charge(limiter, keys.clone()).await.iter().all(|used| *used == times), "{version:?}");
        }
        assert!(keys.iter().filter(|key| cluster.owner(cluster.slot(key)) == 1).count() > 3, "some are there");
        cluster.empty(1, 2).await;
        let emptied = &cluster.nodes[1];
        let before = calls_of(emptied, "eval");

        // Its map is from before.
        is_sound(&checking.check().await, 2);
        assert!(charge(&checking, keys.clone()).await.iter().all(|used| *used == 3), "{version:?}");
        assert!(!turned_away(emptied), "{version:?}: the check has loaded the map anew");

        assert!(charge(&asking, keys.clone()).await.iter().all(|used| *used == 4), "{version:?}");
        assert!(turned_away(emptied), "{version:?}: it had to be told");
        is_sound(&asking.check().await, 2);
        assert_eq!(calls_of(emptied, "eval"), before, "{version:?}: it is not asked to decide");

        // Nobody needs it.
        emptied.signal("KILL");
        for (limiter, times) in [(&asking, 5), (&checking, 6)] {
            assert!(charge(limiter, keys.clone()).await.iter().all(|used| *used == times), "{version:?}");
            is_sound(&limiter.check().await, 2);
        }
    }
}
