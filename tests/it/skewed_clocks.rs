//! Processes that count by clocks of their own, which differ by less than the tolerance: what they admit together stays within its
//! bound.

use std::time::Duration;

use sluicegate::{
    MemoryStore, Quota, Rule, key,
    store::{Ask, Line, Purpose, Scope, Store, Time},
};

use crate::support::{
    server::Version,
    stores::{BEGIN, namespace, patient},
};

const A_SECOND: u64 = 100;

/// Two clocks, 80 ms apart, take turns for two seconds, far more often than is admitted. Without a doubt that is two windows, or a burst
/// and two seconds' worth; windows that are aligned may see another.
#[tokio::test]
async fn two_clocks_admit_no_more_than_one() {
    let quota = Quota::per_second(A_SECOND);
    let rules = [
        ("fixed window", Rule::fixed_window("r", quota)),
        ("from the first request", Rule::fixed_window("r", quota).from_first_request()),
        ("log", Rule::sliding_log("r", quota)),
        ("counter", Rule::sliding_counter("r", quota)),
        ("bucket", Rule::token_bucket("r", quota)),
        ("gcra", Rule::gcra("r", quota)),
        ("uneven gcra", Rule::gcra("r", Quota::per(7 * A_SECOND, Duration::from_secs(7)).burst(A_SECOND))),
        // Its burst is over long before the other clock gets there.
        ("short gcra", Rule::gcra("r", quota.burst(1))),
        ("leaky bucket", Rule::leaky_bucket("r", quota)),
    ];
    let stores: [Box<dyn Store>; 2] =
        [Box::new(MemoryStore::new()), Box::new(patient(&Version::Redis7.shared().url()))];
    for store in &stores {
        for (name, rule) in rules.clone() {
            let (limit, scope) = (rule.key(key::given()).check().expect("sound"), Scope::new(&namespace(), "r"));
            let lines = [Line::new(&scope, b"k", &limit, 1)];
            let mut admitted = 0;
            for step in 0..2_000u64 {
                let ahead = if step % 2 == 0 { 80_000 } else { 0 };
                let now = BEGIN.as_micros() as u64 + step * 1_000 + ahead;
                let time = Time::Application { now, tolerance: 100_000 };
                let answer =
                    store.acquire(&Ask { lines: &lines, purpose: Purpose::Spend, time }).await.expect("answers");
                admitted += u64::from(answer.fits());
            }
            assert!((2 * A_SECOND - 5..=3 * A_SECOND + 10).contains(&admitted), "{name} on {store:?}: {admitted}");
        }
    }
}
