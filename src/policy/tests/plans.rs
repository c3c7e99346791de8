use std::time::Duration;

use http::{Method, Request, request::Parts};

use super::*;
use crate::{
    OnFailure,
    key::{Found, Key, KeyBy},
    lists::Listed,
    policy::{Claims, Override},
};

fn head(fields: &[(&str, &str)]) -> Parts {
    let request = fields.iter().fold(Request::builder(), |request, (name, value)| request.header(*name, *value));
    request.body(()).expect("a request").into_parts().0
}

fn key_of(by: &KeyBy, head: &Parts) -> String {
    match by.find_now(head) {
        Some(Found::Key(key)) => String::from_utf8_lossy(key.as_bytes()).into_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_document_becomes_a_plan() {
    let plan = whole().plan(&names()).unwrap_or_else(|error| panic!("{error}"));
    let planned: Vec<String> = plan.rules.iter().map(|one| format!("{} {}", one.rule.name, one.rule.quota)).collect();
    assert_eq!(
        planned,
        [
            "per-merchant 100 per 60s, burst 20",
            "daily unlimited",
            "at-a-time 20 per 45s",
            "webhooks 10 per 1s",
            "logins 5 per 900s",
            "exports 1000 per 3600s",
            "nightly 1000 per 86400s",
            "trial 10 per 3600s",
            "flow 50 per 1s",
        ]
    );
    let only: Vec<bool> = plan.rules.iter().map(|one| one.quota_by_tier_only).collect();
    assert_eq!(only, [false, true, false, false, false, false, false, false, false]);
    let first = &plan.rules[0];
    let paths: Vec<String> = first.paths.iter().map(ToString::to_string).collect();
    assert_eq!(paths, ["/v1/charges", "/v1/users/{_}", "/v1/{*_}"]);
    assert_eq!(first.methods, [Method::POST, Method::from_bytes(b"PURGE").expect("a method")]);
    assert_eq!((first.rule.roll_out, first.rule.on_failure), (5.0, Some(OnFailure::Refuse)));
    assert!(first.rule.when.holds(&head(&[])), "paths and methods are no condition");
    assert_eq!(first.rule.cost.of(&head(&[])), 3);
    assert_eq!(plan.on_failure, Some(OnFailure::Local));
    assert!(plan.headers.is_some());
}

#[test]
fn tiers_replace_what_they_name() {
    let plan = whole().plan(&names()).expect("a plan");
    assert_eq!(plan.default_tier.and_then(|place| plan.tiers.get(place)).map(|tier| &*tier.name), Some("free"));
    let hour = Some(Quota::per_calendar_day(1_000).utc_offset_minutes(60));
    assert_eq!(quota_of(&plan, "free", "daily"), hour);
    assert_eq!(quota_of(&plan, "free", "per-merchant"), None);
    assert_eq!(quota_of(&plan, "pro", "per-merchant"), Some(Quota::per_minute(1_000).burst(200)));
    assert_eq!(quota_of(&plan, "pro", "daily"), Some(Quota::unlimited()));
    assert_eq!(quota_of(&plan, "pro", "at-a-time"), Some(Quota::per(50, Duration::from_secs(45))));
    assert_eq!(quota_of(&plan, "pro", "flow"), Some(Quota::per_second(50).burst(10)));
    assert_eq!(quota_of(&plan, "enterprise", "at-a-time"), Some(Quota::unlimited()));
    let month = Quota::per_calendar_month(1_000_000).utc_offset_minutes(-210);
    assert_eq!(quota_of(&plan, "enterprise", "daily"), Some(month));
    let pro = plan.tiers.iter().find(|tier| &*tier.name == "pro").expect("a tier");
    let of = |rule| pro.replaced.iter().find(|one| one.rule == rule).map(|one| (one.roll_out, one.cost));
    assert_eq!((of(0), of(8)), (Some((Some(50.0), Some(2))), Some((Some(0.0), None))));
    // Whatever is put together of them can be built.
    for tier in &plan.tiers {
        for one in &tier.replaced {
            let rule = one.apply(&plan.rules[one.rule].rule);
            assert!(rule.check().is_ok(), "{} in {}", rule.name, tier.name);
        }
    }
}

#[test]
fn tiers_are_found_where_the_document_says() {
    let of = |by: &str, head: &Parts| {
        let text = format!(
            "[tier]\nby = \"{by}\"\n[tiers.a]\n[[rules]]\nname = \"r\"\nalgorithm = \"gcra\"\nquota = \"5/s\"\nkey = \"ip\"\n"
        );
        let plan = read("x.toml", &text).unwrap_or_else(|error| panic!("{error}"));
        plan.tier_by.expect("a way").with(head, |tier| tier.map(str::to_owned))
    };
    let mut request = head(&[("x-plan", " pro ")]);
    request.extensions.insert(Claims::from_iter([("plan", "gold")]));
    assert_eq!(of("header:x-plan", &request).as_deref(), Some("pro"));
    assert_eq!(of("claim:plan", &request).as_deref(), Some("gold"));
    assert_eq!(of("plan", &request).as_deref(), Some("free"));
    let other = head(&[("x-plan", "pro"), ("x-plan", "free")]);
    assert_eq!((of("header:x-plan", &other), of("claim:plan", &other)), (None, None));
}

#[test]
fn keys_are_found_as_they_are_written() {
    let plan = whole().plan(&names()).expect("a plan");
    let key = |place: usize, head: &Parts| key_of(plan.rules[place].rule.key.as_ref().expect("a key"), head);
    let mut request = head(&[("x-user", "ann"), ("x-forwarded-for", "192.0.2.7"), ("x-key", "secret")]);
    request.extensions.insert(std::net::IpAddr::from([10, 0, 0, 1]));
    assert_eq!(key(0, &request), "ann");
    // The proxy's word is taken for it.
    assert_eq!(key(2, &request), "|v4:192.0.2.7");
    assert_eq!(key(3, &request), format!("{:?}", Some(Found::Refuse(http::StatusCode::BAD_REQUEST))));
    assert_eq!(key(6, &request).as_bytes(), Key::secret(b"secret").as_bytes());
    let tenant = plan.rules[5].rule.fair_share.as_ref().expect("tenants").tenant.clone();
    request.extensions.insert(Claims::from_iter([("org", "a b")]));
    assert_eq!(key_of(&tenant, &request), "a%20b");
}

#[test]
fn overrides_are_found_by_the_key_of_the_customer() {
    let plan = whole().plan(&names()).expect("a plan");
    let by = plan.customer_by.as_ref().expect("a customer");
    let of = |customer: &str| {
        let key = key_of(by, &head(&[("x-customer", customer)]));
        plan.overrides.get(key.as_bytes())
    };
    let named = |name: &str| plan.rules.iter().enumerate().find(|(_, planned)| &*planned.rule.name == name);
    let acme = of("acme").expect("an override");
    assert_eq!(acme.tier_name(), Some("enterprise"));
    let replaced = acme.replacements(named, &[]).expect("a good one");
    assert_eq!(replaced.len(), 1);
    assert_eq!((replaced[0].rule, replaced[0].quota), (0, Some(Quota::per_minute(5_000).burst(500))));
    assert!(of("a b").is_some() && of("other").is_none());
    let bad = Override::new()
        .quota("nobody", Quota::per_second(1))
        .limit("per-merchant", 5)
        .quota("logins", Quota::per_second(0));
    let error = bad.replacements(named, &[]).expect_err("three problems");
    let codes: Vec<&str> = error.iter().map(super::super::Problem::code).collect();
    assert_eq!(codes, ["SG012", "SG007", "SG012"], "{error}");
}

#[test]
fn customers_are_written_as_people_write_them() {
    for (by, written, fields, address) in [
        ("header:x-c", "a b", ("x-c", "a b"), [192, 0, 2, 1]),
        ("ip", "192.0.2.1", ("x-c", ""), [192, 0, 2, 1]),
        ("api_key:x-c", "#2bb80d537b1da3e38bd30361aa855686", ("x-c", "secret"), [192, 0, 2, 1]),
        ("header:x-d|ip", "|v4:192.0.2.1", ("x-c", ""), [192, 0, 2, 1]),
        ("header:x-c|ip", "acme", ("x-c", "acme"), [192, 0, 2, 1]),
    ] {
        let text = format!(
            "[customer]\nby = \"{by}\"\n[overrides.\"{written}\"]\nrules.r = \"9/s\"\n[[rules]]\nname = \"r\"\nalgorithm = \"gcra\"\nquota = \"5/s\"\nkey = \"ip\"\n"
        );
        let plan = read("x.toml", &text).unwrap_or_else(|error| panic!("{error}"));
        let mut request = head(&[fields]);
        request.extensions.insert(std::net::IpAddr::from(address));
        let key = key_of(plan.customer_by.as_ref().expect("a customer"), &request);
        assert!(plan.overrides.contains_key(key.as_bytes()), "{by}: {key}");
    }
}

#[test]
fn lists_know_their_entries() {
    let plan = whole().plan(&names()).expect("a plan");
    let lists = plan.lists.expect("lists");
    assert_eq!(lists.len(), 5);
    let key = |text: &[u8]| lists.of_key("per-merchant", &Key::new(text)).listed();
    assert_eq!((key(b"acme"), key(b"other")), (Some(Listed::Allowed), None));
    assert_eq!(lists.of_key("logins", &Key::stored(b"v4:192.0.2.1".to_vec())).listed(), Some(Listed::Allowed));
    let digest = Key::stored(b"#0123456789abcdef0123456789abcdef".to_vec());
    assert_eq!(lists.of_key("nightly", &digest).listed(), Some(Listed::Denied));
    assert_eq!(lists.of_address([192, 0, 2, 9].into()).listed(), Some(Listed::Denied));
}

#[test]
fn what_is_shown_is_the_same_document() {
    let policy = whole();
    let json = serde_json::to_string(&policy).expect("JSON");
    let again = Policy::from_json(&json).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again, policy);
    assert_ne!(again, Policy::from_json(&json.replace("1000/min", "1001/min")).expect("another"));
    let over = Override::tier("pro")
        .quota("a", Quota::per(3, Duration::from_millis(1_500)).burst(4))
        .shadow("b", true)
        .cost("b", 2);
    assert_eq!(Override::from_json(&serde_json::to_string(&over).expect("JSON")), Ok(over));
}

#[test]
fn useful_rules_are_not_superfluous() {
    let two = |first: &str, second: &str, rest: &str| {
        let rule = |name: &str, more: &str| format!("[[rules]]\nname = \"{name}\"\nkey = \"ip\"\n{more}\n");
        let text = format!("{}{}{rest}", rule("a", first), rule("b", second));
        read("x.toml", &text).err().map(|error| error.iter().map(|one| one.code()).collect::<Vec<_>>().join(" "))
    };
    let bucket = |quota: &str| format!("algorithm = \"token_bucket\"\nquota = \"{quota}\"");
    let tiers = "[tier]\nby = \"plan\"\n[tiers.free]\nb = \"10/min\"\n";
    assert_eq!(two(&bucket("100/min"), &bucket("200/min"), ""), Some("SG021".into()));
    assert_eq!(two(&bucket("200/min"), &bucket("100/min"), ""), Some("SG021".into()));
    assert_eq!(two(&bucket("100/min"), &bucket("100/min"), ""), Some("SG021".into()));
    for (first, second, rest) in [
        (bucket("100/min"), bucket("2/s"), ""),
        (bucket("100/min"), format!("{}\nburst = 50", bucket("200/min")), ""),
        (format!("{}\nshadow = true", bucket("100/min")), bucket("200/min"), ""),
        (format!("{}\nroll_out = 50", bucket("100/min")), bucket("200/min"), ""),
        (bucket("100/min"), format!("{}\nshadow = true", bucket("200/min")), ""),
        (bucket("100/min"), format!("{}\npaths = [\"/x\"]", bucket("200/min")), ""),
        (bucket("100/min"), format!("{}\ncost = 5", bucket("200/min")), ""),
        (bucket("100/min"), format!("{}\non_failure = \"refuse\"", bucket("200/min")), ""),
        (bucket("100/min"), bucket("200/min"), tiers),
        (
            bucket("100/min"),
            bucket("200/min"),
            "[customer]\nby = \"ip\"\n[overrides.\"192.0.2.1\"]\nrules.a = \"500/min\"\n",
        ),
        (bucket("100/min"), "algorithm = \"gcra\"\nquota = \"200/min\"".into(), ""),
    ] {
        assert_eq!(two(&first, &second, rest), None, "{first}\n{second}\n{rest}");
    }
}

/// Calls name their rules: that one counts for a call says nothing of the other.
#[test]
fn rules_of_keys_that_calls_are_given_are_never_too_many() {
    let rule = |name: &str, key: &str| {
        format!("[[rules]]\nname = {name:?}\nalgorithm = \"gcra\"\nquota = \"5/s\"\nkey = {key:?}\n")
    };
    Policy::from_toml(&(rule("emails", "given") + &rule("texts", "given"))).expect("two rules");
    Policy::from_toml(&(rule("emails", "ip|given") + &rule("texts", "ip|given"))).expect("two rules");
    let error = Policy::from_toml(&(rule("emails", "ip") + &rule("texts", "ip"))).expect_err("one too many");
    assert_eq!(error.iter().next().map(super::super::Problem::code), Some("SG021"));
}

#[test]
fn the_secret_of_a_customer_is_not_shown_whatever_is_wrong_with_its_override() {
    let text = "[customer]\nby = \"api_key:x-key\"\n[overrides]\nsk_live_7 = { tier = 5 }\n[[rules]]\nname = \"r\"\nalgorithm = \"gcra\"\n\
                quota = \"5/s\"\nkey = \"ip\"\n";
    let error = Policy::from_toml(text).expect_err("no tier is a number").to_string();
    assert!(error.contains("one of the overrides: tier: the number 5 cannot stand here"), "{error}");
    assert!(!error.contains("sk_live_7"), "{error}");
    for by in
        ["bearer", "cookie:sid", "header:x-api-key", "header:authorization", "header:x-session", "ip|header:X-Token"]
    {
        let error = Policy::from_toml(&text.replace("api_key:x-key", by)).expect_err("the same").to_string();
        assert!(error.contains("tier: the number 5") && !error.contains("sk_live_7"), "{by}: {error}");
    }
    for by in ["header:x-customer", "ip"] {
        let error = Policy::from_toml(&text.replace("api_key:x-key", by)).expect_err("the same").to_string();
        assert!(error.contains("override \"sk_live_7\": tier"), "{by}: {error}");
    }
}

/// Who has no limit is not banned either: whether a rule has one may be up to the tier.
#[test]
fn a_rule_with_a_ban_may_have_its_limits_by_tier() {
    let of = |quota: &str, pro: &str| {
        Policy::from_toml(&format!(
            "[tier]\nby = \"plan\"\ndefault = \"free\"\n[tiers.free]\nr = \"10/min\"\n[tiers.pro]\nr = \"{pro}\"\n[[rules]]\nname = \
             \"r\"\nalgorithm = \"gcra\"\nkey = \"ip\"\nban = {{ after = 3 }}\n{quota}\n"
        ))
    };
    of("", "50/min").expect("limits by tier");
    of("", "unlimited").expect("a tier without a limit");
    of("quota = \"unlimited\"", "50/min").expect("limits by tier");
    of("quota = \"5/min\"", "unlimited").expect("a tier without a limit");
}

/// A customer whose override names no tier may be of any.
#[test]
fn an_override_suits_every_tier_it_may_stand_in() {
    let of = |tier: &str| {
        let text = format!(
            "[tier]\nby = \"plan\"\n[customer]\nby = \"header:x-customer\"\n[tiers.a]\nr = \"10/min\"\n[tiers.b]\nr = \
             \"unlimited\"\n[overrides.acme]\n{tier}\nrules.r = {{ burst = 50 }}\n[[rules]]\nname = \"r\"\nalgorithm = \"gcra\"\nkey = \
             \"ip\"\nquota = \"5/min\"\n"
        );
        Policy::from_toml(&text).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(of("tier = \"a\""), Ok(()));
    let error = of("").expect_err("no burst of what has no limit");
    assert!(error.contains("override \"acme\", where its tier is \"b\": rule \"r\": burst"), "{error}");
    let error = of("tier = \"b\"").expect_err("the same");
    assert!(error.contains("override \"acme\": rule \"r\": burst"), "{error}");
}

/// Overrides may be kept elsewhere.
#[test]
fn what_overrides_may_change_is_not_said_to_be_of_no_use() {
    let customer = "[customer]\nby = \"header:x-customer\"\n";
    let rule = |name: &str, quota: &str| {
        format!("[[rules]]\nname = {name:?}\nalgorithm = \"gcra\"\nquota = {quota:?}\nkey = \"ip\"\n")
    };
    for rules in [rule("a", "unlimited"), rule("a", "5/min") + &rule("b", "9/min")] {
        Policy::from_toml(&rules).expect_err("of no use");
        Policy::from_toml(&format!("{customer}{rules}")).expect("of use to some");
    }
}
