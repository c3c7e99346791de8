//! What the breaker and the deadline add to a decision in memory.

use std::{future::ready, time::Instant};

use sluicegate::{
    Limiter, MemoryStore, Quota, Resilient, Rule, StoreError, StoreErrorKind, key,
    store::{Answer, Ask, Line, Store, StoreFuture},
};

use crate::{
    memory::acquire,
    report::{Bar, Pair, ROUNDS, Table},
};

const DECISIONS: usize = 100_000;
const ADDED: Bar = Bar::AtMost(300.0);

pub fn run(table: &mut Table) {
    let (bare, around) = (limiter(MemoryStore::new()), limiter(Resilient::new(MemoryStore::new())));
    let [mut with, mut without] = <[Vec<f64>; 2]>::default();
    for _ in 0..ROUNDS {
        with.push(nanos(|| assert!(acquire(&around, "k".into()))));
        without.push(nanos(|| assert!(acquire(&bare, "k".into()))));
    }
    let pair = Pair { ours: &with, reference: &without, unit: "ns" };
    table.difference("resilience: added to a memory decision", pair, ADDED);

    // A store that has to be waited for gets a deadline of its own, which is a timer.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let (bare, around) = (limiter(Later(MemoryStore::new())), limiter(Resilient::new(Later(MemoryStore::new()))));
    let [mut with, mut without] = <[Vec<f64>; 2]>::default();
    let ask = async |limiter: &Limiter| assert!(limiter.acquire([("r", "k")]).await.failure().is_none());
    for _ in 0..ROUNDS {
        runtime.block_on(async {
            with.push(nanos_of(async || ask(&around).await).await);
            without.push(nanos_of(async || ask(&bare).await).await);
        });
    }
    let pair = Pair { ours: &with, reference: &without, unit: "ns" };
    table.difference("resilience: added to a memory decision behind a future, with its timer", pair, ADDED);

    let open = limiter(Resilient::new(Down));
    let mut decided = Vec::new();
    runtime.block_on(async {
        for _ in 0..10 {
            assert!(open.acquire([("r", "k")]).await.failure().is_some());
        }
        for _ in 0..ROUNDS {
            decided.push(nanos(|| assert!(acquire(&open, "k".into()))));
        }
    });
    let pair = Pair { ours: &decided, reference: &[0.0; ROUNDS], unit: "ns" };
    table.difference("resilience: a local decision with the breaker open", pair, Bar::None);
}

fn limiter(store: impl Store) -> Limiter {
    let rule = Rule::gcra("r", Quota::per_second(1_000_000).burst(u32::MAX.into())).key(key::given());
    Limiter::builder(store).rule(rule).build().expect("a sound rule")
}

fn nanos(mut decide: impl FnMut()) -> f64 {
    let began = Instant::now();
    (0..DECISIONS).for_each(|_| decide());
    began.elapsed().as_nanos() as f64 / DECISIONS as f64
}

async fn nanos_of(mut decide: impl AsyncFnMut()) -> f64 {
    let began = Instant::now();
    for _ in 0..DECISIONS {
        decide().await;
    }
    began.elapsed().as_nanos() as f64 / DECISIONS as f64
}

/// Memory that answers through futures only.
#[derive(Debug)]
struct Later(MemoryStore);

impl Store for Later {
    fn acquire<'a>(&'a self, ask: &'a Ask<'a>) -> StoreFuture<'a, Answer> {
        self.0.acquire(ask)
    }

    fn reset<'a>(&'a self, lines: &'a [Line<'a>]) -> StoreFuture<'a, ()> {
        self.0.reset(lines)
    }
}

#[derive(Debug)]
struct Down;

impl Store for Down {
    fn acquire<'a>(&'a self, _: &'a Ask<'a>) -> StoreFuture<'a, Answer> {
        Box::pin(ready(Err(StoreError::new(StoreErrorKind::Unavailable, "down").uncharged())))
    }

    fn reset<'a>(&'a self, _: &'a [Line<'a>]) -> StoreFuture<'a, ()> {
        Box::pin(ready(Ok(())))
    }
}
