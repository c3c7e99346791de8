use std::process::Stdio;

use sluicegate::policy::Policy;

use super::{command, end, run};

#[test]
fn the_schema_is_the_librarys() {
    let ran = run(&["schema"]);
    assert_eq!((ran.code, &*ran.out, &*ran.err), (Some(0), Policy::schema(), ""));
    let schema: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    assert!(schema["properties"]["rules"].is_object(), "{schema}");
}

#[test]
fn help_and_version_are_no_errors_and_wrong_use_is() {
    for args in [&["--help"][..], &["check", "--help"], &["explain", "--help"], &["schema", "--help"]] {
        let ran = run(args);
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{args:?}");
        assert!(
            ran.out.contains("sluicegate ") && ran.out.contains("  sluicegate schema") | ran.out.contains("Example"),
            "{}",
            ran.out
        );
    }
    let version = format!("sluicegate {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(run(&["--version"]).out, version);
    for args in [&[][..], &["chek"], &["check"], &["check", "--quiet", "--json", "limits.toml"], &["schema", "x"]] {
        let ran = run(args);
        assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{args:?}: {ran:?}");
        assert!(ran.err.contains("Usage:"), "{args:?}: {ran:?}");
    }
}

#[test]
fn colours_are_for_terminals() {
    let coloured = |name: &str, more: Option<&str>, args: &[&str]| {
        let mut command = command(args);
        command.env(name, "1");
        more.map(|more| command.env(more, "1"));
        let ran = end(&mut command, "");
        ran.out.contains('\u{1b}') || ran.err.contains('\u{1b}')
    };
    let [check, bad, explain] = [
        &["check", "small.json"][..],
        &["check", "bad.toml"],
        &["explain", "small.json", "--path", "/", "--peer", "::1"],
    ];
    for args in [check, bad, explain] {
        assert!(!coloured("NOTHING", None, args), "{args:?}");
        // There are some.
        assert!(coloured("CLICOLOR_FORCE", None, args), "{args:?}");
        assert!(!coloured("CLICOLOR_FORCE", Some("NO_COLOR"), args), "{args:?}");
    }
}

#[test]
fn whoever_closes_the_pipe_has_read_enough() {
    for args in [&["schema"][..], &["check", "small.json"], &["explain", "small.json", "--path", "/"], &["--help"]] {
        let (reads, writes) = std::io::pipe().expect("a pipe");
        drop(reads);
        let mut command = command(args);
        let output = command.stdin(Stdio::null()).stdout(writes).stderr(Stdio::piped()).output().expect("it runs");
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""), "{args:?}");
    }
}
