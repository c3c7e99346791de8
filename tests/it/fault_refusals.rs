//! Servers that answer that they cannot: out of memory, busy, full, not allowed. Each is told as what it is.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use sluicegate::{Limiter, StoreError, StoreErrorKind};
use tokio::task::JoinHandle;

use crate::support::{
    fault_proxy::Counts,
    faulted::{DEADLINE, Faulted, GRAIN, OPEN, PATIENT, resilient},
    load::{figure, part},
    log::Log,
};

async fn say(connection: &mut MultiplexedConnection, words: &str) {
    let mut words = words.split(' ');
    let mut command = redis::cmd(words.next().expect("a command"));
    let _: () = command.arg(words.collect::<Vec<_>>()).query_async(connection).await.expect("done");
}

/// The server's word for why it does not serve this.
async fn said(limiter: &Limiter) -> Option<&'static str> {
    limiter.acquire([("checked", 0)]).await.failure().and_then(StoreError::code)
}

/// The stream under a fault that the server tells of at once, and after it.
async fn told(mut faulted: Faulted, kind: StoreErrorKind, code: &str, heal: impl AsyncFnOnce(&mut Faulted)) {
    let during = faulted.load.run(part(Duration::from_millis(500))).await;
    let failures = during.failures();
    assert_eq!(during.failed(), during.samples.len(), "{failures:?}");
    assert!(failures.keys().eq([&kind]), "{failures:?}");
    assert_eq!(said(&faulted.load.limiter).await, Some(code));
    heal(&mut faulted).await;
    let healed = Instant::now();
    let recovery = faulted.load.recovery(healed, Duration::from_secs(10)).await;
    assert!(recovery <= Duration::from_secs(1), "{recovery:?}");
    figure("recovery", recovery);
    let sum = faulted.is_over().await;
    assert_eq!(sum.unanswered, 0, "what the server refuses is not charged: {sum:?}");
}

async fn patient(settings: &[&str]) -> Faulted {
    Faulted::with(settings, |store| store.bare().deadline(PATIENT), Limiter::builder).await
}

#[tokio::test]
async fn out_of_memory() {
    let mut faulted = patient(&[]).await;
    say(&mut faulted.direct, "CONFIG SET maxmemory 1").await;
    told(faulted, StoreErrorKind::Refused, "OOM", async |faulted| {
        say(&mut faulted.direct, "CONFIG SET maxmemory 0").await
    })
    .await;
}

/// Has the server run a script that does not end.
async fn endless(faulted: &Faulted) -> JoinHandle<()> {
    let mut other = faulted.server.connection().await;
    let endless = tokio::spawn(async move {
        let _: redis::RedisResult<()> =
            redis::cmd("EVAL").arg("while true do end").arg(0).query_async(&mut other).await;
    });
    while faulted.load.limiter.peek([("checked", 0)]).await.failure().is_none() {}
    endless
}

#[tokio::test]
async fn busy_with_a_script_that_does_not_end() {
    let faulted = patient(&["--busy-reply-threshold", "1"]).await;
    let endless = endless(&faulted).await;
    told(faulted, StoreErrorKind::Refused, "BUSY", async |faulted| {
        say(&mut faulted.direct, "SCRIPT KILL").await;
        endless.await.expect("no panic");
    })
    .await;
}

/// Behind a breaker the server is left alone with it, but for probes.
#[tokio::test]
async fn busy_opens_the_breaker() {
    let mut faulted =
        Faulted::with(&["--busy-reply-threshold", "1"], |store| store.bare().deadline(PATIENT), resilient).await;
    let endless = endless(&faulted).await;
    let during = faulted.load.run(part(Duration::from_millis(500))).await;
    assert_eq!(during.failed(), during.samples.len(), "{:?}", during.failures());
    let failures = during.failures();
    assert!(failures.keys().all(|kind| [StoreErrorKind::Refused, StoreErrorKind::Open].contains(kind)), "{failures:?}");
    assert!(failures[&StoreErrorKind::Open] > during.samples.len() * 9 / 10, "{failures:?}");
    say(&mut faulted.direct, "SCRIPT KILL").await;
    endless.await.expect("no panic");
    let recovery = faulted.load.recovery(Instant::now(), Duration::from_secs(10)).await;
    assert!(recovery <= OPEN + Duration::from_secs(1), "{recovery:?}");
    figure("recovery", recovery);
    let sum = faulted.is_over().await;
    assert_eq!(sum.unanswered, 0, "what the server refuses is not charged: {sum:?}");
}

/// Not a fault that passes: the log says so at once and goes on saying it, a line a second.
#[tokio::test]
async fn not_allowed() {
    let (log, _guard) = Log::begin();
    let mut faulted = patient(&[]).await;
    say(&mut faulted.direct, "ACL SETUSER default -evalsha -eval").await;
    told(faulted, StoreErrorKind::Permanent, "NOPERM", async |faulted| {
        say(&mut faulted.direct, "ACL SETUSER default +evalsha +eval").await;
    })
    .await;
    let text = log.text();
    let lines: Vec<_> = text.lines().filter(|line| line.contains("this does not mend itself")).collect();
    assert!(!lines.is_empty() && lines.len() < 100, "{} lines", lines.len());
    assert!(lines.iter().all(|line| line.contains("ERROR") && line.contains("+evalsha")), "{lines:?}");
}

/// With a breaker it is the same: it does not open, which would make the fault look like an outage that passes.
#[tokio::test]
async fn not_allowed_opens_no_breaker() {
    let mut faulted = Faulted::with(&[], |store| store.bare().deadline(PATIENT), resilient).await;
    say(&mut faulted.direct, "ACL SETUSER default -evalsha -eval").await;
    told(faulted, StoreErrorKind::Permanent, "NOPERM", async |faulted| {
        say(&mut faulted.direct, "ACL SETUSER default +evalsha +eval").await;
    })
    .await;
}

/// No room for another client: attempts to connect are few, and the place that comes free is taken.
#[tokio::test]
async fn too_many_clients() {
    let mut faulted = Faulted::bare().await;
    let connections = Counts::of(&faulted.proxy.counts.connections);
    say(&mut faulted.direct, "CONFIG SET maxclients 1").await;
    faulted.proxy.reset();
    let length = part(Duration::from_secs(1));
    let during = faulted.load.run(length).await;
    during.is_within(DEADLINE + GRAIN);
    assert_eq!(during.failed(), during.samples.len(), "{:?}", during.failures());
    assert!(during.failures().contains_key(&StoreErrorKind::Unavailable), "{:?}", during.failures());
    assert_eq!(said(&faulted.load.limiter).await, Some("MAXCLIENTS"));
    let attempts = Counts::of(&faulted.proxy.counts.connections) - connections;
    assert!(attempts <= 5 * length.as_secs() + 2, "{attempts} attempts in {length:?}");
    say(&mut faulted.direct, "CONFIG SET maxclients 1000").await;
    let healed = Instant::now();
    let recovery = faulted.load.recovery(healed, Duration::from_secs(10)).await;
    assert!(recovery <= Duration::from_secs(1), "{recovery:?}");
    figure("recovery", recovery);
    faulted.is_over().await;
}
