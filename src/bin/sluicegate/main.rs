//! The command line of sluicegate: looks at policies, for people who write and operate them.

mod args;
mod check;
mod explain;
mod hints;
mod input;
mod out;
mod request;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use out::Out;

/// What a command comes to. Of several, the worst counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Fine = 0,
    /// The policy has problems.
    Problems = 1,
    /// The command was used wrongly, or a file cannot be read.
    WrongUse = 2,
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and versions are no errors. Whoever does not listen any more misses nothing.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { End::WrongUse as u8 } else { End::Fine as u8 });
        }
    };
    let mut out = Out::new();
    let end = match &args.command {
        Command::Check(check) => check::run(check, &mut out),
        Command::Explain(explain) => explain::run(explain, &mut out),
        Command::Schema => {
            out.result(sluicegate::policy::Policy::schema());
            End::Fine
        }
    };
    match out.end() {
        Ok(()) => ExitCode::from(end as u8),
        Err(error) => {
            out.problem(&format!("error: the result cannot be written: {error}\n"));
            ExitCode::from(End::WrongUse as u8)
        }
    }
}
