use std::{net::SocketAddr, path::Path};

use axum::{Router, extract::connect_info::IntoMakeServiceWithConnectInfo, routing::get};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use sluicegate::{
    Limiter,
    policy::{Policy, PolicyStatus},
    usage,
};
use tower_http::set_header::SetResponseHeaderLayer;

use super::{health::Health, pretty::pretty};

/// What holds, since how many changes, and why it is not what stands in the file.
#[derive(Serialize)]
struct Shown<'a> {
    file: &'a str,
    version: Option<u64>,
    refused: Option<&'a str>,
    policy: Option<&'a Policy>,
}

/// What operators ask. It has a listener of its own, so that no rule and no client stands in its way.
pub(super) fn router(
    limiter: &Limiter,
    health: &Health,
    file: &Path,
) -> IntoMakeServiceWithConnectInfo<Router, SocketAddr> {
    let policy = {
        let (limiter, file) = (limiter.clone(), file.display().to_string());
        get(async move || {
            let status = limiter.policy_status();
            let shown = Shown {
                file: &file,
                version: status.as_ref().map(PolicyStatus::version),
                refused: status.as_ref().and_then(PolicyStatus::refused),
                policy: status.as_ref().map(PolicyStatus::policy),
            };
            pretty(StatusCode::OK, &shown)
        })
    };
    let healthz = {
        let (limiter, health) = (limiter.clone(), health.clone());
        get(async move || health.show(&limiter).await)
    };
    Router::new()
        .route("/-/policy", policy)
        .route("/-/healthz", healthz)
        .nest("/-/usage", usage::router(limiter.clone()))
        .layer(SetResponseHeaderLayer::overriding(header::CACHE_CONTROL, HeaderValue::from_static("no-store")))
        .into_make_service_with_connect_info()
}
