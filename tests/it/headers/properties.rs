//! Whatever the names and numbers: every value parses, by parsers that are not ours, and says what it should.

use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, Request};
use proptest::prelude::*;
use rate_limits::ResetTime;
use sfv::{BareItem, Dictionary, Item, ListEntry, Parser};
use sluicegate::{
    HeadersBuilder, Quota, Rule, key,
    store::{Verdict, Wait},
};
use tower::ServiceExt;

use super::{headers, layer, list, routes, scripted};

const LARGEST: u64 = 999_999_999_999_999;

#[derive(Clone, Debug)]
struct Case {
    name: String,
    amount: u64,
    window: u64,
    verdict: Verdict,
}

/// Printable ASCII of any kind, and numbers up to the edges of what is allowed, and beyond for those a store gives.
fn cases() -> impl Strategy<Value = Vec<Case>> {
    let number = || prop_oneof![Just(0), 1u64..1_000, any::<u64>(), Just(LARGEST), Just(LARGEST + 1), Just(u64::MAX)];
    let wait = prop_oneof![3 => Just(Wait::None), 2 => number().prop_map(Wait::Micros), 1 => Just(Wait::Never)];
    let amount = prop_oneof![1u64..1_000, Just((1 << 48) - 1)];
    let rule = (amount, 1_000u64..10_000_000_000, wait, number(), number());
    prop::collection::btree_map("[ -~]{1,64}", rule, 1..4).prop_map(|rules| {
        let case = |(name, (amount, window, wait, remaining, reset_after))| Case {
            name,
            amount,
            window,
            verdict: Verdict { wait, remaining, reset_after, receipt: 0, tenant_receipt: 0 },
        };
        rules.into_iter().map(case).collect()
    })
}

/// The fields of one response.
fn fields(headers: HeadersBuilder, cases: &[Case]) -> HeaderMap {
    let rule = |case: &Case| {
        Rule::fixed_window(&case.name, Quota::per(case.amount, Duration::from_micros(case.window))).key(key::global())
    };
    let limiter = scripted(cases.iter().map(rule), cases.iter().map(|case| case.verdict).collect());
    let app = routes().layer(layer(headers, limiter));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(app.oneshot(Request::new(Body::empty()))).expect("infallible").headers().clone()
}

fn integer(item: &BareItem) -> u64 {
    let BareItem::Integer(number) = item else { panic!("no integer: {item:?}") };
    u64::try_from(i64::from(*number)).expect("not negative")
}

fn one(headers: &HeaderMap, name: &str) -> BareItem {
    let lines: Vec<_> = headers.get_all(name).iter().collect();
    assert_eq!(lines.len(), 1, "{name}: {headers:?}");
    let item: Item = Parser::new(lines[0].as_bytes()).parse().expect("an item");
    assert!(item.params.is_empty());
    item.bare_item
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers[name].to_str().expect("visible ASCII")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn of_drafts_8_to_11(cases in cases()) {
        for builder in [headers().ietf(), headers().ietf().partition_key("sixteen letters.")] {
            let headers = fields(builder, &cases);
            let (policies, standings) = (list(&headers, "ratelimit-policy"), list(&headers, "ratelimit"));
            prop_assert_eq!(policies.len(), cases.len());
            prop_assert_eq!(standings.len(), cases.len());
            for (case, (policy, standing)) in cases.iter().zip(policies.iter().zip(&standings)) {
                for (name, _) in [policy, standing] {
                    prop_assert!(matches!(name, BareItem::String(name) if name.as_str() == case.name));
                }
                prop_assert_eq!(&*standing.1[0].0, "r");
                prop_assert_eq!(integer(&standing.1[0].1), case.verdict.remaining.min(LARGEST));
                prop_assert!(integer(&standing.1[1].1) <= 86_400, "t is capped");
                prop_assert!(policy.1.iter().all(|(key, value)| key != "w" || integer(value) > 0));
            }
        }
    }

    #[test]
    fn of_drafts_6_and_7(cases in cases()) {
        let six = fields(headers().ietf_draft6(), &cases);
        let (limit, remaining, reset) =
            (one(&six, "ratelimit-limit"), one(&six, "ratelimit-remaining"), one(&six, "ratelimit-reset"));
        let seven = fields(headers().ietf_draft7(), &cases);
        let dictionary: Dictionary = Parser::new(seven["ratelimit"].as_bytes()).parse().expect("a dictionary");
        let members: Vec<_> = dictionary.iter().map(|(key, entry)| match entry {
            ListEntry::Item(item) => (key.as_str(), item.bare_item.clone()),
            ListEntry::InnerList(list) => panic!("an inner list: {list:?}"),
        }).collect();
        prop_assert_eq!(members, [("limit", limit), ("remaining", remaining), ("reset", reset)]);
        for headers in [six, seven] {
            let quotas: Vec<_> = list(&headers, "ratelimit-policy").into_iter().map(|(quota, params)| {
                assert_eq!((params.len(), &*params[0].0), (1, "w"), "a window is required");
                integer(&quota)
            }).collect();
            let mut different = quotas.clone();
            different.sort_unstable();
            different.dedup();
            prop_assert_eq!(different.len(), quotas.len(), "two policies of one quota");
        }
    }

    #[test]
    fn of_the_vendors(cases in cases()) {
        let presets =
            [headers().x_ratelimit(), headers().x_ratelimit_delta(), headers().x_rate_limit(), headers().github(), headers().discord()];
        for headers in presets.map(|preset| fields(preset, &cases)) {
            let begins = if headers.contains_key("x-rate-limit-limit") { "x-rate-limit" } else { "x-ratelimit" };
            let [limit, remaining] = ["limit", "remaining"].map(|end| integer(&one(&headers, &format!("{begins}-{end}"))));
            prop_assert!(cases.iter().any(|case| case.amount == limit));
            prop_assert!(remaining <= LARGEST);
            match one(&headers, &format!("{begins}-reset")) {
                BareItem::Decimal(_) => prop_assert!(headers.contains_key("x-ratelimit-bucket")),
                reset => prop_assert!(integer(&reset) <= LARGEST),
            }
            // A vendor's parser agrees about the numbers.
            if !headers.contains_key("x-ratelimit-bucket") {
                let judged = rate_limits::Headers::new(&headers).expect("known fields");
                prop_assert_eq!((judged.limit as u64, judged.remaining as u64), (limit, remaining));
            }
        }
    }

    /// Until the year 9900. Both come from one reading of the clock, so they are the same second.
    #[test]
    fn of_dates(reset_after in 0u64..248_000_000_000_000_000) {
        let verdict = Verdict { wait: Wait::None, remaining: 1, reset_after, receipt: 0, tenant_receipt: 0 };
        let case = Case { name: "r".into(), amount: 9, window: 1_000_000, verdict };
        let headers = fields(headers().anthropic("r").x_ratelimit().cap(Duration::MAX), &[case]);
        let Ok(ResetTime::DateTime(at)) = ResetTime::try_from(text(&headers, "anthropic-ratelimit-r-reset")) else {
            panic!("no RFC 3339: {headers:?}")
        };
        prop_assert_eq!(at.unix_timestamp().to_string(), text(&headers, "x-ratelimit-reset"));
    }

    #[test]
    fn of_metrics(cases in cases()) {
        let headers = fields(headers().openai("requests").anthropic("tokens").x_ratelimit_delta(), &cases);
        let delta: usize = text(&headers, "x-ratelimit-reset").parse().expect("a number");
        let pairs = headers.iter().filter(|(name, _)| name.as_str().ends_with("-requests"));
        let pairs: Vec<_> = pairs.map(|(name, value)| (name.as_str(), value.to_str().expect("text"))).collect();
        let judged = rate_limits::Headers::extract(pairs).expect("OpenAI's fields");
        prop_assert_eq!(judged.vendor, rate_limits::Vendor::OpenAI);
        prop_assert_eq!(judged.reset, ResetTime::Seconds(delta), "{:?}", headers);
        prop_assert_eq!(judged.remaining.to_string(), text(&headers, "anthropic-ratelimit-tokens-remaining"));
        let Ok(ResetTime::DateTime(at)) = ResetTime::try_from(text(&headers, "anthropic-ratelimit-tokens-reset")) else {
            panic!("no RFC 3339: {headers:?}")
        };
        // Read from one clock: the difference is the time this test took to get here.
        let now = std::time::UNIX_EPOCH.elapsed().expect("after it").as_secs() as i64;
        prop_assert!((at.unix_timestamp() - now - delta as i64).abs() <= 10);
    }
}
