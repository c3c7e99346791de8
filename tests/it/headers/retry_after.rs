//! `Retry-After`: whole seconds, never early, and not the same for all.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use http::Response;
use proptest::prelude::*;
use sluicegate::{
    Quota, RateLimitLayer, Rule, StoreErrorKind, key,
    store::{Verdict, Wait},
};
use tower::ServiceExt;

use super::{Down, app_with, headers, items, routes, scripted};
use crate::support::{
    app::{field, get as fetch, text},
    flaky::{Flaky, Mood},
};

fn seconds<B>(response: &Response<B>) -> u64 {
    field(response, "retry-after").expect("a wait").parse().expect("whole seconds")
}

#[tokio::test]
async fn retry_after_is_whole_seconds_rounded_up_and_never_zero() {
    for (quota, expected) in [
        (Quota::per_second(5).burst(1), "1"),
        (Quota::per(1, Duration::from_millis(1_001)), "2"),
        (Quota::per_minute(1), "60"),
        (Quota::per_day(1), "86400"),
    ] {
        let app = app_with(headers().ietf(), [Rule::gcra("r", quota).key(key::global())]);
        fetch(&app, "/").await;
        let refused = fetch(&app, "/").await;
        assert_eq!(field(&refused, "retry-after"), Some(expected), "{quota}");
        let until: i64 = items(refused.headers(), "ratelimit")[0].1[1].1;
        assert!(until <= expected.parse().expect("a number"), "t must not lie after Retry-After");
    }
}

fn refusing(wait: u64) -> RateLimitLayer {
    let rule = Rule::gcra("r", Quota::per_minute(1)).key(key::global());
    RateLimitLayer::new(scripted([rule], vec![refusal(wait)]))
}

fn refusal(wait: u64) -> Verdict {
    Verdict { wait: Wait::Micros(wait), remaining: 0, reset_after: wait, receipt: 0, tenant_receipt: 0 }
}

/// Had each of a hundred even chances, all would agree once in 2^99 runs.
#[tokio::test]
async fn a_hundred_refused_together_do_not_all_come_back_together() {
    let app = routes().layer(refusing(1_000_000));
    let mut counted = HashMap::new();
    for _ in 0..100 {
        *counted.entry(seconds(&fetch(&app, "/").await)).or_insert(0) += 1;
    }
    assert!(counted.len() >= 2, "{counted:?}");
    assert!(counted.keys().all(|seconds| (1..=2).contains(seconds)), "{counted:?}");
}

/// Each extra second comes up about as often as the others: of 6,000 draws, so few of one happen less than once in 10^20 runs.
#[tokio::test]
async fn every_extra_second_is_drawn_and_no_other() {
    for (wait, most) in [(200_000, 1), (10_000_000, 1), (10_000_001, 2), (25_000_000, 3), (86_400_000_000, 5)] {
        let app = routes().layer(refusing(wait));
        let least = wait.div_ceil(1_000_000);
        let mut counted = vec![0; most + 1];
        for _ in 0..6_000 {
            let extra = seconds(&fetch(&app, "/").await).checked_sub(least).expect("never early");
            counted[usize::try_from(extra).expect("few")] += 1;
        }
        let even = 6_000 / (most + 1);
        assert!(counted.iter().all(|count| (even / 2..even * 2).contains(count)), "{wait}: {counted:?}");
    }
}

#[tokio::test]
async fn the_body_and_the_headers_tell_the_same() {
    let rule = Rule::gcra("r", Quota::per_minute(1)).key(key::global());
    let layer = RateLimitLayer::new(scripted([rule], vec![refusal(41_500_000)]))
        .headers(headers().ietf_draft7().retry_after_ms().build().expect("sound"));
    let app = routes().layer(layer);
    for _ in 0..100 {
        let response = fetch(&app, "/").await;
        let seconds = seconds(&response);
        assert_eq!(field(&response, "ratelimit"), Some(&*format!("limit=1, remaining=0, reset={seconds}")));
        // The same seconds were added to the milliseconds.
        assert_eq!(field(&response, "retry-after-ms"), Some(&*(41_500 + (seconds - 42) * 1_000).to_string()));
        assert!(text(response).await.contains(&format!("retry in {seconds} seconds.")));
    }
}

#[tokio::test]
async fn milliseconds_are_rounded_up_and_never_zero() {
    for (wait, expected) in [(1, "1"), (200_000, "200"), (200_001, "201"), (1_500_000, "1500")] {
        let headers = headers().retry_after_ms().build().expect("sound");
        let app = routes().layer(refusing(wait).headers(headers).jitter(false));
        assert_eq!(field(&fetch(&app, "/").await, "retry-after-ms"), Some(expected));
    }
    // Not on what was allowed.
    let app = app_with(headers().retry_after_ms(), [Rule::gcra("r", Quota::per_minute(1)).key(key::global())]);
    assert_eq!(field(&fetch(&app, "/").await, "retry-after-ms"), None);
}

/// No rule has named a wait then, and all who are refused would come back after the same second.
#[tokio::test]
async fn where_the_store_gives_no_answer() {
    let rule = Rule::gcra("r", Quota::per_minute(1)).key(key::global()).on_failure(sluicegate::OnFailure::Refuse);
    let limiter = sluicegate::Limiter::builder(Down).rule(rule).build().expect("sound");
    let headers = headers().ietf().retry_after_ms().build().expect("sound");
    let app = routes().layer(RateLimitLayer::new(limiter).headers(headers));
    let mut seen = BTreeSet::new();
    for _ in 0..100 {
        let response = fetch(&app, "/").await;
        assert_eq!((response.status().as_u16(), field(&response, "ratelimit")), (503, None));
        let seconds = seconds(&response);
        assert_eq!(field(&response, "retry-after-ms"), Some(&*(seconds * 1_000).to_string()));
        let said = if seconds == 1 { "retry in 1 second." } else { "retry in 2 seconds." };
        assert!(text(response).await.contains(said));
        seen.insert(seconds);
    }
    assert_eq!(seen, BTreeSet::from([1, 2]));
}

/// Only where it is asked for, with and without quota fields, on what passes and on what is refused.
#[tokio::test]
async fn how_the_store_failed_is_shown_by_option() {
    for (on_failure, status) in [(sluicegate::OnFailure::Allow, 200), (sluicegate::OnFailure::Refuse, 503)] {
        let rule = || Rule::gcra("r", Quota::per_minute(1)).key(key::global()).on_failure(on_failure);
        let limiter = || sluicegate::Limiter::builder(Down).rule(rule()).build().expect("sound");
        let headers = headers().degraded().build().expect("sound");
        assert!(headers.names().any(|name| name == "x-ratelimit-degraded"));
        let response = fetch(&routes().layer(RateLimitLayer::new(limiter()).headers(headers)), "/").await;
        assert_eq!(response.status(), status);
        assert_eq!(field(&response, "x-ratelimit-degraded"), Some("unavailable"));
        let silent = fetch(&routes().layer(RateLimitLayer::new(limiter())), "/").await;
        assert_eq!(field(&silent, "x-ratelimit-degraded"), None);
    }
    // Counted in this process, it has both.
    let limiter = sluicegate::Limiter::builder(sluicegate::Resilient::new(Down))
        .rule(Rule::gcra("r", Quota::per_minute(10)).key(key::global()))
        .build()
        .expect("sound");
    let headers = headers().ietf().degraded().build().expect("sound");
    let app = routes().layer(RateLimitLayer::new(limiter).headers(headers));
    let response = fetch(&app, "/").await;
    assert_eq!(field(&response, "x-ratelimit-degraded"), Some("unavailable"));
    assert!(field(&response, "ratelimit").is_some());
    for _ in 0..5 {
        fetch(&app, "/").await;
    }
    assert_eq!(field(&fetch(&app, "/").await, "x-ratelimit-degraded"), Some("open"));
    for (kind, word) in [
        (StoreErrorKind::Timeout, "timeout"),
        (StoreErrorKind::Unavailable, "unavailable"),
        (StoreErrorKind::Refused, "refused"),
        (StoreErrorKind::Permanent, "permanent"),
        (StoreErrorKind::Garbled, "garbled"),
        (StoreErrorKind::Open, "open"),
    ] {
        let store = Flaky::default();
        store.set(Mood::Fails(kind));
        let rule = Rule::gcra("r", Quota::per_minute(1)).key(key::global());
        let limiter = sluicegate::Limiter::builder(store).rule(rule).build().expect("sound");
        let app = routes().layer(RateLimitLayer::new(limiter).headers(headers_of_the_store().build().expect("sound")));
        assert_eq!(field(&fetch(&app, "/").await, "x-ratelimit-degraded"), Some(word));
    }
    assert!(super::headers().ietf().build().expect("sound").names().all(|name| name != "x-ratelimit-degraded"));
    // While the store is well it says nothing.
    let app = app_with(headers_of_the_store(), [Rule::gcra("r", Quota::per_minute(1)).key(key::global())]);
    assert_eq!(field(&fetch(&app, "/").await, "x-ratelimit-degraded"), None);
}

fn headers_of_the_store() -> sluicegate::HeadersBuilder {
    headers().degraded()
}

/// A day, unless said otherwise; what is told of a policy is not cut.
#[tokio::test]
async fn waits_and_resets_are_told_up_to_a_cap() {
    let monthly = || Rule::gcra("monthly", Quota::per(1, Duration::from_secs(30 * 86_400))).key(key::global());
    for (headers, expected) in [
        (headers().ietf().x_ratelimit_delta(), 86_400),
        (headers().ietf().x_ratelimit_delta().cap(Duration::from_millis(60_500)), 61),
        (headers().ietf().x_ratelimit_delta().cap(Duration::MAX), 30 * 86_400),
    ] {
        let app = app_with(headers.retry_after_ms(), [monthly()]);
        let reset = |response: &Response<_>| field(response, "x-ratelimit-reset").map(str::to_owned);
        assert_eq!(reset(&fetch(&app, "/").await), Some(expected.to_string()));
        let refused = fetch(&app, "/").await;
        assert_eq!(seconds(&refused), expected);
        assert_eq!(reset(&refused), Some(expected.to_string()));
        assert_eq!(items(refused.headers(), "ratelimit")[0].1[1].1, expected as i64);
        assert_eq!(items(refused.headers(), "ratelimit-policy")[0].1[1].1, 30 * 86_400);
        assert!(
            field(&refused, "retry-after-ms")
                .is_some_and(|millis| millis.parse::<u64>().expect("a number") <= expected * 1_000)
        );
    }
}

/// There are clients that go by the reset alone. The window of a counter ends before this request fits, and of a log's
/// entries two must leave.
#[tokio::test]
async fn no_reset_of_a_refusal_is_early() {
    let clock = sluicegate::ManualClock::new(crate::support::stores::BEGIN);
    let rules = [
        Rule::sliding_counter("r", Quota::per_minute(4)).cost(4),
        Rule::sliding_log("r", Quota::per_minute(4)).cost_by(|req| if req.uri.path() == "/" { 1 } else { 4 }),
    ];
    for rule in rules {
        let limiter = sluicegate::Limiter::builder(sluicegate::MemoryStore::new())
            .clock(sluicegate::Clock::manual(clock.clone()))
            .rule(rule.key(key::global()))
            .build()
            .expect("sound");
        let app = routes().layer(super::layer(headers().x_ratelimit_delta(), limiter));
        fetch(&app, "/").await;
        clock.advance(Duration::from_secs(7));
        fetch(&app, "/").await;
        let refused = fetch(&app, "/four").await;
        assert_eq!(refused.status(), 429);
        assert_eq!(field(&refused, "x-ratelimit-reset"), field(&refused, "retry-after"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the waits of several rules: not before the longest of those that refuse, nor before a `t` of theirs.
    #[test]
    fn never_early(waits in prop::collection::vec(prop::option::of(1u64..200_000_000_000), 1..4)) {
        prop_assume!(waits.iter().any(Option::is_some));
        let rules = (0..waits.len()).map(|n| Rule::fixed_window(&n.to_string(), Quota::per_day(9)).key(key::global()));
        let verdicts = waits.iter().map(|wait| match wait {
            Some(wait) => refusal(*wait),
            None => Verdict { wait: Wait::None, remaining: 3, reset_after: u64::MAX, receipt: 0, tenant_receipt: 0 },
        });
        let headers = headers().ietf().cap(Duration::MAX).build().expect("sound");
        let app = routes().layer(RateLimitLayer::new(scripted(rules, verdicts.collect())).headers(headers));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let request = http::Request::new(axum::body::Body::empty());
        let response = runtime.block_on(app.oneshot(request)).expect("infallible");
        let longest = waits.iter().flatten().max().expect("one refuses");
        prop_assert!(seconds(&response) * 1_000_000 >= *longest);
        for ((_, params), wait) in items(response.headers(), "ratelimit").iter().zip(&waits) {
            prop_assert!(wait.is_none() || params[1].1 <= seconds(&response) as i64);
        }
    }
}
