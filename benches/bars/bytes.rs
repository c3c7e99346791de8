//! What a key takes on the server, and what a long log costs.

use std::{sync::Arc, time::Duration};

use sluicegate::{Clock, ManualClock, Quota, Rule, key};

use crate::{
    contender::Ours,
    drive::{Contender, Load, measure, once_each, users},
    machine::{CLIENT_CORE, block_on, on_core},
    report::{Bar, Pair, ROUNDS, Table},
    server::Server,
};

const KEYS: usize = 60_000;

pub fn run(table: &mut Table) {
    let server = Server::start();
    on_core(CLIENT_CORE, || {
        block_on(async {
            // Slow enough that no key expires before it is weighed.
            let slow = Quota::per_hour(60).burst(10);
            let uneven = Quota::per_hour(7);
            for (name, rule, bar) in [
                ("GCRA, one per n ticks", Rule::gcra("r", slow), 140.0),
                ("GCRA, 7 per hour", Rule::gcra("r", uneven), 175.0),
                ("token bucket", Rule::token_bucket("r", slow), 175.0),
                ("leaky bucket", Rule::leaky_bucket("r", slow), 175.0),
                ("sliding counter", Rule::sliding_counter("r", Quota::per_hour(60)), 175.0),
                ("fixed window", Rule::fixed_window("r", Quota::per_day(60)), 175.0),
            ] {
                let bytes = bytes_per_key(&server, rule.key(key::given())).await;
                table.value(format!("bytes: {name}, key of 28 bytes"), bytes, "bytes", Bar::AtMost(bar));
            }
            let bytes = bytes_per_entry(&server).await;
            table.value("bytes: sliding log of 1,000, each entry", bytes, "bytes", Bar::AtMost(12.0));
            long_logs(table, &server).await;
        });
    });
}

async fn bytes_per_key(server: &Server, rule: Rule) -> f64 {
    let ours = Ours::new(server, [rule]);
    let users = users(KEYS);
    // The script and the connection are there before the scales are set to zero.
    once_each(&ours, &Arc::from(&users[..1])).await;
    server.ask::<()>(&["FLUSHALL"]);
    settle().await;
    let before = server.used_memory();
    once_each(&ours, &users).await;
    settle().await;
    let keys: usize = server.ask(&["DBSIZE"]);
    assert_eq!(keys, KEYS, "every key is there still");
    (server.used_memory() - before) / KEYS as f64
}

/// The server grows its tables in steps and trims buffers of connections in the background.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(700)).await;
}

async fn bytes_per_entry(server: &Server) -> f64 {
    let ours = Ours::new(server, [Rule::sliding_log("r", Quota::per_hour(1_000)).key(key::given())]);
    server.ask::<()>(&["FLUSHALL"]);
    let user = users(1);
    for _ in 0..1_000 {
        once_each(&ours, &user).await;
    }
    let name: Vec<String> = server.ask(&["KEYS", "*"]);
    let bytes: f64 = server.ask(&["MEMORY", "USAGE", &name[0], "SAMPLES", "0"]);
    bytes / 1_000.0
}

/// Ours, by a clock that moves with every decision: a log of the same length at any speed of the machine.
#[derive(Clone)]
struct Ticking {
    ours: Ours,
    clock: ManualClock,
    step: Duration,
}

impl Contender for Ticking {
    async fn decide(&mut self, user: &str) -> bool {
        self.clock.advance(self.step);
        self.ours.decide(user).await
    }
}

const STEP: Duration = Duration::from_micros(20);

/// A log that this many entries fill or stay in.
async fn log(server: &Server, name: &str, entries: u64, limit: u64) -> Ticking {
    let clock = ManualClock::new(Duration::from_secs(1_700_000_000));
    let rule = Rule::sliding_log(name, Quota::per(limit, STEP * entries as u32)).key(key::given());
    let ours = Ours::with(server, [rule], |builder| builder.clock(Clock::manual(clock.clone())));
    let log = Ticking { ours, clock, step: STEP };
    let fill = Load { callers: 16, decisions: entries as usize, users: users(1), allowed: true };
    measure(server, &log, &fill).await;
    log
}

/// In a steady state, where as many entries leave as come; and full, where all are refused.
async fn long_logs(table: &mut Table, server: &Server) {
    let moving = [log(server, "a", 100_000, 1_000_000).await, log(server, "b", 100, 1_000_000).await];
    let full = [log(server, "c", 100_000, 100_000).await, log(server, "d", 96, 96).await].map(|mut log| {
        log.step = Duration::ZERO;
        log
    });
    let names = ["steady", "full"];
    for (name, logs, allowed, bar) in [(names[0], moving, true, Bar::AtMost(2.0)), (names[1], full, false, Bar::None)] {
        let load = Load { callers: 16, decisions: 3_000, users: users(1), allowed };
        let (mut long, mut short) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            long.push(measure(server, &logs[0], &load).await.server_micros);
            short.push(measure(server, &logs[1], &load).await.server_micros);
        }
        let pair = Pair { ours: &long, reference: &short, unit: "us" };
        table.ratio(format!("bytes: sliding log, {name}, server CPU at 100,000 entries / at 100"), pair, bar);
    }
}
