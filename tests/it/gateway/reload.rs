//! The file changes while the gateway runs.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Gateway, field, get, json, policy, until};

/// What is promised to whoever saves the file.
const PROMISED: Duration = Duration::from_secs(2);

async fn status(gateway: &Gateway) -> Value {
    json(get(gateway.admin("/-/policy")).await).await
}

#[tokio::test]
async fn a_change_holds_within_two_seconds_and_a_mistake_never() {
    let gateway = Gateway::start(&policy("1000/h"), &[]);
    assert_eq!(field(&get(gateway.url("/")).await, "x-ratelimit-limit"), Some("1000"));

    gateway.write(&policy("2000/h"));
    let changed = async || {
        let response = get(gateway.url("/")).await;
        (field(&response, "x-ratelimit-limit") == Some("2000")).then_some(())
    };
    let ((), took) = until("the new limit", changed).await;
    assert!(took < PROMISED, "{took:?}");
    assert_eq!(status(&gateway).await["version"], 2);

    gateway.write(&policy("3000/fortnight"));
    let (wrong, took) =
        until("the mistake is shown", async || status(&gateway).await["refused"].as_str().map(str::to_owned)).await;
    assert!(took < PROMISED, "{took:?}");
    assert!(wrong.contains("limits.toml:4:9") && wrong.contains("\"fortnight\" is no unit of time"), "{wrong}");
    let shown = status(&gateway).await;
    assert_eq!((&shown["version"], &shown["policy"]["rules"][0]["quota"]), (&json!(2), &json!("2000/h")));
    assert_eq!(field(&get(gateway.url("/")).await, "x-ratelimit-limit"), Some("2000"));
    let health = json(get(gateway.admin("/-/healthz")).await).await;
    assert_eq!(health["status"], "degraded");
    assert!(health["reasons"][0].as_str().expect("a reason").contains("the newest policy is refused"), "{health}");

    // What only a gateway cannot keep is refused in the same way.
    gateway.write(&policy("4000/h").replace("global", "route"));
    let no_routes =
        async || status(&gateway).await["refused"].as_str().filter(|wrong| wrong.contains("no routes")).map(drop);
    until("the other mistake is shown", no_routes).await;

    gateway.write(&policy("3000/h"));
    let mended = async || (status(&gateway).await["version"] == 3).then_some(());
    let ((), took) = until("the mended policy", mended).await;
    assert!(took < PROMISED, "{took:?}");
    assert_eq!(status(&gateway).await["refused"], Value::Null);
    assert_eq!(json(get(gateway.admin("/-/healthz")).await).await["status"], "ok");
}
