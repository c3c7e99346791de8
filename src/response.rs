//! The responses that take the service's place.

use std::fmt::Write;

use http::{HeaderValue, Response, StatusCode, header};

use crate::{body::Refusal, decision::Decision, headers};

const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const TYPES: &str = "https://iana.org/assignments/http-problem-types#";

/// A rule refused the request.
pub(crate) fn refused(decision: &Decision) -> Response<Refusal> {
    let seconds = headers::retry_after(decision);
    let mut text = format!(r#"{{"type":"{TYPES}quota-exceeded","title":"Quota Exceeded","status":429,"detail":""#);
    // Writing into a string does not fail, here and below.
    let _ = match seconds {
        Some(1) => write!(text, "The quota is used up; retry in 1 second."),
        Some(seconds) => write!(text, "The quota is used up; retry in {seconds} seconds."),
        None => write!(text, "The request costs more than its quota ever allows; retrying does not help."),
    };
    text.push_str(r#"","violated-policies":["#);
    for (place, standing) in decision.standings().filter(|standing| standing.is_refused()).enumerate() {
        text.push_str(if place == 0 { "\"" } else { ",\"" });
        headers::push_escaped(&mut text, standing.rule());
        text.push('"');
    }
    text.push_str("]}");
    let mut response = problem(StatusCode::TOO_MANY_REQUESTS, text);
    if let Some(seconds) = seconds {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// The store gave no answer and the layer refuses what it cannot judge.
pub(crate) fn store_failed() -> Response<Refusal> {
    let text = format!(
        r#"{{"type":"{TYPES}temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":503,"detail":"The request could not be checked against its quota; retry in 1 second."}}"#
    );
    let mut response = problem(StatusCode::SERVICE_UNAVAILABLE, text);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// A key closure refused the request.
pub(crate) fn key_refused(status: StatusCode) -> Response<Refusal> {
    let title = status.canonical_reason().unwrap_or("Refused");
    problem(status, format!(r#"{{"type":"about:blank","title":"{title}","status":{}}}"#, status.as_u16()))
}

fn problem(status: StatusCode, text: String) -> Response<Refusal> {
    let mut response = Response::new(Refusal::new(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, PROBLEM);
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    response
}
