//! The program `sluicegate`, run as people and CI run it.

mod check;
mod explain;
mod general;

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// What a run came to.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cli/golden")
}

/// In the folder of the golden files, without settings of whoever runs the tests.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    command.args(args).current_dir(folder());
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS"] {
        command.env_remove(name);
    }
    command
}

fn end(command: &mut Command, input: &str) -> Ran {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    // Whoever does not read it closes it.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn run(args: &[&str]) -> Ran {
    end(&mut command(args), "")
}

/// As the file has it. Where that is not so and the new text is right, it is put there by hand.
#[track_caller]
fn assert_golden(found: &str, name: &str) {
    let golden = std::fs::read_to_string(folder().join(name)).expect("a file");
    assert!(found == golden, "found:\n{found}\nexpected:\n{golden}");
}
