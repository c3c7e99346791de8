//! gRPC and gRPC-Web: a response of headers alone.

use std::fmt::Write;

use http::{HeaderName, Response, StatusCode, header};

use super::{BodyFault, Cause, Refusal, RefusalBody, Settings, dialect::Dialect, grpc_details};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

pub(super) fn response(refusal: &Refusal<'_>, dialect: Dialect<'_>, settings: &Settings) -> Response<RefusalBody> {
    // No body, and one that says so: the status must be in the stream's first and last frame.
    let mut response = Response::new(RefusalBody::default());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, dialect.content_type());
    let (code, message) = (code(refusal.status), refusal.to_string());
    headers.insert(STATUS, code.into());
    if let Ok(value) = percent_encoded(&message).try_into() {
        headers.insert(MESSAGE, value);
    }
    if let Some(millis) = pushback(refusal) {
        headers.insert(PUSHBACK, millis.into());
    }
    if settings.grpc_details
        && let Some(details) = grpc_details::of(refusal, code, &message)
    {
        headers.insert(DETAILS, details);
    }
    response
}

/// As `google.rpc.Code` has it.
fn code(status: StatusCode) -> u16 {
    match status.as_u16() {
        401 => 16,
        403 => 7,
        404 => 5,
        409 => 10,
        413 | 429 => 8,
        501 => 12,
        502 | 503 => 14,
        408 | 504 => 4,
        400..=499 => 3,
        500..=599 => 13,
        _ => 2,
    }
}

/// A signed number of 32 bits; a negative one asks not to retry.
fn pushback(refusal: &Refusal<'_>) -> Option<i32> {
    match refusal.retry_after {
        Some(seconds) => Some(i32::try_from(seconds.saturating_mul(1_000)).unwrap_or(i32::MAX)),
        None => {
            let lasting = refusal.body_fault.is_some_and(BodyFault::is_lasting);
            (refusal.can_never_fit() || lasting || refusal.cause == Cause::List).then_some(-1)
        }
    }
}

/// Printable ASCII as it is, but for the percent sign; the rest by its bytes.
fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(char::from(byte)),
            // Writing into a string does not fail.
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(percent_encoded(r#"The quota "50%" is ~ used"#), r#"The quota "50%25" is ~ used"#);
        assert_eq!(percent_encoded("\tgrün\n\u{7f}"), "%09gr%C3%BCn%0A%7F");
    }

    #[test]
    fn statuses_of_keys_have_codes() {
        let (head, ()) = Request::new(()).into_parts();
        for (status, expected) in [
            (200, 2),
            (302, 2),
            (400, 3),
            (401, 16),
            (403, 7),
            (404, 5),
            (408, 4),
            (409, 10),
            (413, 8),
            (418, 3),
            (429, 8),
            (500, 13),
            (501, 12),
            (502, 14),
            (503, 14),
            (504, 4),
            (599, 13),
            (999, 2),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            let refusal = Refusal::by_key(status, &head);
            assert_eq!((code(status), pushback(&refusal)), (expected, None), "{status}");
        }
    }

    #[test]
    fn pushback_is_a_number_of_32_bits() {
        let (head, ()) = Request::new(()).into_parts();
        for (seconds, expected) in [(1, 1_000), (2_147_483, 2_147_483_000), (2_147_484, i32::MAX), (u64::MAX, i32::MAX)]
        {
            let refusal = Refusal { retry_after: Some(seconds), ..Refusal::by_key(StatusCode::OK, &head) };
            assert_eq!(pushback(&refusal), Some(expected), "{seconds}");
        }
    }
}
