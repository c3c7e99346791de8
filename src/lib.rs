//! Rate limiting for tower and axum, in memory or shared over Redis and Valkey: every rule of a request in one atomic decision.
//!
//! ```
//! use axum::{Router, routing::post};
//! use sluicegate::{key, Limiter, MemoryStore, Quota, RateLimitLayer, Rule};
//!
//! # fn user_of(req: &http::request::Parts) -> Option<String> { None }
//! # async fn charge() {}
//! # fn main() -> Result<(), sluicegate::BuildError> {
//! let store = MemoryStore::new();                    // or RedisStore::connect("redis://127.0.0.1:6379")?
//! let limiter = Limiter::builder(store)
//!     .rule(Rule::token_bucket("per-user", Quota::per_minute(100).burst(20)).key_by(|req| user_of(req)))
//!     .rule(Rule::sliding_counter("per-ip", Quota::per_minute(1_000)).key(key::ip()))
//!     .rule(Rule::fixed_window("charges", Quota::per_second(10_000)).key(key::route()))
//!     .build()?;                                     // what is wrong is said here, by rule and field
//!
//! let app: Router = Router::new().route("/v1/charges", post(charge)).layer(RateLimitLayer::new(limiter.clone()));
//! # Ok(())
//! # }
//! ```
//!
//! A request that any rule refuses has spent nothing in the others. It gets a 429 that says when to come back; every other
//! response says what is left.
//!
//! # Where is what
//!
//! | you want | look at |
//! | --- | --- |
//! | a limit: algorithm, quota, key, cost | [`Rule`], [`Quota`], the [algorithms](guide::algorithms) |
//! | monthly quotas, tiers without a limit | [`Quota`], the page on [quotas](guide::quotas) |
//! | costs that are known afterwards, responses that do not count | [`Charge`], [`Rule::count_if`], the page on [costs](guide::costs) |
//! | penalties, and bans after refusals or bad responses | [`Ban`], [`Charge::penalize`], the page on [bans](guide::bans) |
//! | costs and keys that are in the body of a request | [`bodies`], [`Rule::cost_by_body`], [`Rule::key_by_body`] |
//! | whose requests count together | [`key`], [`Rule::key_by`] |
//! | the client's address behind proxies | [`key::TrustedProxies`], the page on [proxies](guide::proxies) |
//! | the layer, and where it goes among others | [`RateLimitLayer`], the page on [ordering](guide::ordering) |
//! | what refused requests get, gRPC calls too | [`refusal`], [`RateLimitLayer::on_refused`] |
//! | quota fields, and what clients do with them | [`Headers`], the page on [headers](guide::headers) |
//! | Redis or Valkey: addresses, keys, engines | [`RedisStore`], the page on [Redis](guide::redis) |
//! | a Cluster: slots, hash tags, failover | [`RedisStore::builder`], [`LimiterBuilder::same_slot`], the page on [Clusters](guide::cluster) |
//! | what happens when the store fails | [`Rule::on_failure`], [`Resilient`], the page on [failure](guide::failure) |
//! | a new limit that is watched before it refuses | [`Rule::shadow`], [`Rule::roll_out`], [`Limiter::set_shadow`], the page on [shadows](guide::shadow) |
//! | sizing, permissions, alarms, a runbook | the page on [operations](guide::operations) |
//! | whether a server is fit | [`Limiter::check`] |
//! | the decision in a handler | [`Decision`], an axum extractor and a request extension |
//! | so many at the same time | [`Rule::concurrency`], [`Permit`] |
//! | a part of a limit for critical requests, and fair parts for tenants | [`Rule::reserve`], [`Rule::fair_share`], the page on [quotas](guide::quotas#a-reserve-for-critical-requests) |
//! | one after the other, and waiting for it | [`Rule::queue`], [`Limiter::acquire_when_ready`], the guide on [queueing](guide::algorithms#queueing) |
//! | how much is left, without spending; a route that tells callers | [`Limiter::usage`], [`usage`], the page on [quotas](guide::quotas#how-much-is-left) |
//! | callers who are always let through, or never | [`Lists`], the page on [lists](guide::lists) |
//! | limits as data: rules, tiers and overrides in TOML or JSON, changed without a deploy | [`policy`], the pages on [tiers](guide::tiers) and on [errors](guide::policy_errors) |
//! | which limits of a policy a request has, and why | [`policy::Policy::explain`], the program [`sluicegate`](guide::tiers#on-the-command-line) |
//! | limits in front of a service in any language, without writing Rust | the [gateway](guide::tiers#a-gateway), among the examples |
//! | limits without HTTP: jobs, sockets, queues | [`Limiter::acquire`], [`Limiter::peek`], [`Limiter::reset`] |
//! | metrics and alarms | [`Observer`] |
//! | tests of your own | [`ManualClock`] |
//! | a store of your own | [`store::Store`] |
//! | how it is built | the page on [architecture](guide::architecture) |
//!
//! # Features
//!
//! The first three are on by default. Without them there is still the layer, for any tower service, and the memory store.
//!
//! - `axum`: the [`Decision`] extractor, keys from axum's matched route and connect info, and `usage::router`.
//! - `cli`: the program `sluicegate`, which checks policies and explains them; off by default.
//! - `policy`: limits as data, in TOML and JSON: [`policy`].
//! - `redis`: [`RedisStore`].
//! - `tls`: `rediss://` addresses, over rustls.

mod algorithm;
mod base64;
pub mod bodies;
mod body;
mod clock;
mod cors;
mod decision;
mod edge;
mod error;
mod future;
mod headers;
pub mod key;
mod layer;
mod limit;
mod limiter;
mod lists;
mod observer;
#[cfg(feature = "policy")]
pub mod policy;
mod random;
pub mod refusal;
mod resilience;
mod service;
pub mod store;
pub mod usage;

pub use body::ResponseBody;
pub use clock::{Clock, ManualClock};
pub use cors::{EXPOSED_GRPC_HEADERS, EXPOSED_HEADERS};
pub use decision::{Decision, Standing};
pub use error::{BuildError, StoreError, StoreErrorKind};
pub use future::ResponseFuture;
pub use headers::{Headers, HeadersBuilder};
pub use layer::RateLimitLayer;
pub use limit::{Algorithm, Ban, Limit, OnFailure, Quota, Rule};
pub use limiter::{Call, Charge, Limiter, LimiterBuilder, Permit};
pub use lists::{Listed, Lists};
#[cfg(feature = "policy")]
pub use observer::PolicyEvent;
pub use observer::{Observer, StoreEvent};
pub use resilience::Resilient;
pub use service::RateLimit;
pub use store::MemoryStore;
#[cfg(feature = "redis")]
pub use store::RedisStore;

/// Pages longer than a screen.
pub mod guide {
    #[doc = include_str!("docs/algorithms.md")]
    pub mod algorithms {}

    #[doc = include_str!("docs/architecture.md")]
    pub mod architecture {}

    #[doc = include_str!("docs/bans.md")]
    pub mod bans {}

    #[doc = include_str!("docs/cluster.md")]
    pub mod cluster {}

    #[doc = include_str!("docs/costs.md")]
    pub mod costs {}

    #[doc = include_str!("docs/failure.md")]
    pub mod failure {}

    #[doc = include_str!("docs/headers.md")]
    pub mod headers {}

    #[doc = include_str!("docs/lists.md")]
    pub mod lists {}

    #[doc = include_str!("docs/operations.md")]
    pub mod operations {}

    #[doc = include_str!("docs/ordering.md")]
    pub mod ordering {}

    #[cfg(feature = "policy")]
    #[doc = include_str!("docs/policy_errors.md")]
    pub mod policy_errors {}

    #[doc = include_str!("docs/proxies.md")]
    pub mod proxies {}

    #[doc = include_str!("docs/quotas.md")]
    pub mod quotas {}

    #[doc = include_str!("docs/redis.md")]
    pub mod redis {}

    #[doc = include_str!("docs/shadow.md")]
    pub mod shadow {}

    #[cfg(feature = "policy")]
    #[doc = include_str!("docs/tiers.md")]
    pub mod tiers {}
}
