//! A limiter without HTTP: a worker sends mails, each customer so many an hour and all together so many a second. It looks
//! before it spends, waits as long as it is told, and starts a customer afresh. In memory, or on `REDIS_URL`.
#![allow(clippy::print_stdout)]

use std::{env, error::Error, time::Duration};

use sluicegate::{Call, Limiter, MemoryStore, Quota, RedisStore, Rule, key};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let builder = match env::var("REDIS_URL") {
        Ok(url) => Limiter::builder(RedisStore::connect(url)?),
        Err(_) => Limiter::builder(MemoryStore::new()),
    };
    let limiter = builder
        .namespace("mailer")
        .rule(Rule::token_bucket("customer", Quota::per_hour(3_600).burst(3)).key(key::given()))
        .rule(Rule::gcra("all", Quota::per_second(50)).key(key::given()))
        .build()?;

    for (customer, recipients) in [("acme", 1), ("acme", 2), ("acme", 1), ("globex", 2), ("globex", 9)] {
        let call = || Call::new().key("customer", customer).cost(recipients).key("all", "").cost(recipients);
        loop {
            let decision = limiter.acquire(call()).await;
            if let Some(error) = decision.failure() {
                println!("{customer}: sent unlimited, {error}");
                break;
            }
            if decision.can_never_fit() {
                println!("{customer}: {recipients} recipients are more than a bucket holds, so the mail is split");
                break;
            }
            match decision.retry_after() {
                None => {
                    let left = decision.standing("customer").map_or(0, |standing| standing.remaining());
                    println!("{customer}: sent to {recipients}, {left} left at once");
                    break;
                }
                Some(wait) => {
                    println!("{customer}: waits {wait:.1?}");
                    tokio::time::sleep(wait.max(Duration::from_millis(1))).await;
                }
            }
        }
    }

    let standing = limiter.peek([("customer", "acme")]).await;
    println!("acme before a reset: {:?}", standing.standing("customer").map(|standing| standing.remaining()));
    limiter.reset([("customer", "acme")]).await?;
    let standing = limiter.peek([("customer", "acme")]).await;
    println!("acme after a reset:  {:?}", standing.standing("customer").map(|standing| standing.remaining()));
    Ok(())
}
