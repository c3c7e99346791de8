//! What becomes of requests while the store is away, rule by rule: one admits them, one refuses them, one counts in this process
//! and tells the store when it is back.
//!
//! ```console
//! $ cargo run --example fail_modes
//! ```
//!
//! The store is one in memory with a switch, so nothing needs to be installed. Around a `RedisStore` it is the same.
#![allow(clippy::print_stdout)]

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sluicegate::{
    Decision, Limiter, MemoryStore, Observer, OnFailure, Quota, Resilient, Rule, StoreError, StoreErrorKind,
    StoreEvent, key,
    store::{Answer, Ask, Line, Store, StoreFuture},
};
use tokio::{sync::Notify, time::sleep};

/// How long the breaker stays open. The default is 30 s; nobody wants to watch that.
const OPEN: Duration = Duration::from_millis(300);

/// A store that can be switched off, as if nobody were at its address.
#[derive(Clone, Debug, Default)]
struct Switched {
    store: MemoryStore,
    off: Arc<AtomicBool>,
}

impl Switched {
    fn reach(&self) -> Result<(), StoreError> {
        if self.off.load(Ordering::Relaxed) {
            // Nothing was sent, so nothing can have been charged: what is admitted meanwhile may be committed later.
            return Err(StoreError::new(StoreErrorKind::Unavailable, "nobody is there").uncharged());
        }
        Ok(())
    }
}

impl Store for Switched {
    fn acquire<'a>(&'a self, ask: &'a Ask<'a>) -> StoreFuture<'a, Answer> {
        Box::pin(async move {
            self.reach()?;
            self.store.acquire(ask).await
        })
    }

    fn reset<'a>(&'a self, lines: &'a [Line<'a>]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.reach()?;
            self.store.reset(lines).await
        })
    }
}

/// Prints what happens to the store, where an application would count it and ring somebody.
struct Alarm(Arc<Notify>);

impl Observer for Alarm {
    fn store(&self, event: &StoreEvent) {
        match event {
            StoreEvent::Opened { error, .. } => println!("  event: the breaker is open, the last failure was: {error}"),
            StoreEvent::Closed { .. } => println!("  event: the breaker is closed, the store answers again"),
            StoreEvent::Committed { counts, units } => {
                println!("  event: told the store of {units} units in {counts} counts");
                self.0.notify_one();
            }
            other => println!("  event: {other:?}"),
        }
    }
}

fn show(rule: &str, decision: &Decision) {
    let verdict = match (decision.is_allowed(), decision.retry_after()) {
        (true, _) => "admitted".into(),
        (false, Some(wait)) => format!("refused, 429 over HTTP: come back in {} s", wait.as_secs()),
        (false, None) => "refused, 503 over HTTP".into(),
    };
    let left = decision.standing(rule).map(|standing| format!(", {} left", standing.remaining()));
    let why = decision.failure().map(|error| format!(" [{:?}]", error.kind()));
    println!("  {rule}: {verdict}{}{}", left.unwrap_or_default(), why.unwrap_or_default());
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (store, committed) = (Switched::default(), Arc::new(Notify::new()));
    let hourly = |name, amount| Rule::token_bucket(name, Quota::per_hour(amount)).key(key::given());
    let limiter = Limiter::builder(Resilient::new(store.clone()).instances(2).open_for(OPEN))
        // Better no login than a guessed password.
        .rule(hourly("login", 10).on_failure(OnFailure::Refuse))
        // Better an answer too many than none.
        .rule(hourly("search", 10).on_failure(OnFailure::Allow))
        // The default: 10 an hour are 4 for each of two processes, since 0.8 of a quota is shared out.
        .rule(hourly("orders", 10).on_failure(OnFailure::Local))
        .observer(Alarm(Arc::clone(&committed)))
        .build()?;
    println!("{}\n", limiter.check().await);

    println!("the store is there:");
    for rule in ["login", "search", "orders"] {
        show(rule, &limiter.acquire([(rule, "alice")]).await);
    }

    println!("\nit goes away; after five failures in a row nobody asks it any more:");
    store.off.store(true, Ordering::Relaxed);
    for rule in ["login", "search"].into_iter().chain(["orders"; 6]) {
        show(rule, &limiter.acquire([(rule, "alice")]).await);
    }

    println!("\nit is back, and the breaker does not know yet:");
    store.off.store(false, Ordering::Relaxed);
    show("orders", &limiter.acquire([("orders", "bob")]).await);

    println!("\nonce the breaker has been open for its time, a request finds out:");
    // Up to a tenth longer, so that processes do not come back together.
    sleep(OPEN.mul_f64(1.1)).await;
    show("login", &limiter.acquire([("login", "alice")]).await);
    committed.notified().await;

    let alice = limiter.peek([("orders", "alice")]).await;
    let left = alice.standing("orders").map_or(0, |standing| standing.remaining());
    println!("\nof her ten orders alice has {left} left: one was charged before, and four are now");
    Ok(())
}
