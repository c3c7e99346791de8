use std::sync::Arc;

use http::request::Parts;

use super::{Rule, rule::Cost};
use crate::key::{IntoKey, KeyBy, ReadBody, wrong_bound};

type Closure = dyn Fn(&Parts, &[u8]) -> u64 + Send + Sync;

/// What a request costs by its body.
#[derive(Clone)]
pub(crate) struct CostByBody {
    max_bytes: usize,
    closure: Arc<Closure>,
}

impl CostByBody {
    pub(super) fn of(&self, head: &Parts) -> u64 {
        // Nobody asks before the body was read.
        (self.closure)(head, ReadBody::of(head).unwrap_or_default())
    }

    /// How much of the body it may look at.
    pub(crate) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    pub(super) fn problem(&self) -> Option<String> {
        wrong_bound(self.max_bytes)
    }
}

impl Rule {
    /// What a request costs, by its head and its body of at most `max_bytes`. The layer must be told to
    /// [read bodies](crate::RateLimitLayer::read_bodies).
    ///
    /// ```
    /// use axum::{Router, routing::post};
    /// use sluicegate::{key, Limiter, MemoryStore, Quota, RateLimitLayer, Rule};
    ///
    /// # fn main() -> Result<(), sluicegate::BuildError> {
    /// // A point for each line of a batch.
    /// let limiter = Limiter::builder(MemoryStore::new())
    ///     .rule(Rule::token_bucket("lines", Quota::per_minute(10_000)).key(key::ip()).cost_by_body(65_536, |_head, body| {
    ///         body.split(|byte| *byte == b'\n').count() as u64
    ///     }))
    ///     .build()?;
    /// let app: Router = Router::new()
    ///     .route("/batch", post(|batch: String| async move { batch }))
    ///     .layer(RateLimitLayer::new(limiter).read_bodies());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The body is read before anything is charged, and the service gets it unchanged. A longer one is answered 413. A request
    /// without a body is asked about with none: an empty slice. Bodies that the rule does not apply to, by [`when`](Rule::when) or for
    /// want of a key, are not read on its account. More about it in [`bodies`](crate::bodies).
    pub fn cost_by_body<F>(mut self, max_bytes: usize, closure: F) -> Rule
    where
        F: Fn(&Parts, &[u8]) -> u64 + Send + Sync + 'static,
    {
        self.cost = Cost::ByBody(CostByBody { max_bytes, closure: Arc::new(closure) });
        self
    }

    /// Counts requests together for which the closure returns the same key, by their head and their body of at most
    /// `max_bytes`. It may return what that of [`key_by`](Rule::key_by) may; otherwise it is as with
    /// [`cost_by_body`](Rule::cost_by_body).
    ///
    /// ```
    /// use sluicegate::{Quota, Rule};
    ///
    /// // Five tries a minute for each account, whoever tries.
    /// Rule::sliding_log("logins", Quota::per_minute(5))
    ///     .when(|req| req.uri.path() == "/login")
    ///     .key_by_body(4_096, |_head, body| {
    ///         let form: serde_json::Value = serde_json::from_slice(body).ok()?;
    ///         Some(form["user"].as_str()?.to_lowercase())
    ///     });
    /// ```
    ///
    /// [`KeyBy::by_body`] is the same as a key, for [`KeyBy::and`] and its kin.
    pub fn key_by_body<K, F>(self, max_bytes: usize, closure: F) -> Rule
    where
        K: IntoKey,
        F: Fn(&Parts, &[u8]) -> K + Send + Sync + 'static,
    {
        self.key(KeyBy::by_body(max_bytes, closure))
    }
}
