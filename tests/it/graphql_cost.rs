//! The example of the same name, over real HTTP and on every kind of store.

use std::time::Duration;

use serde_json::{Value, json};
use sluicegate::ManualClock;

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
