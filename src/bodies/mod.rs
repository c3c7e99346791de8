//! Costs and keys that are in the body of a request.
//!
//! [`Rule::cost_by_body`](crate::Rule::cost_by_body) and [`Rule::key_by_body`](crate::Rule::key_by_body) look into the body, so
//! somebody must read it first and give it to the service all the same. That is what
//! [`RateLimitLayer::read_bodies`](crate::RateLimitLayer::read_bodies) is for:
//!
//! ```
//! use axum::{Json, Router, routing::post};
//! use sluicegate::{key, Limiter, MemoryStore, Quota, RateLimitLayer, Rule};
//!
//! # fn main() -> Result<(), sluicegate::BuildError> {
//! let limiter = Limiter::builder(MemoryStore::new())
//!     .rule(
//!         Rule::token_bucket("recipients", Quota::per_hour(1_000))
//!             .key(key::bearer())
//!             .when(|req| req.method == "POST")
//!             .cost_by_body(16_384, |_head, body| {
//!                 serde_json::from_slice::<Vec<String>>(body).map_or(1, |recipients| recipients.len() as u64)
//!             }),
//!     )
//!     .build()?;
//! let app: Router = Router::new()
//!     .route("/send", post(|recipients: Json<Vec<String>>| async move { format!("{} sent", recipients.len()) }))
//!     .layer(RateLimitLayer::new(limiter).read_bodies());
//! # Ok(())
//! # }
//! ```
//!
//! A layer that is not told so does not read bodies, and costs nothing for it. Where such a rule applies it has no way to know the
//! cost, and answers 500 rather than guess; it logs a warning when the application starts.
//!
//! # What is read, and when
//!
//! | request | what happens |
//! | --- | --- |
//! | no rule that looks into bodies applies to it | its body is not touched |
//! | a [list](crate::Lists) lets it through or refuses it, by its address alone | its body is not touched; that is looked up once, so it holds for this request though the list changes meanwhile |
//! | no body | the closure gets an empty slice |
//! | a body of at most the largest `max_bytes` of the rules that apply | it is read, the rules are asked, and the service gets it as it came |
//! | a longer one | 413: at once where `Content-Length` says so, or as soon as more has come |
//! | one that is not all there after [10 seconds](ReadBodiesLayer::within) | 408 |
//! | one that fails while it is read | the closures get what was read; the service gets the same, and then the error |
//! | the client leaves, and its server drops the request | nothing is charged, and the service is not called |
//!
//! Nothing is charged before the body is there, and no connection to a store is held meanwhile. So whoever is told 413 or 408 has spent
//! nothing: put a limit by address around this one where that is too cheap. A request whose body fails, because its client has left
//! or has sent nonsense, is the service's to answer, and it is charged if it is let through to it; otherwise breaking off would be a
//! way to be served for free.
//!
//! Each request that is read holds up to `max_bytes` and one piece more in memory, and its place in a concurrency limit that is
//! [inside](crate::guide::ordering#concurrency-limits).
//!
//! Closures get the bytes as they come: compressed if they are. Streams that go both ways, as gRPC has them, begin only when the request has
//! ended; keep such calls out with [`Rule::when`](crate::Rule::when).
//!
//! # The type of the body
//!
//! The service gets a [`RequestBody`] around the body that came. Routers, handlers and other services that take any body do not
//! notice. A service that takes one type of body alone, like axum's `middleware::from_fn` right inside of this layer in one
//! `ServiceBuilder`, does not compile; add it by a `Router::layer` call of its own, before.

mod future;
mod layer;
mod reading;
mod request_body;
mod service;

pub use future::ReadBodiesFuture;
pub use layer::ReadBodiesLayer;
pub use request_body::RequestBody;
pub use service::ReadBodies;
