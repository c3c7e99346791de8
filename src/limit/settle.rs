use std::{fmt, sync::Arc};

use http::response::Parts;

use super::Rule;

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

impl Rule {
    /// What the request really cost, by the head of its response. It is charged what [`cost_by`](Rule::cost_by) says first; the
    /// difference is given back or owed when the response is there, see [`Charge`](crate::Charge). Whoever settles first, this or
    /// the handler, settles it.
    ///
    /// ```
    /// use sluicegate::{key, Quota, Rule};
    ///
    /// Rule::token_bucket("tokens", Quota::per_minute(10_000)).key(key::ip()).cost(500).settle_by(|response| {
    ///     response.headers.get("x-tokens").and_then(|tokens| tokens.to_str().ok()?.parse().ok()).unwrap_or(500)
    /// });
    /// ```
    pub fn settle_by<F>(mut self, closure: F) -> Rule
    where
        F: Fn(&Parts) -> u64 + Send + Sync + 'static,
    {
        self.settle.by_response = Some(Arc::new(closure));
        self
    }

    /// What the request really cost, by the bytes of its response's body: when it has ended, or nobody wants more of it.
    ///
    /// ```
    /// use sluicegate::{key, Quota, Rule};
    ///
    /// Rule::token_bucket("kilobytes", Quota::per_second(1_000)).key(key::ip()).settle_by_bytes(|bytes| bytes.div_ceil(1_024));
    /// ```
    pub fn settle_by_bytes<F>(mut self, closure: F) -> Rule
    where
        F: Fn(u64) -> u64 + Send + Sync + 'static,
    {
        self.settle.by_bytes = Some(Arc::new(closure));
        self
    }

    /// Counts only requests whose response the closure is true for. Each is charged first and given back after, so that many at once
    /// do not slip through; one whose response never came, because the client left, stays counted.
    ///
    /// ```
    /// use sluicegate::{key, Quota, Rule};
    ///
    /// // Five wrong passwords a quarter of an hour; right ones are free.
    /// Rule::sliding_log("logins", Quota::per(5, std::time::Duration::from_secs(900)))
    ///     .key(key::ip())
    ///     .count_if(|response| response.status == 401);
    /// ```
    pub fn count_if<F>(mut self, closure: F) -> Rule
    where
        F: Fn(&Parts) -> bool + Send + Sync + 'static,
    {
        self.settle.count_if = Some(Arc::new(closure));
        self
    }
}
