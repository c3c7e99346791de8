//! One rule and three: what a decision costs the client, and how many there are in a second.

use std::sync::Arc;

use sluicegate::{Quota, Rule, key};

use crate::{
    contender::{One, Ours, Pipeline, Script, Three},
    drive::{Load, Spent, measure, once_each, users},
    machine::{CLIENT_CORE, block_on, on_core},
    report::{Bar, Pair, ROUNDS, Table},
    server::Server,
};

const DECISIONS: usize = 12_000;
const SECOND: u64 = 1_000_000;

pub fn run(table: &mut Table) {
    let server = Server::start();
    on_core(CLIENT_CORE, || {
        block_on(async {
            one_rule(table, &server).await;
            three_rules(table, &server).await;
        });
    });
}

/// The rounds of one contender, as columns.
#[derive(Default)]
struct Columns {
    client: Vec<f64>,
    server: Vec<f64>,
    rate: Vec<f64>,
}

impl Columns {
    fn push(&mut self, spent: Spent) {
        self.client.push(spent.client_nanos / 1_000.0);
        self.server.push(spent.server_micros);
        self.rate.push(spent.per_second / 1_000.0);
    }
}

fn client<'a>(ours: &'a Columns, reference: &'a Columns) -> Pair<'a> {
    Pair { ours: &ours.client, reference: &reference.client, unit: "us" }
}

fn server_time<'a>(ours: &'a Columns, reference: &'a Columns) -> Pair<'a> {
    Pair { ours: &ours.server, reference: &reference.server, unit: "us" }
}

fn rate<'a>(ours: &'a Columns, reference: &'a Columns) -> Pair<'a> {
    Pair { ours: &ours.rate, reference: &reference.rate, unit: "k/s" }
}

fn load(callers: usize, users: &Arc<[String]>) -> Load {
    Load { callers, decisions: DECISIONS, users: Arc::clone(users), allowed: true }
}

async fn one_rule(table: &mut Table, server: &Server) {
    let text = include_str!("floor/gcra.lua");
    let args = [SECOND / 10, 1_000_000, 1];
    let rule = Rule::gcra("r", Quota::per_second(10).burst(1_000_000)).key(key::given());
    let ours = Ours::new(server, [rule]);
    let floor = Script::new(server, text, &args).await;
    let endless = Script::endless(server, text, &args).await;
    let one = One(Script::new(server, include_str!("floor/one.lua"), &[]).await);
    let users = users(10_000);
    once_each(&ours, &users).await;
    once_each(&floor, &users).await;

    for callers in [64, 512] {
        let load = load(callers, &users);
        let [mut a, mut b, mut c, mut d] = <[Columns; 4]>::default();
        for round in 0..3 * ROUNDS {
            // Whoever comes first in one round comes last in the next.
            if round % 2 == 0 {
                a.push(measure(server, &ours, &load).await);
                b.push(measure(server, &floor, &load).await);
            } else {
                b.push(measure(server, &floor, &load).await);
                a.push(measure(server, &ours, &load).await);
            }
            c.push(measure(server, &endless, &load).await);
            d.push(measure(server, &one, &load).await);
        }
        let name = |what: &str| format!("redis: one rule, {callers} callers, {what}");
        table.ratio(name("client CPU / floor"), client(&a, &b), Bar::AtMost(1.25));
        table.ratio(name("decisions per second / floor"), rate(&a, &b), Bar::AtLeast(0.85));
        table.ratio(name("client CPU / floor that never times out"), client(&a, &c), Bar::None);
        table.ratio(name("floor's client CPU / script that returns 1"), client(&b, &d), Bar::None);
        table.ratio(name("floor's decisions per second / script that returns 1"), rate(&b, &d), Bar::None);
        table.ratio(name("floor's server CPU / script that returns 1"), server_time(&b, &d), Bar::None);
    }
}

async fn three_rules(table: &mut Table, server: &Server) {
    let ours = Ours::new(
        server,
        [
            Rule::token_bucket("t", Quota::per_second(100).burst(1_000_000)).key(key::given()),
            Rule::sliding_counter("s", Quota::per_minute(1_000_000)).key(key::given()),
            Rule::fixed_window("f", Quota::per_hour(1_000_000)).key(key::given()),
        ],
    );
    let bucket = [1_000_000, 100, SECOND, 1];
    let counter = [1_000_000, 60 * SECOND, 1];
    let window = [1_000_000, 3_600 * SECOND, 1];
    let all = [1, bucket[0], bucket[1], bucket[2], counter[0], counter[1], window[0], window[1]];
    let pipeline = Pipeline([
        Script::new(server, include_str!("floor/token_bucket.lua"), &bucket).await,
        Script::new(server, include_str!("floor/sliding_counter.lua"), &counter).await,
        Script::new(server, include_str!("floor/fixed_window.lua"), &window).await,
    ]);
    let three = Three(Script::new(server, include_str!("floor/three.lua"), &all).await);
    let users = users(10_000);
    once_each(&ours, &users).await;
    once_each(&three, &users).await;

    let load = load(64, &users);
    let [mut a, mut b, mut c] = <[Columns; 3]>::default();
    for round in 0..ROUNDS {
        if round % 2 == 0 {
            a.push(measure(server, &ours, &load).await);
            b.push(measure(server, &three, &load).await);
            c.push(measure(server, &pipeline, &load).await);
        } else {
            c.push(measure(server, &pipeline, &load).await);
            b.push(measure(server, &three, &load).await);
            a.push(measure(server, &ours, &load).await);
        }
    }
    let name = |what: &str| format!("redis: three rules, 64 callers, {what}");
    table.ratio(name("server CPU / three pipelined floors"), server_time(&a, &c), Bar::AtMost(0.80));
    table.ratio(name("decisions per second / three-limit floor"), rate(&a, &b), Bar::AtLeast(0.85));
    table.ratio(name("server CPU / three-limit floor"), server_time(&a, &b), Bar::None);
    table.ratio(name("client CPU / three-limit floor"), client(&a, &b), Bar::None);
}
