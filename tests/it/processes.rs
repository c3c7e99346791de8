//! Several processes on one server: what they admit together is the capacity, exactly.

use std::process::{Command, Stdio};

use sluicegate::{Limiter, Quota, RedisStore, Rule, key};

use crate::support::{
    load::soak,
    server::{VERSIONS, Version},
    stores::{namespace, patient},
};

const CAPACITY: u64 = 10_000;
const PROCESSES: u64 = 4;
const DECISIONS: u64 = 1_000_000;

/// Quotas that give nothing back while the test runs.
fn rules() -> Vec<Rule> {
    let quota = Quota::per(CAPACITY, std::time::Duration::from_secs(366 * 86_400));
    vec![
        Rule::fixed_window("fixed", quota).from_first_request().key(key::given()),
        Rule::sliding_log("log", quota).key(key::given()),
        Rule::sliding_counter("counter", quota).key(key::given()),
        // A unit comes back in an hour.
        Rule::token_bucket("bucket", Quota::per_hour(1).burst(CAPACITY)).key(key::given()),
        Rule::gcra("gcra", Quota::per_hour(1).burst(CAPACITY)).key(key::given()),
        Rule::leaky_bucket("leaky", Quota::per_hour(1).burst(CAPACITY)).key(key::given()),
    ]
}

fn limiter(store: RedisStore, namespace: &str, rule: &str) -> Limiter {
    let rule = rules().into_iter().find(|candidate| candidate.name() == rule).expect("a rule");
    Limiter::builder(store).namespace(namespace).rule(rule).build().expect("sound")
}

/// Not a test by itself: the process that `together` starts, told what to do by its environment.
#[test]
fn worker() {
    let Ok(task) = std::env::var("SLUICEGATE_WORKER") else { return };
    let [url, namespace, rule, decisions] = task.split(' ').collect::<Vec<_>>()[..] else { panic!("{task}") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let limiter = limiter(patient(url), namespace, rule);
    let decisions: u64 = decisions.parse().expect("a number");
    let admitted = runtime.block_on(async {
        let callers: Vec<_> = (0..64u64)
            .map(|caller| {
                let (limiter, rule) = (limiter.clone(), rule.to_owned());
                let share = decisions / 64 + u64::from(caller < decisions % 64);
                tokio::spawn(async move {
                    let mut admitted = 0u64;
                    for _ in 0..share {
                        let decision = limiter.acquire([(&*rule, "one")]).await;
                        assert!(decision.failure().is_none(), "{:?}", decision.failure());
                        admitted += u64::from(decision.is_allowed());
                    }
                    admitted
                })
            })
            .collect();
        let mut admitted = 0;
        for caller in callers {
            admitted += caller.await.expect("no panic");
        }
        admitted
    });
    std::fs::write(std::env::var("SLUICEGATE_WORKER_OUT").expect("a file"), admitted.to_string()).expect("written");
}

/// Starts the processes and adds up what they admitted.
fn together(version: Version, rule: &str, decisions: u64) -> u64 {
    let namespace = namespace();
    let folder = std::env::temp_dir().join(&namespace);
    std::fs::create_dir_all(&folder).expect("a folder");
    let task = format!("{} {namespace} {rule} {}", version.shared().url(), decisions / PROCESSES);
    let workers: Vec<_> = (0..PROCESSES)
        .map(|worker| {
            let out = folder.join(worker.to_string());
            let child = Command::new(std::env::current_exe().expect("this test"))
                .args(["--exact", "processes::worker", "--nocapture"])
                .env("SLUICEGATE_WORKER", &task)
                .env("SLUICEGATE_WORKER_OUT", &out)
                .stdout(Stdio::null())
                .spawn()
                .expect("a process");
            (child, out)
        })
        .collect();
    let admitted = workers.into_iter().map(|(mut child, out)| {
        assert!(child.wait().expect("it ends").success());
        std::fs::read_to_string(out).expect("its count").parse::<u64>().expect("a number")
    });
    let admitted = admitted.sum();
    std::fs::remove_dir_all(folder).expect("removed");
    admitted
}

#[test]
fn four_processes_and_a_million_decisions_admit_exactly_the_capacity() {
    assert_eq!(together(Version::Redis7, "gcra", DECISIONS), CAPACITY);
}

#[test]
fn every_algorithm_on_every_server_admits_exactly_the_capacity() {
    for version in VERSIONS {
        // The long form has as many for each algorithm as the test above has for one.
        let decisions = if soak() && version == Version::Redis7 { DECISIONS } else { 16_000 };
        for rule in rules() {
            assert_eq!(together(version, rule.name(), decisions), CAPACITY, "{version:?} {}", rule.name());
        }
    }
}
