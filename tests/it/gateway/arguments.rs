//! What cannot be meant is said at the start, and the process ends with it.

use super::child::refused;
use crate::support::folder::Folder;

#[test]
fn arguments_that_cannot_be_meant_are_said() {
    for (arguments, said) in [
        (&["--confg=x.toml"][..], "there is no argument \"--confg\""),
        (&["--memory"], "--config is missing"),
        (&["--config"], "--config needs a value"),
        (&["--config", "--memory"], "--config needs a value"),
        (
            &["--config=x.toml", "--memory", "--redis=redis://127.0.0.1:1"],
            "one of --memory, --redis and --redis-cluster",
        ),
        (&["--config=x.toml", "--upstream=https://127.0.0.1:1"], "needs TLS"),
        (&["--config=x.toml", "--upstream=127.0.0.1:1"], "does not begin with http://"),
        (&["--config=x.toml", "--upstream=http://127.0.0.1:1/v1"], "has a path"),
        (&["--config=x.toml", "--drain=soon"], "--drain: \"soon\" is no number of seconds"),
        (&["--config=x.toml", "--drain=-1"], "no number of seconds"),
        (&["--config=x.toml", "--deadline=10ms"], "--deadline: \"10ms\" is no number of seconds"),
        (&["--config=x.toml", "--instances=0"], "no number from 1 on"),
        (&["--config=x.toml", "--listen=127.0.0.1:1", "--admin=127.0.0.1:1"], "must differ"),
    ] {
        let (code, _, log) = refused(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {log}");
        assert!(log.contains(said), "{arguments:?}: {log}");
    }
    let (code, help, _) = refused(&["--help"]);
    assert_eq!(code, Some(0));
    for argument in ["--config", "--upstream", "--redis-cluster", "--instances", "--deadline", "--drain", "/-/policy"] {
        assert!(help.contains(argument), "{help}");
    }
}

#[test]
fn a_policy_that_cannot_be_kept_is_said_with_its_place() {
    let folder = Folder::new();
    let rule = "[[rules]]\nname = \"a\"\nalgorithm = \"gcra\"\n";
    for (policy, said) in [
        (format!("{rule}quota = \"5/fortnight\"\nkey = \"ip\"\n"), "limits.toml:4:9: SG010"),
        (format!("{rule}quota = \"5/s\"\nkey = \"usr\"\n"), "no key is called \"usr\""),
        (
            format!("{rule}quota = \"5/s\"\nkey = \"route\"\n"),
            "rule \"a\": a gateway does not know \"route\": it has no routes",
        ),
        (format!("{rule}quota = \"5/s\"\nkey = [\"ip\", \"claim:sub|ip\"]\n"), "does not know \"claim:sub\""),
    ] {
        let file = folder.write("limits.toml", &policy);
        let (code, _, log) = refused(&["--config", &file, "--listen=127.0.0.1:0", "--admin=127.0.0.1:0"]);
        assert_eq!(code, Some(1), "{log}");
        assert!(log.contains(said), "{log}");
    }
    let (code, _, log) = refused(&["--config", &format!("{}/none.toml", folder.0.display())]);
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("none.toml") && log.contains("cannot be read"), "{log}");
}
