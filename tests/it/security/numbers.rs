//! Any numbers: a limiter that can be built never panics, never admits more than its capacity, and says no to the rest.

use std::time::Duration;

use proptest::prelude::*;
use sluicegate::{Call, Clock, Limiter, ManualClock, MemoryStore, Quota, Rule, key};

use crate::support::{cases::cases, stores::BEGIN};

/// Numbers of every size, and those at the edges.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0..50u64,
        2 => any::<u64>(),
        2 => (0..64u32).prop_map(|power| 1 << power),
        1 => prop::sample::select(vec![u64::MAX, u64::MAX - 1, i64::MAX as u64, 1 << 53, (1 << 53) - 1, (1 << 53) + 1]),
    ]
}

fn rules(quota: Quota) -> [Rule; 7] {
    [
        Rule::fixed_window("r", quota),
        Rule::fixed_window("r", quota).from_first_request(),
        Rule::sliding_log("r", quota),
        Rule::sliding_counter("r", quota),
        Rule::token_bucket("r", quota),
        Rule::gcra("r", quota),
        Rule::leaky_bucket("r", quota),
    ]
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn no_numbers_panic_or_let_too_much_in(
        amount in number(), seconds in number(), nanos in 0..1_000_000_000u32, burst in prop::option::of(number()),
        costs in prop::collection::vec(number(), 1..6), pass in prop::collection::vec(number(), 1..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let quota = Quota::per(amount, Duration::new(seconds, nanos));
        let quota = burst.map_or(quota, |burst| quota.burst(burst));
        for rule in rules(quota) {
            let clock = ManualClock::new(BEGIN);
            let builder = Limiter::builder(MemoryStore::new()).clock(Clock::manual(clock.clone()));
            // What cannot be kept is an error that names a field; it must not be a limiter.
            let limiter = match builder.rule(rule.clone().key(key::given())).build() {
                Ok(limiter) => limiter,
                Err(error) => {
                    prop_assert!(!error.field().is_empty());
                    continue;
                }
            };
            prop_assert!(amount > 0 && (seconds, nanos) > (0, 0), "{:?}", rule);
            let capacity = burst.unwrap_or(amount).max(amount);
            let mut admitted = 0u128;
            for cost in &costs {
                let decision = runtime.block_on(limiter.acquire(Call::new().key("r", "k").cost(*cost)));
                prop_assert!(decision.failure().is_none());
                admitted += if decision.is_allowed() { u128::from(*cost) } else { 0 };
                let standing = decision.standing("r").expect("it applies");
                prop_assert!(standing.remaining() <= capacity, "{:?}", rule);
            }
            prop_assert!(admitted <= u128::from(capacity), "{:?} admitted {}", rule, admitted);
            for (pass, cost) in pass.iter().zip(&costs) {
                clock.advance(Duration::from_micros(*pass >> 12));
                let decision = runtime.block_on(limiter.acquire(Call::new().key("r", "k").cost(*cost)));
                prop_assert!(decision.failure().is_none());
            }
        }
    }
}
