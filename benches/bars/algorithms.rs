//! What one call costs the server, for each algorithm.

use sluicegate::{Quota, Rule, key};

use crate::{
    contender::{Ours, Script},
    drive::{Load, measure, once_each, users},
    machine::{CLIENT_CORE, block_on, on_core},
    report::{Bar, Pair, ROUNDS, Table},
    server::Server,
};

const DECISIONS: usize = 5_000;
const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

/// An algorithm under a quota that is never used up, and under one that is at once.
struct Case {
    name: &'static str,
    rule: fn(&str, Quota) -> Rule,
    text: &'static str,
    /// Of the floor, for an amount in a window of microseconds.
    args: fn(u64, u64) -> Vec<u64>,
    ample: (u64, u64),
    scarce: (u64, u64),
    users: usize,
}

const CASES: [Case; 6] = [
    Case {
        name: "GCRA",
        rule: Rule::gcra,
        text: include_str!("floor/gcra.lua"),
        args: |amount, window| vec![window / amount, amount, 1],
        ample: (100_000, 100 * SECOND),
        scarce: (1, DAY),
        users: 1_000,
    },
    Case {
        name: "token bucket",
        rule: Rule::token_bucket,
        text: include_str!("floor/token_bucket.lua"),
        args: bucket,
        ample: (100_000, 100 * SECOND),
        scarce: (1, DAY),
        users: 1_000,
    },
    Case {
        name: "leaky bucket",
        rule: Rule::leaky_bucket,
        text: include_str!("floor/leaky_bucket.lua"),
        args: bucket,
        ample: (100_000, 100 * SECOND),
        scarce: (1, DAY),
        users: 1_000,
    },
    Case {
        name: "fixed window",
        rule: Rule::fixed_window,
        text: include_str!("floor/fixed_window.lua"),
        args: window,
        ample: (100_000, SECOND),
        scarce: (1, DAY),
        users: 1_000,
    },
    Case {
        name: "sliding counter",
        rule: Rule::sliding_counter,
        text: include_str!("floor/sliding_counter.lua"),
        args: window,
        ample: (100_000, SECOND),
        scarce: (1, DAY),
        users: 1_000,
    },
    // So few users and so short a window that each log holds some hundred entries, and as many leave as come.
    Case {
        name: "sliding log",
        rule: Rule::sliding_log,
        text: include_str!("floor/sliding_log.lua"),
        args: window,
        ample: (100_000, SECOND / 100),
        scarce: (100, DAY),
        users: 10,
    },
];

fn bucket(amount: u64, window: u64) -> Vec<u64> {
    vec![amount, amount, window, 1]
}

fn window(amount: u64, window: u64) -> Vec<u64> {
    vec![amount, window, 1]
}

pub fn run(table: &mut Table) {
    let server = Server::start();
    on_core(CLIENT_CORE, || {
        block_on(async {
            for case in &CASES {
                path(table, &server, case, true).await;
            }
            for case in &CASES {
                path(table, &server, case, false).await;
            }
        });
    });
}

async fn path(table: &mut Table, server: &Server, case: &Case, allowed: bool) {
    let (amount, window) = if allowed { case.ample } else { case.scarce };
    let rule = (case.rule)("r", Quota::per(amount, std::time::Duration::from_micros(window))).key(key::given());
    let ours = Ours::new(server, [rule]);
    let floor = Script::new(server, case.text, &(case.args)(amount, window)).await;
    let users = users(case.users);
    server.ask::<()>(&["FLUSHALL"]);
    for _ in 0..if allowed { 1 } else { amount } {
        once_each(&ours, &users).await;
        once_each(&floor, &users).await;
    }
    let load = Load { callers: 32, decisions: DECISIONS, users, allowed };
    let (mut own, mut reference) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (a, b) = if round % 2 == 0 {
            let a = measure(server, &ours, &load).await;
            (a, measure(server, &floor, &load).await)
        } else {
            let b = measure(server, &floor, &load).await;
            (measure(server, &ours, &load).await, b)
        };
        // The first round warms up, and fills the windows of the log.
        if round > 0 {
            own.push(a.server_micros);
            reference.push(b.server_micros);
        }
    }
    let pair = Pair { ours: &own, reference: &reference, unit: "us" };
    let (path, bar) = if allowed { ("allowed", Bar::AtMost(1.2)) } else { ("refused", Bar::None) };
    table.ratio(format!("server: {}, {path}, server CPU / floor", case.name), pair, bar);
}
