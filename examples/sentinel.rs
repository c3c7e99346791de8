//! Limits on a primary that Sentinels watch over, and what a failover looks like from here.
//!
//! ```console
//! $ cargo run --example sentinel -- mymaster redis://10.0.0.1:26379 redis://10.0.0.2:26379
//! $ cargo run --example sentinel
//! ```
//!
//! The second needs `redis-server` or `valkey-server` on the path: it starts a primary, a replica and three Sentinels on free
//! loopback ports, ends the primary after a while, and ends all of them with itself.
#![allow(clippy::print_stdout)]

use std::{
    error::Error,
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use sluicegate::{Limiter, Observer, Quota, RedisStore, Rule, StoreEvent, key};

/// Prints what happens to the store.
struct Printer(Instant);

impl Observer for Printer {
    fn store(&self, event: &StoreEvent) {
        let what = match event {
            StoreEvent::Connected => "connected to the primary".into(),
            StoreEvent::ConnectFailed(error) => format!("no primary: {error}"),
            StoreEvent::Disconnected(error) => format!("gave up the connection: {error}"),
            _ => return,
        };
        println!("{:6.2} s  {what}", self.0.elapsed().as_secs_f32());
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "mymaster".into());
    let mut urls: Vec<String> = arguments.collect();
    let mut servers = Servers::default();
    if urls.is_empty() {
        println!("no Sentinels given: starting a primary, a replica and three Sentinels");
        urls = servers.start()?;
    }

    // Bare, without a circuit breaker: every request shows what the store makes of it.
    let store = RedisStore::builder(urls).sentinel(name).deadline(Duration::from_millis(50)).bare().build()?;
    let limiter = Limiter::builder(store)
        .namespace("sentinel-example")
        .rule(Rule::gcra("mails", Quota::per_minute(600_000).burst(1_000)).key(key::given()))
        .observer(Printer(Instant::now()))
        .build()?;

    let begin = Instant::now();
    let mut unsure = None;
    for tick in 0..1_500 {
        if tick == 400 && servers.end_primary() {
            println!("{:6.2} s  the primary is ended", begin.elapsed().as_secs_f32());
        }
        let decision = limiter.acquire([("mails", "somebody@example.com")]).await;
        match (decision.failure(), unsure) {
            (Some(error), None) => {
                println!("{:6.2} s  decisions without the store: {error}", begin.elapsed().as_secs_f32());
                unsure = Some(Instant::now());
            }
            (None, Some(since)) => {
                println!("{:6.2} s  counted again, after {:?}", begin.elapsed().as_secs_f32(), since.elapsed());
                unsure = None;
            }
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Servers that end with the program; the first is the primary.
#[derive(Default)]
struct Servers {
    children: Vec<Child>,
    folder: PathBuf,
}

impl Servers {
    /// Starts them and says where the Sentinels are.
    fn start(&mut self) -> Result<Vec<String>, Box<dyn Error>> {
        self.folder = std::env::temp_dir().join(format!("sluicegate-sentinel-{}", std::process::id()));
        std::fs::create_dir_all(&self.folder)?;
        let primary = free_port()?.to_string();
        let server = ["--save", "", "--repl-diskless-sync-delay", "0", "--port"];
        self.run(&[&server[..], &[&primary]].concat())?;
        let replica = free_port()?.to_string();
        self.run(&[&server[..], &[&replica, "--replicaof", "127.0.0.1", &primary]].concat())?;
        // Sentinels look at a primary's replicas every ten seconds; the first look is to find one.
        std::thread::sleep(Duration::from_secs(1));
        let mut urls = Vec::new();
        for number in 1..=3 {
            let (port, file) = (free_port()?, self.folder.join(format!("sentinel-{number}.conf")));
            let text = format!(
                "port {port}\nsentinel monitor mymaster 127.0.0.1 {primary} 2\n\
                 sentinel down-after-milliseconds mymaster 1000\n"
            );
            std::fs::write(&file, text)?;
            self.run(&[&file.to_string_lossy(), "--sentinel"])?;
            urls.push(format!("redis://127.0.0.1:{port}"));
        }
        Ok(urls)
    }

    fn run(&mut self, arguments: &[&str]) -> Result<(), Box<dyn Error>> {
        for binary in ["redis-server", "valkey-server"] {
            let mut command = Command::new(binary);
            command.args(arguments).args(["--bind", "127.0.0.1"]).arg("--dir").arg(&self.folder);
            if let Ok(child) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
                self.children.push(child);
                return Ok(());
            }
        }
        Err("neither redis-server nor valkey-server is on the path; give the name and the URLs of Sentinels".into())
    }

    fn end_primary(&mut self) -> bool {
        self.children.first_mut().is_some_and(|primary| primary.kill().is_ok())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.children {
            let _ = server.kill().and_then(|()| server.wait().map(|_| ()));
        }
        if !self.children.is_empty() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
