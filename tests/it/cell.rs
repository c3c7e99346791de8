//! GCRA by the module redis-cell, on the servers that load it.

use std::{
    collections::HashMap,
    sync::OnceLock,
    time::{Duration, Instant},
};

use redis::AsyncCommands;
use sluicegate::{
    Call, Clock, Limiter, LimiterBuilder, ManualClock, Quota, RedisStore, Rule, StoreErrorKind, key,
    store::{Id, Purpose, Store},
};

use crate::support::{
    purposed::Purposed,
    server::{Server, Version, free_port},
    stores::{BEGIN, namespace},
};

/// Redis 6.2 loads it as well; it is enough to know the newer.
const WITH_MODULE: [Version; 2] = [Version::Redis7, Version::Valkey9];

fn server(version: Version) -> &'static Server {
    static SERVERS: OnceLock<HashMap<String, Server>> = OnceLock::new();
    let module = std::env::var("SLUICEGATE_CELL").expect("SLUICEGATE_CELL: run the tests with tests/run");
    let start = |version| Server::start_on(version, free_port(), &["--loadmodule", &module]);
    let servers = SERVERS.get_or_init(|| WITH_MODULE.map(|version| (format!("{version:?}"), start(version))).into());
    &servers[&format!("{version:?}")]
}

fn store(url: &str) -> RedisStore {
    RedisStore::builder(url).cell().bare().deadline(Duration::from_secs(30)).build().expect("sound")
}

/// One unit in five minutes: none comes back while a test runs.
fn slow(name: &str, burst: u64) -> Rule {
    Rule::gcra(name, Quota::per_hour(12).burst(burst)).key(key::given())
}

fn limiter(version: Version, rules: impl IntoIterator<Item = Rule>) -> Limiter {
    let builder = Limiter::builder(store(&server(version).url())).namespace(namespace());
    rules.into_iter().fold(builder, LimiterBuilder::rule).build().expect("sound")
}

async fn remaining(limiter: &Limiter, rule: &str) -> u64 {
    let decision = limiter.peek([(rule, "k")]).await;
    assert!(decision.failure().is_none(), "{:?}", decision.failure());
    decision.standing(rule).expect("it applies").remaining()
}

#[test]
fn what_the_module_cannot_keep_is_a_build_error() {
    let quota = Quota::per_minute(5);
    for (rule, field, remedy) in [
        (Rule::fixed_window("r", quota), "algorithm", "use GCRA"),
        (Rule::token_bucket("r", quota), "algorithm", "use GCRA"),
        (Rule::sliding_log("r", quota), "algorithm", "use GCRA"),
        (Rule::gcra("r", Quota::per_minute(7)), "quota", "such as 6"),
        (Rule::gcra("r", Quota::per_second(5_000)), "quota", "1000 a second"),
    ] {
        let builder = Limiter::builder(store("redis://127.0.0.1:1")).rule(slow("fine", 1));
        let error = builder.rule(rule.key(key::given())).build().expect_err("not with the module");
        assert_eq!((error.rule_name(), error.field()), (Some("r"), field), "{error}");
        assert!(error.to_string().contains(remedy), "{error}");
    }
}

#[tokio::test]
async fn one_rule_is_one_command() {
    for version in WITH_MODULE {
        let limiter = limiter(version, [slow("r", 3)]);
        let since = Instant::now();
        for left in [2, 1, 0] {
            let decision = limiter.acquire([("r", "k")]).await;
            assert!(decision.is_allowed() && decision.failure().is_none(), "{version:?}: {decision:?}");
            let standing = decision.standing("r").expect("it applies");
            assert_eq!(standing.remaining(), left);
            // Whole seconds, never less than the truth and at most one more.
            let full = Duration::from_secs(300 * (3 - left));
            let reset = standing.reset_after();
            assert!(reset + since.elapsed() >= full && reset <= full + Duration::from_secs(1), "{standing:?}");
        }
        let refused = limiter.acquire([("r", "k")]).await;
        let retry = refused.retry_after().expect("a wait");
        assert!(refused.is_refused() && retry.subsec_nanos() == 0, "{refused:?}");
        assert!(retry + since.elapsed() >= Duration::from_secs(300) && retry.as_secs() <= 300, "{retry:?}");
        let peeked = limiter.peek([("r", "k")]).await;
        assert!(peeked.is_refused(), "{peeked:?}");
        assert!(peeked.retry_after().expect("a wait").abs_diff(retry) <= Duration::from_secs(5));
        let never = limiter.acquire(Call::new().key("r", "k").cost(4)).await;
        assert!(never.is_refused() && never.retry_after().is_none(), "{never:?}");
        let free = limiter.acquire(Call::new().key("r", "k").cost(0)).await;
        assert!(free.is_allowed());
        limiter.reset([("r", "k")]).await.expect("forgotten");
        assert_eq!(remaining(&limiter, "r").await, 3);
    }
}

#[tokio::test]
async fn several_rules_are_charged_together_or_not_at_all() {
    for version in WITH_MODULE {
        let limiter = limiter(version, [slow("wide", 10), slow("narrow", 2)]);
        let keys = [("wide", "k"), ("narrow", "k")];
        for left in [1, 0] {
            let decision = limiter.acquire(keys).await;
            assert!(decision.is_allowed() && decision.failure().is_none(), "{version:?}: {decision:?}");
            assert_eq!(decision.standing("narrow").map(|standing| standing.remaining()), Some(left));
        }
        for _ in 0..3 {
            let refused = limiter.acquire(keys).await;
            assert!(refused.is_refused(), "{refused:?}");
            assert!((295..=300).contains(&refused.retry_after().expect("a wait").as_secs()), "{refused:?}");
            assert_eq!(refused.standing("wide").map(|standing| standing.remaining()), Some(8));
        }
        assert_eq!((remaining(&limiter, "wide").await, remaining(&limiter, "narrow").await), (8, 0));
    }
}

#[tokio::test]
async fn shadows_keep_nothing_from_being_charged() {
    for version in WITH_MODULE {
        let rules = [slow("one", 9), slow("shadow", 1).shadow(), slow("three", 3), slow("watched", 9).shadow()];
        let limiter = limiter(version, rules);
        crate::shadow::in_the_mix(&limiter, "k", &format!("{version:?}")).await;
        // One rule alone is a command, and one that can never fit is not.
        for cost in [1, 2] {
            let decision = limiter.acquire(Call::new().key("shadow", ("k", 2)).cost(cost)).await;
            assert!(decision.is_allowed() && decision.would_refuse(), "{version:?}: {decision:?}");
        }
    }
}

#[tokio::test]
async fn racing_requests_are_admitted_up_to_the_burst_exactly() {
    for version in WITH_MODULE {
        let limiter = limiter(version, [slow("wide", 100), slow("narrow", 40)]);
        let asks: Vec<_> = (0..200)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move { limiter.acquire([("wide", "k"), ("narrow", "k")]).await.is_allowed() })
            })
            .collect();
        let mut admitted = 0;
        for ask in asks {
            admitted += u64::from(ask.await.expect("no panic"));
        }
        assert_eq!(admitted, 40, "{version:?}");
        assert_eq!(remaining(&limiter, "wide").await, 60);
    }
}

#[tokio::test]
async fn taking_and_giving_count_once_and_stay_within_the_burst() {
    for version in WITH_MODULE {
        let purposed = Purposed::new(store(&server(version).url()));
        let namespace = namespace();
        let limiter = Limiter::builder(purposed.clone()).namespace(&*namespace).rule(slow("r", 10).cost(7));
        let limiter = limiter.build().expect("sound");
        for (purpose, left) in [
            (Purpose::Take(Id::random()), 3),
            (Purpose::Take(Id::random()), 0),
            (Purpose::Give(Id::random()), 7),
            (Purpose::Give(Id::random()), 10),
            (Purpose::Give(Id::random()), 10),
        ] {
            purposed.set(Some(purpose));
            for _ in 0..2 {
                let decision = limiter.acquire([("r", "k")]).await;
                assert!(decision.is_allowed() && decision.failure().is_none(), "{version:?} {purpose:?}: {decision:?}");
                assert_eq!(decision.standing("r").map(|standing| standing.remaining()), Some(left), "{purpose:?}");
            }
        }
        let mut connection = server(version).connection().await;
        for name in connection.keys::<_, Vec<String>>(format!("{namespace}:*")).await.expect("names") {
            let ttl: i64 = connection.pttl(&name).await.expect("a TTL");
            assert_ne!(ttl, -1, "{name} stays for ever");
        }
    }
}

#[tokio::test]
async fn a_server_without_the_module_says_so_at_the_first_ask() {
    for version in [Version::Redis6, Version::Redis7, Version::Valkey9] {
        let builder = Limiter::builder(store(&version.shared().url())).namespace(namespace());
        let limiter = builder.rule(slow("a", 5)).rule(slow("b", 5)).build().expect("sound");
        for decision in [limiter.acquire([("a", "k")]).await, limiter.acquire([("a", "k"), ("b", "k")]).await] {
            let error = decision.failure().expect("no module");
            assert_eq!(error.kind(), StoreErrorKind::Permanent, "{version:?}: {error}");
            assert!(error.to_string().contains("load the module redis-cell"), "{version:?}: {error}");
        }
    }
}

/// Exactly the least permissions are enough, and a check sees what is missing.
#[tokio::test]
async fn the_least_permissions_are_enough() {
    for version in WITH_MODULE {
        let server = server(version);
        let mut connection = server.connection().await;
        let url = format!("redis://cell:pw@127.0.0.1:{}", server.port);
        let purposed = Purposed::new(store(&url));
        let builder = Limiter::builder(purposed.clone()).namespace("ns").rule(slow("a", 5)).rule(slow("b", 5));
        let limiter = builder.build().expect("sound");
        for (rules, ok) in [("+cl.throttle +evalsha +eval +set +del", true), ("+evalsha +eval +set +del", false)] {
            let mut user = redis::cmd("ACL");
            user.arg("SETUSER")
                .arg("cell")
                .arg("reset")
                .arg("on")
                .arg(">pw")
                .arg("~ns:*")
                .arg(rules.split(' ').collect::<Vec<_>>());
            let _: () = user.query_async(&mut connection).await.expect("a user");
            let report = store(&url).check("ns").await;
            assert_eq!(report.is_ok(), ok, "{report}");
            assert!(ok || report.to_string().contains("~ns:* +cl.throttle"), "{report}");
            for purpose in [None, Some(Purpose::Take(Id::random())), Some(Purpose::Give(Id::random()))] {
                purposed.set(purpose);
                for decision in [limiter.acquire([("a", "k")]).await, limiter.acquire([("a", "k"), ("b", "k")]).await] {
                    assert_eq!(decision.failure().is_none(), ok, "{version:?}: {decision:?}");
                    let text = decision.failure().map(ToString::to_string).unwrap_or_default();
                    assert!(ok || text.contains("+cl.throttle"), "{text}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_clock_of_ones_own_is_an_error_that_says_so() {
    let builder = Limiter::builder(store(&server(Version::Redis7).url())).rule(slow("r", 5));
    let limiter = builder.clock(Clock::manual(ManualClock::new(BEGIN))).build().expect("sound");
    let decision = limiter.acquire([("r", "k")]).await;
    let error = decision.failure().expect("no clock but the server's");
    assert_eq!(error.kind(), StoreErrorKind::Permanent);
    assert!(error.to_string().contains("drop clock(..)"), "{error}");
}
