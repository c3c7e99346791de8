//! `application/problem+json`, as RFC 9457 and the IETF's RateLimit draft have it.

use std::fmt::Write;

use http::{HeaderValue, StatusCode};

use super::{Cause, Refusal};
use crate::headers;

pub(crate) const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");
const REDUCED_CAPACITY: (&str, &str) = ("temporary-reduced-capacity", "Temporary Reduced Capacity");
const TYPES: &str = "https://iana.org/assignments/http-problem-types#";

pub(super) fn text(refusal: &Refusal<'_>) -> String {
    let status = refusal.status();
    let (kind, title) = match refusal.cause() {
        Cause::Quota => ("quota-exceeded", "Quota Exceeded"),
        Cause::Ban => ("abnormal-usage-detected", "Abnormal Usage Detected"),
        Cause::Service | Cause::Store => REDUCED_CAPACITY,
        Cause::Body => ("", status.canonical_reason().unwrap_or("Refused")),
        // Such a status says all there is to say.
        Cause::Key | Cause::List => return blank(status),
    };
    let mut text = begun(kind, title, status, &refusal.to_string());
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

/// A problem that its status says all of.
pub(crate) fn blank(status: StatusCode) -> String {
    let title = status.canonical_reason().unwrap_or("Refused");
    format!(r#"{{"type":"about:blank","title":"{title}","status":{}}}"#, status.as_u16())
}

/// What the store gave no answer to.
#[cfg(feature = "axum")]
pub(crate) fn reduced_capacity(status: StatusCode, detail: &str) -> String {
    let (kind, title) = REDUCED_CAPACITY;
    begun(kind, title, status, detail) + "}"
}

/// A problem with a sentence, still open at its end.
fn begun(kind: &str, title: &str, status: StatusCode, detail: &str) -> String {
    let mut text = String::with_capacity(256);
    // Writing into a string does not fail.
    let types = if kind.is_empty() { "about:blank" } else { TYPES };
    let _ = write!(text, r#"{{"type":"{types}{kind}","title":"{title}","status":{},"detail":""#, status.as_u16());
    headers::push_escaped(&mut text, detail);
    text.push('"');
    text
}
