//! Random traces: the Rust of the memory store is the specification of the Lua, and both must agree on every number.

use std::time::Duration;

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRng, TestRunner},
};
use sluicegate::{
    Call, Clock, Decision, Limiter, ManualClock, MemoryStore, Quota, Rule, key,
    store::{Ask, Id, Line, Purpose, Scope, Store, Time},
};

use crate::support::{
    server::VERSIONS,
    stores::{BEGIN, Backend, every_store, namespace, patient},
};

pub const NAMES: [&str; 8] = ["fixed", "first", "log", "counter", "bucket", "gcra", "leaky", "month"];

pub fn rule(name: &'static str, quota: Quota, burst: u64) -> Rule {
    match name {
        "fixed" => Rule::fixed_window(name, quota).offset(quota.window() / 3),
        "first" => Rule::fixed_window(name, quota).from_first_request(),
        // Any offset, and another when the quota changes.
        "month" => {
            let minutes = (quota.amount() * 31 + burst * 7) as i32 % 2_161 - 1_080;
            Rule::fixed_window(name, Quota::per_calendar_month(quota.amount()).utc_offset_minutes(minutes))
        }
        "log" => Rule::sliding_log(name, quota),
        "counter" => Rule::sliding_counter(name, quota),
        "bucket" => Rule::token_bucket(name, quota.burst(burst)),
        "gcra" => Rule::gcra(name, quota.burst(burst)),
        _ => Rule::leaky_bucket(name, quota.burst(burst)),
    }
    .key(key::given())
}

/// The rule as it is, or with a share kept for critical requests, where that leaves something to others.
fn reserving(rule: Rule, share: u64) -> Rule {
    let reserving = rule.clone().reserve(share as f64 / 10.0, |_| false);
    if reserving.check().is_ok() { reserving } else { rule }
}

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    /// Time passes, as a share of the window in thousandths.
    Pass(u64),
    /// So many microseconds.
    PassMicros(u64),
    /// The clock steps back, as a share of the window in thousandths.
    Back(u64),
    /// At a cost, by a critical request or another.
    Acquire(u64, bool),
    Peek(u64, bool),
    /// Exactly until the last refusal may be retried, less so many microseconds.
    Retry(u64),
    /// Another quota: one of a few.
    Change(usize),
}

fn step(steps_back: bool) -> impl Strategy<Value = Step> {
    let critical = || prop::bool::weighted(0.3);
    prop_oneof![
        6 => (0u64..400).prop_map(Step::Pass),
        1 => (1_000u64..3_000).prop_map(Step::Pass),
        4 => (0u64..50).prop_map(Step::PassMicros),
        30 => (prop_oneof![4 => Just(1u64), 2 => 0u64..6, 1 => 0u64..40], critical())
            .prop_map(|(cost, critical)| Step::Acquire(cost, critical)),
        3 => (0u64..6, critical()).prop_map(|(cost, critical)| Step::Peek(cost, critical)),
        6 => (0u64..2).prop_map(Step::Retry),
        1 => (0usize..8).prop_map(Step::Change),
        u32::from(steps_back) => (0u64..2_000).prop_map(Step::Back),
    ]
}

/// Quotas that are odd on purpose: coprime, tiny, huge, coarse-ticked.
pub fn quotas() -> impl Strategy<Value = (Quota, u64)> {
    let windows = prop_oneof![
        Just(1_000u64),
        Just(7_001),
        Just(1_000_000),
        Just(60_000_000),
        Just(3_600_000_000),
        Just(86_400_000_000),
        Just(86_400_000_000 * 366),
        1_000u64..10_000_000,
    ];
    let amounts = prop_oneof![1u64..12, 1u64..200, Just(1_000), Just(10_007)];
    (amounts, windows, 1u64..40)
        .prop_map(|(amount, window, burst)| (Quota::per(amount, Duration::from_micros(window)), burst))
}

/// Runs one trace over both stores and compares every answer.
async fn compare(server: &Backend, names: &[&'static str], trace: &Trace) {
    let memory = Backend::memory();
    let clock = ManualClock::new(BEGIN);
    let mut now = BEGIN;
    let build = |backend: &Backend, quotas: &[(Quota, u64)]| -> Option<Limiter> {
        let builder = backend.builder().clock(Clock::manual(clock.clone()));
        // Two in five keep nothing.
        let rules = names.iter().zip(quotas);
        let rules = rules.map(|(name, (quota, burst))| reserving(rule(name, *quota, *burst), burst % 5 * 2 / 3));
        rules.fold(builder, sluicegate::LimiterBuilder::rule).build().ok()
    };
    let count = names.len();
    let quotas_at = |choice: usize| &trace.quotas[choice * count % (trace.quotas.len() - count)..];
    let (Some(mut specified), Some(mut scripted)) = (build(&memory, quotas_at(0)), build(server, quotas_at(0))) else {
        return;
    };
    let mut window = quotas_at(0)[0].0.window();
    let mut refused: Option<(Duration, (u64, bool))> = None;
    for (place, step) in trace.steps.iter().enumerate() {
        let share = |thousandths: u64| window.mul_f64(thousandths as f64 / 1_000.0);
        let whole = |duration: Duration| Duration::from_micros(duration.as_micros() as u64);
        let mut ask = None;
        match step {
            Step::Pass(thousandths) => now += whole(share(*thousandths)),
            Step::PassMicros(micros) => now += Duration::from_micros(*micros),
            Step::Back(thousandths) => now = now.saturating_sub(whole(share(*thousandths))),
            Step::Acquire(cost, critical) => ask = Some((true, (*cost, *critical))),
            Step::Peek(cost, critical) => ask = Some((false, (*cost, *critical))),
            Step::Retry(early) => {
                if let Some((wait, cost)) = refused.take() {
                    now += wait.saturating_sub(Duration::from_micros(*early));
                    ask = Some((true, cost));
                }
            }
            Step::Change(choice) => {
                let quotas = quotas_at(*choice);
                if let (Some(one), Some(other)) = (build(&memory, quotas), build(server, quotas)) {
                    (specified, scripted) = (one, other);
                    window = quotas[0].0.window();
                    refused = None;
                }
            }
        }
        // A log on the server tells times apart within four years; what is older has long expired there, by real time.
        if now > BEGIN + Duration::from_secs(4 * 365 * 86_400) {
            return;
        }
        clock.set(now);
        let Some((spend, cost)) = ask else { continue };
        let call = || {
            let call = names.iter().fold(Call::new(), |call, name| call.key(name, "k").cost(cost.0));
            if cost.1 { call.critical() } else { call }
        };
        let answer =
            async |limiter: &Limiter| if spend { limiter.acquire(call()).await } else { limiter.peek(call()).await };
        let (expected, got) = (answer(&specified).await, answer(&scripted).await);
        assert!(got.failure().is_none(), "{}: {:?}", server.name, got.failure());
        assert_eq!(
            numbers(&expected),
            numbers(&got),
            "{}: step {place} {step:?} of {names:?}\nspecified {specified:?}\n{:?}",
            server.name,
            &trace.steps[..=place]
        );
        refused = got.retry_after().map(|wait| (wait, cost));
    }
}

fn numbers(decision: &Decision) -> String {
    format!("{decision:?}")
}

#[derive(Debug)]
struct Trace {
    quotas: Vec<(Quota, u64)>,
    steps: Vec<Step>,
}

/// The same traces on every run: a failure can be looked into.
fn traces(seed: u8, steps_back: bool) -> impl Iterator<Item = Trace> {
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(Default::default(), &[seed; 32]));
    let strategy = (prop::collection::vec(quotas(), 64), prop::collection::vec(step(steps_back), 150));
    std::iter::from_fn(move || {
        let (quotas, steps) = strategy.new_tree(&mut runner).expect("a trace").current();
        Some(Trace { quotas, steps })
    })
}

#[tokio::test]
async fn every_algorithm_alone_agrees_with_its_script() {
    for (seed, name) in (0..).zip(NAMES) {
        for version in VERSIONS {
            for trace in traces(seed, true).take(30) {
                compare(&Backend::redis(version), &[name], &trace).await;
            }
        }
    }
}

#[tokio::test]
async fn all_algorithms_in_one_decision_agree() {
    for trace in traces(77, true).take(40) {
        for backend in every_store().iter().filter(|backend| !backend.is_memory()) {
            compare(backend, &NAMES, &trace).await;
        }
    }
}

/// Processes whose clocks differ write to one count: by up to the tolerance time stands still, beyond it the state is moved.
#[tokio::test]
async fn clocks_that_differ_agree() {
    let jitter = prop::collection::vec((-150_000i64..150_000, 0u64..3, 0u8..8), 200);
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(Default::default(), &[9; 32]));
    for version in VERSIONS {
        let (memory, server) = (MemoryStore::new(), patient(&version.shared().url()));
        for (round, name) in NAMES.into_iter().cycle().take(42).enumerate() {
            let window = [40_000, 250_000, 1_000_000][round % 3];
            let limit = rule(name, Quota::per(7, Duration::from_micros(window)), 5).check().expect("sound");
            let scope = Scope::new(&namespace(), name);
            let (mut base, mut receipt) = (BEGIN.as_micros() as i64, 0);
            for (offset, cost, purpose) in jitter.new_tree(&mut runner).expect("a trace").current() {
                base += offset.rem_euclid(20_000);
                let time = Time::Application { now: (base + offset) as u64, tolerance: 100_000 };
                let lines = [Line { receipt, ..Line::new(&scope, b"k", &limit, cost) }];
                let purpose = match purpose {
                    0..4 => Purpose::Spend,
                    4 | 5 => Purpose::Peek,
                    6 => Purpose::Take(Id::random()),
                    _ => Purpose::Give(Id::random()),
                };
                let ask = Ask { lines: &lines, purpose, time };
                let answer = memory.acquire(&ask).await;
                assert_eq!(answer, server.acquire(&ask).await, "{version:?} {name} {ask:?}");
                if let (Purpose::Spend | Purpose::Take(_), Ok(answer)) = (purpose, answer) {
                    receipt = answer.verdicts()[0].receipt;
                }
            }
        }
    }
}
