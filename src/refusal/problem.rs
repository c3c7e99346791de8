//! `application/problem+json`, as RFC 9457 and the IETF's RateLimit draft have it.

use std::fmt::Write;

use http::HeaderValue;

use super::{Cause, Refusal};
use crate::headers;

pub(super) const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");
const TYPES: &str = "https://iana.org/assignments/http-problem-types#";

pub(super) fn text(refusal: &Refusal<'_>) -> String {
    let status = refusal.status();
    let (kind, title) = match refusal.cause() {
        Cause::Quota => ("quota-exceeded", "Quota Exceeded"),
        Cause::Ban => ("abnormal-usage-detected", "Abnormal Usage Detected"),
        Cause::Service | Cause::Store => ("temporary-reduced-capacity", "Temporary Reduced Capacity"),
        // Such a status says all there is to say.
        Cause::Key => {
            let title = status.canonical_reason().unwrap_or("Refused");
            return format!(r#"{{"type":"about:blank","title":"{title}","status":{}}}"#, status.as_u16());
        }
    };
    let mut text = String::with_capacity(256);
    // Writing into a string does not fail.
    let _ = write!(text, r#"{{"type":"{TYPES}{kind}","title":"{title}","status":{},"detail":""#, status.as_u16());
    headers::push_escaped(&mut text, &refusal.to_string());
    text.push('"');
    let mut violated = refusal.violated().peekable();
    if violated.peek().is_some() {
        text.push_str(r#","violated-policies":["#);
        for (place, standing) in violated.enumerate() {
            text.push_str(if place == 0 { "\"" } else { ",\"" });
            headers::push_escaped(&mut text, standing.rule());
            text.push('"');
        }
        text.push(']');
    }
    text.push('}');
    text
}
