//! Several processes and one key: never more at work than there are places, and what a killed one held comes back by time.

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use sluicegate::{Limiter, Rule, key};

use crate::{
    leases::until_free,
    support::{
        server::Version,
        stores::{namespace, patient},
    },
};

const LIMIT: u64 = 8;
const PROCESSES: usize = 4;
const LEASE: Duration = Duration::from_millis(1_500);

fn limiter(url: &str, namespace: &str) -> Limiter {
    let rule = Rule::concurrency("c", LIMIT).lease(LEASE).key(key::given());
    Limiter::builder(patient(url)).namespace(namespace).rule(rule).build().expect("sound")
}

/// Counts one more at work in this process, and answers how many are in all of them together.
const BEGIN: &str = "redis.call('INCR', KEYS[tonumber(ARGV[1])]) local all = 0 for _, key in ipairs(KEYS) do all = all + (redis.call('GET', key) or 0) end return all";

fn counters(namespace: &str) -> Vec<String> {
    (0..PROCESSES).map(|process| format!("{namespace}:at-work:{process}")).collect()
}

/// Not a test by itself: the processes that the one below starts. The first takes three places and keeps them; the others take one
/// after the other until they are told to stop.
#[test]
fn worker() {
    let Ok(task) = std::env::var("SLUICEGATE_LEASE_WORKER") else { return };
    let [url, namespace, process] = task.split(' ').collect::<Vec<_>>()[..] else { panic!("{task}") };
    let process: usize = process.parse().expect("a number");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let limiter = limiter(url, namespace);
        let client = redis::Client::open(url).expect("an address");
        let connection = client.get_multiplexed_async_connection().await.expect("a connection");
        let begin = redis::Script::new(BEGIN);
        let callers: Vec<_> = (0..if process == 0 { 3 } else { 6 })
            .map(|_| {
                let (limiter, mut connection, begin) = (limiter.clone(), connection.clone(), begin.clone());
                let (counters, stop) = (counters(namespace), format!("{namespace}:stop"));
                tokio::spawn(async move {
                    loop {
                        let held = limiter.acquire([("c", "one")]).await;
                        assert!(held.failure().is_none(), "{:?}", held.failure());
                        if held.is_allowed() {
                            let mut call = begin.prepare_invoke();
                            for counter in &counters {
                                call.key(counter);
                            }
                            let all: u64 = call.arg(process + 1).invoke_async(&mut connection).await.expect("a count");
                            assert!(all <= LIMIT, "{all} are at work");
                            if process == 0 {
                                std::future::pending::<()>().await;
                            }
                            let mut done = redis::cmd("DECR");
                            done.arg(&counters[process]);
                            let _: i64 = done.query_async(&mut connection).await.expect("a count");
                        }
                        drop(held);
                        let stopped: bool =
                            redis::cmd("EXISTS").arg(&stop).query_async(&mut connection).await.expect("an answer");
                        if stopped {
                            return;
                        }
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.await.expect("no panic");
        }
        // Releases go out off the path; a process that ends before leaves its places to time.
        let mut last = limiter.peek([("c", "one")]).await.standing("c").expect("it applies").remaining();
        while last < LIMIT - 3 {
            last = limiter.peek([("c", "one")]).await.standing("c").expect("it applies").remaining();
        }
    });
}

/// Ends with the test, however that ends.
struct Process(Child);

impl Process {
    fn is_running(&mut self) -> bool {
        self.0.try_wait().expect("its state").is_none()
    }

    fn kill(&mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(url: &str, namespace: &str, process: usize) -> Process {
    let child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "lease_processes::worker", "--nocapture"])
        .env("SLUICEGATE_LEASE_WORKER", format!("{url} {namespace} {process}"))
        .stdout(Stdio::null())
        .spawn();
    Process(child.expect("a process"))
}

#[tokio::test]
async fn four_processes_never_hold_too_many_and_a_killed_one_frees_its_places_within_the_lease() {
    let (url, namespace) = (Version::Redis7.shared().url(), namespace());
    let mut connection = redis::Client::open(&*url).expect("an address").get_connection().expect("a connection");
    let mut children: Vec<Process> = (0..PROCESSES).map(|process| start(&url, &namespace, process)).collect();
    let counters = counters(&namespace);
    let at_work = |connection: &mut redis::Connection, counter: &str| -> u64 {
        redis::cmd("GET").arg(counter).query::<Option<u64>>(connection).expect("a count").unwrap_or(0)
    };
    let since = Instant::now();
    while at_work(&mut connection, &counters[0]) < 3 {
        assert!(since.elapsed() < Duration::from_secs(20), "the first process has no places");
    }
    // Longer than a lease, so that only those that were renewed are left.
    let since = Instant::now();
    let limiter = limiter(&url, &namespace);
    while since.elapsed() < LEASE * 3 / 2 {
        let free = limiter.peek([("c", "one")]).await.standing("c").expect("it applies").remaining();
        assert!(free <= LIMIT - 3, "{free} are free, though three are held for good");
        for child in &mut children {
            assert!(child.is_running(), "a process saw too many at work");
        }
    }
    let killed = Instant::now();
    children[0].kill();
    // It works no more; whoever takes its places is not one too many.
    let _: () = redis::cmd("DEL").arg(&counters[0]).query(&mut connection).expect("an answer");
    while killed.elapsed() < LEASE + LEASE / 3 {
        for child in &mut children[1..] {
            assert!(child.is_running(), "a process saw too many at work");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let _: () = redis::cmd("SET").arg(format!("{namespace}:stop")).arg(1).query(&mut connection).expect("an answer");
    for mut child in children.drain(1..) {
        assert!(child.0.wait().expect("it ends").success(), "a process saw too many at work");
    }
    until_free(&limiter, "c", "one", LIMIT).await;
}

/// Without others at work: to the lease time, from when the process died.
#[tokio::test]
async fn the_places_of_a_killed_process_are_free_in_time() {
    let (url, namespace) = (Version::Valkey9.shared().url(), namespace());
    let limiter = limiter(&url, &namespace);
    let mut child = start(&url, &namespace, 0);
    until_free(&limiter, "c", "one", LIMIT - 3).await;
    let killed = Instant::now();
    child.kill();
    until_free(&limiter, "c", "one", LIMIT).await;
    let took = killed.elapsed();
    assert!(took <= LEASE + Duration::from_millis(100), "{took:?}");
}
