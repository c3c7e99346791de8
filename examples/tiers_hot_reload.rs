//! Limits in a file, by tier and by customer, that change while requests run: what clients see of it.
//!
//! `cargo run --example tiers_hot_reload` writes a policy into a temporary folder, serves an app that follows it, asks, changes the file,
//! and asks again. Keep it running with `KEEP=1` to change the file by hand.
#![allow(clippy::print_stdout)]

use std::{
    env,
    error::Error,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use axum::{Router, routing::get};
use reqwest::Client;
use sluicegate::{
    Limiter, MemoryStore, RateLimitLayer,
    policy::{PolicyFile, PolicySource},
};
use tokio::net::TcpListener;

const POLICY: &str = r#"
[tier]
by = "header:x-plan"               # whoever authenticates callers sets it
default = "free"

[customer]
by = "header:x-customer"

[[rules]]
name = "per-customer"
algorithm = "fixed_window"
quota = "10/d"
key = "header:x-customer"

[tiers.free]

[tiers.pro]
per-customer = "100/d"
"#;

/// A folder that goes with the example.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An editor would write it so too: whole or not at all.
fn write(file: &Path, text: &str) -> Result<(), std::io::Error> {
    let new = file.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, file)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = Folder(env::temp_dir().join(format!("tiers_hot_reload-{}", process::id())));
    fs::create_dir_all(&folder.0)?;
    let file = folder.0.join("limits.toml");
    write(&file, POLICY)?;

    let source = PolicyFile::new(&file);
    let limiter = Limiter::builder(MemoryStore::new()).policy(source.load().await?).build()?;
    let _following = limiter.follow(source);
    let app = Router::new().route("/", get(|| async { "hello\n" })).layer(RateLimitLayer::new(limiter.clone()));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(axum::serve(listener, app).into_future());

    println!("{} says: free 10 a day, pro 100\n", file.display());
    ask(address, "ada", "free", 3).await?;
    ask(address, "grace", "pro", 3).await?;

    println!("\nfree is raised to 20: ada keeps the 3 that she spent, and has 10 more");
    let raised = POLICY.replace("10/d", "20/d");
    change(&limiter, &file, &raised, 2).await?;
    ask(address, "ada", "free", 1).await?;

    println!("\nfree is lowered to 5: of those, ada has spent 4");
    let lowered = POLICY.replace("10/d", "5/d");
    change(&limiter, &file, &lowered, 3).await?;
    ask(address, "ada", "free", 2).await?;

    println!("\nada signs a contract: an override, whatever her plan");
    let contract = format!("{lowered}\n[overrides.ada]\nrules.per-customer = \"1000/d\"\n");
    change(&limiter, &file, &contract, 4).await?;
    ask(address, "ada", "free", 1).await?;
    ask(address, "bob", "free", 1).await?;

    println!("\nsomebody saves a mistake: the last good policy stays, and the mistake is shown\n");
    write(&file, &contract.replace("\"100/d\"", "\"100/fortnight\""))?;
    let refused = until(|| limiter.policy_status()?.refused().map(str::to_owned)).await;
    println!("{refused}");
    ask(address, "ada", "free", 1).await?;

    if env::var("KEEP").is_ok() {
        println!("\nedit {} and try: curl -i -H 'x-customer: ada' http://{address}/", file.display());
        tokio::signal::ctrl_c().await?;
    }
    serving.abort();
    Ok(())
}

/// Writes the file and waits for it to hold.
async fn change(limiter: &Limiter, file: &Path, text: &str, version: u64) -> Result<(), Box<dyn Error>> {
    write(file, text)?;
    until(|| limiter.policy_status().filter(|status| status.version() == version)).await;
    Ok(())
}

/// For this example to go on when something has happened; an application has nothing to wait for.
async fn until<T>(happened: impl Fn() -> Option<T>) -> T {
    loop {
        if let Some(value) = happened() {
            return value;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn ask(address: SocketAddr, customer: &str, plan: &str, times: u32) -> Result<(), Box<dyn Error>> {
    for _ in 0..times {
        let request = Client::new().get(format!("http://{address}/"));
        let response = request.header("x-customer", customer).header("x-plan", plan).send().await?;
        let field = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("-");
        let (limit, remaining) = (field("x-ratelimit-limit"), field("x-ratelimit-remaining"));
        println!("  {customer:<6} {plan:<5} {}  {remaining} of {limit} left", response.status().as_u16());
    }
    Ok(())
}
