use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use http::{Response, StatusCode};
use serde::Serialize;
use sluicegate::{Limiter, Observer, StoreEvent};

use super::pretty::pretty;

/// A server that hangs is told of, not waited for.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Default, Serialize)]
struct Shown {
    status: &'static str,
    /// Why it is not all well.
    reasons: Vec<String>,
    /// What works and is unsafe.
    warnings: Vec<String>,
}

/// How the gateway is, as far as it is told.
#[derive(Clone, Default)]
pub(super) struct Health(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// By part of the store: why its breaker is open.
    open: Mutex<BTreeMap<usize, String>>,
    draining: AtomicBool,
}

impl Health {
    /// From now on load balancers are told to send nothing more.
    pub(super) fn drain(&self) {
        self.0.draining.store(true, Ordering::Relaxed);
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<usize, String>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A degraded gateway still answers, by counts of its own or by the last good policy: taking it out would make nothing better, so its
    /// status is 200 too.
    pub(super) async fn show(&self, limiter: &Limiter) -> Response<Body> {
        if self.0.draining.load(Ordering::Relaxed) {
            return pretty(StatusCode::SERVICE_UNAVAILABLE, &Shown { status: "draining", ..Shown::default() });
        }
        let (mut reasons, mut warnings) = (Vec::new(), Vec::new());
        match tokio::time::timeout(PATIENCE, limiter.check()).await {
            Ok(report) => {
                reasons.extend(report.problems().map(|problem| format!("the store cannot decide: {problem}")));
                warnings.extend(report.warnings().map(str::to_owned));
            }
            Err(_) => reasons.push(format!("the store does not answer within {PATIENCE:?}")),
        }
        // It may be back, and not be asked again yet.
        if reasons.is_empty() {
            reasons.extend(self.open().values().map(|error| format!("the store is not asked for a while: {error}")));
        }
        if let Some(wrong) = limiter.policy_status().as_ref().and_then(|status| status.refused()) {
            let line = wrong.lines().next().unwrap_or_default();
            reasons.push(format!("the newest policy is refused, the one before it holds: {line}"));
        }
        let status = if reasons.is_empty() { "ok" } else { "degraded" };
        pretty(StatusCode::OK, &Shown { status, reasons, warnings })
    }
}

impl Observer for Health {
    fn store(&self, event: &StoreEvent) {
        match event {
            StoreEvent::Opened { part, error } => {
                self.open().insert(*part, error.to_string());
            }
            StoreEvent::Closed { part } => {
                self.open().remove(part);
            }
            _ => {}
        }
    }
}
