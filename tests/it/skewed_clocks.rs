//! Processes that count by clocks of their own, which differ by no more than the tolerance: what they admit together stays within its
//! bound, and what a faster clock wrote blocks nobody for longer than the difference more.

use std::time::Duration;

use sluicegate::{
    Ban, Limit, MemoryStore, Quota, Rule, key,
    store::{Ask, Id, Line, Purpose, Scope, Store, Time, Wait},
};

use crate::support::{
    dice::Dice,
    server::Version,
    stores::{BEGIN, namespace, patient},
};

/// Of the quotas.
const AMOUNT: u64 = 100;
const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;

fn stores() -> [Box<dyn Store>; 3] {
    let [redis, valkey] = [Version::Redis7, Version::Valkey9].map(|version| patient(&version.shared().url()));
    [Box::new(MemoryStore::new()), Box::new(redis), Box::new(valkey)]
}

/// Every algorithm that counts what is admitted, at this many in so many microseconds.
fn rules(amount: u64, window: u64) -> [(&'static str, Rule); 9] {
    let (quota, seven) =
        (Quota::per(amount, Duration::from_micros(window)), Quota::per(7 * amount, Duration::from_micros(7 * window)));
    [
        ("fixed window", Rule::fixed_window("r", quota)),
        ("from the first request", Rule::fixed_window("r", quota).from_first_request()),
        ("log", Rule::sliding_log("r", quota)),
        ("counter", Rule::sliding_counter("r", quota)),
        ("bucket", Rule::token_bucket("r", quota)),
        ("gcra", Rule::gcra("r", quota)),
        ("uneven gcra", Rule::gcra("r", seven.burst(amount))),
        // Its burst is over long before the other clock gets there.
        ("short gcra", Rule::gcra("r", quota.burst(1))),
        ("leaky bucket", Rule::leaky_bucket("r", quota)),
    ]
}

fn limit(rule: Rule) -> Limit {
    rule.key(key::given()).check().expect("sound")
}

/// One count, asked for by clocks that differ by up to the tolerance.
struct Count<'a> {
    store: &'a dyn Store,
    scope: Scope,
    limit: Limit,
    tolerance: u64,
}

impl<'a> Count<'a> {
    fn new(store: &'a dyn Store, limit: Limit, tolerance: u64) -> Count<'a> {
        Count { store, scope: Scope::new(&namespace(), "r"), limit, tolerance }
    }

    /// `id` is the name of a lease, where there are any.
    async fn ask(&self, now: u64, purpose: Purpose, id: u64) -> Wait {
        let cost = u64::from(!matches!(purpose, Purpose::Peek) || self.limit.quota().amount() > 0);
        let line = Line { receipt: id, ..Line::new(&self.scope, b"k", &self.limit, cost) };
        let time = Time::Application { now, tolerance: self.tolerance };
        let answer = self.store.acquire(&Ask { lines: &[line], purpose, time }).await.expect("answers");
        answer.verdicts()[0].wait
    }

    /// How many of those are admitted that ask in turn, each at its time.
    async fn admitted(&self, times: impl Iterator<Item = u64>) -> u64 {
        let mut admitted = 0;
        for now in times {
            admitted += u64::from(self.ask(now, Purpose::Spend, 0).await.fits());
        }
        admitted
    }
}

/// Two clocks, 80 ms apart, take turns for two seconds, far more often than is admitted. Without a doubt that is two windows, or a burst
/// and two seconds' worth; windows that are aligned may see another.
#[tokio::test]
async fn two_clocks_admit_no_more_than_one() {
    let begin = BEGIN.as_micros() as u64;
    for store in &stores() {
        for (name, rule) in rules(AMOUNT, SECOND) {
            let count = Count::new(&**store, limit(rule), 100_000);
            let times = (0..2_000).map(|step| begin + step * 1_000 + if step % 2 == 0 { 80_000 } else { 0 });
            let admitted = count.admitted(times).await;
            assert!((2 * AMOUNT - 5..=3 * AMOUNT + 10).contains(&admitted), "{name} on {store:?}: {admitted}");
        }
    }
}

/// Three clocks, one half a second behind and one half a second ahead, ask for two seconds as chance has it: each a while alone, or
/// all in turn. They admit no more than one clock would in a second more, which is twice the capacity at most where a window is longer; and
/// no less than one would in a second less, as time stands still for a second while the fastest is silent.
#[tokio::test]
async fn clocks_a_second_apart_admit_what_one_does_in_a_second_more() {
    for store in &stores() {
        for (window, least, most) in [(SECOND, AMOUNT, 4 * AMOUNT), (MINUTE, 1, 2 * AMOUNT)] {
            for (seed, (name, rule)) in (0..).zip(rules(AMOUNT, window)) {
                let count = Count::new(&**store, limit(rule), SECOND);
                // The end of a minute, and of a second, lies between the clocks.
                let end = BEGIN.as_micros() as u64 / MINUTE * MINUTE + MINUTE;
                let (mut dice, mut clock, mut turns) = (Dice::new(seed), 0, true);
                let times = (0..1_000).map(|step| {
                    if dice.per_mille(10) {
                        turns = !turns;
                    }
                    if turns || dice.per_mille(20) {
                        clock = dice.below(3);
                    }
                    end - SECOND + step * 2_000 + clock * SECOND / 2
                });
                let admitted = count.admitted(times).await;
                assert!((least..=most).contains(&admitted), "{name} on {store:?}: {admitted} of {AMOUNT}");
            }
        }
    }
}

/// A clock half a second ahead uses all there is, and its process falls silent. One half a second behind is told to wait until the same
/// time on its own clock, to the microsecond: a second longer, and never longer than one window and that second.
#[tokio::test]
async fn what_a_faster_clock_wrote_blocks_nobody_for_longer_than_the_difference_more() {
    let second = Duration::from_micros(SECOND);
    for store in &stores() {
        let mut limits: Vec<(&str, Limit)> =
            rules(AMOUNT, 2 * SECOND).into_iter().map(|(name, rule)| (name, limit(rule))).collect();
        let queue = Rule::leaky_bucket("r", Quota::per_second(10)).queue(second, 10);
        limits.push(("queue", limit(queue)));
        limits.push(("places", limit(Rule::concurrency("r", 10).lease(3 * second))));
        limits.push(("ban", Ban::after(3).within(second).lasting(2 * second).check("r").expect("sound")));
        for (name, limit) in limits {
            let window = match name {
                "places" => 3 * SECOND,
                // A unit more: what was used in one window has to fade in the next.
                "counter" => 2 * SECOND + 2 * SECOND / AMOUNT,
                _ => 2 * SECOND,
            };
            let count = Count::new(&**store, limit, SECOND);
            let slow = BEGIN.as_micros() as u64;
            let fast = slow + SECOND;
            let mut used = 0;
            let told = loop {
                used += 1;
                assert!(used <= 2 * AMOUNT, "{name} on {store:?} has no end");
                let purpose = if name == "ban" { Purpose::Owe(Id::random()) } else { Purpose::Spend };
                let wait = count.ask(fast, purpose, used).await;
                let wait = if name == "ban" { count.ask(fast, Purpose::Peek, 0).await } else { wait };
                if let Wait::Micros(micros) = wait {
                    break micros;
                }
            };
            let say = |text: &str| format!("{name} on {store:?}: {text}");
            assert!(told <= window, "{}", say("the faster clock itself waits for longer than a window"));
            assert_eq!(
                count.ask(slow, Purpose::Spend, used).await,
                Wait::Micros(told + SECOND),
                "{}",
                say("the slower")
            );
            let again = slow + told + SECOND;
            assert!(!count.ask(again - 1, Purpose::Peek, used).await.fits(), "{}", say("too early"));
            let turn = count.ask(again, Purpose::Spend, used).await;
            assert!(turn.fits(), "{}: {turn:?}", say("blocked for longer than it was told"));
            // A queue's slot comes when it would come for the faster one.
            assert!(!matches!(turn, Wait::Turn(micros) if micros > SECOND), "{}: {turn:?}", say("its turn"));
        }
    }
}

/// Leases that are renewed every third of their time: a clock a second ahead sees none of them as expired, where they are as long as they
/// must be.
#[tokio::test]
async fn places_that_are_renewed_are_never_taken_by_a_faster_clock() {
    let lease = 3 * SECOND;
    for store in &stores() {
        let rule = Rule::concurrency("r", 2).lease(Duration::from_micros(lease));
        let count = Count::new(&**store, limit(rule), SECOND);
        let begin = BEGIN.as_micros() as u64;
        for id in [1, 2] {
            assert!(count.ask(begin, Purpose::Spend, id).await.fits());
        }
        for step in 0..30 {
            let now = begin + step * lease / 12;
            if step % 4 == 0 {
                for id in [1, 2] {
                    assert!(count.ask(now, Purpose::Renew, id).await.fits(), "{store:?}: lost at {step}");
                }
            }
            assert!(!count.ask(now + SECOND, Purpose::Spend, 3).await.fits(), "{store:?}: a third at {step}");
        }
    }
}
