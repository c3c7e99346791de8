use super::{assert_golden, command, end, run};

const GOOD: &str = "[[rules]]\nname = \"per-ip\"\nalgorithm = \"gcra\"\nquota = \"5/s\"\nkey = \"ip\"\n";

#[test]
fn a_good_policy_is_shown_as_a_table() {
    let ran = run(&["check", "limits.toml", "--name", "user,critical"]);
    assert_golden(&ran.out, "check.txt");
    assert_eq!((ran.code, &*ran.err), (Some(0), ""));
    let ran = run(&["check", "--quiet", "limits.toml", "--name", "user", "--name", "critical"]);
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), "", ""));
}

#[test]
fn problems_are_told_with_their_places() {
    let ran = run(&["check", "bad.toml"]);
    assert_golden(&ran.err, "bad.txt");
    assert_eq!((ran.code, &*ran.out), (Some(1), ""));
}

#[test]
fn unknown_names_are_told_with_the_flag_that_makes_them_known() {
    let ran = run(&["check", "limits.toml"]);
    assert_golden(&ran.err, "names.txt");
    assert_eq!((ran.code, &*ran.out), (Some(1), ""));
    // A name that is not in the policy makes nothing known.
    assert_eq!(run(&["check", "limits.toml", "--name", "usr,critical"]).code, Some(1));
}

#[test]
fn one_bad_file_of_several_is_enough_and_the_others_are_shown() {
    let ran = run(&["check", "bad.toml", "small.json", "limits.toml", "--name", "user,critical"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.out.starts_with("\nsmall.json: ok, 1 rule\n\n") && ran.out.contains("\nlimits.toml: ok, 5 rules"),
        "{ran:?}"
    );
    assert!(ran.err.starts_with("bad.toml:4:9: SG010"), "{ran:?}");
}

#[test]
fn files_that_cannot_be_read_are_wrong_use() {
    for (file, text) in
        [("absent.toml", "error: absent.toml: "), ("check.txt", "error: check.txt: ends neither in .toml")]
    {
        let ran = run(&["check", file, "small.json"]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.starts_with(text) && ran.out.contains("small.json: ok"), "{ran:?}");
    }
    assert!(run(&["check", "check.txt"]).err.contains("--format toml"));
    // Named, it is read, and is none.
    let ran = run(&["check", "check.txt", "--format", "toml"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
}

#[test]
fn standard_input_is_toml_unless_said() {
    let ran = end(&mut command(&["check", "-"]), GOOD);
    assert_eq!((ran.code, ran.out.lines().next()), (Some(0), Some("stdin: ok, 1 rule")), "{ran:?}");
    let json = include_str!("golden/small.json");
    assert_eq!(end(&mut command(&["check", "-", "--format", "json"]), json).code, Some(0));
    let ran = end(&mut command(&["check", "-"]), json);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.starts_with("stdin:1:"), "{ran:?}");
    let ran = end(&mut command(&["check", "-"]), "\u{0}\u{1}");
    assert_eq!(ran.code, Some(1), "{ran:?}");
}

#[test]
fn json_has_problems_and_rules() {
    let ran = run(&["check", "--json", "small.json", "bad.toml", "absent.toml"]);
    assert_eq!((ran.code, &*ran.err), (Some(2), ""));
    let shown: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(shown[0]["ok"], true);
    assert_eq!(shown[0]["outline"]["rules"][0]["quota"], "5/s");
    assert_eq!(shown[1]["ok"], false);
    assert_eq!((&shown[1]["problems"][0]["code"], &shown[1]["problems"][0]["line"]), (&"SG010".into(), &4.into()));
    assert_eq!(shown[2]["problems"][0]["code"], "SG030");
}

#[test]
fn what_only_building_a_limiter_finds_is_found() {
    let rule = |number: usize| {
        GOOD.replace("per-ip", &format!("rule-{number}"))
            .replace("key", "paths = [\"/x/{y}\", \"/N\"]\nkey")
            .replace('N', &number.to_string())
    };
    let ran = end(&mut command(&["check", "-"]), &(0..65).map(rule).collect::<String>());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("64"), "{ran:?}");
}
