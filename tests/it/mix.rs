//! The laws in any mix of rules: rates, places, queues, bans, reserves, fair shares and shadows in one decision.

use std::time::Duration;

use sluicegate::{Ban, Call, Decision, Limiter, ManualClock, Quota, Rule, key};

use crate::{
    support::{
        dice::Dice,
        stores::{BEGIN, Backend, every_store},
    },
    traces::{ALL, rule},
};

const TICK: Duration = Duration::from_micros(1);

/// A rule of any kind that says anything it may say besides.
fn any_rule(dice: &mut Dice, name: &'static str) -> Rule {
    let quota = Quota::per(3 + dice.below(20), Duration::from_millis(100 + dice.below(3_000)));
    let burst = 3 + dice.below(20);
    let plain = match dice.below(5) {
        0 => Rule::concurrency(name, 2 + dice.below(4)).lease(Duration::from_secs(1 + dice.below(5))).key(key::given()),
        _ => rule(ALL[dice.below(ALL.len() as u64) as usize], quota, burst).named(name),
    };
    let more = [
        |rule: Rule| rule.reserve(0.3, |_| false),
        |rule: Rule| rule.fair_share(0.3, key::given()),
        |rule: Rule| rule.ban(Ban::after(2).lasting(Duration::from_millis(700)).escalating(2.0)),
        |rule: Rule| rule.shadow(),
        |rule: Rule| rule.protects_service(),
    ];
    more.into_iter().fold(plain, |rule, say| {
        // Not every kind can be shared, and small ones have nothing to keep.
        let said = say(rule.clone());
        if dice.below(3) == 0 && said.check().is_ok() { said } else { rule }
    })
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

struct Mix {
    names: Vec<&'static str>,
    rules: Vec<Rule>,
}

impl Mix {
    fn new(dice: &mut Dice) -> Mix {
        let names = NAMES[..2 + dice.below(5) as usize].to_vec();
        let rules = names.iter().map(|name| any_rule(dice, name)).collect();
        Mix { names, rules }
    }

    fn call(&self, cost: u64, tenant: u64, critical: bool) -> Call<'static> {
        let call = self.names.iter().fold(Call::new(), |call, name| call.key(name, "k").tenant(tenant).cost(cost));
        if critical { call.critical() } else { call }
    }
}

/// Everything about a decision but the names of leases, which are drawn.
fn shown(decision: &Decision) -> String {
    assert!(decision.failure().is_none(), "{:?}", decision.failure());
    let of = |standing: sluicegate::Standing<'_>| {
        let (rule, left) = (standing.rule(), standing.remaining());
        format!("{rule} {left} {:?} {:?} {}", standing.reset_after(), standing.retry_after(), standing.can_never_fit())
    };
    let standings: Vec<String> = decision.standings().map(of).collect();
    format!("{} {:?} {:?} {standings:?}", decision.is_allowed(), decision.delay(), decision.bans().collect::<Vec<_>>())
}

/// Waits until what is settled off the path has arrived: strikes of refusals, and places that come back.
async fn settled(limiter: &Limiter) {
    limiter.settled().await;
}

/// Both stores are asked the same; every answer agrees, and a refusal has left everything as it was.
async fn walk(seed: u64, backend: &Backend) {
    let mut dice = Dice::new(seed);
    let mix = Mix::new(&mut dice);
    let (clock, memory) = (ManualClock::new(BEGIN), Backend::memory());
    let (specified, scripted) = (memory.limiter(&clock, mix.rules.clone()), backend.limiter(&clock, mix.rules.clone()));
    let mut held: Vec<(Decision, Decision)> = Vec::new();
    for step in 0..60 {
        clock.advance(Duration::from_micros(dice.below(200_000)));
        if dice.below(4) == 0 && !held.is_empty() {
            // Places come back at once here; nobody may come between.
            drop(held.remove(dice.below(held.len() as u64) as usize));
        }
        let (cost, tenant, critical) = (1 + dice.below(4) / 3 * dice.below(6), dice.below(3), dice.below(4) == 0);
        let call = || mix.call(cost, tenant, critical);
        settled(&specified).await;
        settled(&scripted).await;
        let before = shown(&scripted.peek(call()).await);
        let (expected, got) = (specified.acquire(call()).await, scripted.acquire(call()).await);
        let place = format!("{} seed {seed} step {step}: {:?}", backend.name, mix.rules);
        assert_eq!(shown(&expected), shown(&got), "{place}");
        if got.is_refused() {
            // Strikes are settled later, and change no standing.
            assert_eq!(before, shown(&scripted.peek(call()).await), "{place}");
        } else {
            held.push((expected, got));
        }
    }
}

#[tokio::test]
async fn any_mix_agrees_and_is_all_or_nothing() {
    for (place, backend) in every_store().into_iter().enumerate().filter(|(_, backend)| !backend.is_memory()) {
        for seed in 0..12 {
            walk(seed * 16 + place as u64, &backend).await;
        }
    }
}

/// Repeated alone exactly then it is admitted, and a tick earlier refused, whatever the mix. Places are the exception: nobody knows when
/// they come back; and whoever is refused too often is banned, so bans stay out.
#[tokio::test]
async fn the_wait_is_exact_in_any_mix() {
    let mut tried = 0;
    for (place, backend) in every_store().into_iter().enumerate() {
        for seed in 0..25 {
            let mut dice = Dice::new(1_000 + seed * 16 + place as u64);
            let mix = Mix::new(&mut dice);
            let limits = mix.rules.iter().filter_map(|rule| rule.check().ok());
            if limits.into_iter().any(|limit| limit.lease().is_some()) || mix.rules.iter().any(|rule| format!("{rule:?}").contains("ban: Some")) {
                continue;
            }
            let clock = ManualClock::new(BEGIN);
            let limiter = backend.limiter(&clock, mix.rules.clone());
            for _ in 0..80 {
                clock.advance(Duration::from_micros(dice.below(30_000)));
                let decision = limiter.acquire(mix.call(1, 1, false)).await;
                assert!(decision.failure().is_none(), "{decision:?}");
                let Some(wait) = decision.retry_after() else { continue };
                tried += 1;
                clock.advance(wait - TICK);
                let early = limiter.peek(mix.call(1, 1, false)).await;
                assert!(early.is_refused(), "{} seed {seed} {wait:?}: {:?}", backend.name, mix.rules);
                clock.advance(TICK);
                let then = limiter.acquire(mix.call(1, 1, false)).await;
                assert!(then.is_allowed(), "{} seed {seed} {wait:?} {then:?}: {:?}", backend.name, mix.rules);
            }
        }
    }
    assert!(tried > 500, "{tried} refusals");
}
