//! The example of the same name, over real HTTP and on every kind of store.

use std::time::Duration;

use serde_json::{Value, json};
use sluicegate::{Limiter, ManualClock, OnFailure, RedisStore};

use crate::support::{
    app::serve,
    server::Version,
    stores::{BEGIN, Backend},
};

#[allow(dead_code)]
#[path = "../../examples/graphql_cost/main.rs"]
mod example;

/// What Shopify's documents say of a query: it pays for what it asks, and gets back what it did not touch.
#[tokio::test]
async fn queries_pay_for_what_they_touch() {
    let stores = [
        Backend::memory(),
        Backend::redis(Version::Redis7),
        Backend::functions(Version::Valkey9),
        Backend::cluster(Version::Valkey9, false),
    ];
    for backend in stores {
        let clock = ManualClock::new(BEGIN);
        let limiter = backend.limiter(&clock, [example::points()]);
        let url = format!("http://{}/graphql", serve(example::app(limiter.clone())).await);
        let client = reqwest::Client::new();
        let post = async |body: Value| {
            let response = client.post(&url).json(&body).send().await.expect("a response");
            assert_eq!(response.status(), 200);
            let told =
                response.headers().keys().any(|name| name.as_str().contains("cost") || name.as_str().contains("limit"));
            assert!(!told, "{:?}", response.headers());
            limiter.settled().await;
            response.json::<Value>().await.expect("JSON")
        };
        let left = async || {
            let decision = limiter.peek([("points", "v4:127.0.0.1")]).await;
            decision.standing("points").expect("it applies").remaining()
        };
        let cost = |requested: Value, actual: Value, available: u64| {
            let status = json!({ "maximumAvailable": 1_000, "currentlyAvailable": available, "restoreRate": 50 });
            json!({ "requestedQueryCost": requested, "actualQueryCost": actual, "throttleStatus": status })
        };

        // Twenty products with five variants each; the shop has twelve with three.
        let query = "query Some($n: Int!) { products(first: $n) { title ...Variants } }
                     fragment Variants on Product { variants(first: 5) { sku } }";
        let answer = post(json!({ "query": "{ products(first: 20) { title variants(first: 5) { sku } } }" })).await;
        assert_eq!(answer["data"]["products"].as_array().expect("a list").len(), 12);
        assert_eq!(answer["data"]["products"][11]["variants"][2]["sku"], "sku of shop/12/3");
        assert_eq!(answer["extensions"]["cost"], cost(120.into(), 48.into(), 952), "{}", backend.name);
        assert_eq!(left().await, 952, "{}", backend.name);

        // By variables and fragments too; a spread is a point.
        let answer = post(json!({ "query": query, "variables": { "n": 2 } })).await;
        assert_eq!(answer["extensions"]["cost"], cost(14.into(), 8.into(), 944), "{}", backend.name);

        // What is asked for must be there, though it would not all be touched; and a refusal spends nothing.
        let answer = post(json!({ "query": "{ products(first: 473) { variants(first: 1) { sku } } }" })).await;
        assert_eq!(answer["errors"][0]["extensions"]["code"], "THROTTLED");
        assert_eq!(answer["extensions"]["cost"], cost(946.into(), Value::Null, 944), "{}", backend.name);
        let answer = post(json!({ "query": "{ products(first: 1001) { title } }" })).await;
        assert_eq!(answer["errors"][0]["extensions"]["code"], "MAX_COST_EXCEEDED");
        assert_eq!(answer["extensions"]["cost"], cost(1_001.into(), Value::Null, 944), "{}", backend.name);
        clock.advance(Duration::from_millis(40));
        let answer = post(json!({ "query": "{ products(first: 473) { variants(first: 1) { sku } } }" })).await;
        assert_eq!(answer["extensions"]["cost"], cost(946.into(), 24.into(), 922), "{}", backend.name);

        // Never above the thousand.
        clock.advance(Duration::from_secs(60));
        let answer = post(json!({ "query": "{ products(first: 100) { title } }" })).await;
        assert_eq!(answer["extensions"]["cost"], cost(100.into(), 12.into(), 988), "{}", backend.name);

        // Fragments in a circle, and what is no query.
        for circle in
            ["{ ...A } fragment A on Q { ...A }", "{ ...A } fragment A on Q { ...B } fragment B on Q { ...A }"]
        {
            let answer = post(json!({ "query": circle })).await;
            assert_eq!(answer["errors"][0]["extensions"]["code"], "MAX_COST_EXCEEDED");
        }
        assert!(post(json!({ "query": "{ products(" })).await["errors"][0]["message"].is_string());
        assert_eq!(left().await, 987, "{}", backend.name);
        let long = json!({ "query": format!("{{ {} }}", "a ".repeat(10_000)) });
        let response = client.post(&url).json(&long).send().await.expect("a response");
        assert_eq!(response.status(), 413);
    }
}

/// The price of each kind of query, what it touched, and what it gets.
#[tokio::test]
async fn queries_are_priced_by_what_they_ask_for() {
    let limiter = Backend::memory().limiter(&ManualClock::new(BEGIN), [example::points()]);
    let url = format!("http://{}/graphql", serve(example::app(limiter.clone())).await);
    let client = reqwest::Client::new();
    let post = async |body: Value| {
        let response = client.post(&url).json(&body).send().await.expect("a response");
        response.json::<Value>().await.expect("JSON")
    };
    for (query, requested, touched) in [
        // Fields of the shop itself are there anyway; a query is a point at least.
        ("{ title }", 1, 0),
        ("{ products { title } }", 1, 1),
        ("{ products(first: 7) { title sku } }", 7, 7),
        ("{ products(last: 7) { title } }", 1, 1),
        ("{ products(first: -5) { title } }", 1, 1),
        ("{ products(first: \"5\") { title } }", 1, 1),
        ("query ($n: Int) { products(first: $n) { title } }", 3, 3),
        ("query ($n: Int) { products(first: $unsaid) { title } }", 1, 1),
        ("query ($n: Int) { products(first: $text) { title } }", 1, 1),
        // Depth multiplies, and what stands side by side adds.
        ("{ products(first: 4) { variants(first: 2) { sku } } }", 12, 12),
        ("{ products(first: 4) { variants(first: 2) { sku } } more: products(first: 5) { title } }", 17, 17),
        ("{ ... on Shop { products(first: 7) { ... on Product { variants(first: 2) { sku } } } } }", 21, 21),
        // A spread is a point each time, and its fragment is paid for each time.
        ("{ ...A ...A } fragment A on Shop { products(first: 5) { title } }", 12, 10),
    ] {
        let answer = post(json!({ "query": query, "variables": { "n": 3, "text": "9" } })).await;
        let cost = &answer["extensions"]["cost"];
        assert_eq!(
            (&cost["requestedQueryCost"], &cost["actualQueryCost"]),
            (&json!(requested), &json!(touched)),
            "{query}"
        );
    }
    let answer =
        post(json!({ "query": "{ a: products(first: 2) { t: title } b: products(first: 3) { title } }" })).await;
    let (a, b) = (&answer["data"]["a"], &answer["data"]["b"]);
    assert_eq!((a.as_array().map(Vec::len), b.as_array().map(Vec::len)), (Some(2), Some(3)), "{answer}");
    assert_eq!((&a[1]["t"], &b[2]["title"]), (&json!("title of shop/2"), &json!("title of shop/3")));
    // What nobody can know the price of can never be paid.
    let answer = post(json!({ "query": "{ ...Unknown }" })).await;
    assert_eq!(answer["errors"][0]["extensions"]["code"], "MAX_COST_EXCEEDED");
    let answer = post(json!({ "query": "mutation { products { title } }" })).await;
    assert_eq!(answer["errors"][0]["message"], "only queries can be run here");
    let answer = post(json!({ "query": "fragment A on Shop { title }" })).await;
    assert_eq!(answer["errors"][0]["message"], "there is no query");
}

/// Where nobody can say what is left, a query that would never fit is not run all the same.
#[tokio::test]
async fn the_largest_queries_are_not_run_though_the_store_is_away() {
    let away = RedisStore::connect("redis://127.0.0.1:1").expect("sound");
    let rule = example::points().on_failure(OnFailure::Allow);
    let limiter = Limiter::builder(away).rule(rule).build().expect("sound");
    let url = format!("http://{}/graphql", serve(example::app(limiter)).await);
    for (first, message) in [(1_000, Value::Null), (1_001, json!("it costs more than 1000 points"))] {
        let body = json!({ "query": format!("{{ products(first: {first}) {{ title }} }}") });
        let response = reqwest::Client::new().post(&url).json(&body).send().await.expect("a response");
        let answer = response.json::<Value>().await.expect("JSON");
        assert_eq!(
            (&answer["errors"][0]["message"], answer["data"].is_null()),
            (&message, !message.is_null()),
            "{first}"
        );
    }
}
