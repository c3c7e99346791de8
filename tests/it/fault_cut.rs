//! Answers that are lost after the server has decided: charged once at most, whatever the caller saw.

use std::{sync::Arc, time::Duration};

use sluicegate::{Limiter, RedisStore};

use crate::support::{
    fault_proxy::Counts,
    faulted::{Faulted, PATIENT},
    load::soak,
};

/// How often the server ran a command, and with success.
async fn ran(connection: &mut redis::aio::MultiplexedConnection, command: &str) -> (u64, u64) {
    let text: String = redis::cmd("INFO").arg("commandstats").query_async(connection).await.expect("numbers");
    let Some(line) = text.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:"))) else { return (0, 0) };
    let number = |name: &str| {
        let number = line.split([':', ',']).find_map(|part| part.strip_prefix(name)).expect("a number");
        number.parse::<u64>().expect("a number")
    };
    (number("calls="), number("calls=") - number("failed_calls="))
}

#[tokio::test]
async fn one_answer_of_a_hundred_is_cut_off() {
    let decisions = if soak() { 100_000 } else { 20_000 };
    let mut faulted = Faulted::with(&[], |store| store.bare().deadline(PATIENT), Limiter::builder).await;
    faulted.proxy.set(|faults| faults.cut = 10);
    // Many stores, each with a connection of its own: who has just lost one waits for the next.
    let stores = 64;
    let callers: Vec<_> = (0..stores * 2)
        .scan(None, |limiter, caller| {
            if caller % 2 == 0 {
                let store = RedisStore::builder(faulted.proxy.url()).bare().deadline(PATIENT).build().expect("sound");
                *limiter = Some(faulted.load.checker.another(Limiter::builder(store)));
            }
            limiter.clone()
        })
        .map(|limiter| {
            let checker = Arc::clone(&faulted.load.checker);
            tokio::spawn(async move {
                let mut left = decisions / (stores * 2);
                while left > 0 {
                    let decision = checker.decide(&limiter).await;
                    if decision.failure().is_some_and(|error| !error.may_have_charged()) {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    } else {
                        left -= 1;
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no panic");
    }
    faulted.proxy.heal();
    let sum = faulted.is_over().await;
    let counts = &faulted.proxy.counts;
    let cut = Counts::of(&counts.cut);
    assert!(cut >= decisions / 200, "{cut} answers were cut off");
    let along = Counts::of(&counts.cut_along);
    assert_eq!(sum.unanswered, cut + along, "charged without an answer are those whose answer was lost: {sum:?}");
    // The server's account: what it ran is what reached it, and what it charged is what it ran with success.
    let (first, second) = (ran(&mut faulted.direct, "evalsha").await, ran(&mut faulted.direct, "eval").await);
    assert_eq!(Counts::of(&counts.decisions), first.0 + second.0, "nothing was sent twice");
    let peeks = 1;
    assert!((sum.charged + peeks..=sum.charged + peeks + 20).contains(&(first.1 + second.1)), "{sum:?}");
}
