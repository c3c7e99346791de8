//! Charges of a Cluster on their way back: by which time, and how many at once.

use std::time::{Duration, Instant};

use redis::cmd;
use sluicegate::{Call, Clock, Limiter, LimiterBuilder, Quota, Rule, key};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    runtime::Handle,
};

use crate::support::{
    cluster::{Cluster, PLAIN, Shape},
    events::Events,
    fault_proxy::{FaultProxy, Way},
    server::{Version, free_port},
    stores::namespace,
};

const CAPACITY: u64 = 1_000_000;
/// How many may be on their way at once.
const MOST: usize = 1_024;

/// Two rules: the first node charges, the second refuses, and its answers can be held back.
struct Refusing {
    cluster: Cluster,
    charges: FaultProxy,
    refuses: FaultProxy,
    limiter: Limiter,
    events: Events,
    keys: [String; 2],
}

impl Refusing {
    async fn new(clock: Clock) -> Refusing {
        let ports = [free_port(), free_port(), free_port()];
        let [charges, refuses, other] = [0, 1, 2].map(|node| FaultProxy::start(ports[node], 3 + node as u64));
        let announced = [charges.port, refuses.port, other.port];
        let cluster = Cluster::start(Version::Redis7, Shape { ports: &ports, announced: &announced, ..PLAIN });
        let keys = [0, 1].map(|place| cluster.key_at(place, &[]));
        // One connection to each, so that answers come in order.
        let store = cluster.builder().bare().connections(1).deadline(Duration::from_secs(30)).build().expect("sound");
        let events = Events::default();
        let builder = Limiter::builder(store).namespace(namespace()).clock(clock).observer(events.clone());
        let rule = |name, amount| Rule::fixed_window(name, Quota::per_hour(amount)).from_first_request();
        let rules = [rule("charged", CAPACITY).key(key::given()), rule("refuses", 1).key(key::given())];
        let limiter = rules.into_iter().fold(builder, LimiterBuilder::rule).build().expect("sound");
        let refusing = Refusing { cluster, charges, refuses, limiter, events, keys };
        assert!(refusing.limiter.acquire(refusing.call()).await.is_allowed());
        refusing
    }

    fn call(&self) -> Call<'static> {
        Call::new().key("charged", self.keys[0].clone()).key("refuses", self.keys[1].clone())
    }

    async fn charged(&self) -> u64 {
        let peek = self.limiter.peek([("charged", &*self.keys[0])]).await;
        CAPACITY - peek.standing("charged").expect("it applies").remaining()
    }

    async fn until_charged(&self, wanted: u64) {
        let since = Instant::now();
        while self.charged().await != wanted {
            assert!(since.elapsed() < Duration::from_secs(20), "{} and not {wanted}", self.charged().await);
        }
    }

    /// So many refusals, whose charges are there and known before the refusals come, and whom nobody lets give back.
    async fn refused(&self, times: usize, hinder: impl FnOnce(&Refusing)) {
        let before = self.charged().await;
        self.refuses.set(|faults| faults.to_client = Way::Held);
        let asks: Vec<_> = (0..times)
            .map(|_| {
                let (limiter, call) = (self.limiter.clone(), self.call());
                tokio::spawn(async move { limiter.acquire(call).await })
            })
            .collect();
        self.until_charged(before + times as u64).await;
        hinder(self);
        self.refuses.heal();
        for ask in asks {
            let decision = ask.await.expect("no panic");
            assert!(decision.is_refused() && decision.failure().is_none(), "{decision:?}");
        }
    }
}

/// More than may be on their way at once are left to time, and said so; nothing piles up.
#[tokio::test]
async fn no_more_are_on_their_way_back_than_may_be() {
    let refusing = Refusing::new(Clock::store()).await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let hold = |refusing: &Refusing| refusing.charges.set(|faults| faults.to_server = Way::Held);
    refusing.refused(MOST + 76, hold).await;
    assert_eq!(refusing.events.not_given_back(), 76);
    assert_eq!(tasks() - before, MOST);
    refusing.charges.heal();
    refusing.until_charged(1 + 76).await;
    // There is room again.
    refusing.refused(1, |_| ()).await;
    refusing.until_charged(1 + 76).await;
    assert_eq!(refusing.events.not_given_back(), 76);
}

/// The bytes of a quoted word as MONITOR shows it.
fn unquoted(word: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), word.bytes());
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next().expect("an escape") {
            b'x' => {
                let digits = [rest.next().expect("a digit"), rest.next().expect("a digit")];
                u8::from_str_radix(std::str::from_utf8(&digits).expect("text"), 16).expect("a number")
            }
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'a' => 7,
            b'b' => 8,
            other => other,
        });
    }
    bytes
}

/// Each try carries the time at which it is made, or the server would take the clock for one that has gone back.
#[tokio::test]
async fn a_return_that_is_tried_again_has_the_time_of_its_try() {
    let refusing = Refusing::new(Clock::application()).await;
    let server = &refusing.cluster.nodes[0];
    let mut monitor = BufReader::new(TcpStream::connect(("127.0.0.1", server.port)).await.expect("a connection"));
    monitor.write_all(b"MONITOR\r\n").await.expect("written");
    // Nothing can be written any more, so the charge cannot be given back.
    refusing
        .refused(1, |refusing| {
            refusing.cluster.nodes[0].ask::<()>(cmd("CONFIG").arg(&["SET", "maxmemory", "1"]));
        })
        .await;
    let record = format!("{{{}}}#", refusing.keys[0]);
    let (mut times, mut line) = (Vec::new(), String::new());
    while times.len() < 3 {
        line.clear();
        assert_ne!(monitor.read_line(&mut line).await.expect("a line"), 0);
        // The record of the change, what it is to be, and for how long it is remembered.
        let Some((_, rest)) = line.split_once(&record) else { continue };
        let words: Vec<&str> = rest.trim_end().trim_end_matches('"').split("\" \"").collect();
        let [_, change, _] = words[..] else { continue };
        let now = unquoted(change)[..8].try_into().expect("eight bytes");
        times.push(f64::from_le_bytes(now));
    }
    for (tried, pair) in times.windows(2).enumerate() {
        let (apart, pause) = (pair[1] - pair[0], f64::from(100_000 << tried));
        assert!((pause..20.0 * pause).contains(&apart), "{apart} microseconds after a pause of {pause}");
    }
    refusing.cluster.nodes[0].ask::<()>(cmd("CONFIG").arg(&["SET", "maxmemory", "0"]));
    refusing.until_charged(1).await;
}
