use std::time::Duration;

use crate::{
    headers::{Headers, retry_after},
    layer::OnFailure,
    refusal,
};

/// What a layer was told about HTTP; its services share it.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub(crate) on_failure: OnFailure,
    pub(crate) skip_preflight: bool,
    pub(crate) refusals: refusal::Settings,
    pub(crate) headers: Headers,
    pub(crate) jitter: bool,
}

impl Edge {
    /// Whether requests that the store gave no answer to are refused.
    pub(crate) fn refuses_failures(&self) -> bool {
        self.on_failure == OnFailure::Refuse
    }

    /// The seconds that a refusal tells to wait. Drawn anew at each call: ask once for a refusal.
    pub(crate) fn retry_after(&self, wait: Duration) -> u64 {
        retry_after(wait, self.headers.cap(), self.jitter)
    }
}

impl Default for Edge {
    fn default() -> Edge {
        Edge {
            on_failure: OnFailure::Allow,
            skip_preflight: true,
            refusals: refusal::Settings::default(),
            headers: Headers::default(),
            jitter: true,
        }
    }
}
