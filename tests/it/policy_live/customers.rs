//! Overrides for customers: of the document, and looked up.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use sluicegate::{
    Clock, Limiter, LimiterBuilder, ManualClock, MemoryStore, Quota,
    policy::{Loading, Override, OverrideSource, SourceError},
};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{app, left, policy};
use crate::support::stores::{BEGIN, every_store};

pub(super) const RULES: &str = r#"
    [tier]
    by = "header:x-plan"
    default = "free"

    [customer]
    by = "header:x-customer"

    [[rules]]
    name = "calls"
    algorithm = "fixed_window"
    quota = "10/hour"
    key = "header:x-customer"

    [tiers.free]
    [tiers.pro]
    calls = "100/hour"
"#;

pub(super) const WRITTEN: &str = r#"
    [overrides.acme]
    rules.calls = "5000/hour"
    [overrides.globex]
    tier = "pro"
"#;

pub(super) fn still(builder: LimiterBuilder) -> LimiterBuilder {
    builder.clock(Clock::manual(ManualClock::new(BEGIN)))
}

#[tokio::test]
async fn overrides_of_the_document_hold_from_the_first_request_on_every_store() {
    for backend in every_store() {
        let limiter = still(backend.builder()).policy(policy(&format!("{RULES}{WRITTEN}"))).build().expect("sound");
        let app = app(&limiter);
        let of = async |customer: &str| left(&app, "/", &[("x-customer", customer)]).await;
        assert_eq!(of("acme").await, (200, Some(4_999)), "{}", backend.name);
        assert_eq!(of("globex").await, (200, Some(99)), "{}", backend.name);
        assert_eq!(of("initech").await, (200, Some(9)), "{}", backend.name);
        // Another policy, another override: none is remembered from the one before.
        limiter.set_policy(policy(&format!("{RULES}{}", WRITTEN.replace("5000", "6000")))).expect("sound");
        assert_eq!(of("acme").await, (200, Some(5_998)), "{}", backend.name);
        // Without the override the count stays, and the quota is the tier's.
        limiter.set_policy(policy(RULES)).expect("sound");
        assert_eq!(of("acme").await, (200, Some(7)), "{}", backend.name);
        assert_eq!(of("globex").await, (200, Some(8)), "{}", backend.name);
    }
}

/// A table of overrides that counts who is looked up, and may be held up.
#[derive(Clone, Default)]
pub(super) struct Table(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) overrides: Mutex<HashMap<String, Override>>,
    asked: Mutex<Vec<String>>,
    calls: AtomicUsize,
    open: Semaphore,
    fresh: Mutex<Duration>,
    fails: Mutex<bool>,
}

impl Default for Inner {
    fn default() -> Inner {
        Inner {
            overrides: Mutex::default(),
            asked: Mutex::default(),
            calls: AtomicUsize::new(0),
            open: Semaphore::new(Semaphore::MAX_PERMITS),
            fresh: Mutex::new(Duration::from_secs(3_600)),
            fails: Mutex::new(false),
        }
    }
}

impl Table {
    pub(super) fn set(&self, customer: &str, quota: &str) {
        let own = Override::from_toml(&format!("rules.calls = {quota:?}")).expect("sound");
        self.0.overrides.lock().expect("no panic").insert(customer.into(), own);
    }

    pub(super) fn asked(&self) -> Vec<String> {
        self.0.asked.lock().expect("no panic").clone()
    }

    /// Holds look-ups up until it is dropped.
    pub(super) async fn close(&self) -> SemaphorePermit<'_> {
        let closed = self.0.open.acquire_many(1 << 20).await.expect("open");
        self.0.open.forget_permits(Semaphore::MAX_PERMITS);
        closed
    }

    /// Waits until so many have been looked up.
    pub(super) async fn looked_up(&self, count: usize) {
        let looked = async || {
            while self.asked().len() < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), looked()).await.expect("they are looked up");
        // Noted by whoever looked it up, which has not had its turn since.
        tokio::task::yield_now().await;
    }
}

impl OverrideSource for Table {
    fn look_up<'a>(&'a self, customers: &'a [Box<str>]) -> Loading<'a, Result<Vec<Option<Override>>, SourceError>> {
        Box::pin(async move {
            let _open = self.0.open.acquire().await;
            self.0.calls.fetch_add(1, Ordering::Relaxed);
            self.0.asked.lock().expect("no panic").extend(customers.iter().map(|customer| customer.to_string()));
            if *self.0.fails.lock().expect("no panic") {
                return Err(SourceError::new("the table is gone"));
            }
            let overrides = self.0.overrides.lock().expect("no panic");
            Ok(customers.iter().map(|customer| overrides.get(&**customer).cloned()).collect())
        })
    }

    fn fresh_for(&self) -> Duration {
        *self.0.fresh.lock().expect("no panic")
    }
}

pub(super) fn limiter(table: &Table) -> Limiter {
    let builder = still(Limiter::builder(MemoryStore::new()));
    builder.policy(policy(&format!("{RULES}{WRITTEN}"))).overrides(table.clone()).build().expect("sound")
}

#[tokio::test]
async fn the_first_request_goes_by_the_tier_while_the_look_up_runs() {
    let table = Table::default();
    table.set("umbrella", "1000/hour");
    let app = app(&limiter(&table));
    let of = async |customer: &str| left(&app, "/", &[("x-customer", customer)]).await;
    // A look-up that hangs holds nobody up.
    let closed = table.close().await;
    assert_eq!(of("umbrella").await, (200, Some(9)));
    assert_eq!(of("umbrella").await, (200, Some(8)));
    assert_eq!(of("initech").await, (200, Some(9)));
    assert_eq!(of("acme").await, (200, Some(4_999)), "the document's own holds meanwhile");
    drop(closed);
    table.looked_up(3).await;
    assert_eq!(of("umbrella").await, (200, Some(997)));
    assert_eq!(of("initech").await, (200, Some(8)));
    assert_eq!(of("acme").await, (200, Some(4_998)), "and where nothing else is found");
    // Who has none is remembered too.
    for _ in 0..10 {
        of("initech").await;
        of("umbrella").await;
    }
    tokio::task::yield_now().await;
    let mut asked = table.asked();
    asked.sort();
    assert_eq!(asked, ["acme", "initech", "umbrella"]);
}

#[tokio::test]
async fn what_changes_in_the_table_is_seen_when_it_is_said_or_old() {
    let table = Table::default();
    let limiter = limiter(&table);
    let app = app(&limiter);
    let of = async |customer: &str| left(&app, "/", &[("x-customer", customer)]).await;
    of("initech").await;
    table.looked_up(1).await;
    table.set("initech", "50/hour");
    assert_eq!(of("initech").await, (200, Some(8)), "nobody has said that it changed");
    limiter.override_changed("initech");
    assert_eq!(of("initech").await, (200, Some(7)), "the one before it holds while the look-up runs");
    table.looked_up(2).await;
    assert_eq!(of("initech").await, (200, Some(46)));
    table.set("initech", "60/hour");
    limiter.overrides_changed();
    of("initech").await;
    table.looked_up(3).await;
    assert_eq!(of("initech").await, (200, Some(54)));
    // What was found stays for a time, and is looked up again after it.
    *table.0.fresh.lock().expect("no panic") = Duration::ZERO;
    limiter.overrides_changed();
    of("initech").await;
    table.looked_up(4).await;
    of("initech").await;
    table.looked_up(5).await;
    // A table that fails changes nothing.
    *table.0.fails.lock().expect("no panic") = true;
    of("initech").await;
    table.looked_up(6).await;
    assert_eq!(of("initech").await, (200, Some(50)));
    // One that can wait gets the truth at once.
    *table.0.fails.lock().expect("no panic") = false;
    table.set("hooli", "70/hour");
    let hooli = limiter.for_customer("hooli", None).await;
    assert_eq!(
        hooli.usage("hooli").await.expect("in memory").rule("calls").and_then(|rule| rule.remaining()),
        Some(70)
    );
}

#[tokio::test]
async fn an_override_that_cannot_be_leaves_the_tier() {
    let table = Table::default();
    let own = |text: &str| Override::from_toml(text).expect("it can be read");
    table.0.overrides.lock().expect("no panic").extend([
        ("a".to_owned(), own("rules.unknown = \"5/s\"")),
        ("b".to_owned(), own("tier = \"gold\"")),
        ("c".to_owned(), own("rules.calls = { quota = \"5/s\", burst = 7 }")),
    ]);
    let app = app(&limiter(&table));
    let of = async |customer: &str| left(&app, "/", &[("x-customer", customer)]).await;
    for customer in ["a", "b", "c"] {
        assert_eq!(of(customer).await, (200, Some(9)), "{customer}");
    }
    table.looked_up(3).await;
    for customer in ["a", "b", "c"] {
        assert_eq!(of(customer).await, (200, Some(8)), "{customer}");
        let of_pro = left(&app, "/", &[("x-customer", customer), ("x-plan", "pro")]).await;
        assert_eq!(of_pro, (200, Some(97)), "{customer}");
    }
}

#[tokio::test]
async fn a_burst_alone_goes_with_the_quota_of_the_tier() {
    let text = RULES.replace("fixed_window", "token_bucket");
    let own = "[overrides.acme]\nrules.calls = { burst = 50 }\n[overrides.globex]\ntier = \"pro\"\nrules.calls = { burst = 40 }\n";
    let limiter = still(Limiter::builder(MemoryStore::new())).policy(policy(&format!("{text}{own}"))).build();
    let limiter = limiter.expect("sound");
    for (customer, tier, quota) in [
        ("acme", "free", Quota::per_hour(10).burst(50)),
        ("acme", "pro", Quota::per_hour(100).burst(50)),
        ("globex", "free", Quota::per_hour(100).burst(40)),
    ] {
        let own = limiter.for_customer(customer, Some(tier)).await;
        let usage = own.usage(customer).await.expect("in memory");
        assert_eq!(usage.rule("calls").map(|rule| rule.limit().quota()), Some(quota), "{customer} {tier}");
    }
}

#[tokio::test(start_paused = true)]
async fn random_customers_do_not_cause_a_look_up_each() {
    let table = Table::default();
    let app = app(&limiter(&table));
    let begin = tokio::time::Instant::now();
    for number in 0..50_000 {
        left(&app, "/", &[("x-customer", &format!("made-up-{number}"))]).await;
        if number % 100 == 0 {
            tokio::time::advance(Duration::from_millis(1)).await;
        }
    }
    let passed = begin.elapsed().as_millis() as usize;
    let (looked_up, calls) = (table.asked().len(), table.0.calls.load(Ordering::Relaxed));
    // A thousand a second, and what may wait at the end of it.
    assert!((100..=passed + 64).contains(&looked_up), "{looked_up} of 50000 in {passed} ms");
    assert!(calls <= looked_up / 8, "{calls} calls for {looked_up}: most go together");
}
