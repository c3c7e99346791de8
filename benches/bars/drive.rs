//! Load: so many callers, each asking again as soon as it has its answer.

use std::{sync::Arc, time::Instant};

use crate::{machine::cpu_nanos, server::Server};

/// Decides, over and over. Each caller has a clone.
pub trait Contender: Clone + Send + 'static {
    /// Whether this user's request is allowed.
    fn decide(&mut self, user: &str) -> impl Future<Output = bool> + Send;
}

#[derive(Clone)]
pub struct Load {
    pub callers: usize,
    pub decisions: usize,
    pub users: Arc<[String]>,
    /// What every decision must come to: a figure for the wrong path would be worth nothing.
    pub allowed: bool,
}

/// What one decision took.
#[derive(Clone, Copy, Default)]
pub struct Spent {
    pub client_nanos: f64,
    pub server_micros: f64,
    pub per_second: f64,
}

pub async fn measure<C: Contender>(server: &Server, contender: &C, load: &Load) -> Spent {
    let inside = server.script_micros();
    let (client, began) = (cpu_nanos(std::process::id()), Instant::now());
    let tasks: Vec<_> =
        (0..load.callers).map(|caller| tokio::spawn(call(contender.clone(), load.clone(), caller))).collect();
    let mut count = 0.0;
    for task in tasks {
        count += task.await.expect("decisions") as f64;
    }
    let wall = began.elapsed().as_secs_f64();
    let client = cpu_nanos(std::process::id()) - client;
    let inside = server.script_micros() - inside;
    Spent { client_nanos: client / count, server_micros: inside / count, per_second: count / wall }
}

async fn call<C: Contender>(mut contender: C, load: Load, caller: usize) -> usize {
    let count = load.decisions.div_ceil(load.callers);
    let mut dice = Dice::new(caller);
    for _ in 0..count {
        let user = &load.users[dice.below(load.users.len())];
        let allowed = contender.decide(user).await;
        assert_eq!(allowed, load.allowed, "the path that is to be measured");
    }
    count
}

/// Asks once for every user, in order.
pub async fn once_each<C: Contender>(contender: &C, users: &Arc<[String]>) {
    let callers = 64.min(users.len());
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let (mut contender, users) = (contender.clone(), Arc::clone(users));
            tokio::spawn(async move {
                for user in users.iter().skip(caller).step_by(callers) {
                    contender.decide(user).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("decisions");
    }
}

/// Names of 19 letters: with the namespace and the rule, keys of 28 bytes.
pub fn users(count: usize) -> Arc<[String]> {
    (0..count).map(|number| format!("customer-{number:010}")).collect()
}

/// A cheap source of uneven numbers (xorshift).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: usize) -> Dice {
        Dice((seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * bound as u128) >> 64) as usize
    }
}
