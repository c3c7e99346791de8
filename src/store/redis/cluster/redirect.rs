//! Replies by which a node turns a call away. Nothing ran, so following them charges nothing twice.

use redis::{ServerError, ServerErrorKind};

#[derive(Clone)]
pub(in super::super) enum Redirect {
    /// The slot belongs to another node.
    Moved(String),
    /// The slot is on its way to another node, and this key is there already, or new.
    Ask(String),
    /// The slot is on its way, and some of the keys are here, some there.
    TryAgain,
}

impl Redirect {
    pub(in super::super) fn read(error: &ServerError) -> Option<Redirect> {
        // The slot comes first; we know it.
        let target = || Some(error.details()?.split_ascii_whitespace().nth(1)?.to_owned());
        match error.kind()? {
            ServerErrorKind::Moved => target().map(Redirect::Moved),
            ServerErrorKind::Ask => target().map(Redirect::Ask),
            ServerErrorKind::TryAgain => Some(Redirect::TryAgain),
            _ => None,
        }
    }
}
