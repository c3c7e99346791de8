//! x
mod algorithm;
mod body;
mod clock;
mod decision;
mod error;
mod future;
mod headers;
pub mod key;
mod layer;
mod limit;
mod limiter;
mod observer;
mod response;
mod service;
pub mod store;

pub use body::ResponseBody;
pub use clock::{Clock, ManualClock};
pub use decision::{Decision, Standing};
pub use error::{BuildError, StoreError, StoreErrorKind};
pub use future::ResponseFuture;
pub use layer::{OnFailure, RateLimitLayer};
pub use limit::{Algorithm, Limit, Quota, Rule};
pub use limiter::{Call, Limiter, LimiterBuilder};
pub use observer::{Observer, StoreEvent};
pub use service::RateLimit;
pub use store::MemoryStore;
#[cfg(feature = "redis")]
pub use store::RedisStore;

/// guide
pub mod guide {
    /// a
    pub mod algorithms {}
    /// o
    pub mod ordering {}
}
