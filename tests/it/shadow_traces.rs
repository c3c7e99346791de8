//! Random traces with shadow rules in any mix: the Rust of the memory store is the specification of the Lua, and both must agree on
//! every number.

use std::time::Duration;

use sluicegate::{
    Limit, MemoryStore, Quota, Rule, key,
    store::{Ask, Line, Purpose, Scope, Store, Time, Wait},
};

use crate::{
    support::{
        cluster::Cluster,
        dice::Dice,
        server::{VERSIONS, Version},
        stores::{BEGIN, namespace, patient, patient_with_functions},
    },
    traces::{NAMES, rule},
};

/// Every algorithm, and leases.
fn subjects() -> Vec<(Scope, Limit)> {
    let (namespace, window) = (namespace(), Duration::from_millis(700));
    let rates = NAMES.iter().zip(3..).map(|(name, amount)| rule(name, Quota::per(amount, window), amount - 1));
    let leases = Rule::concurrency("leases", 3).lease(window).key(key::given());
    rates.chain([leases]).map(|rule| (Scope::new(&namespace, rule.name()), rule.check().expect("sound"))).collect()
}

/// How many asks were admitted though a shadow refused, and how many were refused beside a shadow.
async fn compare(server: &dyn Store, seed: u64) -> [u32; 2] {
    let (memory, subjects, mut dice) = (MemoryStore::new(), subjects(), Dice::new(seed));
    let (mut now, mut wait, mut tally) = (BEGIN.as_micros() as u64, None, [0; 2]);
    for step in 0..150u64 {
        now += match dice.below(10) {
            0 => dice.below(900_000),
            1..4 => dice.below(90_000),
            4 => wait.take().unwrap_or(0u64).saturating_sub(dice.below(2)),
            _ => 0,
        };
        if dice.below(40) == 0 {
            now -= dice.below(2_000_000);
        }
        // Some of the rules, in their order; about half of them shadows.
        let lines: Vec<Line<'_>> = subjects
            .iter()
            .filter_map(|(scope, limit)| {
                let cost = if dice.below(4) == 0 { dice.below(12) } else { 1 };
                let cost = if limit.lease().is_some() { cost.min(1) } else { cost };
                let line =
                    Line { receipt: 1 + step, shadow: dice.below(2) == 0, ..Line::new(scope, b"k", limit, cost) };
                (dice.below(3) > 0).then_some(line)
            })
            .collect();
        let purpose = if dice.below(8) == 0 { Purpose::Peek } else { Purpose::Spend };
        let ask = Ask { lines: &lines, purpose, time: Time::Injected(now) };
        let (expected, got) = (memory.acquire(&ask).await.expect("an answer"), server.acquire(&ask).await);
        let shadows: Vec<bool> = lines.iter().map(|line| line.shadow).collect();
        assert_eq!(Ok(&expected), got.as_ref(), "{server:?} {seed}, step {step}: {purpose:?} {lines:?} {shadows:?}");
        let refused = lines.iter().zip(expected.verdicts()).filter(|(line, _)| !line.shadow);
        wait = refused
            .filter_map(|(_, verdict)| if let Wait::Micros(micros) = verdict.wait { Some(micros) } else { None })
            .max();
        match ask.admits(&expected) {
            true => tally[0] += u32::from(!expected.fits()),
            false => tally[1] += u32::from(shadows.contains(&true)),
        }
    }
    tally
}

#[tokio::test]
async fn shadows_in_any_mix_agree_with_their_scripts() {
    let functions = [Version::Redis7, Version::Valkey9];
    let scripts = VERSIONS.map(|version| patient(&version.shared().url()));
    let functions = functions.map(|version| patient_with_functions(&version.shared().url()));
    let cluster = Cluster::shared(Version::Valkey9).patient();
    for server in scripts.iter().chain(&functions).chain([&cluster]) {
        let mut tally = [0; 2];
        for seed in 0..20 {
            let [admitted, refused] = compare(server, seed).await;
            tally = [tally[0] + admitted, tally[1] + refused];
        }
        assert!(tally.iter().all(|times| *times > 300), "{tally:?}");
    }
}
