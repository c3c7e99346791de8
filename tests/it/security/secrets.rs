//! A canary in every place where secrets are: it is in no log, error or `Debug`.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use sluicegate::{Decision, Limiter, Observer, Quota, RedisStore, Rule, StoreEvent, key};

use crate::support::{
    log::Log,
    server::{Server, Version, free_port},
    stores::namespace,
};

const CANARY: &str = "canary-5f1e";

#[tokio::test]
async fn no_address_and_no_password_is_told() {
    let (log, _guard) = Log::begin();
    let server = Server::start_on(Version::Redis7, free_port(), &["--requirepass", "something else"]);
    let dead = free_port();
    let mut told = String::new();
    for url in [
        format!("redis://user:{CANARY}@127.0.0.1:{}", server.port),
        format!("redis://:{CANARY}@127.0.0.1:{}/3", server.port),
        format!("redis://{CANARY}:{CANARY}@127.0.0.1:{dead}"),
        format!("redis://{CANARY}.invalid:6379"),
        format!("redis://:{CANARY}@127.0.0.1:{}/{CANARY}", server.port),
        CANARY.to_owned(),
        format!("redis+{CANARY}://x"),
        format!("unix:///nowhere/{CANARY}.sock"),
    ] {
        let builder = RedisStore::builder(url).deadline(Duration::from_secs(5)).connect_timeout(Duration::from_secs(1));
        told += &format!("{builder:?}\n");
        let store = match builder.build() {
            Ok(store) => store,
            Err(error) => {
                told += &format!("{error} {error:?}\n");
                continue;
            }
        };
        let rule = Rule::gcra("r", Quota::per_hour(5)).key(key::given());
        let limiter = Limiter::builder(store.clone()).namespace(namespace()).rule(rule).build().expect("sound");
        let decision = limiter.acquire([("r", CANARY)]).await;
        told += &format!("{store:?} {limiter:?} {decision:?} {:?}\n", decision.failure());
        if let Some(error) = decision.failure() {
            told += &format!("{error}\n");
        }
        let failed = limiter.reset([("r", CANARY)]).await;
        told += &format!("{failed:?}\n");
    }
    let logged = log.text();
    assert!(logged.contains("cannot connect"), "{logged}");
    assert!(!logged.contains(CANARY), "{logged}");
    assert!(!told.contains(CANARY), "{told}");
}

/// Nor a key that a caller chose.
#[tokio::test]
async fn no_key_is_told() {
    let (log, _guard) = Log::begin();
    let call = sluicegate::Call::new().key("r", CANARY).key("absent", CANARY);
    let rule = Rule::gcra("r", Quota::per_hour(1)).key(key::given());
    let limiter = Limiter::builder(sluicegate::MemoryStore::new()).rule(rule).build().expect("sound");
    let mut told = format!("{call:?}");
    for _ in 0..3 {
        let decision = limiter.acquire([("r", CANARY)]).await;
        told += &format!("{decision:?}");
    }
    let decision = limiter.acquire(call).await;
    told +=
        &format!("{decision:?} {:?} {limiter:?} {:?}", decision.failure(), limiter.reset([("other", CANARY)]).await);
    assert!(!told.contains(CANARY), "{told}");
    assert!(!log.text().contains(CANARY));
}

/// Whoever labels measures with what it is told of decisions gets as many series as there are rules and outcomes.
#[tokio::test]
async fn what_observers_are_told_does_not_grow_with_keys() {
    #[derive(Clone, Default)]
    struct Labels(Arc<Mutex<BTreeSet<String>>>);

    impl Observer for Labels {
        fn decided(&self, decision: &Decision) {
            let rules = decision.standings().map(|standing| (standing.rule().to_owned(), standing.is_refused()));
            let rules: Vec<_> = rules.collect();
            let label = format!("{rules:?} {} {:?}", decision.is_allowed(), decision.failure());
            self.0.lock().expect("no panic").insert(label);
        }

        fn store(&self, event: &StoreEvent) {
            self.0.lock().expect("no panic").insert(format!("{event:?}"));
        }
    }

    let labels = Labels::default();
    let rule = Rule::gcra("r", Quota::per_hour(1)).key(key::given());
    let store = sluicegate::MemoryStore::new().max_keys(50_000);
    let limiter = Limiter::builder(store).rule(rule).observer(labels.clone()).build().expect("sound");
    for key in 0..100_000 {
        for _ in 0..2 {
            let _ = limiter.acquire([("r", format!("{CANARY}{key}"))]).await;
        }
    }
    let labels = labels.0.lock().expect("no panic").clone();
    // Admitted, refused, and that the store is full.
    assert_eq!(labels.len(), 3, "{labels:?}");
    assert!(labels.iter().all(|label| !label.contains(CANARY)), "{labels:?}");
}

/// Text that is logged cannot begin a line of its own.
#[tokio::test]
async fn a_name_with_line_breaks_is_one_line_of_the_log() {
    let (log, _guard) = Log::begin();
    let forged = "r\n2031-01-01T00:00:00Z ERROR all is lost\r\x1b[2J";
    let limiter = Limiter::builder(sluicegate::MemoryStore::new());
    let error = limiter.rule(Rule::gcra(forged, Quota::per_hour(0)).key(key::given())).build().expect_err("no quota");
    assert!(!error.to_string().contains(['\n', '\r', '\x1b']), "{error:?}");
    let rule = Rule::gcra("r", Quota::per_hour(1)).key(key::given());
    let limiter = Limiter::builder(sluicegate::MemoryStore::new()).rule(rule).build().expect("sound");
    let decision = limiter.acquire([(forged, "k")]).await;
    let error = decision.failure().expect("no such rule").to_string();
    assert!(!error.contains(['\n', '\r', '\x1b']), "{error:?}");
    let logged = log.text();
    assert!(logged.contains("no rule is named") && logged.lines().count() == 1, "{logged}");
}
