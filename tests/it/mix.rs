//! The laws in any mix of rules: rates, places, queues, bans, reserves, fair shares and shadows in one decision.

use std::time::Duration;

use sluicegate::{Ban, Call, Decision, ManualClock, Quota, Rule, key};

use crate::support::{
    dice::Dice,
    stores::{BEGIN, Backend, every_store},
};

const TICK: Duration = Duration::from_micros(1);

/// A rule of any kind that says anything it may say besides.
fn any_rule(dice: &mut Dice, name: &'static str) -> Rule {
    let quota = Quota::per(3 + dice.below(20), Duration::from_millis(100 + dice.below(3_000)));
    let bucket = quota.burst(3 + dice.below(20));
    let rule = match dice.below(9) {
        0 => Rule::fixed_window(name, quota),
        1 => Rule::fixed_window(name, quota).from_first_request(),
        2 => Rule::sliding_log(name, quota),
        3 => Rule::sliding_counter(name, quota),
        4 => Rule::token_bucket(name, bucket),
        5 => Rule::gcra(name, bucket),
        6 => Rule::leaky_bucket(name, bucket),
        7 => Rule::leaky_bucket(name, quota).queue(quota.window(), 10),
        // Time moves by hand, so nobody renews these before they expire, and nobody has to.
        _ => Rule::concurrency(name, 2 + dice.below(30)).lease(Duration::from_secs(3_600)),
    };
    let more = [
        |rule: Rule| rule.reserve(0.3, |_| false),
        |rule: Rule| rule.fair_share(0.3, key::given()),
        |rule: Rule| rule.ban(Ban::after(2).lasting(Duration::from_millis(700)).escalating(2.0)),
        |rule: Rule| rule.shadow(),
        |rule: Rule| rule.protects_service(),
    ];
    more.into_iter().fold(rule.key(key::given()), |rule, say| {
        // Not every kind can be shared, and small ones have nothing to keep.
        let said = say(rule.clone());
        if dice.below(4) == 0 && said.check().is_ok() { said } else { rule }
    })
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

struct Mix {
    /// Nobody else's in its store.
    key: u64,
    names: Vec<&'static str>,
    rules: Vec<Rule>,
}

impl Mix {
    fn new(seed: u64) -> (Mix, Dice) {
        let mut dice = Dice::new(seed);
        let names = NAMES[..2 + dice.below(5) as usize].to_vec();
        let rules = names.iter().map(|name| any_rule(&mut dice, name)).collect();
        (Mix { key: seed, names, rules }, dice)
    }

    fn call(&self, cost: u64, tenant: u64, critical: bool) -> Call<'static> {
        let call = self.names.iter().fold(Call::new(), |call, name| call.key(name, self.key).tenant(tenant).cost(cost));
        if critical { call.critical() } else { call }
    }
}

/// How every rule stands, but for the names of leases, which are drawn.
fn standings(decision: &Decision) -> Vec<String> {
    assert!(decision.failure().is_none(), "{:?}", decision.failure());
    let of = |standing: sluicegate::Standing<'_>| {
        let (rule, left) = (standing.rule(), standing.remaining());
        format!("{rule} {left} {:?} {:?} {}", standing.reset_after(), standing.retry_after(), standing.can_never_fit())
    };
    decision.standings().map(of).collect()
}

/// Everything about a decision.
fn shown(decision: &Decision) -> String {
    let (allowed, delay, bans) = (decision.is_allowed(), decision.delay(), decision.bans().collect::<Vec<_>>());
    format!("{allowed} {delay:?} {bans:?} {:?}", standings(decision))
}

/// Both stores are asked the same; every answer agrees, and a refusal has left everything as it was.
async fn walk(seed: u64, backend: &Backend) {
    let (mix, mut dice) = Mix::new(seed);
    let (clock, memory) = (ManualClock::new(BEGIN), Backend::memory());
    let (specified, scripted) = (memory.limiter(&clock, mix.rules.clone()), backend.limiter(&clock, mix.rules.clone()));
    let mut held: Vec<Decision> = Vec::new();
    for step in 0..60 {
        clock.advance(Duration::from_micros(dice.below(200_000)));
        let (cost, tenant, critical) = (1 + dice.below(4) / 3 * dice.below(6), dice.below(3), dice.below(4) == 0);
        let call = || mix.call(cost, tenant, critical);
        let before = standings(&scripted.peek(call()).await);
        let (expected, got) = (specified.acquire(call()).await, scripted.acquire(call()).await);
        let place = format!("{} seed {seed} step {step}: {:?}", backend.name, mix.rules);
        assert_eq!(shown(&expected), shown(&got), "{place}");
        if got.is_refused() {
            assert_eq!(before, standings(&scripted.peek(call()).await), "{place}");
        } else {
            // Places are held to the end: when they come back is nobody's to tell.
            held.extend([expected, got]);
        }
        // Strikes arrive off the path, and before time goes on.
        tokio::join!(specified.settled(), scripted.settled());
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
            let (mix, mut dice) = Mix::new(1_000 + seed * 16 + place as u64);
            let has_places = |rule: &Rule| rule.check().is_ok_and(|limit| limit.lease().is_some());
            if mix.rules.iter().any(|rule| has_places(rule) || format!("{rule:?}").contains("ban: Some")) {
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
