//! TLS to a real server: whom the store trusts, and what it says of those whom it does not.

use std::time::Duration;

use sluicegate::{RedisStore, StoreErrorKind, store::RedisStoreBuilder};

use crate::support::{
    asking::{ask, failure, limiter, used},
    sentinel::query,
    stores::patient,
    tls::Authority,
};

fn builder(port: u16) -> RedisStoreBuilder {
    RedisStore::builder(format!("rediss://app:hunter2@127.0.0.1:{port}/2")).deadline(Duration::from_secs(30))
}

#[tokio::test]
async fn a_certificate_of_the_given_authority_is_trusted() {
    let authority = Authority::new();
    let (server, port) = authority.server("127.0.0.1", "no");
    let _: () = query(&mut server.connection().await, "ACL SETUSER app on >hunter2 ~* +@all").await;
    // Two authorities in one setting, and the right one is the second.
    let builder = builder(port).tls_ca(Authority::new().pem()).tls_ca(authority.pem());
    let (limiter, _) = limiter(builder.build().expect("sound"));
    for round in 1..=100 {
        assert!(ask(&limiter).await.failure().is_none());
        assert_eq!(used(&limiter).await, round);
    }
    let keys: String = query(&mut server.connection().await, "INFO keyspace").await;
    assert!(keys.contains("db2:keys=1"), "{keys}");
}

#[tokio::test]
async fn any_other_certificate_is_refused_before_a_word_is_said() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (_server, port) = authority.server("127.0.0.1", "no");
    let (_elsewhere, other_port) = authority.server("redis.example.com", "no");
    for (builder, why) in [
        (builder(port), "not trusted"),
        (builder(port).tls_ca(other.pem()), "not trusted"),
        (builder(other_port).tls_ca(authority.pem()), "another host"),
    ] {
        let (limiter, events) = limiter(builder.build().expect("sound"));
        let error = failure(&limiter).await;
        assert_eq!(error.kind(), StoreErrorKind::Permanent, "{error}");
        assert!(error.to_string().contains("TLS") && error.to_string().contains(why), "{error}");
        assert!(!error.may_have_charged());
        assert!(!format!("{error} {error:?} {limiter:?}").contains("hunter2"));
        assert_eq!((events.connected(), events.connect_failed()), (0, 1));
    }
}

#[tokio::test]
async fn a_server_without_tls_is_named() {
    let authority = Authority::new();
    let (server, port) = authority.server("127.0.0.1", "no");
    let (plain, _) = limiter(builder(server.port).tls_ca(authority.pem()).build().expect("sound"));
    let error = failure(&plain).await;
    assert!(error.to_string().contains("TLS"), "{error}");
    let (wrong, _) = limiter(patient(&format!("redis://127.0.0.1:{port}")));
    let error = failure(&wrong).await;
    assert!(error.to_string().contains("closed by the server"), "{error}");
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_gets_it() {
    let authority = Authority::new();
    let (server, port) = authority.server("127.0.0.1", "yes");
    let _: () = query(&mut server.connection().await, "ACL SETUSER app on >hunter2 ~* +@all").await;
    let (certificate, key) = authority.issue("client");
    let with = builder(port).tls_ca(authority.pem()).tls_client(&certificate, &key);
    assert!(!format!("{with:?}").contains("PRIVATE"));
    let (with, _) = limiter(with.build().expect("sound"));
    let decision = ask(&with).await;
    assert!(decision.failure().is_none(), "{:?}", decision.failure());
    let (without, _) = limiter(builder(port).tls_ca(authority.pem()).build().expect("sound"));
    let error = failure(&without).await;
    assert_eq!(error.kind(), StoreErrorKind::Permanent, "{error}");
    assert!(error.to_string().contains(".tls_client("), "{error}");
}

#[test]
fn what_is_no_certificate_is_told_when_the_store_is_built() {
    let (certificate, key) = Authority::new().issue("client");
    let (_, other_key) = Authority::new().issue("client");
    for (builder, field) in [
        (builder(1).tls_ca("nonsense"), "tls_ca"),
        (builder(1).tls_ca(&key), "tls_ca"),
        (builder(1).tls_client("nonsense", &key), "tls_client"),
        (builder(1).tls_client(&certificate, "nonsense"), "tls_client"),
        (builder(1).tls_client(&certificate, &other_key), "tls_client"),
        (RedisStore::builder("redis://h").tls_ca(&certificate), "tls_ca"),
        (RedisStore::builder("redis://h").tls_client(&certificate, &key), "tls_client"),
    ] {
        let error = builder.build().expect_err("no certificate");
        assert_eq!(error.field(), field, "{error}");
        assert!(!error.to_string().contains("PRIVATE"), "{error}");
    }
    assert!(RedisStore::builder(["redis://s:1", "redis://t:1"]).sentinel("m").tls(true).build().is_ok());
}
