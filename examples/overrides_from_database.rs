//! Contracts of single customers in a table of one's own, here of SQLite: looked up off the path of requests, and remembered.
//!
//! `cargo run --example overrides_from_database` shows the first request of a customer, which goes by the tier, the next ones, and what a
//! change in the table does. Any database will do: an override is what an async closure returns.
#![allow(clippy::print_stdout)]

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, http::Request, routing::get};
use sluicegate::{
    Limiter, MemoryStore, RateLimitLayer,
    policy::{Override, Policy, SourceError},
};
use sqlx::{SqlitePool, sqlite::SqlitePoolOptions};
use tower::ServiceExt;

const POLICY: &str = r#"
[tier]
by = "header:x-plan"               # whoever authenticates callers sets it
default = "free"

[customer]
by = "header:x-customer"

[[rules]]
name = "per-customer"
algorithm = "fixed_window"
quota = "10/d"
key = "header:x-customer"

[tiers.free]

[tiers.pro]
per-customer = "100/d"
"#;

/// A contract names a tier, or has terms of its own: JSON, as an override in a policy.
async fn contract(pool: &SqlitePool, customer: &str) -> Result<Option<Override>, SourceError> {
    let row =
        sqlx::query_as::<_, (Option<String>, Option<String>)>("SELECT tier, terms FROM contracts WHERE customer = ?");
    // Errors are logged, and must hold no secrets.
    let row = row.bind(customer).fetch_optional(pool).await.map_err(SourceError::new)?;
    match row {
        Some((_, Some(terms))) => Override::from_json(&terms).map(Some).map_err(SourceError::new),
        Some((Some(tier), None)) => Ok(Some(Override::tier(tier))),
        _ => Ok(None),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // In memory each connection would have a database of its own.
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
    for statement in [
        "CREATE TABLE contracts (customer TEXT PRIMARY KEY, tier TEXT, terms TEXT)",
        "INSERT INTO contracts VALUES ('acme', 'pro', NULL)",
        r#"INSERT INTO contracts VALUES ('globex', NULL, '{ "rules": { "per-customer": "5000/d" } }')"#,
    ] {
        sqlx::query(statement).execute(&pool).await?;
    }

    let asked = Arc::new(AtomicU64::new(0));
    let look_up = {
        let (pool, asked) = (pool.clone(), Arc::clone(&asked));
        move |customer: String| {
            let (pool, asked) = (pool.clone(), Arc::clone(&asked));
            async move {
                asked.fetch_add(1, Ordering::Relaxed);
                contract(&pool, &customer).await
            }
        }
    };
    let limiter = Limiter::builder(MemoryStore::new()).policy(Policy::from_toml(POLICY)?).overrides(look_up).build()?;
    let app = Router::new().route("/", get(|| async { "hello\n" })).layer(RateLimitLayer::new(limiter.clone()));

    println!("The first request of a customer does not wait for the table: it goes by its tier, free with 10 a day.");
    for customer in ["acme", "globex", "nobody"] {
        ask(&app, customer).await?;
    }
    // A moment later, for the table to have answered.
    until(|| asked.load(Ordering::Relaxed) == 3).await;
    println!(
        "\nThen it is known: acme is pro, globex has terms of its own, and nobody has no contract. What was spent stays spent."
    );
    for customer in ["acme", "globex", "nobody"] {
        ask(&app, customer).await?;
    }
    for _ in 0..50 {
        limit(&app, "acme").await?;
    }
    println!("\nFifty requests later, the table was asked {} times.", asked.load(Ordering::Relaxed));

    println!(
        "\nacme signs for 7,000 a day. It is told: the next request has it looked up again, and those after it have it:"
    );
    let terms = r#"{ "rules": { "per-customer": "7000/d" } }"#;
    sqlx::query("UPDATE contracts SET terms = ? WHERE customer = 'acme'").bind(terms).execute(&pool).await?;
    limiter.override_changed("acme");
    ask(&app, "acme").await?;
    until(|| asked.load(Ordering::Relaxed) == 4).await;
    ask(&app, "acme").await?;

    println!("\nA job can wait for the look-up, where no request is at hand:");
    sqlx::query("INSERT INTO contracts VALUES ('initech', 'pro', NULL)").execute(&pool).await?;
    let decision = limiter.for_customer("initech", None).await.acquire([("per-customer", "initech")]).await;
    println!("  initech  {:?} left", decision.standing("per-customer").map(|standing| standing.remaining()));
    Ok(())
}

/// For this example to go on when something has happened; an application has nothing to wait for.
async fn until(happened: impl Fn() -> bool) {
    while !happened() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // What was found is put in place right after.
    tokio::time::sleep(Duration::from_millis(20)).await;
}

async fn limit(app: &Router, customer: &str) -> Result<(u16, String, String), Box<dyn Error>> {
    let request = Request::builder().uri("/").header("x-customer", customer).body(Body::empty())?;
    let response = app.clone().oneshot(request).await?;
    let field = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("-").to_owned();
    Ok((response.status().as_u16(), field("x-ratelimit-remaining"), field("x-ratelimit-limit")))
}

async fn ask(app: &Router, customer: &str) -> Result<(), Box<dyn Error>> {
    let (status, remaining, limit) = limit(app, customer).await?;
    println!("  {customer:<8} {status}  {remaining} of {limit} left");
    Ok(())
}
