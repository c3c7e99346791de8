//! Keys without end.

use std::time::{Duration, Instant};

use sluicegate::{Limiter, MemoryStore, Quota, RateLimitLayer, Rule, key};

use crate::support::{
    app,
    load::soak,
    server::{Server, Version},
    stores::patient,
};

/// Every key on the server goes by itself, also those that a flood of strangers left: in the end there is none.
#[tokio::test]
async fn every_key_on_the_server_goes_by_itself() {
    let keys = if soak() { 1_000_000 } else { 12_000u64 };
    let server = Server::start(Version::Redis7);
    let quota = || Quota::per_second(10);
    let rules = [
        Rule::fixed_window("fixed", quota()).from_first_request(),
        Rule::sliding_log("log", quota()),
        Rule::sliding_counter("counter", quota()),
        Rule::token_bucket("bucket", quota()),
        Rule::gcra("gcra", quota()),
        Rule::leaky_bucket("leaky", quota()),
    ];
    let names: Vec<_> = rules.iter().map(|rule| rule.name().to_owned()).collect();
    let builder = Limiter::builder(patient(&server.url()));
    let limiter =
        rules.into_iter().fold(builder, |builder, rule| builder.rule(rule.key(key::given()))).build().expect("sound");
    let callers: Vec<_> = (0..32u64)
        .map(|caller| {
            let (limiter, names) = (limiter.clone(), names.clone());
            tokio::spawn(async move {
                for key in (0..keys / 6).filter(|key| key % 32 == caller) {
                    let call = names.iter().fold(sluicegate::Call::new(), |call, name| call.key(name, key));
                    let decision = limiter.acquire(call).await;
                    assert!(decision.failure().is_none(), "{:?}", decision.failure());
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no panic");
    }
    let mut connection = server.connection().await;
    connection.set_response_timeout(Duration::from_secs(60));
    // Looked at in one script, or keys would go meanwhile.
    let script = "local keys, lasting = redis.call('KEYS', '*'), 0
        for _, key in ipairs(keys) do
            local ttl = redis.call('PTTL', key)
            if ttl == -1 or ttl > 4000 then lasting = lasting + 1 end
        end
        return {#keys, lasting}";
    let (there, lasting): (u64, u64) =
        redis::cmd("EVAL").arg(script).arg(0).query_async(&mut connection).await.expect("numbers");
    assert!(there > 0, "some are still there");
    assert_eq!(lasting, 0, "of {there} keys");
    let since = Instant::now();
    while redis::cmd("DBSIZE").query_async::<u64>(&mut connection).await.expect("a number") > 0 {
        assert!(since.elapsed() < Duration::from_secs(10), "keys stay");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Somebody who makes up a key for every request: the limit on what he cannot make up bounds what the server keeps for him.
#[tokio::test]
async fn an_address_that_is_out_of_requests_leaves_no_more_keys() {
    let server = Server::start(Version::Redis7);
    let rules = [
        Rule::sliding_counter("by-address", Quota::per_hour(10)).key(key::given()),
        Rule::gcra("by-key", Quota::per_hour(1_000)).key(key::given()),
    ];
    let builder = Limiter::builder(patient(&server.url()));
    let limiter = rules.into_iter().fold(builder, sluicegate::LimiterBuilder::rule).build().expect("sound");
    let mut admitted = 0;
    for made_up in 0..2_000u32 {
        let call = sluicegate::Call::new().key("by-address", "192.0.2.1").key("by-key", made_up);
        let decision = limiter.acquire(call).await;
        assert!(decision.failure().is_none(), "{:?}", decision.failure());
        admitted += u32::from(decision.is_allowed());
    }
    let keys: u32 = redis::cmd("DBSIZE").query_async(&mut server.connection().await).await.expect("a number");
    assert_eq!((admitted, keys), (10, 11), "one of the address, and one for each that was admitted");
}

/// The same without an address to go by: those above the bound share one count, and the ones that were there before keep theirs.
#[tokio::test]
async fn made_up_keys_beyond_the_bound_share_one_count() {
    let server = Server::start(Version::Redis7);
    let rule = Rule::gcra("by-key", Quota::per_hour(3)).key(key::header("x-key")).max_new_keys(50);
    let limiter = Limiter::builder(patient(&server.url())).rule(rule).build().expect("sound");
    let app = axum::Router::new().route("/", axum::routing::get(|| async {})).layer(RateLimitLayer::new(limiter));
    let get = async |key: String| {
        app::ask(&app, http::Request::builder().uri("/").header("x-key", key)).await.status().as_u16()
    };
    assert_eq!(get("regular".into()).await, 200);
    let mut admitted = 0;
    for made_up in 0..500 {
        admitted += u32::from(get(format!("k{made_up}")).await == 200);
    }
    assert_eq!(admitted, 49 + 3, "those with a count of their own, and the one that the others share");
    assert_eq!(get("regular".into()).await, 200);
    let keys: u32 = redis::cmd("DBSIZE").query_async(&mut server.connection().await).await.expect("a number");
    assert_eq!(keys, 51);
}

/// Whatever keys have in common, the table in memory finds them as fast as any: its hash is keyed anew for each process.
#[test]
fn keys_alike_take_no_longer_than_others() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let number = 20_000u64;
    let time = |key: &dyn Fn(u64) -> String| {
        let keys: Vec<String> = (0..number).map(key).collect();
        let rule = Rule::gcra("r", Quota::per_hour(5)).key(key::given());
        let mut times: Vec<Duration> = (0..3)
            .map(|_| {
                let limiter = Limiter::builder(MemoryStore::new()).rule(rule.clone()).build().expect("sound");
                let since = Instant::now();
                runtime.block_on(async {
                    for key in &keys {
                        assert!(limiter.acquire([("r", key.as_str())]).await.is_allowed());
                    }
                });
                since.elapsed()
            })
            .collect();
        times.sort_unstable();
        times[0]
    };
    let plain = time(&|number| format!("{:020}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let alike: [(&str, &dyn Fn(u64) -> String); 4] = [
        ("numbered", &|number| format!("{number:020}")),
        ("the same end", &|number| format!("{number:012}{:08}", 0)),
        ("every 2^32nd", &|number| format!("{:020}", number << 32)),
        ("long and nearly the same", &|number| format!("{}{number:020}", "x".repeat(40))),
    ];
    for (name, key) in alike {
        let took = time(key);
        assert!(took <= plain * 5, "{name}: {took:?}, others {plain:?}");
    }
}
