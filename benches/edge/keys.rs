//! From a request's head to its key.

use std::{hint::black_box, net::SocketAddr};

use http::{Request, request::Parts};
use sluicegate::key::{self, Found, KeyBy, TrustedProxies};

use crate::table::Row;

pub fn rows() -> [Row; 1] {
    let ip = key::ip().behind(TrustedProxies::cidrs(["10.0.0.0/8", "198.51.100.0/24", "2001:db8::/32"]));
    let (head, key) = (head(), ip.and(key::header("x-tenant")));
    let Some(Found::Key(found)) = key.find_now(&head) else { panic!("no key") };
    assert_eq!(found.as_bytes(), b"v4:203.0.113.7,acme");
    [Row {
        name: "address behind proxies and tenant, as one key",
        most_allocations: 2,
        most_nanoseconds: 1_000.0,
        run: Box::new(move || find(&key, &head)),
    }]
}

fn find(key: &KeyBy, head: &Parts) {
    let found = key.find_now(black_box(head));
    black_box(found.expect("a key that need not wait"));
}

/// A request as a load balancer hands it on: its own address is the peer's.
fn head() -> Parts {
    let peer: SocketAddr = "10.0.0.1:40000".parse().expect("an address");
    let request = Request::builder()
        .uri("/v1/charges")
        .header("x-forwarded-for", "203.0.113.7, 198.51.100.4, 10.0.0.2")
        .header("x-tenant", "acme")
        .extension(peer);
    request.body(()).expect("a request").into_parts().0
}
