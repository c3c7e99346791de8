//! `application/problem+json`, as RFC 9457 and the IETF's RateLimit draft have it.

use std::fmt::Write;

use http::{HeaderValue, Response, StatusCode, header};

use super::{Cause, Refusal};
use crate::{body::RefusalBody, headers};

const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const TYPES: &str = "https://iana.org/assignments/http-problem-types#";

pub(super) fn response(refusal: &Refusal<'_>) -> Response<RefusalBody> {
    match refusal.cause {
        Cause::Quota => problem(StatusCode::TOO_MANY_REQUESTS, over_quota(refusal)),
        Cause::Store => problem(
            StatusCode::SERVICE_UNAVAILABLE,
            format!(
                r#"{{"type":"{TYPES}temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":503,"detail":"The request could not be checked against its quota; retry in 1 second."}}"#
            ),
        ),
        Cause::Key(status) => {
            let title = status.canonical_reason().unwrap_or("Refused");
            problem(status, format!(r#"{{"type":"about:blank","title":"{title}","status":{}}}"#, status.as_u16()))
        }
    }
}

fn over_quota(refusal: &Refusal<'_>) -> String {
    let mut text = format!(r#"{{"type":"{TYPES}quota-exceeded","title":"Quota Exceeded","status":429,"detail":""#);
    // Writing into a string does not fail.
    let _ = match refusal.retry_after {
        Some(1) => write!(text, "The quota is used up; retry in 1 second."),
        Some(seconds) => write!(text, "The quota is used up; retry in {seconds} seconds."),
        None => write!(text, "The request costs more than its quota ever allows; retrying does not help."),
    };
    text.push_str(r#"","violated-policies":["#);
    let standings = refusal.decision.into_iter().flat_map(|decision| decision.standings());
    for (place, standing) in standings.filter(|standing| standing.is_refused()).enumerate() {
        text.push_str(if place == 0 { "\"" } else { ",\"" });
        headers::push_escaped(&mut text, standing.rule());
        text.push('"');
    }
    text.push_str("]}");
    text
}

fn problem(status: StatusCode, text: String) -> Response<RefusalBody> {
    let mut response = Response::new(RefusalBody::new(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, PROBLEM);
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    response
}
