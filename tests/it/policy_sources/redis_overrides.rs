//! Overrides in Redis: set, changed and removed, and in force within a second.

use std::time::{Duration, Instant};

use axum::{Router, http::Request, routing::any};
use redis::cmd;
use sluicegate::{
    Limiter, MemoryStore, Quota, RateLimitLayer,
    key::Key,
    policy::{Override, OverrideSource, RedisPolicy},
};

use super::{
    Follower, policy,
    redis::{WITHIN, follow, store},
    text,
};
use crate::support::{
    app::{self, field},
    cluster::{CLUSTERS, Cluster},
    log::Log,
    server::{Server, VERSIONS, Version},
    stores::namespace,
};

fn app(limiter: &Limiter) -> Router {
    Router::new().fallback(any(|| async { "hello" })).layer(RateLimitLayer::new(limiter.clone()))
}

/// The limit of a customer, as responses say it.
async fn limit(app: &Router, customer: &str) -> u64 {
    let response = app::ask(app, Request::builder().uri("/").header("x-customer", customer)).await;
    field(&response, "x-ratelimit-limit").and_then(|limit| limit.parse().ok()).expect("a limit")
}

/// Waits until a customer has this limit.
async fn has(app: &Router, customer: &str, wanted: u64) {
    let since = Instant::now();
    loop {
        let now = limit(app, customer).await;
        if now == wanted {
            return;
        }
        assert!(since.elapsed() < WITHIN, "{customer} has {now}, not {wanted}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn change(writer: &RedisPolicy, followers: &[Follower]) {
    let apps: Vec<Router> = followers.iter().map(|follower| app(&follower.limiter)).collect();
    for app in &apps {
        has(app, "acme", 10).await;
        has(app, "globex", 10).await;
    }
    writer.set_override("acme", &Override::new().quota("calls", Quota::per_hour(5_000))).await.expect("written");
    for app in &apps {
        has(app, "acme", 5_000).await;
    }
    writer.set_override("acme", &Override::tier("pro")).await.expect("written");
    for app in &apps {
        has(app, "acme", 100).await;
    }
    writer.remove_override("acme").await.expect("written");
    for app in &apps {
        has(app, "acme", 10).await;
        has(app, "globex", 10).await;
    }
}

#[tokio::test]
async fn overrides_are_set_changed_and_removed_within_a_second() {
    for version in VERSIONS {
        let (server, name) = (version.shared(), namespace());
        let source = || RedisPolicy::new(&store(server), &name);
        let writer = source();
        writer.publish(&policy("10/hour")).await.expect("published");
        change(&writer, &[follow(source()).await, follow(source()).await]).await;
    }
    for version in CLUSTERS {
        let name = namespace();
        let source = || RedisPolicy::new(&Cluster::shared(version).builder().build().expect("sound"), &name);
        let writer = source();
        writer.publish(&policy("10/hour")).await.expect("published");
        change(&writer, &[follow(source()).await, follow(source()).await]).await;
    }
}

/// The commands that the documentation shows, by a user who hears nothing.
#[tokio::test]
async fn overrides_by_hand_are_seen_too() {
    let (server, name) = (Version::Redis7.shared(), namespace());
    RedisPolicy::new(&store(server), &name).publish(&policy("10/hour")).await.expect("published");
    let rights = ["on", ">deaf", "resetchannels", "~sluicegate:policy:*", "+hmget", "+lrange"];
    server.ask::<()>(cmd("ACL").arg("SETUSER").arg(&name).arg(&rights));
    let url = format!("redis://{name}:deaf@127.0.0.1:{}", server.port);
    let follower = follow(RedisPolicy::new(&sluicegate::RedisStore::connect(url).expect("sound"), &name)).await;
    let app = app(&follower.limiter);
    has(&app, "acme", 10).await;
    let key = format!("sluicegate:policy:{{{name}}}");
    let own = r#"{"tier": "pro", "rules": {"calls": "5000/hour"}}"#;
    server.ask::<()>(cmd("HSET").arg(format!("{key}:overrides")).arg("acme").arg(own));
    server.ask::<()>(cmd("HINCRBY").arg(&key).arg("version").arg(1));
    has(&app, "acme", 5_000).await;
    server.ask::<()>(cmd("HDEL").arg(format!("{key}:overrides")).arg("acme"));
    server.ask::<()>(cmd("HINCRBY").arg(&key).arg("version").arg(1));
    has(&app, "acme", 10).await;
}

/// One that cannot be read is as none, is told once, and does not keep others from theirs.
#[tokio::test]
async fn an_override_of_no_use_is_told_of_once() {
    let (log, _guard) = Log::begin();
    let (server, name) = (Version::Valkey9.shared(), namespace());
    let source = RedisPolicy::new(&store(server), &name);
    let hash = format!("sluicegate:policy:{{{name}}}:overrides");
    server.ask::<()>(cmd("HSET").arg(&hash).arg(&["acme", "{\"tier\": 7}", "globex", "{\"tier\": \"pro\"}"]));
    let customers: Vec<Box<str>> = vec!["acme".into(), "globex".into(), "nobody".into()];
    for _ in 0..3 {
        assert_eq!(source.look_up(&customers).await, Ok(vec![None, Some(Override::tier("pro")), None]));
    }
    let text = log.text();
    assert_eq!(text.matches("the override of a customer cannot be read").count(), 1, "{text}");
    assert!(text.contains("acme"), "{text}");
}

/// Every field there is, and names that need care, come back the same.
#[tokio::test]
async fn overrides_come_back_as_they_were_set() {
    let (server, name) = (Version::Redis6.shared(), namespace());
    let source = RedisPolicy::new(&store(server), &name);
    let odd = "per \"user\"\\\n\u{1}\u{e9}";
    let every = "{ \"calls\": { \"quota\": \"5/calendar day\", \"utc_offset\": \"+02:00\" }, \"at-a-time\": 5, \"b\": { \"burst\": 7, \
                 \"shadow\": true, \"roll_out\": 12.5, \"cost\": 3 } }";
    let overrides = [
        Override::new(),
        Override::tier("pro").quota("calls", Quota::per_minute(5).burst(7)).limit("at-a-time", 3),
        Override::tier(odd).cost(odd, 2).shadow("calls", false).quota("x", Quota::unlimited()),
        Override::from_json(&format!("{{ \"rules\": {every} }}")).expect("sound"),
    ];
    for own in overrides {
        // There is no document yet that could know better.
        source.set_override(Key::new(odd.as_bytes()), &own).await.expect("written");
        let customer: Box<str> = std::str::from_utf8(Key::new(odd.as_bytes()).as_bytes()).expect("ASCII").into();
        assert_eq!(source.look_up(&[customer]).await, Ok(vec![Some(own)]));
    }
}

/// What the policy does not know is not written.
#[tokio::test]
async fn an_override_is_held_against_the_policy_before_it_is_written() {
    let (server, name) = (Version::Redis7.shared(), namespace());
    let source = RedisPolicy::new(&store(server), &name);
    source.publish(&policy("10/hour")).await.expect("published");
    let unknown = [
        (Override::new().quota("cals", Quota::per_hour(1)), "cals"),
        (Override::tier("gold"), "gold"),
        (Override::new().limit("calls", 5), "calls"),
    ];
    for (own, word) in unknown {
        let error = source.set_override("acme", &own).await.expect_err("unknown").to_string();
        assert!(error.contains(word), "{error}");
    }
    let hash = format!("sluicegate:policy:{{{name}}}:overrides");
    assert!(!server.ask::<bool>(cmd("EXISTS").arg(hash)));
    // By the policy as it is now, not as it was when it was loaded.
    source
        .publish(&sluicegate::policy::Policy::from_toml(&text("10/hour").replace("calls", "cals")).expect("sound"))
        .await
        .expect("published");
    source.set_override("acme", &Override::new().quota("cals", Quota::per_hour(1))).await.expect("known now");
    assert!(source.set_override(None::<&str>, &Override::new()).await.is_err(), "nobody has no override");
}

fn asked(server: &Server) -> u64 {
    let stats: String = server.ask(cmd("INFO").arg("commandstats"));
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_hmget:calls="));
    line.and_then(|line| line.split(',').next()).map_or(0, |calls| calls.parse().expect("a number"))
}

/// Who has no override is not looked up with every request.
#[tokio::test]
async fn it_is_remembered_who_has_none() {
    let server = Server::start(Version::Valkey9);
    let source = RedisPolicy::new(&store(&server), "shop");
    let limiter =
        Limiter::builder(MemoryStore::new()).policy(policy("10/hour")).overrides(source).build().expect("sound");
    let app = app(&limiter);
    let since = Instant::now();
    while asked(&server) == 0 {
        assert!(since.elapsed() < Duration::from_secs(5), "nobody is looked up");
        limit(&app, "nobody").await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The answer has come once a customer after it is known.
    has(&app, "nobody", 10).await;
    limiter.for_customer("somebody", None).await;
    for _ in 0..500 {
        limit(&app, "nobody").await;
    }
    assert_eq!(asked(&server), 2);
}
