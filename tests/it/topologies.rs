//! Ways to a server: users, databases, sockets, names; and addresses that lead nowhere.

use std::time::Duration;

use sluicegate::{RedisStore, StoreErrorKind};

use crate::support::{
    asking::{ask, failure, limiter, until_answered},
    folder::Folder,
    sentinel::query,
    server::{Server, VERSIONS, Version, free_port},
    stores::bare,
};

async fn keys_of(server: &Server) -> String {
    query(&mut server.connection().await, "INFO keyspace").await
}

#[tokio::test]
async fn users_and_databases_are_those_of_the_address_or_the_builder() {
    for version in VERSIONS {
        let server = Server::start(version);
        let mut connection = server.connection().await;
        let _: () = query(&mut connection, "ACL SETUSER app on >p@ss/word ~* +@all").await;
        let (by_address, _) = limiter(bare(&format!("redis://app:p%40ss%2Fword@127.0.0.1:{}/2", server.port)));
        assert!(ask(&by_address).await.failure().is_none());
        let builder = RedisStore::builder(format!("valkey://127.0.0.1:{}/9", server.port)).database(5);
        let store = builder.credentials("app", "p@ss/word").deadline(Duration::from_secs(30)).build().expect("sound");
        let (by_builder, _) = limiter(store);
        assert!(ask(&by_builder).await.failure().is_none());
        let clients: String = query(&mut connection, "CLIENT LIST").await;
        assert_eq!(clients.matches("user=app").count(), 2, "{clients}");
        let keys = keys_of(&server).await;
        assert!(keys.contains("db2:keys=1") && keys.contains("db5:keys=1") && !keys.contains("db9"), "{keys}");
        let (beyond, _) = limiter(bare(&format!("{}/77", server.url())));
        let error = failure(&beyond).await;
        assert_eq!(error.kind(), StoreErrorKind::Permanent);
        assert!(error.to_string().contains("database"), "{error}");
    }
}

#[tokio::test]
async fn a_password_alone_is_enough() {
    let server = Server::start_on(Version::Redis7, free_port(), &["--requirepass", "hunter2"]);
    let (right, _) = limiter(bare(&format!("redis://:hunter2@127.0.0.1:{}", server.port)));
    assert!(ask(&right).await.failure().is_none());
    for url in [server.url(), format!("redis://:wrong-secret@127.0.0.1:{}", server.port)] {
        let error = failure(&limiter(bare(&url)).0).await;
        assert_eq!(error.kind(), StoreErrorKind::Permanent, "{error}");
        assert!(error.to_string().contains("password") && !format!("{error:?}").contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn unix_sockets_are_reached() {
    let folder = Folder::new();
    let path = folder.0.join("socket");
    let path = path.to_str().expect("a path");
    let server = Server::start_on(Version::Valkey9, free_port(), &["--unixsocket", path]);
    let _: () = query(&mut server.connection().await, "ACL SETUSER app on >hunter2 ~* +@all").await;
    for url in [format!("unix://{path}?db=1&user=app&pass=hunter2"), format!("redis+unix://{path}?db=1")] {
        let (limiter, _) = limiter(bare(&url));
        assert!(ask(&limiter).await.failure().is_none());
    }
    let keys = keys_of(&server).await;
    assert!(keys.contains("db1:keys=2"), "{keys}");
    let (gone, _) = limiter(bare(&format!("unix://{path}-gone")));
    let error = failure(&gone).await;
    assert!(error.to_string().contains("no such socket"), "{error}");
}

#[tokio::test]
async fn hosts_are_names_or_addresses_of_either_kind() {
    // It is waited for at 127.0.0.1, where it listens last.
    let server = Server::start_on(Version::Redis7, free_port(), &["--bind", "::1", "127.0.0.1"]);
    let limiters =
        ["[::1]", "127.0.0.1", "localhost"].map(|host| limiter(bare(&format!("redis://{host}:{}", server.port))).0);
    for limiter in &limiters {
        assert!(ask(limiter).await.failure().is_none());
    }
    let clients: String = query(&mut server.connection().await, "CLIENT LIST").await;
    assert!(clients.contains("laddr=[::1]:"), "{clients}");
    let (nowhere, _) = limiter(bare("redis://no-such-host.invalid"));
    let error = failure(&nowhere).await;
    assert!(error.to_string().contains("name is not known"), "{error}");
}

#[test]
fn a_wrong_address_is_told_by_its_fault_and_not_quoted() {
    for (url, fault) in [
        ("", "scheme"),
        ("127.0.0.1:6379", "scheme"),
        ("http://user:hunter2@host", "scheme"),
        ("redis://", "no host"),
        ("redis:///3", "no host"),
        ("redis://user:hunter2@host:port", "not the address"),
        ("redis://user:hunter2@host/three", "number of a database"),
        ("redis://user:hunter2@host/-3", "below 0"),
        ("redis://user@host", "without a password"),
        ("redis://user:hunter2@0.0.0.0", "every address"),
        ("redis://user:hunter2@host?db=3", "parameter"),
        ("redis://user:hunter#2@host", "%23"),
        ("rediss://user:hunter2@host/#insecure", ".tls_ca("),
        ("redis://user:hunter2%ff@host", "UTF-8"),
        ("unix:relative?pass=hunter2", "no socket"),
        ("unix:///path?db=x&pass=hunter2", "number of a database"),
        ("unix:///path?database=3&pass=hunter2", "parameter"),
    ] {
        let error = RedisStore::connect(url).expect_err(url);
        assert_eq!(error.field(), "url", "{url}");
        assert!(error.to_string().contains(fault) && error.to_string().contains("redis://"), "{url}: {error}");
        assert!(!format!("{error} {error:?}").contains("hunter"), "{error}");
    }
}

#[test]
fn settings_that_contradict_each_other_are_build_errors() {
    let one = || RedisStore::builder("redis://h");
    let two = || RedisStore::builder(["redis://s1:26379", "redis://s2:26379"]);
    let second = Duration::from_secs(1);
    for (builder, field, remedy) in [
        (two(), "url", ".sentinel("),
        (two(), "url", ".cluster("),
        (RedisStore::builder(Vec::<String>::new()), "url", "give one"),
        (RedisStore::builder(Vec::<String>::new()).sentinel("m"), "url", "26379"),
        (two().sentinel(""), "sentinel", "mymaster"),
        (RedisStore::builder(["redis://s1:26379/1"]).sentinel("m"), "url", ".database("),
        (one().tls(true), "tls", "rediss://"),
        (one().keepalive(second / 2), "keepalive", "1 s to 1 h"),
        (one().user_timeout(second * 4_000), "user_timeout", "1 s to 1 h"),
    ] {
        let error = builder.build().expect_err("a contradiction");
        assert_eq!(error.field(), field, "{error}");
        assert!(error.to_string().contains(remedy), "{error}");
    }
    assert!(one().keepalive(None).user_timeout(None).build().is_ok());
    assert!(two().sentinel("m").credentials("u", "p").database(2).build().is_ok());
    let shown = format!("{:?}", two().sentinel("m").credentials("u", "hunter2"));
    assert!(!shown.contains("hunter2"), "{shown}");
}

/// An address that moves with the primary, as a name or a balancer does: the call that finds a replica goes to the new primary.
#[tokio::test]
async fn a_demotion_costs_no_decision_where_the_address_leads_to_the_new_primary() {
    use crate::support::proxy::switching;
    for version in VERSIONS {
        let (old, new) = (Server::start(version), Server::start(version));
        let (address, target) = switching(old.port).await;
        let (limiter, events) = limiter(bare(&format!("redis://{address}")));
        until_answered(&limiter).await;
        let _: () = query(&mut old.connection().await, &format!("REPLICAOF 127.0.0.1 {}", new.port)).await;
        target.store(new.port, std::sync::atomic::Ordering::SeqCst);
        let decision = ask(&limiter).await;
        assert!(decision.failure().is_none(), "{:?}", decision.failure());
        assert_eq!((events.connected(), events.disconnected()), (2, 1));
        assert_eq!(query::<u64>(&mut new.connection().await, "DBSIZE").await, 1);
    }
}

/// While it stays a replica, every call says so at once, and nothing is asked more than once a second.
#[tokio::test]
async fn a_demoted_server_is_used_again_within_a_second_of_its_return() {
    let (server, other) = (Server::start(Version::Redis7), Server::start(Version::Redis7));
    let mut connection = server.connection().await;
    let (limiter, _) = limiter(bare(&server.url()));
    until_answered(&limiter).await;
    let _: () = query(&mut connection, &format!("REPLICAOF 127.0.0.1 {}", other.port)).await;
    let error = failure(&limiter).await;
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(error.to_string().contains("replica") && !error.may_have_charged(), "{error}");
    let error = failure(&limiter).await;
    assert!(error.to_string().contains("replica"), "{error}");
    let _: () = query(&mut connection, "REPLICAOF NO ONE").await;
    let took = until_answered(&limiter).await;
    assert!(took <= Duration::from_secs(1), "{took:?}");
}

/// A user who may not ask for the role is not kept out.
#[tokio::test]
async fn the_role_is_not_needed() {
    let server = Server::start(Version::Redis7);
    let mut connection = server.connection().await;
    let _: () = query(&mut connection, "ACL SETUSER app on >hunter2 ~* +@all -role").await;
    let (limiter, _) = limiter(bare(&format!("redis://app:hunter2@127.0.0.1:{}", server.port)));
    assert!(ask(&limiter).await.failure().is_none());
}

/// The remedy is another than for scripts.
#[tokio::test]
async fn a_user_who_may_not_choose_a_database_is_told_so() {
    let server = Server::start(Version::Redis7);
    let mut connection = server.connection().await;
    let _: () = query(&mut connection, "ACL SETUSER app on >hunter2 ~* +@all -select").await;
    let (limiter, _) = limiter(bare(&format!("redis://app:hunter2@127.0.0.1:{}/2", server.port)));
    let error = failure(&limiter).await;
    assert_eq!(error.kind(), StoreErrorKind::Permanent);
    assert!(error.to_string().contains("+select"), "{error}");
}
