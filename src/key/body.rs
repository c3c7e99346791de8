//! What is found in the body of a request.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::request::Parts;

use super::{
    Found, IntoKey, KeyBy,
    by::Way,
    compose::{Closure, Miss},
};

/// A rule that looks at more of a body is a mistake: it is held in memory for each request.
pub(crate) const MOST_BYTES: usize = 1 << 30;

/// What is wrong with this bound on a body.
pub(crate) fn wrong_bound(max_bytes: usize) -> Option<String> {
    let fits = (1..=MOST_BYTES).contains(&max_bytes);
    (!fits).then(|| format!("{max_bytes} bytes of a body are out of range; give 1 to {MOST_BYTES}"))
}

/// The body of a request, as its layer has read it. It travels with the head to the closures that look at it, and no further.
#[derive(Clone, Default)]
pub(crate) struct ReadBody(pub(crate) Bytes);

impl ReadBody {
    /// `None`: nobody has read it.
    pub(crate) fn of(head: &Parts) -> Option<&[u8]> {
        head.extensions.get::<ReadBody>().map(|read| &*read.0)
    }
}

impl fmt::Debug for ReadBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadBody({} bytes)", self.0.len())
    }
}

impl KeyBy {
    /// By a closure that looks into the body; [`Rule::key_by_body`](crate::Rule::key_by_body) says what that takes.
    pub fn by_body<K, F>(max_bytes: usize, closure: F) -> KeyBy
    where
        K: IntoKey,
        F: Fn(&Parts, &[u8]) -> K + Send + Sync + 'static,
    {
        if let Some(problem) = wrong_bound(max_bytes) {
            return KeyBy::wrong(problem);
        }
        let find = move |head: &Parts| match ReadBody::of(head) {
            Some(body) => closure(head, body).into_key(),
            None => Found::from(Miss::Absent),
        };
        KeyBy { body: max_bytes, ..KeyBy::of(Way::Now(Arc::new(Closure(find)))) }
    }

    /// How much of a body it may look at; zero where it needs none.
    pub(crate) fn body(&self) -> usize {
        self.body
    }
}
