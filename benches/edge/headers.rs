//! From a decision to the fields of its response.

use std::{
    hint::black_box,
    pin::pin,
    task::{Context, Poll, Waker},
};

use http::Response;
use sluicegate::{Call, Decision, Headers, Limiter, MemoryStore, Quota, Rule, key};

use crate::table::Row;

pub fn rows() -> [Row; 2] {
    [("default fields of one rule", &["per-user"][..]), ("default fields of two rules", &["per-user", "per-address"])]
        .map(|(name, rules)| {
            let (headers, decision) = (Headers::default(), decision(rules));
            Row {
                name,
                // The response's map takes two, each field that is not the same every time takes one.
                most_allocations: 6,
                most_nanoseconds: 1_500.0,
                run: Box::new(move || write(&headers, &decision)),
            }
        })
}

fn write(headers: &Headers, decision: &Decision) {
    let mut response = Response::new(());
    headers.write(black_box(decision), &mut response);
    assert_eq!(black_box(&response).headers().len(), 5);
}

/// In memory it never waits.
fn decision(rules: &[&'static str]) -> Decision {
    let rule = |name| Rule::gcra(name, Quota::per_minute(1_000).burst(100)).key(key::given());
    let builder = Limiter::builder(MemoryStore::new());
    let limiter = rules.iter().fold(builder, |builder, name| builder.rule(rule(name))).build().expect("sound rules");
    let future = pin!(limiter.acquire(rules.iter().fold(Call::new(), |call, name| call.key(name, "alice"))));
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decision) => decision,
        Poll::Pending => panic!("a decision in memory waits for nothing"),
    }
}
