use axum::{body::Body, response::IntoResponse};
use http::{Response, StatusCode, header};
use serde::Serialize;

/// JSON that is read by people, in terminals.
pub(super) fn pretty(status: StatusCode, shown: &impl Serialize) -> Response<Body> {
    match serde_json::to_string_pretty(shown) {
        Ok(text) => (status, [(header::CONTENT_TYPE, "application/json")], text + "\n").into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
