//! A reverse proxy with limits as data: what operators try limits with, without writing Rust.
//!
//! ```sh
//! cargo run --example gateway -- --config examples/gateway.toml                                   # answers by itself
//! cargo run --example gateway -- --config examples/gateway.toml --upstream http://127.0.0.1:3000  # in front of a service
//! cargo run --example gateway -- --help
//! ```
//!
//! It follows the policy file: a change holds within a second or two, one with a mistake changes nothing and is shown at `/-/policy`. Start
//! several with `--redis` and the same `--namespace`, and they count together.
//!
//! It is small enough to read and to make one's own: `proxy.rs` has all that is about HTTP between two sides, `facts.rs` what only a gateway
//! asks of a policy.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod admin;
mod args;
mod echo;
mod facts;
mod fields;
mod health;
mod pretty;
mod progress;
mod proxy;
mod serve;
mod signals;
mod tunnel;

use std::{convert::Infallible, env, error::Error, process::ExitCode};

use args::{Args, Counts, Wanted};
use axum::body::Body;
use facts::{Facts, GatewayFile};
use health::Health;
use http::{Request, Response};
use hyper::body::Incoming;
use proxy::Proxy;
use sluicegate::{Limiter, LimiterBuilder, MemoryStore, RateLimitLayer, RedisStore, Resilient, policy::PolicySource};
use tokio::net::TcpListener;
use tower::ServiceBuilder;
use tunnel::Tunnels;

#[tokio::main]
async fn main() -> ExitCode {
    ExitCode::from(run(env::args().skip(1)).await)
}

/// What the process ends with: 0, 1 for what went wrong, 2 for arguments that cannot be meant.
pub async fn run(arguments: impl IntoIterator<Item = String>) -> u8 {
    let args = match Args::parse(arguments) {
        Ok(Wanted::Help) => {
            print!("{}", args::HELP);
            return 0;
        }
        Ok(Wanted::Run(args)) => args,
        Err(wrong) => {
            eprintln!("gateway: {wrong}\n\n--help explains all arguments");
            return 2;
        }
    };
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match gateway(*args).await {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("gateway: {error}");
            1
        }
    }
}

async fn gateway(args: Args) -> Result<(), Box<dyn Error>> {
    let source = GatewayFile::new(&args.config);
    let health = Health::default();
    let limiter =
        limiter(&args)?.namespace(&args.namespace).policy(source.load().await?).observer(health.clone()).build()?;
    let following = limiter.follow(source);
    let facts = Facts::of(&limiter);

    let listening = |name: &str, address: &str, error| format!("{name} {address}: {error}");
    let public = TcpListener::bind(&args.listen).await.map_err(|error| listening("--listen", &args.listen, error))?;
    let private = TcpListener::bind(&args.admin).await.map_err(|error| listening("--admin", &args.admin, error))?;
    greet(&args, &public, &private)?;

    let signals = signals::Signals::new()?;
    let (tunnels, mut all_tunnels) = Tunnels::new();
    let proxy = args.upstream.map(|upstream| Proxy::new(upstream, args.timeout, facts.clone(), tunnels));
    let answer = move |request: Request<Incoming>| {
        let (proxy, facts) = (proxy.clone(), facts.clone());
        async move {
            Ok::<Response<Body>, Infallible>(match proxy {
                Some(proxy) => proxy.forward(request).await,
                None => echo::echo(&request, &facts.now()),
            })
        }
    };
    let service = ServiceBuilder::new().layer(RateLimitLayer::new(limiter.clone())).service_fn(answer);

    let admin = tokio::spawn(axum::serve(private, admin::router(&limiter, &health, &args.config)).into_future());
    // Whoever asks for its health learns of the end before clients are turned away.
    let told = async {
        signals.stop().await;
        health.drain();
    };
    let running = serve::until(public, service, told).await;
    let drained = async {
        running.shutdown().await;
        all_tunnels.gone().await;
    };
    // Whoever asks twice does not want to wait.
    tokio::select! {
        () = drained => tracing::info!("all that ran has ended"),
        () = tokio::time::sleep(args.drain) => tracing::warn!("what still runs after {:?} is cut off", args.drain),
        () = signals.stop() => tracing::warn!("told to stop twice: what still runs is cut off"),
    }
    drop(following);
    // Costs that became known last are on their way to the store.
    let _ = tokio::time::timeout(args.drain, limiter.settled()).await;
    admin.abort();
    Ok(())
}

/// Where it counts.
fn limiter(args: &Args) -> Result<LimiterBuilder, Box<dyn Error>> {
    let store = match &args.counts {
        Counts::Memory => return Ok(Limiter::builder(MemoryStore::new())),
        Counts::Redis(url) => RedisStore::builder(url.as_str()),
        Counts::Cluster(urls) => RedisStore::builder(urls.clone()).cluster(),
    };
    let store = store.deadline(args.deadline).build()?;
    Ok(Limiter::builder(Resilient::new(store).instances(args.instances)))
}

fn greet(args: &Args, public: &TcpListener, private: &TcpListener) -> Result<(), Box<dyn Error>> {
    let (public, private) = (public.local_addr()?, private.local_addr()?);
    let to = args.upstream.as_ref().map_or("itself: there is no --upstream".into(), ToString::to_string);
    println!("limits   {}, counted {}", args.config.display(), args.counts);
    println!("gateway  http://{public}/ to {to}");
    println!("admin    http://{private}/-/policy  /-/usage  /-/healthz");
    if !private.ip().is_loopback() {
        println!("         is not on the loopback interface: whoever reaches it can read the policy");
    }
    println!("\n  curl -i http://{public}/");
    println!("  for i in $(seq 15); do curl -s -o /dev/null -w '%{{http_code}} ' http://{public}/; done; echo");
    println!("  curl http://{private}/-/policy\n");
    Ok(())
}
