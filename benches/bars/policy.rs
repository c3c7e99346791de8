//! What limits as data add to a request, and what a reload costs.

use std::{
    future::{Future, Ready, ready},
    hint::black_box,
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use ::http::{Request, Response};
use http_body_util::Empty;
use sluicegate::{Headers, Limiter, MemoryStore, RateLimitLayer, policy::Policy};
use tower::{Layer, Service, service_fn};

use crate::{
    report::{Bar, Pair, ROUNDS, Table},
    stall::stalled,
    watch,
};

const REQUESTS: usize = 50_000;

pub fn run(table: &mut Table) {
    resolve(table);
    reload(table);
}

/// Fifty rules of which three apply, ten tiers, and a customer with an override: against the three rules as the customer has them,
/// with nothing to resolve.
fn resolve(table: &mut Table) {
    let whole = limiter(&fifty());
    let three = limiter(&(0..3).map(|number| rule(number, 900_000)).collect::<String>());
    let (mut resolved, mut plain) = (service(&whole), service(&three));
    let [mut with, mut without] = <[Vec<f64>; 2]>::default();
    for _ in 0..ROUNDS {
        with.push(nanos(&mut resolved));
        without.push(nanos(&mut plain));
    }
    let pair = Pair { ours: &with, reference: &without, unit: "ns" };
    table.difference("policy: 50 rules, 10 tiers, an override: resolved for a request", pair, Bar::AtMost(1_000.0));
}

/// Ten thousand rules, read, checked and put in place while requests are served by another thread.
fn reload(table: &mut Table) {
    let text = |quota: u64| (0..10_000).map(|number| far(number, quota)).collect::<String>();
    let texts = [text(1_000), text(2_000)];
    watch::begin();
    let limiter = limiter(&texts[0]);
    let (over, changing) = (AtomicBool::new(false), AtomicBool::new(false));
    let [mut took, mut parsed] = <[Vec<f64>; 2]>::default();
    let pauses = thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let mut service = service(&limiter);
            let [mut meanwhile, mut otherwise] = <[Vec<Pause>; 2]>::default();
            while !over.load(Ordering::Relaxed) {
                let (during, before) = (changing.load(Ordering::Relaxed), stalled());
                let began = Instant::now();
                ask(&mut service);
                let took = began.elapsed();
                let pauses = if during { &mut meanwhile } else { &mut otherwise };
                pauses.push(Pause { began, took, stalled: stalled() - before });
                thread::sleep(Duration::from_micros(50));
            }
            (meanwhile, otherwise)
        });
        for round in 0..10 {
            thread::sleep(Duration::from_millis(100));
            let began = Instant::now();
            drop(black_box(toml::de::DeTable::parse(&texts[round % 2]).expect("TOML")));
            parsed.push(began.elapsed().as_secs_f64() * 1_000.0);
            changing.store(true, Ordering::Relaxed);
            let began = Instant::now();
            let policy = Policy::from_toml(&texts[(round + 1) % 2]).expect("a sound policy");
            limiter.set_policy(policy).expect("a sound policy");
            took.push(began.elapsed().as_secs_f64() * 1_000.0);
            changing.store(false, Ordering::Relaxed);
        }
        over.store(true, Ordering::Relaxed);
        serving.join().expect("no panic")
    });
    let ended = Instant::now();
    let none = vec![0.0; took.len()];
    let pair = Pair { ours: &took, reference: &none, unit: "ms" };
    table.difference("policy: a reload of 10,000 rules", pair, Bar::AtMost(100.0));
    // How fast the machine is just now, for what it is held to in milliseconds.
    let pair = Pair { ours: &took, reference: &parsed, unit: "ms" };
    table.ratio("policy: a reload / parsing its text with the toml crate alone", pair, Bar::None);
    while watch::seen() < ended {
        thread::sleep(Duration::from_millis(1));
    }
    let [meanwhile, otherwise] = [&pauses.0, &pauses.1].map(|pauses| worst(pauses, Pause::millis));
    let pair = Pair { ours: &[meanwhile.0], reference: &[otherwise.0], unit: "ms" };
    table.difference("policy: pause of a request meanwhile, 99.9th percentile", pair, Bar::AtMost(1.0));
    let pair = Pair { ours: &[meanwhile.1], reference: &[0.0], unit: "ms" };
    table.difference("policy: pause of a request meanwhile, the longest", pair, Bar::AtMost(1.0));
    // A machine that is shared takes its processors away for milliseconds, with a reload and without: what that comes to.
    let pair = Pair { ours: &[otherwise.1], reference: &[0.0], unit: "ms" };
    table.difference("policy: the longest pause without a reload", pair, Bar::None);
    let [meanwhile, otherwise] = [&pauses.0, &pauses.1].map(|pauses| worst(pauses, Pause::own_millis).1);
    let pair = Pair { ours: &[meanwhile], reference: &[otherwise], unit: "ms" };
    table.difference("policy: the same two, but for stalls of the machine and waits for a core", pair, Bar::None);
}

/// What one in a thousand exceed, and the longest.
fn worst(pauses: &[Pause], of: fn(&Pause) -> f64) -> (f64, f64) {
    let mut millis: Vec<f64> = pauses.iter().map(of).collect();
    millis.sort_by(f64::total_cmp);
    let place = (millis.len() * 999 / 1_000).min(millis.len().saturating_sub(1));
    (millis.get(place).copied().unwrap_or(0.0), millis.last().copied().unwrap_or(0.0))
}

/// What a request took.
struct Pause {
    began: Instant,
    took: Duration,
    /// For how long the thread was kept from running, by others or by the machine.
    stalled: Duration,
}

impl Pause {
    fn millis(&self) -> f64 {
        self.took.as_secs_f64() * 1_000.0
    }

    /// But for the time in which the machine was away.
    fn own_millis(&self) -> f64 {
        let slept = watch::slept(self.began, self.began + self.took);
        self.took.saturating_sub(self.stalled + slept).as_secs_f64() * 1_000.0
    }
}

/// Rules of one window for the same requests would be superfluous.
fn quota(number: u64, amount: u64) -> String {
    format!("{amount}/{}s", number % 3 + 1)
}

fn rule(number: u64, amount: u64) -> String {
    let quota = quota(number, amount);
    format!(
        "[[rules]]\nname = \"rule-{number}\"\nalgorithm = \"gcra\"\nquota = {quota:?}\nkey = \"header:x-customer\"\n"
    )
}

fn far(number: u64, amount: u64) -> String {
    format!("{}paths = [\"/v1/{number}/{{id}}\"]\nmethods = [\"GET\", \"POST\"]\n", rule(number, amount))
}

/// Three rules for every path, the others for paths of their own.
fn fifty() -> String {
    let rules = (0..50).map(|number| if number < 3 { rule(number, 100) } else { far(number, 100) });
    let change = |number: u64, amount: u64| format!("rule-{number} = {:?}\n", quota(number, amount));
    let tiers = (0..10).map(|tier| format!("[tiers.tier-{tier}]\n{}{}", change(0, 100 + tier), change(1, 200)));
    let own = (0..3).map(|number| change(number, 900_000)).collect::<String>();
    let own = format!("[overrides.acme.rules]\n{own}");
    let by = "[customer]\nby = \"header:x-customer\"\n[tier]\nby = \"header:x-tier\"\ndefault = \"tier-0\"\n";
    format!("{by}{}{}{own}", rules.collect::<String>(), tiers.collect::<String>())
}

fn limiter(text: &str) -> Limiter {
    let policy = Policy::from_toml(text).unwrap_or_else(|error| panic!("{error}"));
    Limiter::builder(MemoryStore::new()).policy(policy).build().expect("a sound policy")
}

type Answer = Ready<Result<Response<Empty<&'static [u8]>>, std::convert::Infallible>>;

fn service(limiter: &Limiter) -> impl Service<Request<()>, Response: Sized, Error = std::convert::Infallible> {
    let answer = |_: Request<()>| -> Answer { ready(Ok(Response::new(Empty::new()))) };
    RateLimitLayer::new(limiter.clone()).headers(Headers::none()).layer(service_fn(answer))
}

/// One request, answered without waiting.
fn ask(service: &mut impl Service<Request<()>, Error = std::convert::Infallible>) {
    let request = Request::builder().uri("/v1/charges/7").header("x-customer", "acme").header("x-tier", "tier-7");
    let future = pin!(service.call(request.body(()).expect("a request")));
    let mut context = Context::from_waker(Waker::noop());
    match future.poll(&mut context) {
        Poll::Ready(Ok(response)) => drop(black_box(response)),
        Poll::Ready(Err(never)) => match never {},
        Poll::Pending => panic!("memory answers at once"),
    }
}

fn nanos(service: &mut impl Service<Request<()>, Error = std::convert::Infallible>) -> f64 {
    let began = Instant::now();
    (0..REQUESTS).for_each(|_| ask(service));
    began.elapsed().as_nanos() as f64 / REQUESTS as f64
}
