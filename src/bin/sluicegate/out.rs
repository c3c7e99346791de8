use std::io::{self, Stderr, Stdout, Write};

use anstream::AutoStream;

/// Where results and problems go. Colours are dropped where it is no terminal, and where `NO_COLOR` is set.
pub(crate) struct Out {
    result: AutoStream<Stdout>,
    problem: AutoStream<Stderr>,
    /// What went wrong first with writing results.
    failed: Option<io::Error>,
}

pub(crate) const BOLD: &str = "\x1b[1m";
pub(crate) const DIM: &str = "\x1b[2m";
pub(crate) const RED: &str = "\x1b[1;31m";
pub(crate) const GREEN: &str = "\x1b[1;32m";
pub(crate) const CYAN: &str = "\x1b[36m";
pub(crate) const PLAIN: &str = "\x1b[0m";

impl Out {
    pub(crate) fn new() -> Out {
        Out { result: AutoStream::auto(io::stdout()), problem: AutoStream::auto(io::stderr()), failed: None }
    }

    /// What was asked for.
    pub(crate) fn result(&mut self, text: &str) {
        if self.failed.is_none() {
            self.failed = self.result.write_all(text.as_bytes()).err();
        }
    }

    /// What is wrong. There is nobody to tell where that cannot be written.
    pub(crate) fn problem(&mut self, text: &str) {
        let _ = self.problem.write_all(text.as_bytes());
    }

    /// Whoever closes a pipe has read enough.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        let failed = self.failed.take().or_else(|| self.result.flush().err());
        failed.filter(|error| error.kind() != io::ErrorKind::BrokenPipe).map_or(Ok(()), Err)
    }
}

/// Lines in the colours that they are given.
pub(crate) fn paint(text: &str, colour: impl Fn(&str) -> Option<&'static str>) -> String {
    let mut painted = String::with_capacity(text.len() + 64);
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        match colour(line).filter(|_| !line.is_empty()) {
            Some(colour) => painted.extend([colour, line, PLAIN, end]),
            None => painted.extend([line, end]),
        }
    }
    painted
}
