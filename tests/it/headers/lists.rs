//! The list fields, read by a parser that is not ours.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluicegate::{Clock, Limiter, ManualClock, MemoryStore, Quota, RateLimitLayer, Rule, key};

use super::{app, item, items, routes};
use crate::support::{
    app::{field, get as fetch},
    stores::BEGIN,
};

#[tokio::test]
async fn both_families_on_every_response() {
    let app = app([
        Rule::fixed_window("burst", Quota::per_minute(100)).from_first_request().key(key::global()),
        Rule::token_bucket("daily", Quota::per_day(1_000).burst(50)).key(key::global()),
    ]);
    let response = fetch(&app, "/").await;
    assert_eq!(
        items(response.headers(), "ratelimit-policy"),
        [item("burst", &[("q", 100), ("w", 60)]), item("daily", &[("q", 50), ("w", 4_320)])]
    );
    assert_eq!(
        items(response.headers(), "ratelimit"),
        // The next unit of the bucket comes after a thousandth of a day.
        [item("burst", &[("r", 99), ("t", 60)]), item("daily", &[("r", 49), ("t", 87)])]
    );
    assert_eq!(field(&response, "x-ratelimit-limit"), Some("50"), "the bucket has the smaller share left");
    assert_eq!(field(&response, "x-ratelimit-remaining"), Some("49"));
    let reset: u64 = field(&response, "x-ratelimit-reset").expect("a reset").parse().expect("a number");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after it").as_secs();
    assert!((now + 80..=now + 90).contains(&reset), "{reset} from {now}");
    // Also where no route matches, and on the handler's own errors.
    let missing = fetch(&app, "/missing").await;
    assert_eq!((missing.status().as_u16(), field(&missing, "x-ratelimit-remaining")), (404, Some("48")));
}

/// When there is more to spend, by algorithm.
#[tokio::test]
async fn t_is_when_there_is_more() {
    let quota = Quota::per_minute(10);
    for (rule, expected) in [
        // The window ends a minute after the first request.
        (Rule::fixed_window("r", quota).from_first_request(), 56),
        // The oldest entry leaves.
        (Rule::sliding_log("r", quota), 56),
        // No later than the end of the window.
        (Rule::sliding_counter("r", quota), 56),
        // A unit every six seconds; four have passed since the first.
        (Rule::token_bucket("r", quota), 2),
        (Rule::gcra("r", quota), 2),
        (Rule::leaky_bucket("r", quota), 2),
    ] {
        let clock = ManualClock::new(BEGIN);
        let rule = rule.cost_by(|req| if req.uri.path() == "/free" { 0 } else { 1 }).key(key::global());
        let limiter = Limiter::builder(MemoryStore::new()).clock(Clock::manual(clock.clone())).rule(rule);
        let app = routes().layer(RateLimitLayer::new(limiter.build().expect("sound")));
        let t = async |path| items(fetch(&app, path).await.headers(), "ratelimit")[0].1[1].1;
        assert_eq!(t("/free").await, 0, "untouched");
        t("/").await;
        t("/").await;
        clock.advance(Duration::from_secs(4));
        assert_eq!(t("/").await, expected);
        // A tick later it is less than a second less, which is rounded up.
        clock.advance(Duration::from_micros(1));
        assert_eq!(t("/free").await, expected);
    }
}

#[tokio::test]
async fn windows_of_a_part_of_a_second() {
    for (quota, expected) in [
        (Quota::per(5, Duration::from_millis(250)), vec![("q", 20), ("w", 1)]),
        (Quota::per(5, Duration::from_millis(300)), vec![("q", 5)]),
        (Quota::per(5, Duration::from_millis(1_500)), vec![("q", 5), ("w", 2)]),
    ] {
        let response = fetch(&app([Rule::fixed_window("w", quota).key(key::global())]), "/").await;
        assert_eq!(items(response.headers(), "ratelimit-policy"), [item("w", &expected)]);
    }
}

#[tokio::test]
async fn only_the_rules_that_applied_are_shown() {
    let app = app([
        Rule::gcra("all", Quota::per_minute(9)).key(key::global()),
        Rule::gcra("user", Quota::per_minute(5)).key(key::header("x-user")),
    ]);
    let response = fetch(&app, "/").await;
    assert_eq!(items(response.headers(), "ratelimit-policy"), [item("all", &[("q", 9), ("w", 60)])]);
    assert_eq!(items(response.headers(), "ratelimit").len(), 1);
}
