//! Connections that end, and servers that take none: nothing is lost, stormed or leaked.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use sluicegate::{RedisStore, StoreErrorKind};
use tokio::{io::AsyncReadExt, net::TcpListener, time};

use crate::support::{
    asking::{ask, failure, limiter, until_answered, used},
    sentinel::{query, until},
    server::{Server, VERSIONS, Version},
    sockets,
    stores::bare,
};

/// A server, or a proxy before it, closes connections that say nothing for a while. The store has another one before the next
/// request comes.
#[tokio::test]
async fn a_connection_that_the_server_closes_costs_no_decision() {
    for version in VERSIONS {
        let server = Server::start(version);
        let mut connection = server.connection().await;
        let (limiter, events) = limiter(bare(&server.url()));
        for round in 1..=20 {
            let decision = ask(&limiter).await;
            assert!(decision.failure().is_none(), "{round}: {:?}", decision.failure());
            assert_eq!((events.connected(), events.disconnected()), (round, round - 1));
            // Paused time lets the connection grow old enough to be replaced at once.
            time::pause();
            time::advance(Duration::from_secs(2)).await;
            time::resume();
            let _: u64 = query(&mut connection, "CLIENT KILL TYPE normal SKIPME yes").await;
            events.until(|events| events.connected() == round + 1).await;
        }
        assert_eq!(used(&limiter).await, 20);
        until(async || sockets::to_port(server.port) == 2).await;
        drop(limiter);
        until(async || sockets::to_port(server.port) == 1).await;
    }
}

#[tokio::test]
async fn all_connections_are_closed_with_the_store() {
    let server = Server::start(Version::Redis7);
    for _ in 0..10 {
        let store = RedisStore::builder(server.url()).connections(4).deadline(Duration::from_secs(30)).build();
        let (limiter, events) = limiter(store.expect("sound"));
        for _ in 0..8 {
            assert!(ask(&limiter).await.failure().is_none());
        }
        events.until(|events| events.connected() == 4).await;
        assert_eq!(sockets::to_port(server.port), 4);
        drop(limiter);
        until(async || sockets::to_port(server.port) == 0).await;
    }
}

/// While connections are made anew, at the pace that is allowed, the others serve.
#[tokio::test]
async fn a_lost_connection_of_several_costs_no_decision() {
    let server = Server::start(Version::Redis7);
    let mut connection = server.connection().await;
    let store = RedisStore::builder(server.url()).connections(4).deadline(Duration::from_secs(30)).build();
    let (limiter, events) = limiter(store.expect("sound"));
    for _ in 0..8 {
        assert!(ask(&limiter).await.failure().is_none());
    }
    events.until(|events| events.connected() == 4).await;
    let own: u64 = query(&mut connection, "CLIENT ID").await;
    for round in 1..=3 {
        let list: String = query(&mut connection, "CLIENT LIST TYPE normal").await;
        let ids = list.lines().filter_map(|line| line.strip_prefix("id=")?.split(' ').next()?.parse().ok());
        let victim: u64 = ids.filter(|id| *id != own).min().expect("a connection");
        let _: u64 = query(&mut connection, &format!("CLIENT KILL ID {victim}")).await;
        events.until(|events| events.disconnected() == round).await;
        for _ in 0..4 {
            let decision = ask(&limiter).await;
            assert!(decision.failure().is_none(), "{round}: {:?}", decision.failure());
        }
    }
}

/// Counts the attempts at a listener that closes what it accepts, over twenty seconds of busy callers. Time is paused: it moves
/// when nothing else does.
async fn attempts_of(connections: usize, listener: TcpListener) -> (usize, Duration) {
    let port = listener.local_addr().expect("its address").port();
    let accepted = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&accepted);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::SeqCst);
            drop(stream);
        }
    });
    let builder = RedisStore::builder(format!("redis://127.0.0.1:{port}")).connections(connections).bare();
    let (limiter, events) = limiter(builder.build().expect("sound"));
    time::pause();
    let since = time::Instant::now();
    while since.elapsed() < Duration::from_secs(20) {
        assert!(ask(&limiter).await.failure().is_some());
        time::advance(Duration::from_millis(10)).await;
    }
    let elapsed = since.elapsed();
    time::resume();
    events.until(|events| events.connect_failed() >= accepted.load(Ordering::SeqCst)).await;
    (accepted.load(Ordering::SeqCst), elapsed)
}

#[tokio::test]
async fn a_server_that_takes_no_connection_is_tried_once_a_second() {
    for connections in [1, 8] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let (attempts, elapsed) = attempts_of(connections, listener).await;
        let seconds = usize::try_from(elapsed.as_secs()).expect("few");
        assert!((seconds..=seconds + 4).contains(&attempts), "{attempts} in {elapsed:?}, {connections} connections");
    }
}

/// A server with as many clients as it takes closes the connection, and may say so before. It is not stormed, and its word is
/// not taken for a wrong password.
#[tokio::test]
async fn a_crowded_server_is_one_that_is_not_to_be_had() {
    for version in VERSIONS {
        let server = Server::start(version);
        let mut connection = server.connection().await;
        let _: () = query(&mut connection, "ACL SETUSER app on >hunter2 ~* +@all").await;
        let _: () = query(&mut connection, "CONFIG SET maxclients 1").await;
        for url in [server.url(), format!("redis://app:hunter2@127.0.0.1:{}", server.port)] {
            let (limiter, events) = limiter(bare(&url));
            for _ in 0..100 {
                let error = failure(&limiter).await;
                assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
                let text = error.to_string();
                assert!(text.contains("as many clients") || text.contains("closed by the server"), "{text}");
            }
            assert!(events.connect_failed() <= 2, "{}", events.connect_failed());
        }
        let _: () = query(&mut connection, "CONFIG SET maxclients 100").await;
        until_answered(&limiter(bare(&server.url())).0).await;
    }
}

/// What the sockets are set to, as the kernel tells.
#[tokio::test]
async fn sockets_have_keepalive() {
    let server = Server::start(Version::Redis7);
    let (limiter, _) = limiter(bare(&server.url()));
    assert!(ask(&limiter).await.failure().is_none());
    let off = RedisStore::builder(server.url()).keepalive(None).deadline(Duration::from_secs(30)).build();
    let (without, _) = self::limiter(off.expect("sound"));
    assert!(ask(&without).await.failure().is_none());
    let timers = sockets::timers(server.port);
    assert_eq!(timers.iter().filter(|timer| **timer == "02").count(), 1, "{timers:?}");
}

/// The application is gone, or reads nothing: attempts that hang are ended, and leave no socket.
#[tokio::test]
async fn attempts_that_hang_leave_no_socket() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("its address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move { while let Ok(1..) = stream.read(&mut [0; 64]).await {} });
        }
    });
    let (limiter, events) =
        limiter(RedisStore::builder(format!("redis://127.0.0.1:{port}")).bare().build().expect("sound"));
    time::pause();
    let since = time::Instant::now();
    while events.connect_failed() < 5 {
        assert_eq!(failure(&limiter).await.kind(), StoreErrorKind::Timeout);
        // A task that was told to end lets go of its socket when its turn comes.
        tokio::task::yield_now().await;
        assert!(sockets::to_port(port) <= 1, "one attempt at a time");
        assert!(since.elapsed() < Duration::from_secs(10), "attempts do not end");
        time::advance(Duration::from_millis(10)).await;
    }
    time::resume();
    drop(limiter);
    until(async || sockets::to_port(port) == 0).await;
}
