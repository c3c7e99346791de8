use std::{
    fs,
    io::{self, Read},
    path::Path,
};

use sluicegate::policy::{self, Policy, PolicyError};

use crate::{
    End,
    args::Format,
    out::{BOLD, CYAN, Out, RED, paint},
};

/// Why there is no policy.
pub(crate) enum Failed {
    /// A file that cannot be read.
    Unread(String),
    Problems(Box<PolicyError>),
}

impl From<PolicyError> for Failed {
    fn from(error: PolicyError) -> Failed {
        Failed::Problems(Box::new(error))
    }
}

/// Reads a policy from a file, or from standard input.
pub(crate) fn read(name: &str, format: Option<Format>) -> Result<Policy, Failed> {
    if name == "-" {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map_err(|error| Failed::Unread(format!("standard input: {error}")))?;
        return Ok(Policy::named("stdin", &text, format.unwrap_or(Format::Toml).into())?);
    }
    let ending = Path::new(name).extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
    let format: policy::Format = match (format, ending.as_deref()) {
        (Some(format), _) => format.into(),
        (None, Some("toml")) => policy::Format::Toml,
        (None, Some("json")) => policy::Format::Json,
        (None, _) => {
            return Err(Failed::Unread(format!(
                "{name}: ends neither in .toml nor in .json; say --format toml or --format json"
            )));
        }
    };
    let text = fs::read_to_string(name).map_err(|error| Failed::Unread(format!("{name}: {error}")))?;
    Ok(Policy::named(name, &text, format)?)
}

impl Failed {
    /// Tells of it, in colours.
    pub(crate) fn tell(&self, out: &mut Out) -> End {
        match self {
            Failed::Unread(text) => {
                out.problem(&format!("{RED}error{}: {text}\n", crate::out::PLAIN));
                End::WrongUse
            }
            Failed::Problems(error) => {
                let name = error.source_name();
                out.problem(&paint(&error.to_string(), |line| {
                    let inner = line.trim_start();
                    if line.starts_with(name) && line.contains(": SG") {
                        Some(BOLD)
                    } else if inner.starts_with('|') && inner.ends_with('^') {
                        Some(RED)
                    } else {
                        inner.starts_with("= ").then_some(CYAN)
                    }
                }));
                End::Problems
            }
        }
    }

    pub(crate) fn end(&self) -> End {
        match self {
            Failed::Unread(_) => End::WrongUse,
            Failed::Problems(_) => End::Problems,
        }
    }
}
