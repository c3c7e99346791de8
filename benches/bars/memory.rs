//! The memory store against `governor`, both with text for keys.

use std::{
    hint::black_box,
    num::NonZeroU32,
    pin::pin,
    sync::Barrier,
    task::{Context, Poll, Waker},
    thread,
    time::Instant,
};

use governor::DefaultKeyedRateLimiter;
use sluicegate::{
    Limit, Limiter, MemoryStore, Quota, Rule, key,
    store::{Answer, Ask, Line, Purpose, Scope, Store, Time},
};

use crate::{
    drive::Dice,
    report::{Bar, Pair, ROUNDS, Table},
    resident,
};

const RULE: &str = "r";

pub fn run(table: &mut Table) {
    for (name, keys, quotas, decisions) in [("1 key", 1, FAST, 400_000), ("1,000,000 keys", 1_000_000, SLOW, 200_000)] {
        let subjects = Subjects::new(keys, quotas);
        for threads in [1, 2] {
            subjects.compare(
                table,
                &format!("memory: {name}, {threads} thread{}", &"s"[..threads - 1]),
                threads,
                decisions,
            );
        }
    }
    resident::run(table);
}

/// The same quota for both, with a burst that no benchmark uses up.
#[derive(Clone, Copy)]
pub struct Quotas {
    ours: Quota,
    governor: governor::Quota,
}

const MILLION: NonZeroU32 = NonZeroU32::new(1_000_000).unwrap();

/// For one key that is asked for again and again.
const FAST: Quotas = Quotas {
    ours: Quota::per_second(1_000_000).burst(u32::MAX as u64),
    governor: governor::Quota::per_second(MILLION).allow_burst(NonZeroU32::MAX),
};

/// For many keys: none has its quota back before the end, or the memory store would forget it.
pub const SLOW: Quotas = Quotas {
    ours: Quota::per_hour(1).burst(1_000_000),
    governor: governor::Quota::per_hour(NonZeroU32::MIN).allow_burst(MILLION),
};

impl Quotas {
    pub fn governor(self) -> DefaultKeyedRateLimiter<String> {
        DefaultKeyedRateLimiter::keyed(self.governor)
    }

    pub fn limiter(self, store: impl Store) -> Limiter {
        Limiter::builder(store).rule(self.rule()).build().expect("a sound rule")
    }

    fn rule(self) -> Rule {
        Rule::gcra(RULE, self.ours).key(key::given())
    }
}

pub fn store() -> MemoryStore {
    MemoryStore::new().max_keys(2_000_000)
}

/// The public call, to its end. On memory it never waits.
pub fn acquire(limiter: &Limiter, key: String) -> bool {
    let mut future = pin!(limiter.acquire([(RULE, key)]));
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decision) => decision.is_allowed(),
        Poll::Pending => panic!("a decision in memory waits for nothing"),
    }
}

struct Subjects {
    keys: Vec<String>,
    store: MemoryStore,
    scope: Scope,
    limit: Limit,
    limiter: Limiter,
    governor: DefaultKeyedRateLimiter<String>,
}

impl Subjects {
    fn new(count: usize, quotas: Quotas) -> Subjects {
        let keys: Vec<String> = (0..count).map(|number| format!("user-{number:07}")).collect();
        let scope = Scope::new("bench", RULE);
        let limit = quotas.rule().check().expect("a sound rule");
        let store = store();
        let subjects =
            Subjects { scope, limit, limiter: quotas.limiter(store.clone()), store, governor: quotas.governor(), keys };
        // Every key is known before the clock starts.
        for key in &subjects.keys {
            assert!(subjects.borrowed(key) && subjects.governor.check_key(key).is_ok());
        }
        assert_eq!(subjects.store.keys(), count);
        subjects
    }

    /// The synchronous decision: what a limiter asks of its store, asked directly.
    #[inline]
    fn borrowed(&self, key: &str) -> bool {
        let line = Line::new(&self.scope, key.as_bytes(), &self.limit, 1);
        let ask = Ask { lines: &[line], purpose: Purpose::Spend, time: Time::Store };
        let mut answer = Answer::default();
        matches!(self.store.acquire_now(&ask, &mut answer), Some(Ok(()))) && answer.fits()
    }

    fn compare(&self, table: &mut Table, name: &str, threads: usize, decisions: usize) {
        let [mut a, mut b, mut c, mut d] = <[Vec<f64>; 4]>::default();
        for round in 0..ROUNDS {
            // Whoever comes first in one round comes last in the next.
            for turn in 0..4 {
                match if round % 2 == 0 { turn } else { 3 - turn } {
                    0 => a.push(self.nanos(threads, decisions, |key| self.borrowed(key))),
                    1 => b.push(self.nanos(threads, decisions, |key| self.governor.check_key(key).is_ok())),
                    2 => c.push(self.nanos(threads, decisions, |key| acquire(&self.limiter, key.clone()))),
                    _ => d.push(self.nanos(threads, decisions, |key| self.governor.check_key(&key.clone()).is_ok())),
                }
            }
        }
        let pair = Pair { ours: &a, reference: &b, unit: "ns" };
        table.ratio(format!("{name}, borrowed key / governor"), pair, Bar::AtMost(1.0));
        let pair = Pair { ours: &c, reference: &d, unit: "ns" };
        table.ratio(format!("{name}, Limiter::acquire, key made per call / governor"), pair, Bar::AtMost(1.5));
    }

    /// Of one decision on each thread.
    fn nanos(&self, threads: usize, decisions: usize, decide: impl Fn(&String) -> bool + Sync) -> f64 {
        let start = Barrier::new(threads);
        let work = |thread: usize| {
            let mut dice = Dice::new(thread);
            start.wait();
            let began = Instant::now();
            let allowed = (0..decisions).filter(|_| decide(black_box(&self.keys[dice.below(self.keys.len())]))).count();
            assert_eq!(allowed, decisions, "the path that is to be measured");
            began.elapsed().as_nanos() as f64 / decisions as f64
        };
        let nanos: Vec<f64> = thread::scope(|scope| {
            let work = &work;
            let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
            handles.into_iter().map(|handle| handle.join().expect("decisions")).collect()
        });
        nanos.iter().sum::<f64>() / threads as f64
    }
}
