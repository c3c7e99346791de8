//! Which look-ups there are of overrides, and what holds meanwhile.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use sluicegate::{
    Limiter, MemoryStore,
    policy::{Override, SourceError},
};
use tokio::sync::Semaphore;

use super::{
    app,
    customers::{RULES, Table, WRITTEN, limiter, still},
    left, policy,
};
use crate::support::log::Log;

#[tokio::test(start_paused = true)]
async fn who_has_none_is_not_looked_up_again_and_again() {
    let table = Table::default();
    let app = app(&limiter(&table));
    for _ in 0..20 {
        left(&app, "/", &[("x-customer", "initech")]).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(table.asked(), ["initech"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_found_stands_above_what_is_written() {
    let table = Table::default();
    table.set("acme", "70/hour");
    let app = app(&limiter(&table));
    assert_eq!(left(&app, "/", &[("x-customer", "acme")]).await, (200, Some(4_999)));
    table.looked_up(1).await;
    assert_eq!(left(&app, "/", &[("x-customer", "acme")]).await, (200, Some(68)));
}

#[tokio::test(start_paused = true)]
async fn no_more_wait_to_be_looked_up_than_may() {
    let table = Table::default();
    let app = app(&limiter(&table));
    let closed = table.close().await;
    for number in 0..3_000 {
        left(&app, "/", &[("x-customer", &format!("made-up-{number}"))]).await;
    }
    drop(closed);
    tokio::time::sleep(Duration::from_secs(60)).await;
    // Those that wait, and those that were being looked up.
    assert!((1_024..=1_024 + 64).contains(&table.asked().len()), "{}", table.asked().len());
}

/// An override is as it was when it was looked at, however long the answer takes.
#[derive(Clone, Default)]
struct Slow {
    quota: Arc<Mutex<String>>,
    looks: Arc<AtomicUsize>,
    answers: Arc<Answers>,
}

struct Answers(Semaphore);

impl Default for Answers {
    fn default() -> Answers {
        Answers(Semaphore::new(0))
    }
}

impl Slow {
    async fn look(&self) -> Result<Option<Override>, SourceError> {
        let quota = self.quota.lock().expect("no panic").clone();
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.answers.0.acquire().await.expect("open").forget();
        Ok(Some(Override::from_toml(&format!("rules.calls = {quota:?}")).expect("sound")))
    }

    async fn looked(&self, count: usize) {
        while self.looks.load(Ordering::Relaxed) < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_before_a_change_is_not_taken_for_one_from_after_it() {
    for by_request in [true, false] {
        let slow = Slow::default();
        let source = slow.clone();
        let looked_up = move |_: String| {
            let source = source.clone();
            async move { source.look().await }
        };
        let limiter = still(Limiter::builder(MemoryStore::new()))
            .policy(policy(RULES))
            .overrides(looked_up)
            .build()
            .expect("sound");
        let app = app(&limiter);
        "50/hour".clone_into(&mut slow.quota.lock().expect("no panic"));
        let waiting = limiter.clone();
        let waiting = if by_request {
            left(&app, "/", &[("x-customer", "acme")]).await;
            None
        } else {
            Some(tokio::spawn(async move { waiting.for_customer("acme", None).await }))
        };
        slow.looked(1).await;
        "60/hour".clone_into(&mut slow.quota.lock().expect("no panic"));
        limiter.override_changed("acme");
        slow.answers.0.add_permits(100);
        if let Some(waiting) = waiting {
            waiting.await.expect("no panic");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        left(&app, "/", &[("x-customer", "acme")]).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let used = if by_request { 3 } else { 2 };
        assert_eq!(left(&app, "/", &[("x-customer", "acme")]).await, (200, Some(60 - used)), "{by_request}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_table_that_hangs_is_given_up_and_asked_again() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let looked_up = move |_: String| {
        let call = counted.fetch_add(1, Ordering::Relaxed);
        async move {
            if call == 0 {
                std::future::pending::<()>().await;
            }
            Ok::<_, SourceError>(Some(Override::from_toml("rules.calls = \"50/hour\"").expect("sound")))
        }
    };
    let app = app(&still(Limiter::builder(MemoryStore::new()))
        .policy(policy(RULES))
        .overrides(looked_up)
        .build()
        .expect("sound"));
    assert_eq!(left(&app, "/", &[("x-customer", "initech")]).await, (200, Some(9)));
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(left(&app, "/", &[("x-customer", "initech")]).await, (200, Some(8)));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(left(&app, "/", &[("x-customer", "initech")]).await, (200, Some(47)));
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

/// Rows that cannot be read, and one that takes for ever, are those of their customers alone.
#[tokio::test(start_paused = true)]
async fn a_customer_who_cannot_be_looked_up_holds_up_no_other() {
    let looked_up = async |customer: String| {
        if customer.starts_with("bad") {
            return Err(SourceError::new("a row that cannot be read"));
        }
        if customer == "slow" {
            std::future::pending::<()>().await;
        }
        Ok(Some(Override::from_toml("rules.calls = \"50/hour\"").expect("sound")))
    };
    let builder = still(Limiter::builder(MemoryStore::new())).policy(policy(RULES)).overrides(looked_up);
    let app = app(&builder.build().expect("sound"));
    let names: Vec<String> =
        (0..20).flat_map(|number| ["slow".into(), format!("bad{number}"), format!("c{number}")]).collect();
    for name in &names {
        left(&app, "/", &[("x-customer", name)]).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    for name in names.iter().filter(|name| name.starts_with('c')) {
        assert_eq!(left(&app, "/", &[("x-customer", name)]).await, (200, Some(48)), "{name}");
    }
}

/// However many made-up names wait.
#[tokio::test(start_paused = true)]
async fn whose_override_was_changed_is_looked_up_before_others() {
    let table = Table::default();
    table.set("acme", "70/hour");
    let limiter = limiter(&table);
    let app = app(&limiter);
    left(&app, "/", &[("x-customer", "acme")]).await;
    table.looked_up(1).await;
    let closed = table.close().await;
    for number in 0..3_000 {
        left(&app, "/", &[("x-customer", &format!("made-up-{number}"))]).await;
    }
    table.set("acme", "80/hour");
    limiter.override_changed("acme");
    left(&app, "/", &[("x-customer", "acme")]).await;
    drop(closed);
    // The others take more than a second.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(left(&app, "/", &[("x-customer", "acme")]).await, (200, Some(77)));
    assert!(table.asked().len() < 200, "{}", table.asked().len());
}

/// However often a limiter is made of it.
#[tokio::test]
async fn what_is_wrong_with_an_override_is_said_once() {
    let table = Table::default();
    let own = Override::from_toml("rules.unknown = \"5/s\"").expect("it can be read");
    table.0.overrides.lock().expect("no panic").insert("initech".into(), own);
    let limiter = limiter(&table);
    let app = app(&limiter);
    let (log, _guard) = Log::begin();
    left(&app, "/", &[("x-customer", "initech")]).await;
    table.looked_up(1).await;
    for _ in 0..3 {
        limiter.set_policy(policy(&format!("{RULES}{WRITTEN}"))).expect("sound");
        left(&app, "/", &[("x-customer", "initech"), ("x-plan", "pro")]).await;
        left(&app, "/", &[("x-customer", "initech")]).await;
    }
    let said = log.text().lines().filter(|line| line.contains("cannot be used")).count();
    assert_eq!(said, 1, "{}", log.text());
}

/// As where each test, or each worker, has a runtime of its own.
#[test]
fn who_was_looked_up_by_a_runtime_that_ended_is_looked_up_by_the_next() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let slow = Slow::default();
    "50/hour".clone_into(&mut slow.quota.lock().expect("no panic"));
    let source = slow.clone();
    let looked_up = move |_: String| {
        let source = source.clone();
        async move { source.look().await }
    };
    let builder = still(Limiter::builder(MemoryStore::new())).policy(policy(RULES)).overrides(looked_up);
    let app = app(&builder.build().expect("sound"));
    runtime().expect("a runtime").block_on(async {
        left(&app, "/", &[("x-customer", "acme")]).await;
        slow.looked(1).await;
        // Behind those that are being looked up.
        left(&app, "/", &[("x-customer", "globex")]).await;
    });
    slow.answers.0.add_permits(100);
    runtime().expect("a runtime").block_on(async {
        for customer in ["acme", "globex"] {
            assert_eq!(left(&app, "/", &[("x-customer", customer)]).await, (200, Some(8)), "{customer}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        for customer in ["acme", "globex"] {
            assert_eq!(left(&app, "/", &[("x-customer", customer)]).await, (200, Some(47)), "{customer}");
        }
    });
}
