//! Processes that crash while they charge and settle: whatever they had begun is counted once, or not at all, and never in part.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use sluicegate::{Call, Clock, Limiter, ManualClock, Quota, Rule, key};

use crate::support::{
    dice::Dice,
    server::VERSIONS,
    stores::{BEGIN, namespace, patient},
};

const CAPACITY: u64 = 10_000_000;
const CRASHES: u64 = 6;

/// Time stands still, so that nothing is forgotten but what is given back.
fn limiter(url: &str, namespace: &str) -> Limiter {
    let rules = [
        Rule::token_bucket("bucket", Quota::per_hour(CAPACITY)),
        Rule::fixed_window("window", Quota::per_hour(CAPACITY)),
        Rule::sliding_counter("counter", Quota::per(CAPACITY, std::time::Duration::from_secs(60))),
    ];
    let builder = Limiter::builder(patient(url)).namespace(namespace).clock(Clock::manual(ManualClock::new(BEGIN)));
    rules.into_iter().fold(builder, |builder, rule| builder.rule(rule.key(key::given()))).build().expect("sound")
}

fn call(cost: u64) -> Call<'static> {
    ["bucket", "window", "counter"].iter().fold(Call::new(), |call, name| call.key(name, "one").cost(cost))
}

/// Not a test by itself: the process that the test below starts. Notes every step before and after it is made, and crashes in the middle.
#[test]
fn worker() {
    let Ok(task) = std::env::var("SLUICEGATE_CRASH_WORKER") else { return };
    let [url, namespace, notes, seed] = task.split(' ').collect::<Vec<_>>()[..] else { panic!("{task}") };
    let seed: u64 = seed.parse().expect("a number");
    let notes = Arc::new(OpenOptions::new().append(true).create(true).open(notes).expect("a file"));
    let note = |notes: &Arc<File>, text: String| (&**notes).write_all(text.as_bytes()).expect("written");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let limiter = limiter(url, namespace);
        let mut dice = Dice::new(seed);
        let last = 40 + dice.below(120);
        let mut callers = Vec::new();
        for number in 0..last {
            let (cost, actual) = (1 + dice.below(200), dice.below(300));
            let (limiter, notes, way) = (limiter.clone(), Arc::clone(&notes), dice.below(6));
            let caller = tokio::spawn(async move {
                let id = format!("{seed}.{number}");
                note(&notes, format!("asks {id} {cost} {actual}\n"));
                let charge = limiter.charge(call(cost)).await;
                assert!(charge.decision().is_allowed() && charge.decision().failure().is_none());
                note(&notes, format!("charged {id} {cost} {actual}\n"));
                if way == 0 {
                    return;
                }
                note(&notes, format!("settles {id} {cost} {actual}\n"));
                assert!(["bucket", "window", "counter"].iter().all(|rule| charge.settle_rule(rule, actual)));
                // Once more, which changes nothing.
                assert!(!charge.settle_rule("bucket", actual + 1));
                if way < 4 {
                    limiter.settled().await;
                    note(&notes, format!("settled {id} {cost} {actual}\n"));
                }
            });
            if dice.below(3) == 0 {
                caller.await.expect("no panic");
            } else {
                callers.push(caller);
            }
        }
        // In the middle of whatever the others do.
        std::process::abort();
    });
}

/// Ends with the test, however that ends.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_crashed_processes_charged_is_counted_once_or_not_at_all() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for version in VERSIONS {
        let (namespace, url) = (namespace(), version.shared().url());
        let notes = std::env::temp_dir().join(format!("{namespace}-crashes"));
        for seed in 0..CRASHES {
            let task = format!("{url} {namespace} {} {seed}", notes.display());
            let child = Command::new(std::env::current_exe().expect("this test"))
                .args(["--exact", "charge_crashes::worker", "--nocapture"])
                .env("SLUICEGATE_CRASH_WORKER", task)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let mut process = Process(child.expect("a process"));
            assert!(!process.0.wait().expect("it ends").success(), "it crashes");
        }
        let text = std::fs::read_to_string(&notes).expect("notes");
        std::fs::remove_file(&notes).expect("removed");
        let mut states = std::collections::HashMap::new();
        for line in text.lines() {
            let [state, id, cost, actual] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let number = |text: &str| text.parse::<u64>().expect("a number");
            states.insert(id, (state, number(cost), number(actual)));
        }
        // The least and the most that each may have come to.
        let (least, most) = states.values().fold((0, 0), |(least, most), (state, cost, actual)| match *state {
            "asks" => (least, most + cost),
            "charged" => (least + cost, most + cost),
            "settles" => (least + cost.min(actual), most + cost.max(actual)),
            _ => (least + actual, most + actual),
        });
        let certain = states.values().filter(|(state, ..)| matches!(*state, "charged" | "settled")).count();
        assert!(certain > 100 && certain < states.len(), "{certain} of {} are certain", states.len());
        let limiter = limiter(&url, &namespace);
        let decision = runtime.block_on(limiter.peek(call(1)));
        for standing in decision.standings() {
            let used = CAPACITY - standing.remaining();
            assert!((least..=most).contains(&used), "{version:?} {}: {least} <= {used} <= {most}", standing.rule());
        }
    }
}
