//! A million overrides in Redis, and customers at random: neither memory nor look-ups grow with them.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use axum::{Router, http::Request, routing::any};
use redis::cmd;
use sluicegate::{
    Limiter, MemoryStore, RateLimitLayer, RedisStore,
    policy::{Policy, RedisPolicy},
};

use crate::support::{
    app::{self, field},
    dice::Dice,
    leak::held,
    server::{Server, Version},
};

const OVERRIDES: u64 = 1_000_000;
const REQUESTS: u64 = 200_000;
/// For what is remembered of sixteen thousand customers, and what an allocator keeps.
const GROWTH: usize = 64 << 20;

const RULES: &str = r#"
    [customer]
    by = "header:x-customer"

    [[rules]]
    name = "calls"
    algorithm = "fixed_window"
    quota = "1000000000/hour"
    key = "global"
"#;

fn asked(server: &Server) -> u64 {
    let stats: String = server.ask(cmd("INFO").arg("commandstats"));
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_hmget:calls="));
    line.and_then(|line| line.split(',').next()).map_or(0, |calls| calls.parse().expect("a number"))
}

/// Asks as this customer, and says what its limit is.
async fn limit(app: &Router, customer: &str) -> u64 {
    let response = app::ask(app, Request::builder().uri("/").header("x-customer", customer)).await;
    field(&response, "x-ratelimit-limit").and_then(|limit| limit.parse().ok()).expect("a limit")
}

/// Not a test by itself: the process that the test starts, since the memory of this one is that of other tests too.
#[test]
fn process() {
    let Ok(url) = std::env::var("SLUICEGATE_MILLION") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let source = RedisPolicy::new(&RedisStore::connect(url).expect("sound"), "shop");
        let policy = Policy::from_toml(RULES).expect("sound");
        let limiter = Limiter::builder(MemoryStore::new()).policy(policy).overrides(source.clone());
        let limiter = limiter.build().expect("sound");
        let _following = limiter.follow(source);
        let app = Router::new().fallback(any(|| async { "hello" })).layer(RateLimitLayer::new(limiter));
        // One of the million has what is hers.
        let since = Instant::now();
        while limit(&app, "customer-77").await != 500_000_077 {
            assert!(since.elapsed() < Duration::from_secs(5), "she is not looked up");
            tokio::task::yield_now().await;
        }
        let mut dice = Dice::new(7);
        let before = held().memory;
        let mut most = before;
        for request in 0..REQUESTS {
            let customer = dice.below(2 * OVERRIDES);
            limit(&app, &format!("customer-{customer}")).await;
            if request % 100 == 0 {
                most = most.max(held().memory);
                tokio::task::yield_now().await;
            }
        }
        let growth = most - before;
        assert!(growth < GROWTH, "memory grew by {growth} bytes");
    });
}

#[test]
fn a_million_overrides_take_neither_memory_nor_look_ups_without_bound() {
    let server = Server::start(Version::Valkey9);
    let fill = "for customer = tonumber(ARGV[1]), tonumber(ARGV[2]) do redis.call('HSET', KEYS[1], 'customer-' .. \
                string.format('%.0f', customer), '{\"rules\":{\"calls\":\"' .. string.format('%.0f', 500000000 + customer) .. '/hour\"}}') end";
    let (key, step) = ("sluicegate:policy:{shop}:overrides", 50_000);
    for first in (0..OVERRIDES).step_by(step as usize) {
        server.ask::<()>(cmd("EVAL").arg(fill).arg(1).arg(key).arg(first).arg(first + step - 1));
    }
    assert_eq!(server.ask::<u64>(cmd("HLEN").arg(key)), OVERRIDES);
    let since = Instant::now();
    let child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "policy_sources::million::process", "--nocapture"])
        .env("SLUICEGATE_MILLION", server.url())
        .status();
    assert!(child.expect("a process").success());
    // A thousand a second, and a look at the version every half second or less.
    let (asked, bound) = (asked(&server), since.elapsed().as_millis() as u64 * 11 / 10 + 64);
    assert!((10..=bound).contains(&asked), "{asked} look-ups, and no more than {bound} are due");
    assert!(asked < REQUESTS / 2, "{asked} look-ups for {REQUESTS} requests");
}
