//! What a server may do, and what the store makes of it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use redis::AsyncCommands;
use sluicegate::{Limiter, Quota, RedisStore, Rule, StoreErrorKind, StoreEvent, key};
use tokio::{io::AsyncWriteExt, net::TcpListener, sync::Semaphore};

use crate::support::{
    asking::{ask, limiter, rule, until_answered, used},
    events::Events,
    proxy::holding_back,
    server::{Server, VERSIONS, Version, free_port},
    stores::{bare, namespace},
};

#[tokio::test]
async fn a_flushed_script_is_sent_again_without_a_failure() {
    for version in VERSIONS {
        let server = Server::start(version);
        let mut connection = server.connection().await;
        let (limiter, events) = limiter(bare(&server.url()));
        for round in 1..=20 {
            assert!(ask(&limiter).await.failure().is_none());
            assert_eq!(used(&limiter).await, round);
            let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut connection).await.expect("flushed");
        }
        assert_eq!(events.count(|event| *event == StoreEvent::ScriptSent), 20);
    }
}

#[tokio::test]
async fn an_application_starts_without_a_server_and_finds_it_later() {
    let port = free_port();
    // A busy machine must not cost it its connection.
    let store = RedisStore::builder(format!("redis://127.0.0.1:{port}")).bare().deadline(Duration::from_secs(5));
    let (limiter, events) = limiter(store.build().expect("sound"));
    let failed = ask(&limiter).await;
    assert!(failed.is_allowed());
    assert_eq!(failed.failure().map(|error| error.kind()), Some(StoreErrorKind::Unavailable));
    let _server = Server::start_on(Version::Redis7, port, &[]);
    until_answered(&limiter).await;
    assert!(events.count(|event| matches!(event, StoreEvent::ConnectFailed(_))) >= 1);
    assert_eq!(events.count(|event| *event == StoreEvent::Connected), 1);
}

#[tokio::test]
async fn a_restarted_server_is_found_again() {
    let server = Server::start(Version::Valkey9);
    let (limiter, events) = limiter(bare(&server.url()));
    until_answered(&limiter).await;
    let port = server.stop();
    assert!(ask(&limiter).await.failure().is_some());
    let _server = Server::start_on(Version::Valkey9, port, &[]);
    until_answered(&limiter).await;
    assert_eq!(used(&limiter).await, 1, "the data is gone with the server, and no old charge is replayed");
    assert!(events.count(|event| matches!(event, StoreEvent::Disconnected(_))) >= 1);
}

/// While the server hangs, every ask ends at its deadline; when it wakes, it finds them in its socket and charges none.
#[tokio::test]
async fn a_hung_server_costs_the_deadline_and_charges_no_ghosts() {
    for version in VERSIONS {
        let server = Server::start(version);
        let deadline = Duration::from_millis(10);
        let (limiter, events) = limiter(RedisStore::builder(server.url()).bare().build().expect("sound"));
        until_answered(&limiter).await;
        let before = used(&patient_twin(&server).await).await;
        server.signal("STOP");
        // Nothing will arrive, so paused time jumps to each deadline.
        tokio::time::pause();
        for _ in 0..40 {
            let since = tokio::time::Instant::now();
            let decision = ask(&limiter).await;
            let waited = since.elapsed();
            assert_eq!(decision.failure().map(|error| error.kind()), Some(StoreErrorKind::Timeout));
            // Timers have a grain of a millisecond.
            assert!(waited <= deadline + Duration::from_millis(2), "{waited:?}");
        }
        tokio::time::resume();
        assert!(
            events.count(|event| matches!(event, StoreEvent::Disconnected(_))) >= 1,
            "three timeouts replace a connection"
        );
        // The last call may still be charged until its own deadline; wait for the clock to pass it.
        let since = Instant::now();
        while since.elapsed() < deadline * 3 {
            std::thread::yield_now();
        }
        server.signal("CONT");
        let twin = patient_twin(&server).await;
        assert_eq!(used(&twin).await, before, "{version:?}");
    }
}

/// A limiter on the counts of the one namespace there is, which waits as long as it takes.
async fn patient_twin(server: &Server) -> Limiter {
    let mut connection = server.connection().await;
    let names: Vec<String> = connection.keys("*").await.expect("names");
    let name = names.first().cloned().unwrap_or_default();
    let namespace = name.split(':').next().unwrap_or_default().to_owned();
    Limiter::builder(bare(&server.url())).namespace(namespace).rule(rule()).build().expect("sound")
}

/// A server whose clock steps ahead finds every call too late. It answers with its time, which sets the estimate right, and
/// the call is judged once more: no decision is lost. A step back costs nothing either, and blocks nobody.
#[tokio::test]
async fn a_stepped_server_clock_is_followed_at_once() {
    let file = std::env::temp_dir().join(namespace());
    std::fs::write(&file, "+0s").expect("written");
    let server = Server::start_with_clock(&file);
    let mut connection = server.connection().await;
    // The server notices after a while; it has when its scripts see the new time.
    let mut step = async |seconds: u64| {
        std::fs::write(&file, format!("+{seconds}s")).expect("written");
        let since = Instant::now();
        loop {
            let mut script = redis::cmd("EVAL");
            let time: u64 = script
                .arg("return tonumber(redis.call('TIME')[1])")
                .arg(0)
                .query_async(&mut connection)
                .await
                .expect("a time");
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after it").as_secs();
            if time.abs_diff(now + seconds) < 60 {
                return;
            }
            assert!(since.elapsed() < Duration::from_secs(20), "the clock does not step");
        }
    };
    let events = Events::default();
    let rules = [
        Rule::token_bucket("bucket", Quota::per_minute(60).burst(3)).key(key::given()),
        Rule::gcra("gcra", Quota::per_minute(60).burst(3)).key(key::given()),
        Rule::fixed_window("window", Quota::per_minute(3)).from_first_request().key(key::given()),
    ];
    let builder = Limiter::builder(bare(&server.url())).observer(events.clone());
    let limiter = rules.into_iter().fold(builder, sluicegate::LimiterBuilder::rule).build().expect("sound");
    let admitted = async || {
        let mut admitted = 0;
        for _ in 0..5 {
            let decision = limiter.acquire(["bucket", "gcra", "window"].map(|rule| (rule, "k"))).await;
            assert!(decision.failure().is_none(), "{:?}", decision.failure());
            admitted += u32::from(decision.is_allowed());
        }
        admitted
    };
    assert_eq!(admitted().await, 3);
    step(3_600).await;
    assert_eq!(admitted().await, 3, "an hour has passed: one capacity comes back");
    assert_eq!(events.count(|event| *event == StoreEvent::Expired), 1, "only the first call was too late");
    step(0).await;
    assert_eq!(admitted().await, 0, "what was spent is spent");
    let decision = limiter.peek(["bucket", "gcra", "window"].map(|rule| (rule, "k"))).await;
    let wait = decision.retry_after().expect("refused");
    assert!(wait <= Duration::from_secs(60), "{wait:?}");
    std::fs::remove_file(&file).expect("removed");
}

/// A handshake longer than the deadline: the requests meanwhile give up, the connection is made all the same.
#[tokio::test]
async fn connecting_outlives_the_request_that_wanted_it() {
    let released = Arc::new(Semaphore::new(0));
    let (proxy, connections) = holding_back(Version::Redis7.shared().port, Arc::clone(&released)).await;
    let (limiter, events) = limiter(RedisStore::builder(format!("redis://{proxy}")).bare().build().expect("sound"));
    for _ in 0..3 {
        assert_eq!(ask(&limiter).await.failure().map(|error| error.kind()), Some(StoreErrorKind::Timeout));
    }
    released.add_permits(1);
    until_answered(&limiter).await;
    assert_eq!(events.count(|event| *event == StoreEvent::Connected), 1);
    assert_eq!(events.count(|event| matches!(event, StoreEvent::ConnectFailed(_))), 0);
    assert_eq!(connections.load(Ordering::SeqCst), 1, "one attempt served them all");
}

/// A demoted primary goes on answering PING; its connection must be dropped all the same.
#[tokio::test]
async fn a_demoted_primary_is_left_at_once() {
    for version in VERSIONS {
        demote(version).await;
    }
}

async fn demote(version: Version) {
    let (server, other) = (Server::start(version), Server::start(version));
    let mut connection = server.connection().await;
    let (limiter, events) = limiter(bare(&server.url()));
    until_answered(&limiter).await;
    let replicate = async |connection: &mut redis::aio::MultiplexedConnection, host: &str, port: &str| {
        let _: () = redis::cmd("REPLICAOF").arg(host).arg(port).query_async(connection).await.expect("done");
    };
    let clients = async |connection: &mut redis::aio::MultiplexedConnection| {
        let own: u64 = redis::cmd("CLIENT").arg("ID").query_async(connection).await.expect("a number");
        let list: String =
            redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("normal").query_async(connection).await.expect("a list");
        let ids = list.lines().map(|line| line.split(['=', ' ']).nth(1).unwrap_or_default().to_owned());
        ids.filter(|id| *id != own.to_string()).collect::<Vec<_>>()
    };
    let before = clients(&mut connection).await;
    assert_eq!(before.len(), 1);
    replicate(&mut connection, "127.0.0.1", &other.port.to_string()).await;
    let refused = ask(&limiter).await;
    assert_eq!(refused.failure().map(|error| error.kind()), Some(StoreErrorKind::Refused));
    assert!(events.count(|event| matches!(event, StoreEvent::Disconnected(_))) >= 1);
    replicate(&mut connection, "NO", "ONE").await;
    until_answered(&limiter).await;
    assert!(!clients(&mut connection).await.contains(&before[0]), "the old connection is closed, not lent again");
    assert_eq!(events.count(|event| *event == StoreEvent::Connected), 2);
}

#[tokio::test]
async fn what_needs_an_operator_says_so_and_shows_no_secret() {
    for version in VERSIONS {
        with_permissions(version).await;
    }
}

async fn with_permissions(version: Version) {
    let server = Server::start(version);
    let mut connection = server.connection().await;
    let acl = async |connection: &mut redis::aio::MultiplexedConnection, rules: &str| {
        let mut command = redis::cmd("ACL");
        command.arg("SETUSER").arg("app").arg("reset").arg("on").arg(">hunter2");
        let _: () = command.arg(rules.split(' ').collect::<Vec<_>>()).query_async(connection).await.expect("a user");
    };
    let url = format!("redis://app:hunter2@127.0.0.1:{}", server.port);
    for rules in ["~* +ping", "~* +evalsha +eval +get", "~* -@all"] {
        acl(&mut connection, rules).await;
        let (limiter, _) = limiter(bare(&url));
        let decision = ask(&limiter).await;
        let error = decision.failure().expect("no permission");
        assert_eq!(error.kind(), StoreErrorKind::Permanent, "{rules}: {error}");
        assert!(error.to_string().contains("+evalsha"), "{error}");
        assert!(!format!("{error} {error:?} {limiter:?} {decision:?}").contains("hunter2"));
    }
    // Exactly what the error asks for is enough.
    acl(&mut connection, "~* +evalsha +eval +time +get +set +lrange +lindex +llen +lset +ltrim +rpush +zcard +zcount +zrange +zscore +zadd +zrem +zremrangebyscore +del +pexpire +pttl")
        .await;
    let rules = [
        rule(),
        Rule::sliding_log("log", Quota::per_hour(5)).key(key::given()),
        Rule::gcra("gcra", Quota::per_hour(5)).key(key::given()),
    ];
    let builder = Limiter::builder(bare(&url)).namespace(namespace());
    let limiter = rules.into_iter().fold(builder, sluicegate::LimiterBuilder::rule).build().expect("sound");
    for _ in 0..6 {
        let decision = limiter.acquire([("r", "k"), ("log", "k"), ("gcra", "k")]).await;
        assert!(decision.failure().is_none(), "{:?}", decision.failure());
    }
    limiter.reset([("r", "k"), ("log", "k")]).await.expect("DEL is among them");
    let wrong = format!("redis://app:wrong-secret@127.0.0.1:{}", server.port);
    let (limiter, _) = self::limiter(bare(&wrong));
    let error = ask(&limiter).await.failure().cloned().expect("no entry");
    assert_eq!(error.kind(), StoreErrorKind::Permanent, "{error}");
    assert!(!format!("{error:?}").contains("secret"));
}

#[tokio::test]
async fn a_server_without_memory_refuses_and_recovers() {
    for version in VERSIONS {
        without_memory(version).await;
    }
}

async fn without_memory(version: Version) {
    let server = Server::start(version);
    let mut connection = server.connection().await;
    let (limiter, _) = limiter(bare(&server.url()));
    until_answered(&limiter).await;
    let _: () =
        redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("1").query_async(&mut connection).await.expect("set");
    let error = ask(&limiter).await.failure().cloned().expect("no memory");
    assert_eq!(error.kind(), StoreErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("out of memory"), "{error}");
    let _: () =
        redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("0").query_async(&mut connection).await.expect("set");
    assert!(ask(&limiter).await.failure().is_none());
}

/// A server that speaks the protocol and says nothing that makes sense.
#[tokio::test]
async fn nonsense_is_a_failure_and_not_a_panic() {
    for reply in [
        &b":7\r\n"[..],
        b"*1\r\n:-5\r\n",
        b"*2\r\n:1\r\n:2\r\n",
        b"$3\r\nabc\r\n",
        b"*-1\r\n",
        b"!!!\r\n",
        b"*4\r\n:1\r\n:1\r\n:-7\r\n:1\r\n",
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut buffer = [0; 65_536];
                    loop {
                        use tokio::io::AsyncReadExt;
                        let Ok(read @ 1..) = stream.read(&mut buffer).await else { return };
                        let text = String::from_utf8_lossy(&buffer[..read]).to_uppercase();
                        let reply = if text.contains("EVALSHA") { reply } else { b"+OK\r\n+OK\r\n" };
                        if stream.write_all(reply).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        let (limiter, _) = limiter(bare(&format!("redis://127.0.0.1:{port}")));
        let error = ask(&limiter).await.failure().cloned().expect("nonsense");
        assert!(matches!(error.kind(), StoreErrorKind::Garbled | StoreErrorKind::Unavailable), "{reply:?}: {error:?}");
    }
}

#[tokio::test]
async fn a_pool_that_the_application_has_is_used() {
    let pool = deadpool_redis::Config::from_url(Version::Redis7.shared().url())
        .create_pool(Some(deadpool_redis::Runtime::Tokio1))
        .expect("a pool");
    let (limiter, _) = limiter(RedisStore::from_pool(pool.clone()).build().expect("sound"));
    until_answered(&limiter).await;
    assert_eq!(pool.status().size, 1);
    // The store keeps that one; the application gets others.
    let mut connection = pool.get().await.expect("another");
    let _: String = redis::cmd("PING").query_async(&mut connection).await.expect("pong");
}

#[tokio::test]
async fn one_connection_serves_many_callers() {
    let server = Server::start(Version::Redis7);
    let mut connection = server.connection().await;
    let (limiter, _) = limiter(bare(&server.url()));
    let asks: Vec<_> = (0..200)
        .map(|_| {
            tokio::spawn({
                let limiter = limiter.clone();
                async move { ask(&limiter).await }
            })
        })
        .collect();
    for ask in asks {
        assert!(ask.await.expect("no panic").failure().is_none());
    }
    assert_eq!(used(&limiter).await, 200);
    let clients: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut connection).await.expect("a list");
    assert_eq!(clients.lines().count(), 2, "the store's one and this test's own:\n{clients}");
}

/// A store that is dropped gives back what it had: its connection is closed, and a pool's place is free again.
#[tokio::test]
async fn a_dropped_store_leaves_no_connection_behind() {
    let server = Server::start(Version::Redis7);
    let mut connection = server.connection().await;
    for _ in 0..5 {
        let (limiter, _) = limiter(bare(&server.url()));
        until_answered(&limiter).await;
    }
    let since = Instant::now();
    loop {
        let clients: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut connection).await.expect("a list");
        if clients.lines().count() == 1 {
            break;
        }
        assert!(since.elapsed() < Duration::from_secs(5), "{clients}");
        tokio::task::yield_now().await;
    }
}

/// A runtime that has shut down drops the attempt to connect while it is being started.
#[test]
fn asking_on_a_runtime_that_has_ended_does_not_hang() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let handle = runtime.handle().clone();
    drop(runtime);
    let (limiter, _) = limiter(RedisStore::builder("redis://127.0.0.1:1").bare().build().expect("sound"));
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Whether it fails or panics for want of a timer does not matter; that it comes back does.
        let asked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| handle.block_on(ask(&limiter)).is_allowed()));
        let _ = done.send(asked.is_ok());
    });
    assert!(ended.recv_timeout(Duration::from_secs(10)).is_ok(), "it hangs");
}

/// Header values that are secrets are hashed before they become keys.
#[tokio::test]
async fn no_secret_reaches_the_server() {
    let server = Server::start(Version::Redis7);
    let rules = [
        Rule::gcra("token", Quota::per_hour(5)).key(key::header("authorization")),
        Rule::gcra("key", Quota::per_hour(5)).key(key::header("x-api-key")),
        Rule::gcra("own", Quota::per_hour(5)).key_by(|_| key::Key::secret(b"hunter2")),
    ];
    let builder = Limiter::builder(bare(&server.url()));
    let limiter = rules.into_iter().fold(builder, sluicegate::LimiterBuilder::rule).build().expect("sound");
    let app = axum::Router::new().layer(sluicegate::RateLimitLayer::new(limiter));
    let request = http::Request::builder().header("authorization", "Bearer hunter2").header("x-api-key", "hunter2");
    let response = crate::support::app::ask(&app, request).await;
    assert!(response.headers().contains_key("ratelimit"));
    let names: Vec<String> = server.connection().await.keys("*").await.expect("names");
    assert_eq!(names.len(), 3);
    assert!(names.iter().all(|name| !name.contains("hunter2")), "{names:?}");
}
