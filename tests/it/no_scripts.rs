//! Without scripts: fixed windows by plain commands, on every server version.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redis::AsyncCommands;
use sluicegate::{
    Call, Clock, Limiter, LimiterBuilder, ManualClock, Quota, RedisStore, Rule, StoreErrorKind, key,
    store::{Id, Purpose},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use crate::support::{
    events::Events,
    proxy::holding_back,
    purposed::Purposed,
    server::{Server, VERSIONS, Version},
    stores::{BEGIN, namespace},
};

fn store(url: &str) -> RedisStore {
    RedisStore::builder(url).no_scripts().bare().deadline(Duration::from_secs(30)).build().expect("sound")
}

fn hourly(name: &str, amount: u64) -> Rule {
    Rule::fixed_window(name, Quota::per_hour(amount)).key(key::given())
}

fn limiter(store: RedisStore, rules: impl IntoIterator<Item = Rule>) -> LimiterBuilder {
    rules.into_iter().fold(Limiter::builder(store).namespace(namespace()), LimiterBuilder::rule)
}

async fn remaining(limiter: &Limiter, rule: &str) -> u64 {
    let decision = limiter.peek([(rule, "k")]).await;
    assert!(decision.failure().is_none(), "{:?}", decision.failure());
    decision.standing(rule).expect("it applies").remaining()
}

#[test]
fn what_needs_scripts_is_a_build_error_that_says_so() {
    let quota = Quota::per_minute(5);
    for (rule, field, remedy) in [
        (Rule::sliding_log("r", quota), "algorithm", "fixed window"),
        (Rule::sliding_counter("r", quota), "algorithm", "fixed window"),
        (Rule::token_bucket("r", quota), "algorithm", "fixed window"),
        (Rule::leaky_bucket("r", quota), "algorithm", "fixed window"),
        (Rule::gcra("r", quota), "algorithm", "fixed window"),
        (Rule::fixed_window("r", quota).from_first_request(), "from_first_request", "drop from_first_request()"),
        (Rule::fixed_window("r", Quota::per(5, Duration::from_millis(999))), "quota", "a second or more"),
    ] {
        let rules = [hourly("fine", 5), rule.key(key::given())];
        let error = limiter(store("redis://127.0.0.1:1"), rules).build().expect_err("it needs scripts");
        assert_eq!((error.rule_name(), error.field()), (Some("r"), field), "{error}");
        assert!(error.to_string().contains(remedy), "{error}");
    }
}

#[tokio::test]
async fn all_rules_are_charged_or_none() {
    for version in VERSIONS {
        let clock = ManualClock::new(BEGIN);
        let builder = limiter(store(&version.shared().url()), [hourly("wide", 10), hourly("narrow", 3)]);
        let limiter = builder.clock(Clock::manual(clock.clone())).build().expect("sound");
        let keys = [("wide", "k"), ("narrow", "k")];
        for left in [2, 1, 0] {
            let decision = limiter.acquire(keys).await;
            assert!(decision.is_allowed() && decision.failure().is_none(), "{version:?}: {decision:?}");
            assert_eq!(decision.standing("narrow").map(|standing| standing.remaining()), Some(left));
        }
        let refused = limiter.acquire(keys).await;
        assert!(refused.is_refused());
        // BEGIN is 123,456 microseconds into an hour.
        let rest = Duration::from_micros(3_600_000_000 - 123_456);
        assert_eq!(refused.retry_after(), Some(rest));
        assert_eq!(refused.standing("wide").map(|standing| standing.remaining()), Some(7));
        assert_eq!((remaining(&limiter, "wide").await, remaining(&limiter, "narrow").await), (7, 0), "{version:?}");
        clock.advance(rest - Duration::from_micros(1));
        assert!(limiter.acquire(keys).await.is_refused(), "a microsecond early");
        clock.advance(Duration::from_micros(1));
        assert!(limiter.acquire(keys).await.is_allowed(), "on time");
        limiter.reset(keys).await.expect("forgotten");
        assert_eq!((remaining(&limiter, "wide").await, remaining(&limiter, "narrow").await), (10, 3), "{version:?}");
    }
}

#[tokio::test]
async fn racing_requests_are_never_admitted_beyond_the_limit_and_leave_nothing_behind() {
    for version in VERSIONS {
        let builder = limiter(store(&version.shared().url()), [hourly("wide", 1_000), hourly("narrow", 40)]);
        let limiter = builder.clock(Clock::manual(ManualClock::new(BEGIN))).build().expect("sound");
        let asks: Vec<_> = (0..200)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move { limiter.acquire([("wide", "k"), ("narrow", "k")]).await })
            })
            .collect();
        let mut admitted = 0;
        for ask in asks {
            let decision = ask.await.expect("no panic");
            assert!(decision.failure().is_none(), "{:?}", decision.failure());
            admitted += u64::from(decision.is_allowed());
        }
        assert!((1..=40).contains(&admitted), "{admitted}");
        assert_eq!(remaining(&limiter, "narrow").await, 40 - admitted, "{version:?}");
        assert_eq!(remaining(&limiter, "wide").await, 1_000 - admitted, "{version:?}");
    }
}

#[tokio::test]
async fn every_count_has_a_ttl_and_costs_that_never_fit_write_nothing() {
    let server = Server::start(Version::Redis6);
    let mut connection = server.connection().await;
    let limiter = limiter(store(&server.url()), [hourly("r", 2)]).build().expect("sound");
    let never = limiter.acquire(Call::new().key("r", "k").cost(3)).await;
    assert!(never.is_refused() && never.retry_after().is_none(), "{never:?}");
    assert_eq!(redis::cmd("DBSIZE").query_async::<u64>(&mut connection).await.expect("a number"), 0);
    for _ in 0..3 {
        assert!(limiter.acquire([("r", "k")]).await.failure().is_none());
    }
    let names: Vec<String> = connection.keys("*").await.expect("names");
    assert_eq!(names.len(), 1);
    let (count, ttl): (u64, u64) =
        (connection.get(&names[0]).await.expect("a count"), connection.pttl(&names[0]).await.expect("a TTL"));
    assert_eq!(count, 2);
    assert!((1..=3_601_000).contains(&ttl), "{ttl}");
}

/// The server's time says which window it is, also when it steps away from what was known of it.
#[tokio::test]
async fn a_call_in_another_window_than_it_was_sent_for_is_made_again() {
    let folder = std::env::temp_dir().join(namespace());
    std::fs::create_dir_all(&folder).expect("a folder");
    let offset = folder.join("offset");
    std::fs::write(&offset, "+0s").expect("written");
    let server = Server::start_with_clock(&offset);
    let limiter = limiter(store(&server.url()), [hourly("r", 1)]).build().expect("sound");
    let ask = || limiter.acquire([("r", "k")]);
    assert!(ask().await.is_allowed());
    assert!(ask().await.is_refused());
    let mut connection = server.connection().await;
    let time = async |connection: &mut redis::aio::MultiplexedConnection| {
        let mut script = redis::cmd("EVAL");
        script.arg("return tonumber(redis.call('TIME')[1])").arg(0);
        script.query_async::<u64>(connection).await.expect("a time")
    };
    let (before, since) = (time(&mut connection).await, Instant::now());
    std::fs::write(&offset, "+3600s").expect("written");
    // The server notices after a while.
    while time(&mut connection).await < before + 3_600 {
        assert!(since.elapsed() < Duration::from_secs(20), "the clock does not step");
    }
    assert!(ask().await.is_allowed(), "the next window");
    assert!(ask().await.is_refused());
    let mut sum = 0;
    for name in connection.keys::<_, Vec<String>>("*").await.expect("names") {
        sum += connection.get::<_, Option<i64>>(&name).await.expect("a count").unwrap_or(0);
    }
    assert_eq!(sum, 1, "the window that is over has expired, and what went there by mistake was taken back");
    std::fs::remove_dir_all(&folder).expect("gone");
}

/// Who gives up at the deadline has spent nothing once the server answers.
#[tokio::test]
async fn what_nobody_waited_for_is_taken_back() {
    let server = Server::start(Version::Valkey9);
    let released = Arc::new(Semaphore::new(1));
    let (address, _) = holding_back(server.port, Arc::clone(&released)).await;
    let impatient = RedisStore::builder(format!("redis://{address}")).no_scripts().bare();
    let impatient = impatient.deadline(Duration::from_millis(50)).build().expect("sound");
    let impatient = limiter(impatient, [hourly("r", 5)]).namespace("ns").build().expect("sound");
    let since = Instant::now();
    while impatient.peek([("r", "k")]).await.failure().is_some() {
        assert!(since.elapsed() < Duration::from_secs(20), "it never connects");
    }
    let patient = limiter(store(&server.url()), [hourly("r", 5)]).namespace("ns").build().expect("sound");
    let held = Arc::clone(&released).acquire_owned().await.expect("open");
    let failed = impatient.acquire([("r", "k")]).await;
    let error = failed.failure().expect("no answer");
    assert!(error.is_timeout() && error.may_have_charged(), "{error:?}");
    assert_eq!(remaining(&patient, "r").await, 4, "the server has done it");
    drop(held);
    while remaining(&patient, "r").await != 5 {
        assert!(since.elapsed() < Duration::from_secs(20), "it was not taken back");
    }
}

/// A reply that is lost is an error, and no second charge.
#[tokio::test]
async fn a_lost_reply_charges_once_and_an_id_counts_once() {
    let server = Server::start(Version::Redis7);
    let (address, cut) = cutting(server.port, b"QUEUED").await;
    let purposed = Purposed::new(store(&format!("redis://{address}")));
    let limiter = Limiter::builder(purposed.clone()).namespace("ns").rule(hourly("r", 10)).build().expect("sound");
    assert!(limiter.acquire([("r", "k")]).await.failure().is_none());
    cut.add_permits(1);
    let lost = limiter.acquire([("r", "k")]).await;
    assert_eq!(lost.failure().map(|error| error.kind()), Some(StoreErrorKind::Unavailable));
    assert_eq!(remaining(&limiter, "r").await, 8);
    for (purpose, left) in [(Purpose::Take(Id::random()), 7), (Purpose::Give(Id::random()), 8)] {
        purposed.set(Some(purpose));
        // Paused time lets the connection grow old enough to be replaced at once.
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(2)).await;
        tokio::time::resume();
        // The first is done though its reply is lost; the others are told so.
        cut.add_permits(1);
        assert!(limiter.acquire([("r", "k")]).await.failure().is_some());
        for _ in 0..3 {
            let decision = limiter.acquire([("r", "k")]).await;
            assert_eq!(decision.standing("r").map(|standing| standing.remaining()), Some(left), "{purpose:?}");
        }
    }
    purposed.set(None);
    assert_eq!(remaining(&limiter, "r").await, 8);
}

/// A refusal stands though the reply to what took it back was lost; it is told, and not done twice.
#[tokio::test]
async fn what_was_perhaps_not_taken_back_is_told() {
    let server = Server::start(Version::Valkey9);
    // The count is 2 with what is refused, and 1 again after that.
    let (address, cut) = cutting(server.port, b":1\r\n").await;
    let events = Events::default();
    let builder = limiter(store(&format!("redis://{address}")), [hourly("r", 1)]).observer(events.clone());
    let limiter = builder.build().expect("sound");
    assert!(limiter.acquire([("r", "k")]).await.failure().is_none());
    cut.add_permits(1);
    let refused = limiter.acquire([("r", "k")]).await;
    assert!(refused.is_refused() && refused.failure().is_none(), "{refused:?}");
    assert_eq!(events.not_given_back(), 1);
    assert_eq!(remaining(&limiter, "r").await, 0);
}

/// Takes no more than is left, and gives back no more than was spent.
#[tokio::test]
async fn taking_and_giving_stay_within_the_limit() {
    for version in VERSIONS {
        let purposed = Purposed::new(store(&version.shared().url()));
        let rule = hourly("r", 10).cost(7);
        let builder = Limiter::builder(purposed.clone()).namespace(namespace()).rule(rule);
        let limiter = builder.clock(Clock::manual(ManualClock::new(BEGIN))).build().expect("sound");
        for (purpose, left) in [
            (Purpose::Take(Id::random()), 3),
            (Purpose::Take(Id::random()), 0),
            (Purpose::Give(Id::random()), 7),
            (Purpose::Give(Id::random()), 10),
        ] {
            purposed.set(Some(purpose));
            let decision = limiter.acquire([("r", "k")]).await;
            assert!(decision.is_allowed() && decision.failure().is_none(), "{decision:?}");
            assert_eq!(
                decision.standing("r").map(|standing| standing.remaining()),
                Some(left),
                "{version:?} {purpose:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_user_who_may_not_run_scripts_is_enough() {
    for version in VERSIONS {
        let server = Server::start(version);
        let mut connection = server.connection().await;
        let url = format!("redis://app:pw@127.0.0.1:{}", server.port);
        for (rules, allowed) in
            [("+multi +exec +time +get +set +del", false), ("+multi +exec +time +get +set +incrby +del", true)]
        {
            let mut user = redis::cmd("ACL");
            user.arg("SETUSER").arg("app").arg("reset").arg("on").arg(">pw").arg("~ns:*");
            let _: () =
                user.arg(rules.split(' ').collect::<Vec<_>>()).query_async(&mut connection).await.expect("a user");
            let limiter = limiter(store(&url), [hourly("r", 5)]).namespace("ns").build().expect("sound");
            let decision = limiter.acquire([("r", "k")]).await;
            match decision.failure() {
                None => assert!(allowed, "{version:?}"),
                Some(error) => {
                    assert!(!allowed, "{version:?}: {error}");
                    assert_eq!(error.kind(), StoreErrorKind::Permanent);
                    assert!(error.to_string().contains("+incrby"), "{error}");
                }
            }
        }
    }
}

/// Forwards to `port`; while there are permits, each reply with these bytes costs one and is dropped with its connection.
async fn cutting(port: u16, bytes: &'static [u8]) -> (std::net::SocketAddr, Arc<Semaphore>) {
    let cut = Arc::new(Semaphore::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("its address");
    let permits = Arc::clone(&cut);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let permits = Arc::clone(&permits);
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", port)).await.expect("the server");
                let (mut up, mut down) = ([0; 16_384], [0; 16_384]);
                loop {
                    tokio::select! {
                        read = client.read(&mut up) => match read {
                            Ok(read @ 1..) => server.write_all(&up[..read]).await.expect("the server"),
                            _ => return,
                        },
                        read = server.read(&mut down) => match read {
                            Ok(read @ 1..) => {
                                let found = down[..read].windows(bytes.len()).any(|word| word == bytes);
                                if found && let Ok(permit) = permits.try_acquire() {
                                    permit.forget();
                                    return;
                                }
                                if client.write_all(&down[..read]).await.is_err() {
                                    return;
                                }
                            }
                            _ => return,
                        },
                    }
                }
            });
        }
    });
    (address, cut)
}
