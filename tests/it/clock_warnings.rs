//! A machine whose clock is too far from the server's, where the application's clock counts: said at the start, and told while it runs.

use std::time::Duration;

use sluicegate::{Clock, Limiter, Quota, RedisStore, Rule, StoreEvent, key, store::RedisStoreBuilder};

use crate::support::{
    cluster::{Cluster, calls_of},
    events::Events,
    log::Log,
    server::{Server, Version},
    stores::namespace,
};

/// A server whose clock is so far off.
fn server(offset: &str) -> Server {
    let file = std::env::temp_dir().join(namespace());
    std::fs::write(&file, offset).expect("written");
    Server::start_with_clock(&file)
}

fn limiter(store: RedisStoreBuilder, clock: Clock, events: &Events) -> Limiter {
    let store = store.deadline(Duration::from_secs(20)).connect_timeout(Duration::from_secs(20)).build();
    let rule = Rule::fixed_window("r", Quota::per_hour(1_000_000)).key(key::given());
    let builder = Limiter::builder(store.expect("sound")).namespace("ns").rule(rule);
    builder.clock(clock).observer(events.clone()).build().expect("sound")
}

fn tolerating(millis: u64) -> Clock {
    Clock::application().tolerance(Duration::from_millis(millis))
}

fn is_skewed(event: &StoreEvent) -> bool {
    matches!(event, StoreEvent::ClockSkewed { .. })
}

#[tokio::test]
async fn a_check_names_the_difference_the_tolerance_and_the_remedy() {
    for (offset, word) in [("+2s", "s behind the rate limit server's"), ("-2s", "s ahead of the rate limit server's")] {
        let server = server(offset);
        for (clock, tolerance) in [(Clock::application(), "100ms"), (tolerating(3_000), "3s")] {
            let report = limiter(RedisStore::builder(server.url()), clock, &Events::default()).check().await;
            assert!(report.is_ok(), "{report}");
            let clocks: Vec<&str> = report.warnings().filter(|warning| warning.contains("clock")).collect();
            let [warning] = clocks[..] else { panic!("{report}") };
            let (measured, rest) = warning.split_once(word).expect(warning);
            let measured: f64 = measured.rsplit(' ').next().and_then(|number| number.parse().ok()).expect(warning);
            assert!((1.0..=2.001).contains(&measured), "{warning}");
            let remedies = ["synchronise the clocks", "raise Clock::tolerance(..)", "use Clock::store()"];
            assert!(rest.contains(&format!("tolerance of {tolerance}:")), "{warning}");
            assert!(remedies.iter().all(|remedy| rest.contains(remedy)), "{warning}");
        }
        // Two who are off by two seconds, one each way, are within five.
        let report = limiter(RedisStore::builder(server.url()), tolerating(5_000), &Events::default()).check().await;
        assert!(!report.warnings().any(|warning| warning.contains("clock")), "{report}");
        assert!(report.notes().any(|note| note.contains("clock is near enough")), "{report}");
        // Nobody goes by it.
        let report = limiter(RedisStore::builder(server.url()), Clock::store(), &Events::default()).check().await;
        assert!(!report.to_string().contains("clock"), "{report}");
    }
}

/// The clocks of one machine do not differ, by however little is tolerated: what the way takes is not held against them.
#[tokio::test]
async fn clocks_that_agree_are_not_warned_of() {
    for store in [RedisStore::builder(Version::Redis7.shared().url()), Cluster::shared(Version::Valkey9).builder()] {
        let report = limiter(store, tolerating(0), &Events::default()).check().await;
        assert!(report.is_ok() && !report.warnings().any(|warning| warning.contains("clock")), "{report}");
        assert!(report.notes().any(|note| note.contains("clock is near enough")), "{report}");
    }
}

#[tokio::test]
async fn a_difference_is_told_while_decisions_are_made_and_costs_them_nothing() {
    for (offset, ahead) in [("+2s", -2_000_000..=-1_000_000), ("-2s", 1_000_000..=2_001_000)] {
        let server = server(offset);
        for plain in [false, true] {
            let builder = || RedisStore::builder(server.url());
            let store = || if plain { builder().no_scripts() } else { builder() };
            let before = calls_of(&server, "time");
            let (log, _guard) = Log::begin();
            let events = Events::default();
            let skewed = limiter(store(), Clock::application(), &events);
            for _ in 0..100 {
                assert!(skewed.acquire([("r", "k")]).await.failure().is_none());
            }
            events.until(|events| events.count(is_skewed) > 0).await;
            let told: Vec<StoreEvent> = events.all().into_iter().filter(is_skewed).collect();
            let [StoreEvent::ClockSkewed { ahead: told, tolerance: 100_000 }] = told[..] else { panic!("{told:?}") };
            assert!(ahead.contains(&told), "{told}");
            assert_eq!(log.text().matches("raise Clock::tolerance(..)").count(), 1, "{}", log.text());
            if !plain {
                assert_eq!(calls_of(&server, "time") - before, 1, "the server is asked for its time once in a while");
            }
            // Asked once, and nothing to tell; or not asked at all.
            for clock in [tolerating(5_000), Clock::store()] {
                let events = Events::default();
                let near = limiter(store(), clock, &events);
                let before = calls_of(&server, "time");
                assert!(near.acquire([("r", "k")]).await.failure().is_none());
                while calls_of(&server, "time") == before {
                    tokio::task::yield_now().await;
                }
                // Its reply comes after the one that a task waits for.
                assert!(near.acquire([("r", "k")]).await.failure().is_none());
                assert_eq!(events.count(is_skewed), 0, "{:?}", events.all());
            }
        }
    }
}
