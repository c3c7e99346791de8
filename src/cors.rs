//! What a browser must be told of before it shows it to a page.

use http::HeaderName;

use crate::headers::names;

/// The fields that a script in a browser can read only if `Access-Control-Expose-Headers` names them.
///
/// ```
/// use sluicegate::EXPOSED_HEADERS;
/// use tower_http::cors::{Any, CorsLayer};
///
/// let cors = CorsLayer::new().allow_origin(Any).expose_headers(EXPOSED_HEADERS);
/// ```
///
/// These are the fields of [`Headers::default`](crate::Headers::default) and `Retry-After-Ms`; where others were chosen,
/// [`Headers::names`](crate::Headers::names) has them. The CORS layer goes outside the rate limit: see the page on [ordering](crate::guide::ordering).
pub const EXPOSED_HEADERS: [HeaderName; 7] = [
    names::RETRY_AFTER,
    names::RETRY_AFTER_MS,
    names::RATELIMIT,
    names::POLICY,
    names::X_LIMIT,
    names::X_REMAINING,
    names::X_RESET,
];

/// The same for gRPC-Web, where a refusal has its status in the headers.
///
/// ```
/// use sluicegate::{EXPOSED_GRPC_HEADERS, EXPOSED_HEADERS};
/// use tower_http::cors::{Any, CorsLayer, ExposeHeaders};
///
/// let names = EXPOSED_HEADERS.into_iter().chain(EXPOSED_GRPC_HEADERS);
/// let cors = CorsLayer::new().allow_origin(Any).expose_headers(ExposeHeaders::list(names));
/// ```
pub const EXPOSED_GRPC_HEADERS: [HeaderName; 4] = [
    HeaderName::from_static("grpc-status"),
    HeaderName::from_static("grpc-message"),
    HeaderName::from_static("grpc-status-details-bin"),
    HeaderName::from_static("grpc-retry-pushback-ms"),
];
