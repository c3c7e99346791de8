//! Quota fields: one decision in, response headers out.
//!
//! Two families, both on every response of a limited route: `X-RateLimit-Limit`, `-Remaining` and `-Reset` (Unix seconds) for
//! the tightest rule, which is what most clients read; and the IETF draft's `RateLimit-Policy` and `RateLimit` for every
//! rule. `Retry-After` joins them on refusals.

mod ietf;
mod x_ratelimit;

use std::time::Duration;

use http::{HeaderValue, Response};
use smallvec::SmallVec;

pub(crate) use ietf::Policies;

use crate::decision::Decision;

/// Writes the fields of `decision`. List fields are added to those of limiters further in; single-valued fields keep the
/// tighter standing, and what a handler set itself. `nested`: there is a limiter further out.
pub(crate) fn write<B>(decision: &Decision, nested: bool, response: &mut Response<B>) {
    if decision.applied().is_empty() {
        return;
    }
    response.headers_mut().reserve(5);
    ietf::write(decision, response.headers_mut());
    x_ratelimit::write(decision, nested, response);
}

/// The seconds of `Retry-After`: rounded up, at least one. `None` when no wait helps.
pub(crate) fn retry_after(decision: &Decision) -> Option<u64> {
    decision.retry_after().map(|wait| ceil_seconds(wait).max(1))
}

fn ceil_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// The largest Integer of a structured field.
const LARGEST: u64 = 999_999_999_999_999;

/// Text that becomes a header value: gathered on the stack, so that the value takes one allocation of its size.
struct Field(SmallVec<[u8; 128]>);

impl Field {
    fn new() -> Field {
        Field(SmallVec::new())
    }

    fn text(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, number: u64) {
        self.text(itoa::Buffer::new().format(number.min(LARGEST)));
    }

    /// Only printable ASCII is written, which every header value may hold.
    fn value(&self) -> Option<HeaderValue> {
        HeaderValue::from_bytes(&self.0).ok()
    }
}

/// Quotes and backslashes escaped, as structured-field strings and JSON both have it. Rule names are printable ASCII.
pub(crate) fn push_escaped(text: &mut String, name: &str) {
    for letter in name.chars() {
        if matches!(letter, '"' | '\\') {
            text.push('\\');
        }
        text.push(letter);
    }
}
