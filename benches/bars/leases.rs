//! What a concurrency decision costs the server, beside a token bucket's.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use redis::aio::MultiplexedConnection;
use sluicegate::{
    Limit, Quota, RedisStore, Rule, key,
    store::{Ask, Line, Purpose, Scope, Store, Time},
};

use crate::{
    contender::{Ours, patient},
    drive::{Contender, Load, measure, once_each, users},
    machine::{CLIENT_CORE, block_on, on_core},
    report::{Bar, Pair, ROUNDS, Table},
    server::Server,
};

const DECISIONS: usize = 3_000;

/// Takes a place, and gives it back by a command that is no script: what is measured are script calls.
#[derive(Clone)]
struct Places {
    store: RedisStore,
    place: Arc<(Scope, Limit)>,
    connection: MultiplexedConnection,
    next: Arc<AtomicU64>,
}

impl Places {
    async fn new(server: &Server, limit: u64) -> Places {
        let limit = Rule::concurrency("c", limit).key(key::given()).check().expect("a sound rule");
        let client = redis::Client::open(server.url.as_str()).expect("an address");
        let connection = client.get_multiplexed_async_connection().await.expect("a connection");
        let place = Arc::new((Scope::new("b", "c"), limit));
        Places { store: patient(&server.url), place, connection, next: Arc::new(AtomicU64::new(1)) }
    }

    fn line<'a>(&'a self, user: &'a str, id: u64) -> Line<'a> {
        Line { receipt: id, ..Line::new(&self.place.0, user.as_bytes(), &self.place.1, 1) }
    }

    async fn take(&self, user: &str) -> (u64, bool) {
        let id = self.next.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let ask = Ask { lines: &[self.line(user, id)], purpose: Purpose::Spend, time: Time::Store };
        (id, self.store.acquire(&ask).await.expect("an answer").fits())
    }

    /// So many places of each user are held from now on.
    async fn hold(&self, users: &[String], count: usize) {
        for user in users {
            for _ in 0..count {
                assert!(self.take(user).await.1);
            }
        }
    }
}

impl Contender for Places {
    async fn decide(&mut self, user: &str) -> bool {
        let (id, allowed) = self.take(user).await;
        if allowed {
            let name = self.line(user, id).name().concat();
            let mut end = redis::cmd("ZREM");
            end.arg(name).arg(&id.to_le_bytes()[..]);
            assert_eq!(end.query_async::<u64>(&mut self.connection).await.expect("an answer"), 1);
        }
        allowed
    }
}

pub fn run(table: &mut Table) {
    let server = Server::start();
    on_core(CLIENT_CORE, || {
        block_on(async {
            for (held, most) in [(20, 1.5), (1_000, 2.0)] {
                held_by_each(table, &server, held, most).await;
            }
        });
    });
}

/// Leases must not expire before the last round: 30 s is far more than it all takes.
async fn held_by_each(table: &mut Table, server: &Server, held: usize, most: f64) {
    server.ask::<()>(&["FLUSHALL"]);
    let users = users(if held > 100 { 4 } else { 100 });
    let bucket = Ours::new(
        server,
        [Rule::token_bucket("r", Quota::per(100_000, std::time::Duration::from_secs(100))).key(key::given())],
    );
    let places = Places::new(server, 10_000).await;
    places.hold(&users, held).await;
    once_each(&bucket, &users).await;
    let load = Load { callers: 4, decisions: DECISIONS, users, allowed: true };
    let (mut own, mut reference) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (a, b) = if round % 2 == 0 {
            let a = measure(server, &places, &load).await;
            (a, measure(server, &bucket, &load).await)
        } else {
            let b = measure(server, &bucket, &load).await;
            (measure(server, &places, &load).await, b)
        };
        if round > 0 {
            own.push(a.server_micros);
            reference.push(b.server_micros);
        }
    }
    let look = Ask { lines: &[places.line(&load.users[0], 0)], purpose: Purpose::Peek, time: Time::Store };
    let remaining = places.store.acquire(&look).await.expect("an answer").verdicts()[0].remaining;
    assert_eq!(remaining, 10_000 - held as u64, "what was to be held is held still");
    let pair = Pair { ours: &own, reference: &reference, unit: "us" };
    let name = format!("leases: a place with {held} held, server CPU / token bucket");
    table.ratio(name, pair, Bar::AtMost(most));
}
