//! Whoever comes, waits, leaves and is told twice: of those who stay, no two slots overlap, and they are in order.

use std::time::Duration;

use sluicegate::{
    Limit, MemoryStore, Quota, Rule, key,
    store::{Ask, Id, Line, Purpose, Scope, Store, Time, Wait},
};

use crate::support::{
    cluster::Cluster,
    dice::Dice,
    server::{VERSIONS, Version},
    stores::{BEGIN, namespace, patient, patient_with_functions},
};

/// A place in line, in microseconds.
#[derive(Clone, Debug)]
struct Slot {
    begins: u64,
    ends: u64,
    cost: u64,
    receipt: u64,
    given: Id,
}

/// One queue on one store.
struct Subject<'a> {
    store: &'a dyn Store,
    scope: Scope,
    limit: Limit,
    now: u64,
}

impl Subject<'_> {
    async fn ask(&self, purpose: Purpose, cost: u64, receipt: u64) -> (Wait, u64, u64) {
        let lines = [Line { receipt, ..Line::new(&self.scope, b"k", &self.limit, cost) }];
        let answer = self.store.acquire(&Ask { lines: &lines, purpose, time: Time::Injected(self.now) }).await;
        let verdict = answer.expect("an answer").verdicts()[0];
        (verdict.wait, verdict.receipt, verdict.remaining)
    }

    async fn come(&self, cost: u64) -> Result<Slot, Wait> {
        let (wait, receipt, _) = self.ask(Purpose::Spend, cost, 0).await;
        let begins = match wait {
            Wait::None => self.now,
            Wait::Turn(micros) => self.now + micros,
            refused => return Err(refused),
        };
        Ok(Slot { begins, ends: receipt, cost, receipt, given: Id::random() })
    }

    /// Answers whether the slot was given back.
    async fn leave(&self, slot: &Slot) -> bool {
        let (_, _, before) = self.ask(Purpose::Peek, 0, 0).await;
        let (_, _, after) = self.ask(Purpose::Give(slot.given), slot.cost, slot.receipt).await;
        after > before
    }
}

/// Answers how many slots were given back, and how many were not.
async fn run(name: &str, store: &dyn Store, seed: u64) -> (u64, u64) {
    let mut dice = Dice::new(seed);
    let (amount, window) = (1 + dice.below(7), 1_000_000 + dice.below(3));
    let interval = window as f64 / amount as f64;
    let max_wait = Duration::from_micros(2_000_000 + dice.below(5_000_000));
    let rule = Rule::leaky_bucket("q", Quota::per(amount, Duration::from_micros(window)));
    let limit = rule.queue(max_wait, 2 + dice.below(30)).key(key::given()).check().expect("sound");
    let scope = Scope::new(&namespace(), "q");
    let mut line = Subject { store, scope, limit, now: BEGIN.as_micros() as u64 };
    // Those who are in line or were, in the order of their decisions.
    let mut stayed: Vec<Slot> = Vec::new();
    let mut left: Vec<Slot> = Vec::new();
    let (mut given, mut kept) = (0, 0);
    for _ in 0..150 {
        line.now += dice.below(interval as u64);
        if dice.per_mille(600) {
            let cost = 1 + dice.below(2);
            let slot = match line.come(cost).await {
                Err(Wait::Micros(micros)) => {
                    line.now += micros - 1;
                    assert_eq!(line.come(cost).await.err(), Some(Wait::Micros(1)), "{name} {seed}");
                    line.now += 1;
                    line.come(cost).await
                }
                slot => slot,
            };
            let slot = slot.expect("a place in line");
            let waits = Duration::from_micros(slot.begins - line.now);
            assert!(waits <= max_wait, "{name} {seed}: {waits:?}");
            stayed.push(slot);
        } else if dice.per_mille(700) {
            // Mostly from the end.
            let waiting: Vec<usize> = (0..stayed.len()).filter(|place| stayed[*place].begins > line.now).collect();
            let from_end = dice.below(3) as usize;
            let Some(place) = waiting.iter().rev().nth(from_end) else { continue };
            let (last, slot) = (*place == stayed.len() - 1, stayed.remove(*place));
            let back = line.leave(&slot).await;
            // Those who were behind it and have left, but not been given back, are still in its way.
            assert!(last || !back, "{name} {seed}: others are behind {slot:?}");
            (given, kept) = (given + u64::from(back), kept + u64::from(!back));
            left.push(slot);
        } else if let Some(slot) = left.last() {
            assert!(!line.leave(slot).await, "{name} {seed}: given back twice");
        }
    }
    for pair in stayed.windows(2) {
        assert!(pair[0].ends <= pair[1].begins, "{name} {seed}: {pair:?} overlap");
        let apart = (pair[1].begins - pair[0].begins + 1) as f64;
        assert!(apart >= interval * pair[0].cost as f64, "{name} {seed}: {pair:?} are too close");
    }
    (given, kept)
}

#[tokio::test]
async fn the_rate_is_never_exceeded_whoever_leaves() {
    for seed in 0..40 {
        let (given, kept) = run("memory", &MemoryStore::new(), seed).await;
        assert!(given > 0 && kept > 0, "{seed}: {given} were given back and {kept} kept");
    }
    for version in VERSIONS {
        let store = patient(&version.shared().url());
        for seed in 0..10 {
            run(&format!("{version:?}"), &store, seed).await;
        }
    }
    let functions = patient_with_functions(&Version::Valkey9.shared().url());
    let cluster = Cluster::shared(Version::Redis7).patient();
    for seed in 0..5 {
        run("functions", &functions, seed).await;
        run("a Cluster", &cluster, seed).await;
    }
}
