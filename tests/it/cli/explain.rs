use super::{Ran, assert_golden, command, end, run};

fn explain(args: &[&str]) -> Ran {
    run(&[&["explain", "limits.toml"], args].concat())
}

#[test]
fn a_request_is_explained_rule_by_rule() {
    let ran = explain(&[
        "--method",
        "post",
        "--path",
        "/v1/charges/7?x=1",
        "--claim",
        "merchant=acme",
        "--header",
        "x-api-key: k",
        "--key",
        "user=alice",
    ]);
    assert_golden(&ran.out, "explain.txt");
    assert_eq!((ran.code, &*ran.err), (Some(0), ""));
}

#[test]
fn tier_customer_and_condition_can_be_given() {
    let ran = explain(&[
        "--path",
        "/",
        "--tier",
        "growth",
        "--customer",
        "globex",
        "--condition",
        "critical",
        "--claim",
        "merchant=globex",
        "--peer",
        "2001:db8::1",
        "--key",
        "user=alice",
    ]);
    assert_golden(&ran.out, "given.txt");
    assert_eq!((ran.code, &*ran.err), (Some(0), ""));
}

#[test]
fn what_is_missing_is_told_with_the_flags_that_give_it() {
    let ran = explain(&["--path", "/login"]);
    assert_golden(&ran.out, "missing.txt");
    assert_eq!((ran.code, &*ran.err), (Some(0), ""));
}

#[test]
fn lists_are_told() {
    let ran = explain(&["--path", "/", "--peer", "10.1.2.3"]);
    assert!(ran.out.contains("let through: it is on the allow list, by the client's address"), "{ran:?}");
    let ran = explain(&["--path", "/", "--key", "user=mallory"]);
    assert!(ran.out.contains("refused with 403: it is on the deny list, by its key of rule \"daily\""), "{ran:?}");
}

#[test]
fn secrets_are_not_shown() {
    for more in [&[][..], &["--json"]] {
        let ran = explain(&[&["--path", "/", "--header", "x-api-key: sesame"], more].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(!ran.out.contains("sesame") && ran.out.contains('#'), "{ran:?}");
    }
}

#[test]
fn json_is_the_same_for_machines() {
    let ran =
        explain(&["--json", "--path", "/", "--claim", "plan=growth", "--key", "user=alice", "--claim", "merchant=a"]);
    let shown: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(shown["tier"]["name"], "growth");
    assert_eq!(shown["tier"]["known_by"], "request");
    assert_eq!(shown["outcome"]["is"], "limited");
    let rules: Vec<_> = shown["rules"].as_array().expect("rules").iter().map(|rule| &rule["applies"]).collect();
    assert_eq!(rules, ["other_path", "yes", "no_key", "unlimited", "other_path"]);
    assert_eq!(shown["rules"][1]["quota"], "1000/s, burst 2000");
    assert_eq!(shown["rules"][1]["quota_from"], "tier");
    assert_eq!(shown["assumed"].as_array().map(Vec::len), Some(1));
}

#[test]
fn what_cannot_be_meant_is_wrong_use() {
    for (args, text) in [
        (&["--path", "/", "--tier", "gold"][..], "--tier: no tier is called \"gold\"; the tiers are growth, starter"),
        (&["--path", "/", "--key", "usr=a"], "the policy names no key \"usr\""),
        (&["--path", "/", "--cost", "weight=2"], "the policy names no cost \"weight\""),
        (&["--path", "/", "--condition", "calm"], "it names critical"),
        (&["--path", "v1"], "a path begins with a slash"),
        (&["--path", "/", "--header", "x"], "write it as 'x-api-key: VALUE'"),
        (&["--path", "/", "--method", "G T"], "this is no method"),
        (&["--path", "/", "--peer", "here"], "invalid IP address"),
        (&["--path", "/", "--namespace", "a b"], "namespace"),
        (&[], "--path <PATH>"),
    ] {
        let ran = explain(args);
        assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{args:?}: {ran:?}");
        assert!(ran.err.contains(text), "{args:?}: {}", ran.err);
    }
    let ran = run(&["explain", "small.json", "--path", "/", "--tier", "pro"]);
    assert_eq!((ran.code, &*ran.err), (Some(2), "error: --tier: the policy has no tiers\n"));
    let ran = run(&["explain", "small.json", "--path", "/", "--customer", "acme"]);
    assert!(ran.code == Some(2) && ran.err.contains("the policy knows no customers"), "{ran:?}");
}

#[test]
fn a_bad_policy_is_told_of_and_not_explained() {
    let ran = run(&["explain", "bad.toml", "--path", "/"]);
    assert_eq!((ran.code, &*ran.out), (Some(1), ""));
    assert!(ran.err.starts_with("bad.toml:4:9: SG010"), "{ran:?}");
    let ran =
        end(&mut command(&["explain", "-", "--path", "/", "--format", "json"]), include_str!("golden/small.json"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
}
