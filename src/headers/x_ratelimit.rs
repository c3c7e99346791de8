//! `X-RateLimit-Limit`, `X-RateLimit-Remaining`, `X-RateLimit-Reset`: the tightest rule, the reset in Unix seconds.

use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderName, Response};

use super::{Field, ceil_seconds};
use crate::decision::Decision;

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// What a limiter further in has written, for the one further out to compare with.
#[derive(Clone, Copy, Debug)]
struct Shown {
    remaining: u64,
    capacity: u64,
}

impl Shown {
    fn tighter_than(self, other: Shown) -> bool {
        u128::from(self.remaining) * u128::from(other.capacity)
            < u128::from(other.remaining) * u128::from(self.capacity)
    }
}

pub(super) fn write<B>(decision: &Decision, nested: bool, response: &mut Response<B>) {
    let Some(standing) = decision.tightest() else { return };
    // Clients look for a plain zero on refusals, also where a smaller cost would still fit.
    let remaining = if decision.is_refused() { 0 } else { standing.remaining() };
    let capacity = standing.limit().quota().capacity();
    let own = Shown { remaining, capacity };
    if response.headers().contains_key(LIMIT) || response.headers().contains_key(REMAINING) {
        match response.extensions().get::<Shown>() {
            Some(inner) if own.tighter_than(*inner) => {}
            // A handler's own, or a tighter limiter's.
            _ => return,
        }
    }
    let reset = SystemTime::now() + standing.reset_after();
    let reset = ceil_seconds(reset.duration_since(UNIX_EPOCH).unwrap_or_default());
    let headers = response.headers_mut();
    if let Some(capacity) = decision.rules().policies().capacity(standing.index()) {
        headers.insert(LIMIT, capacity);
    }
    for (name, number) in [(REMAINING, remaining), (RESET, reset)] {
        // Sized to the digits: the conversion that `HeaderValue` has takes two allocations.
        let mut field = Field::new();
        field.number(number);
        if let Some(value) = field.value() {
            headers.insert(name, value);
        }
    }
    if nested {
        response.extensions_mut().insert(own);
    }
}
