use std::{sync::Arc, time::Duration};

use tower::Layer;

use super::ReadBodies;
use crate::{edge::Edge, service::RateLimit};

/// Clients on bad lines need seconds; nobody needs more for the few bytes that rules look at.
const WITHIN: Duration = Duration::from_secs(10);

/// A [`RateLimitLayer`](crate::RateLimitLayer) that reads the bodies of requests where a rule looks into them; made by
/// [`read_bodies`](crate::RateLimitLayer::read_bodies).
#[derive(Clone, Debug)]
#[must_use]
pub struct ReadBodiesLayer {
    edge: Arc<Edge>,
    within: Duration,
}

impl ReadBodiesLayer {
    pub(crate) fn new(edge: Arc<Edge>) -> ReadBodiesLayer {
        ReadBodiesLayer { edge, within: WITHIN }
    }

    /// How long a body may take, all of it, before its request is answered 408: 10 seconds unless said otherwise.
    ///
    /// ```
    /// # use sluicegate::{Limiter, RateLimitLayer, bodies::ReadBodiesLayer};
    /// # fn layer(limiter: Limiter) -> ReadBodiesLayer {
    /// RateLimitLayer::new(limiter).read_bodies().within(std::time::Duration::from_secs(2))
    /// # }
    /// ```
    pub fn within(mut self, within: Duration) -> ReadBodiesLayer {
        self.within = within;
        self
    }
}

impl<S> Layer<S> for ReadBodiesLayer {
    type Service = ReadBodies<S>;

    fn layer(&self, inner: S) -> ReadBodies<S> {
        ReadBodies::new(RateLimit::new(inner, Arc::clone(&self.edge)), self.within)
    }
}
