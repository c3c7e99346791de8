//! What cannot be is said when headers are built.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use sluicegate::{Headers, HeadersBuilder, Quota, RateLimitLayer, Rule, key};

use super::{headers, limiter};

#[test]
fn what_is_wrong_is_named() {
    let none = |_: &sluicegate::Decision| None::<String>;
    let cases: [(HeadersBuilder, &str, &[&str]); 24] = [
        (headers().ietf().ietf_draft7(), "headers", &["ietf and ietf_draft7", "`ratelimit-policy`", "drop one"]),
        (headers().ietf_draft6().ietf(), "headers", &["ietf_draft6 and ietf", "`ratelimit-policy`"]),
        (headers().ietf_draft6().ietf_draft7(), "headers", &["`ratelimit-policy`"]),
        (headers().x_ratelimit().x_ratelimit_delta(), "headers", &["`x-ratelimit-limit`"]),
        (headers().x_ratelimit().github(), "headers", &["x_ratelimit and github", "`x-ratelimit-limit`"]),
        (headers().github().discord(), "headers", &["github and discord"]),
        (headers().openai("tokens").openai("tokens"), "headers", &["`x-ratelimit-limit-tokens`"]),
        (headers().x_ratelimit().custom("X-RateLimit-Reset", none), "headers", &["`x-ratelimit-reset`", "custom"]),
        (headers().custom("a", none).custom("A", none), "headers", &["`a`"]),
        (headers().custom("no name", none), "custom", &["\"no name\"", "not a header name"]),
        (headers().custom("", none), "custom", &["not a header name"]),
        (headers().custom("x-ü", none), "custom", &["not a header name"]),
        (headers().custom("x\r\ny: z", none), "custom", &["not a header name"]),
        (headers().custom(&"x".repeat(70_000), none), "custom", &["not a header name"]),
        (headers().custom("Content-Length", none), "custom", &["`content-length`"]),
        (headers().custom("retry-after", none), "custom", &["`retry-after`"]),
        (headers().openai(""), "openai", &["a-z"]),
        (headers().openai("Tokens"), "openai", &["\"Tokens\""]),
        (headers().anthropic("to kens"), "anthropic", &["\"to kens\""]),
        (headers().of_rule("r"), "of_rule", &["no family"]),
        (headers().ietf().of_rule("r"), "of_rule", &["ietf", "one rule"]),
        (headers().ietf().partition_key("short"), "partition_key", &["16 bytes"]),
        (headers().x_ratelimit().partition_key("0123456789abcdef"), "partition_key", &[".ietf()"]),
        (headers().cap(Duration::from_millis(999)), "cap", &["at least a second"]),
    ];
    for (builder, field, words) in cases {
        let error = builder.build().expect_err("it cannot be");
        assert_eq!(error.field(), field, "{error}");
        for word in words {
            assert!(error.to_string().contains(word), "{error} lacks {word}");
        }
    }
    for share in [0.0, -0.1, 1.1, f64::NAN, f64::INFINITY] {
        assert_eq!(headers().only_below(share).build().expect_err("no share").field(), "only_below");
    }
}

#[test]
fn what_can_be_combined() {
    for builder in [
        headers(),
        headers().x_ratelimit().ietf(),
        headers().x_ratelimit().ietf_draft7().x_rate_limit(),
        headers().discord().ietf_draft6().openai("requests").openai("tokens").anthropic("requests"),
        headers().github().ietf().custom("x-own", |_| Some("a")).only_below(1.0).cap(Duration::MAX),
    ] {
        builder.build().expect("sound");
    }
}

/// What an application must let browsers read.
#[test]
fn the_names_are_told() {
    let names = |headers: Headers| headers.names().map(|name| name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(Headers::none()), ["retry-after"]);
    assert_eq!(
        names(Headers::default()),
        [
            "retry-after",
            "ratelimit-policy",
            "ratelimit",
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset"
        ]
    );
    let built = headers().ietf_draft7().retry_after_ms().build().expect("sound");
    assert_eq!(names(built), ["retry-after", "retry-after-ms", "ratelimit-policy", "ratelimit"]);
}

#[test]
fn no_secret_is_shown() {
    let secret = "a secret of some length";
    let builder = headers().ietf().partition_key(secret);
    let before = format!("{builder:?}");
    let layer = RateLimitLayer::new(limiter([Rule::gcra("r", Quota::per_minute(1)).key(key::global())]))
        .headers(builder.build().expect("sound"));
    assert!(!format!("{before}{layer:?}").contains("a secret"));
    assert!(format!("{layer:?}").contains("ietf"));
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn logged(run: impl FnOnce()) -> String {
    let log = Log::default();
    let made = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || made.clone()).with_ansi(false).finish();
    tracing::subscriber::with_default(subscriber, run);
    let bytes = log.0.lock().expect("no panic").clone();
    String::from_utf8(bytes).expect("text")
}

#[test]
fn a_rule_that_is_not_there_is_warned_of() {
    let layer = |rule: &str| {
        let limiter = limiter([Rule::gcra("present", Quota::per_minute(1)).key(key::global())]);
        let headers = headers().x_ratelimit().of_rule(rule).build().expect("sound");
        let _ = RateLimitLayer::new(limiter).headers(headers);
    };
    let log = logged(|| layer("absent"));
    assert!(log.contains("\"absent\"") && log.contains("present"), "{log}");
    assert_eq!(logged(|| layer("present")), "");
}

#[test]
fn a_value_that_cannot_be_is_warned_of_once() {
    let limiter = limiter([Rule::gcra("r", Quota::per_minute(9)).key(key::global())]);
    let app = super::routes().layer(super::layer(headers().custom("x-own", |_| Some("\0")), limiter));
    let log = logged(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for _ in 0..3 {
            let response = runtime.block_on(crate::support::app::get(&app, "/"));
            assert!(response.status() == 200 && !response.headers().contains_key("x-own"));
        }
    });
    assert_eq!(log.matches("`x-own`").count(), 1, "{log}");
}
