use std::{fmt, sync::Arc};

use http::response::Parts;

pub(super) type OfResponse<T> = dyn Fn(&Parts) -> T + Send + Sync;

/// How a rule learns what a request really cost.
#[derive(Clone, Default)]
pub(crate) struct Settle {
    pub(super) count_if: Option<Arc<OfResponse<bool>>>,
    pub(super) by_response: Option<Arc<OfResponse<u64>>>,
    pub(super) by_bytes: Option<Arc<dyn Fn(u64) -> u64 + Send + Sync>>,
    pub(super) penalize_by: Option<Arc<OfResponse<u64>>>,
    /// Whether handlers may settle and penalize.
    pub(super) offered: bool,
}

impl Settle {
    pub(crate) fn is_needed(&self) -> bool {
        self.count_if.is_some() || self.by_response.is_some() || self.by_bytes.is_some() || self.penalize_by.is_some()
    }

    pub(crate) fn is_offered(&self) -> bool {
        self.offered
    }

    /// What the request is to pay beside its cost.
    pub(crate) fn penalty(&self, head: &Parts) -> u64 {
        self.penalize_by.as_ref().map_or(0, |closure| closure(head))
    }

    /// The cost, if the head of the response tells it.
    pub(crate) fn by_response(&self, head: &Parts) -> Option<u64> {
        if self.count_if.as_ref().is_some_and(|closure| !closure(head)) {
            return Some(0);
        }
        self.by_response.as_ref().map(|closure| closure(head))
    }

    pub(crate) fn wants_bytes(&self) -> bool {
        self.by_bytes.is_some()
    }

    /// The cost, if the length of the response tells it.
    pub(crate) fn by_bytes(&self, bytes: u64) -> Option<u64> {
        self.by_bytes.as_ref().map(|closure| closure(bytes))
    }
}

impl fmt::Debug for Settle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_needed() { "by closure" } else { "not" })
    }
}
