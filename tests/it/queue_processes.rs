//! Several processes wait in one line: no two have the same slot, and each of them is in the order of its decisions.

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use sluicegate::{Clock, Limiter, ManualClock, Quota, Rule, key};

use crate::support::{
    server::VERSIONS,
    stores::{BEGIN, namespace, patient},
};

const PROCESSES: u64 = 4;
const SLOTS: u64 = 500;

/// Not a test by itself: the process that the test below starts, told what to do by its environment.
#[test]
fn worker() {
    let Ok(task) = std::env::var("SLUICEGATE_QUEUE_WORKER") else { return };
    let [url, namespace, out] = task.split(' ').collect::<Vec<_>>()[..] else { panic!("{task}") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    // Time stands still, so that the wait tells the slot.
    let clock = Clock::manual(ManualClock::new(BEGIN));
    let queue = Rule::leaky_bucket("q", Quota::per_second(10)).queue(Duration::from_secs(3_600), 10_000);
    let builder = Limiter::builder(patient(url)).namespace(namespace).clock(clock);
    let limiter = builder.rule(queue.key(key::given())).build().expect("sound");
    let waits = runtime.block_on(async {
        let mut waits = Vec::new();
        for _ in 0..SLOTS {
            let decision = limiter.acquire([("q", "one")]).await;
            assert!(decision.failure().is_none() && decision.is_allowed(), "{decision:?}");
            waits.push(decision.delay().unwrap_or_default().as_micros().to_string());
        }
        waits
    });
    std::fs::write(out, waits.join(" ")).expect("written");
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
fn four_processes_stand_in_one_line() {
    for version in VERSIONS {
        let namespace = namespace();
        let folder = std::env::temp_dir().join(&namespace);
        std::fs::create_dir_all(&folder).expect("a folder");
        let workers: Vec<_> = (0..PROCESSES)
            .map(|worker| {
                let out = folder.join(worker.to_string());
                let task = format!("{} {namespace} {}", version.shared().url(), out.display());
                let child = Command::new(std::env::current_exe().expect("this test"))
                    .args(["--exact", "queue_processes::worker", "--nocapture"])
                    .env("SLUICEGATE_QUEUE_WORKER", task)
                    .stdout(Stdio::null())
                    .spawn();
                (Process(child.expect("a process")), out)
            })
            .collect();
        let mut all = Vec::new();
        for (mut process, out) in workers {
            assert!(process.0.wait().expect("it ends").success());
            let text = std::fs::read_to_string(out).expect("its waits");
            let waits: Vec<u64> = text.split(' ').map(|wait| wait.parse().expect("a number")).collect();
            assert!(waits.is_sorted(), "{version:?}: one after the other");
            all.extend(waits);
        }
        std::fs::remove_dir_all(folder).expect("removed");
        all.sort_unstable();
        let slots: Vec<u64> = (0..PROCESSES * SLOTS).map(|place| place * 100_000).collect();
        assert_eq!(all, slots, "{version:?}");
    }
}
