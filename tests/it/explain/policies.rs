//! What explanations say of where things come from.

use http::Request;
use sluicegate::policy::{Applies, Claims, KnownBy, Names, Origin, Outcome, Policy};

pub(super) fn policy(text: &str) -> Policy {
    Policy::from_toml(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Something of everything, with room for all requests of the tests.
pub(super) const TABLE: &str = r#"
    [tier]
    by = "header:x-plan"
    default = "free"

    [customer]
    by = "header:x-customer"

    [[rules]]
    name = "all"
    algorithm = "fixed_window"
    quota = "90000000/h"
    key = "global"

    [[rules]]
    name = "charges"
    algorithm = "sliding_counter"
    quota = "90000000/h"
    key = "api_key:x-api-key|ip"
    paths = ["/v1/charges", "/v1/charges/{id}"]
    methods = ["POST"]
    protects_service = true

    [[rules]]
    name = "reads"
    algorithm = "gcra"
    quota = "90000000/h"
    key = "header:x-customer"
    methods = ["GET"]
    roll_out = 50

    [[rules]]
    name = "logins"
    algorithm = "token_bucket"
    quota = "90000000/h"
    key = ["ip", "user"]
    paths = ["/login", "/login/{*rest}"]

    [[rules]]
    name = "strict"
    algorithm = "gcra"
    quota = "90000000/h"
    key = "api_key:x-api-key|refuse:401"
    paths = ["/strict/{*rest}"]

    [[rules]]
    name = "daily"
    algorithm = "fixed_window"
    key = "user"

    [[rules]]
    name = "at-a-time"
    algorithm = "concurrency"
    limit = 100000
    key = "header:x-customer"

    [[rules]]
    name = "weighed"
    algorithm = "token_bucket"
    quota = "90000000/h"
    key = "user"
    cost = "weight"
    reserve = { share = 0.2, for = "header:x-priority=high" }

    [tiers.free]
    daily = "90000000/h"
    [tiers.pro]
    daily = "91000000/h"
    all = { cost = 3 }
    at-a-time = 90000
    reads = { shadow = true }
    [tiers.enterprise]
    daily = "unlimited"

    [overrides.acme]
    rules.all = "95000000/h"
    [overrides.globex]
    tier = "pro"
    rules.daily = { cost = 2 }

    [lists]
    allow = { nets = ["10.0.0.0/8"] }
    deny = { rules = { daily = ["mallory"] } }
"#;

fn head(request: http::request::Builder) -> http::request::Parts {
    request.body(()).expect("a request").into_parts().0
}

fn names() -> Names {
    Names::new().key("user", |req| req.headers.get("x-user").cloned()).cost("weight", |_| 1)
}

#[test]
fn what_an_override_leaves_of_a_rule_is_the_tiers() {
    let request = Request::get("/").header("x-customer", "globex").header("x-user", "alice");
    let explanation = policy(TABLE).explain(&names(), &head(request)).expect("sound");
    let tier = explanation.tier().expect("tiers");
    assert_eq!((tier.name(), tier.known_by()), (Some("pro"), KnownBy::Override));
    let daily = explanation.rule("daily").expect("a rule");
    assert_eq!((daily.quota(), daily.quota_from()), ("91000000/h", Origin::Tier));
    assert_eq!((daily.cost(), daily.cost_from()), (Some(2), Origin::Override));
    let reads = explanation.rule("reads").expect("a rule");
    assert_eq!((reads.is_shadow(), reads.roll_out_from()), (true, Origin::Tier));
    assert_eq!(explanation.rule("all").map(|rule| rule.quota_from()), Some(Origin::Rule));
}

#[test]
fn how_tier_and_customer_are_known_is_told() {
    let policy = policy(TABLE);
    let tier = |plan: &str| {
        let explanation = policy.explain(&names(), &head(Request::get("/").header("x-plan", plan))).expect("sound");
        let tier = explanation.tier().expect("tiers").clone();
        (tier.name().map(str::to_owned), tier.known_by(), tier.found().map(str::to_owned))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(tier("pro"), (some("pro"), KnownBy::Request, some("pro")));
    assert_eq!(tier("gold"), (some("free"), KnownBy::Default, some("gold")));
    assert_eq!(tier("free"), (some("free"), KnownBy::Request, some("free")));
    let forced = policy.explainer(&names()).expect("sound").tier("pro").customer("acme");
    let explanation = forced.explain(&head(Request::get("/").header("x-plan", "free").header("x-customer", "globex")));
    let customer = explanation.customer().expect("customers");
    assert_eq!((customer.key(), customer.known_by(), customer.has_override()), (Some("acme"), KnownBy::Asker, true));
    assert_eq!(explanation.tier().map(|tier| tier.known_by()), Some(KnownBy::Asker));
}

#[test]
fn secrets_are_told_as_they_stand_in_the_store() {
    let text = r#"
        rules = [{ name = "calls", algorithm = "gcra", quota = "5/s", key = "api_key:x-api-key" }]
        customer = { by = "api_key:x-api-key" }
        [overrides."DIGEST"]
        rules.calls = "50/s"
    "#;
    let digest = sluicegate::key::Key::secret(b"sesame");
    let digest = String::from_utf8(digest.as_bytes().to_vec()).expect("ASCII");
    let policy = policy(&text.replace("DIGEST", &digest));
    let explanation =
        policy.explain(&Names::new(), &head(Request::get("/").header("x-api-key", "sesame"))).expect("sound");
    let calls = explanation.rule("calls").expect("a rule");
    assert_eq!((calls.key(), calls.quota_from()), (Some(&*digest), Origin::Override));
    let (shown, json) = (explanation.to_string(), serde_json::to_string(&explanation).expect("JSON"));
    assert!(!shown.contains("sesame") && !json.contains("sesame"), "{shown}\n{json}");
    // Both the secret and its digest name the customer.
    for name in ["sesame", &*digest] {
        let explainer = policy.explainer(&Names::new()).expect("sound").customer(name);
        let explanation = explainer.explain(&head(Request::get("/")));
        assert_eq!(explanation.rule("calls").map(|rule| rule.quota_from()), Some(Origin::Override), "{name}");
    }
}

#[test]
fn claims_preflights_and_keys_that_must_be_waited_for() {
    let text = r#"
        [[rules]]
        name = "claimed"
        algorithm = "gcra"
        quota = "5/s"
        key = "claim:sub"
        [[rules]]
        name = "waits"
        algorithm = "gcra"
        quota = "5/s"
        key = "session"
    "#;
    let names = Names::new().key_by("session", sluicegate::key::KeyBy::new_async(|_| async { "somebody" }));
    let claims = Claims::from_iter([("sub", "alice")]);
    let preflight = Request::options("/").header("origin", "x").header("access-control-request-method", "GET");
    let explanation = policy(text).explain(&names, &head(preflight.extension(claims))).expect("sound");
    assert!(explanation.is_preflight());
    assert_eq!(explanation.outcome(), &Outcome::Limited);
    let of = |name: &str| explanation.rule(name).map(|rule| (rule.applies(), rule.key().map(str::to_owned)));
    assert_eq!(of("claimed"), Some((Applies::Yes, Some("alice".into()))));
    assert_eq!(of("waits"), Some((Applies::Unknown, None)));
    assert!(explanation.tier().is_none() && explanation.customer().is_none());
}
