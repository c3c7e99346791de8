//! Limits on a Cluster: rules whose keys fall to different nodes, and what one of them refusing does to the others.
//!
//! `cargo run --example cluster redis://10.0.0.1:6379 redis://10.0.0.2:6379` asks a Cluster that you have; any of its nodes
//! will do. Without addresses it starts three small servers of its own, if `redis-server` (7 or later) is installed.
#![allow(clippy::print_stdout)]

use std::{
    env,
    error::Error,
    fs,
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use sluicegate::{Call, Limiter, LimiterBuilder, Quota, RedisStore, Rule, key};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut seeds: Vec<String> = env::args().skip(1).collect();
    let mut servers = Servers::default();
    if seeds.is_empty() {
        println!("no addresses given: starting three servers, which takes some seconds");
        seeds = servers.start()?;
    }
    let store = RedisStore::builder(seeds).cluster().deadline(Duration::from_millis(500)).build()?;

    // A count for each user, wherever its name falls, and one for all, which falls elsewhere.
    let limiter = rules(Limiter::builder(store.clone()).namespace("example")).build()?;
    println!("\nalice may 3 times an hour, everybody together 100 times; two nodes are asked at once:");
    ask(&limiter).await;

    // The same in one slot: one call at one node, and nothing to give back.
    let limiter = rules(Limiter::builder(store).namespace("example")).same_slot().build()?;
    println!("\nthe same with .same_slot(), where one node judges both at one moment:");
    ask(&limiter).await;
    Ok(())
}

fn rules(builder: LimiterBuilder) -> LimiterBuilder {
    builder
        .rule(Rule::sliding_counter("per-user", Quota::per_hour(3)).key(key::given()))
        .rule(Rule::sliding_counter("everybody", Quota::per_hour(100)).key(key::given()))
}

async fn ask(limiter: &Limiter) {
    for turn in 1..=5 {
        let decision = limiter.acquire(Call::new().key("per-user", "alice").key("everybody", "all")).await;
        let left: Vec<String> =
            decision.standings().map(|rule| format!("{} has {} left", rule.rule(), rule.remaining())).collect();
        let verdict = if decision.is_allowed() { "allowed" } else { "refused" };
        match decision.failure() {
            Some(error) => println!("  {turn}: {verdict}, since the store failed: {error}"),
            None => println!("  {turn}: {verdict}, {}", left.join(", ")),
        }
    }
}

/// Three servers that end with the example.
#[derive(Default)]
struct Servers(Vec<(Child, PathBuf)>);

impl Servers {
    fn start(&mut self) -> Result<Vec<String>, Box<dyn Error>> {
        let mut ports: Vec<u16> = Vec::new();
        while ports.len() < 3 {
            // Nodes talk among themselves ten thousand ports higher.
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            if port < 55_000 && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok() {
                ports.push(port);
            }
        }
        for port in &ports {
            let file = env::temp_dir().join(format!("sluicegate-example-{port}.conf"));
            let server = Command::new("redis-server")
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--cluster-enabled", "yes"])
                .arg("--cluster-config-file")
                .arg(&file)
                .stdout(Stdio::null())
                .spawn()
                .map_err(|error| format!("redis-server does not start ({error}): give addresses of a Cluster"))?;
            self.0.push((server, file));
        }
        let urls: Vec<String> = ports.iter().map(|port| format!("redis://127.0.0.1:{port}")).collect();
        let mut nodes = Vec::new();
        for url in &urls {
            let client = redis::Client::open(url.as_str())?;
            while client.get_connection().is_err() {
                sleep(Duration::from_millis(20));
            }
            nodes.push(client.get_connection()?);
        }
        let ranges = [(0, 5_460), (5_461, 10_922), (10_923, 16_383)];
        for (place, (node, (first, last))) in nodes.iter_mut().zip(ranges).enumerate() {
            redis::cmd("CLUSTER").arg("SET-CONFIG-EPOCH").arg(place + 1).exec(node)?;
            redis::cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(first).arg(last).exec(node)?;
            for port in &ports {
                redis::cmd("CLUSTER").arg("MEET").arg("127.0.0.1").arg(port).exec(node)?;
            }
        }
        for node in &mut nodes {
            while !redis::cmd("CLUSTER").arg("INFO").query::<String>(node)?.contains("cluster_state:ok") {
                sleep(Duration::from_millis(50));
            }
        }
        Ok(urls)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for (server, file) in &mut self.0 {
            let _ = server.kill();
            let _ = server.wait();
            let _ = fs::remove_file(file);
        }
    }
}
