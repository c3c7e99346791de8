//! What limits as data add to a request, and what a reload costs.

use std::{
    convert::Infallible,
    future::{Future, Ready, ready},
    hint::black_box,
    pin::pin,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
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
const RELOADS: usize = 10;
const NONE: usize = usize::MAX;

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

/// Ten thousand rules, read, checked and put in place while requests are served by another thread: of this limiter, and in turn of one
/// with the same rules that stay. What befalls both is the machine's.
fn reload(table: &mut Table) {
    let text = |quota: u64| (0..10_000).map(|number| far(number, quota)).collect::<String>();
    let texts = [text(1_000), text(2_000)];
    watch::begin();
    let (changes, stays) = (limiter(&texts[0]), limiter(&texts[0]));
    // Which reload is under way.
    let (over, round) = (AtomicBool::new(false), AtomicUsize::new(NONE));
    let [mut took, mut parsed] = <[Vec<f64>; 2]>::default();
    let (ours, others) = thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let (mut changing, mut staying) = (service(&changes), service(&stays));
            let [mut ours, mut others] = <[Vec<Pause>; 2]>::default();
            while !over.load(Ordering::Relaxed) {
                ours.push(Pause::of(&mut changing, &round));
                others.push(Pause::of(&mut staying, &round));
                thread::sleep(Duration::from_micros(50));
            }
            (ours, others)
        });
        for reload in 0..RELOADS {
            thread::sleep(Duration::from_millis(100));
            let began = Instant::now();
            drop(black_box(toml::de::DeTable::parse(&texts[reload % 2]).expect("TOML")));
            parsed.push(began.elapsed().as_secs_f64() * 1_000.0);
            round.store(reload, Ordering::Relaxed);
            let began = Instant::now();
            let policy = Policy::from_toml(&texts[(reload + 1) % 2]).expect("a sound policy");
            changes.set_policy(policy).expect("a sound policy");
            took.push(began.elapsed().as_secs_f64() * 1_000.0);
            round.store(NONE, Ordering::Relaxed);
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
    let within = |pauses: &[Pause]| worst(pauses.iter().filter(|pause| pause.round != NONE).map(Pause::millis)).0;
    let pair = Pair { ours: &[within(&ours)], reference: &[within(&others)], unit: "ms" };
    table.difference("policy: pause of a request meanwhile, 99.9th percentile", pair, Bar::AtMost(1.0));
    let longest = |pauses: &[Pause], of: fn(&Pause) -> f64| -> Vec<f64> {
        let in_round = |round| worst(pauses.iter().filter(|pause| pause.round == round).map(of)).1;
        (0..RELOADS).map(in_round).collect()
    };
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    // A machine that is shared takes its processors away for milliseconds, whatever they do.
    let (mine, theirs) = (longest(&ours, Pause::millis), longest(&others, Pause::millis));
    let pair = Pair { ours: &mine, reference: &theirs, unit: "ms" };
    table.difference("policy: what a reload adds to the longest pause in its time", pair, Bar::AtMost(1.0));
    let pair = Pair { ours: &[most(&mine)], reference: &[0.0], unit: "ms" };
    table.difference("policy: the longest pause in all reloads", pair, Bar::AtMost(1.0));
    let pair = Pair { ours: &[most(&theirs)], reference: &[0.0], unit: "ms" };
    table.difference("policy: the same of the limiter whose rules stay", pair, Bar::None);
    let pair = Pair {
        ours: &[most(&longest(&ours, Pause::own_millis))],
        reference: &[most(&longest(&others, Pause::own_millis))],
        unit: "ms",
    };
    table.difference("policy: the same two, but for stalls of the machine and waits for a core", pair, Bar::None);
}

/// What one in a thousand exceed, and the longest.
fn worst(millis: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut millis: Vec<f64> = millis.collect();
    millis.sort_by(f64::total_cmp);
    let place = (millis.len() * 999 / 1_000).min(millis.len().saturating_sub(1));
    (millis.get(place).copied().unwrap_or(0.0), millis.last().copied().unwrap_or(0.0))
}

/// What a request took.
struct Pause {
    /// The reload that was under way, or none.
    round: usize,
    began: Instant,
    took: Duration,
    /// For how long the thread was kept from running, by others or by the machine.
    stalled: Duration,
}

impl Pause {
    fn of(service: &mut impl Service<Request<()>, Error = Infallible>, round: &AtomicUsize) -> Pause {
        let (round, before) = (round.load(Ordering::Relaxed), stalled());
        let began = Instant::now();
        ask(service, "/v1/77/7");
        let took = began.elapsed();
        Pause { round, began, took, stalled: stalled() - before }
    }

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

type Answer = Ready<Result<Response<Empty<&'static [u8]>>, Infallible>>;

fn service(limiter: &Limiter) -> impl Service<Request<()>, Response: Sized, Error = Infallible> {
    let answer = |_: Request<()>| -> Answer { ready(Ok(Response::new(Empty::new()))) };
    RateLimitLayer::new(limiter.clone()).headers(Headers::none()).layer(service_fn(answer))
}

/// One request, answered without waiting.
fn ask(service: &mut impl Service<Request<()>, Error = Infallible>, path: &str) {
    let request = Request::builder().uri(path).header("x-customer", "acme").header("x-tier", "tier-7");
    let future = pin!(service.call(request.body(()).expect("a request")));
    let mut context = Context::from_waker(Waker::noop());
    match future.poll(&mut context) {
        Poll::Ready(Ok(response)) => drop(black_box(response)),
        Poll::Ready(Err(never)) => match never {},
        Poll::Pending => panic!("memory answers at once"),
    }
}

fn nanos(service: &mut impl Service<Request<()>, Error = Infallible>) -> f64 {
    let began = Instant::now();
    (0..REQUESTS).for_each(|_| ask(service, "/v1/charges/7"));
    began.elapsed().as_nanos() as f64 / REQUESTS as f64
}
