//! Compares what decisions said with what the server has counted.
//!
//! Every decision has a key of its own, so the server's count of that key is how often it was charged.

use std::{
    collections::HashMap,
    sync::Mutex,
    time::{Duration, Instant},
};

use redis::aio::MultiplexedConnection;
use sluicegate::{Decision, Limiter, LimiterBuilder, Quota, Rule, StoreErrorKind, key};

use super::load::soak;

/// The rule that checked decisions are made under.
pub const RULE: &str = "checked";

/// A decision that was asked for.
#[derive(Clone, Debug)]
pub struct Record {
    pub sent: Instant,
    pub replied: Option<Instant>,
    pub outcome: Outcome,
}

impl Record {
    fn new() -> Record {
        Record { sent: Instant::now(), replied: None, outcome: Outcome::Dropped }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nobody waited for the answer.
    Dropped,
    /// The store admitted it: charged.
    Admitted,
    /// The store refused it: not charged.
    Refused,
    /// The store failed.
    Failed { kind: StoreErrorKind, may_have_charged: bool, allowed: bool },
}

#[derive(Debug, Default)]
pub struct Checker {
    namespace: String,
    records: Mutex<Vec<Record>>,
}

/// What the counts came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub decisions: u64,
    pub admitted: u64,
    pub failed: u64,
    pub dropped: u64,
    /// Charges on the server, and of these those whose answer was lost.
    pub charged: u64,
    pub unanswered: u64,
}

impl Checker {
    /// A checker and its limiter. The quota of each key has room for mistakes to show.
    pub fn begin(builder: LimiterBuilder) -> (Checker, Limiter) {
        let namespace = super::stores::namespace();
        let limiter = limiter(builder, &namespace);
        // Room for all of a test, and really there: growth of memory later is then not the checker's.
        let mut records = vec![Record::new(); if soak() { 5_000_000 } else { 250_000 }];
        records.clear();
        (Checker { namespace, records: Mutex::new(records) }, limiter)
    }

    /// The same without room beforehand, for few decisions.
    pub fn of_few(builder: LimiterBuilder) -> (Checker, Limiter) {
        let namespace = super::stores::namespace();
        let limiter = limiter(builder, &namespace);
        (Checker { namespace, records: Mutex::default() }, limiter)
    }

    /// Another limiter whose decisions are checked as well.
    pub fn another(&self, builder: LimiterBuilder) -> Limiter {
        limiter(builder, &self.namespace)
    }

    /// Makes one decision, on record also when nobody waits for it to the end.
    pub async fn decide(&self, limiter: &Limiter) -> Decision {
        let id = self.sent();
        let decision = limiter.acquire([(RULE, id)]).await;
        self.replied(id, &decision);
        decision
    }

    pub fn sent(&self) -> u64 {
        let mut records = self.records.lock().expect("no panic");
        records.push(Record::new());
        records.len() as u64 - 1
    }

    pub fn replied(&self, id: u64, decision: &Decision) {
        let outcome = match decision.failure() {
            Some(error) => Outcome::Failed {
                kind: error.kind(),
                may_have_charged: error.may_have_charged(),
                allowed: decision.is_allowed(),
            },
            None if decision.is_allowed() => Outcome::Admitted,
            None => Outcome::Refused,
        };
        let mut records = self.records.lock().expect("no panic");
        let record = &mut records[id as usize];
        (record.replied, record.outcome) = (Some(Instant::now()), outcome);
    }

    /// Every decision charged at most once; those that were answered exactly as answered; those that failed for certain, not.
    pub async fn check(&self, servers: &mut [MultiplexedConnection]) -> Sum {
        self.check_against(servers, |_, _| true).await
    }

    /// Like `check`; `excused` says whether a failed decision may have been charged all the same.
    pub async fn check_against(
        &self,
        servers: &mut [MultiplexedConnection],
        excused: impl Fn(u64, &Record) -> bool,
    ) -> Sum {
        self.check_among(servers, |_, _| true, excused).await
    }

    /// Like `check_against`, for `some` of the decisions. The others were charged at most once.
    pub async fn check_among(
        &self,
        servers: &mut [MultiplexedConnection],
        some: impl Fn(u64, &Record) -> bool,
        excused: impl Fn(u64, &Record) -> bool,
    ) -> Sum {
        let counts = self.counts(RULE, servers).await;
        let records = self.records.lock().expect("no panic");
        let mut sum = Sum::default();
        for (id, record) in (0..).zip(&*records) {
            if !some(id, record) {
                assert!(counts.get(&id).is_none_or(|charged| *charged <= 1), "decision {id}: {record:?}");
                continue;
            }
            sum.decisions += 1;
            let charged = counts.get(&id).copied().unwrap_or(0);
            let say = || format!("decision {id} was charged {charged} times: {record:?}");
            sum.charged += charged;
            match record.outcome {
                Outcome::Admitted => {
                    sum.admitted += 1;
                    assert_eq!(charged, 1, "{}", say());
                }
                Outcome::Refused => panic!("there is room: {record:?}"),
                Outcome::Failed { may_have_charged, .. } => {
                    sum.failed += 1;
                    sum.unanswered += charged;
                    let most = u64::from(may_have_charged && excused(id, record));
                    assert!(charged <= most, "{}", say());
                }
                Outcome::Dropped => {
                    sum.dropped += 1;
                    sum.unanswered += charged;
                    assert!(charged <= 1, "{}", say());
                }
            }
        }
        assert!(counts.keys().all(|id| *id < records.len() as u64), "counts of decisions that nobody asked for");
        sum
    }

    /// For rules that count for themselves while the store is away: no decision is charged more than once. Answers how many were
    /// admitted without the store, and how many of all that are to be charged are not yet.
    pub async fn committed(&self, servers: &mut [MultiplexedConnection]) -> (u64, u64) {
        let counts = self.counts(RULE, servers).await;
        let (mut missed, mut owed) = (0, 0);
        for (id, record) in (0..).zip(&*self.records.lock().expect("no panic")) {
            let charged = counts.get(&id).copied().unwrap_or(0);
            assert!(charged <= 1, "decision {id} was charged {charged} times: {record:?}");
            let admitted = matches!(record.outcome, Outcome::Failed { may_have_charged: false, allowed: true, .. });
            missed += u64::from(admitted);
            owed += u64::from((admitted || record.outcome == Outcome::Admitted) && charged == 0);
        }
        (missed, owed)
    }

    /// The servers' own counts under a rule, by decision.
    pub async fn counts(&self, rule: &str, servers: &mut [MultiplexedConnection]) -> HashMap<u64, u64> {
        let mut counts = HashMap::new();
        for server in servers {
            server.set_response_timeout(Duration::from_secs(30));
            // Not the records of changes, which stand beside.
            let names: Vec<String> = redis::cmd("KEYS")
                .arg(format!("{}:v1:*:{rule}", self.namespace))
                .query_async(server)
                .await
                .expect("names");
            for names in names.chunks(1_000) {
                let mut gets = redis::pipe();
                for name in names {
                    gets.get(name);
                }
                let values: Vec<Vec<u8>> = gets.query_async(server).await.expect("values");
                for (name, value) in names.iter().zip(values) {
                    let id = name.split(['{', '}']).nth(1).and_then(|id| id.parse().ok()).expect("a decision's key");
                    // A window's count stands last, in six bytes.
                    let count = value[value.len() - 6..].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
                    *counts.entry(id).or_default() += count;
                }
            }
        }
        counts
    }
}

fn limiter(builder: LimiterBuilder, namespace: &str) -> Limiter {
    let rule = Rule::fixed_window(RULE, Quota::per_hour(1_000)).from_first_request().key(key::given());
    builder.namespace(namespace).rule(rule).build().expect("sound")
}
