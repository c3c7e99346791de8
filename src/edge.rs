use crate::{layer::OnFailure, refusal};

/// What a layer was told about HTTP; its services share it.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub(crate) on_failure: OnFailure,
    pub(crate) skip_preflight: bool,
    pub(crate) refusals: refusal::Settings,
}

impl Edge {
    /// Whether requests that the store gave no answer to are refused.
    pub(crate) fn refuses_failures(&self) -> bool {
        self.on_failure == OnFailure::Refuse
    }
}

impl Default for Edge {
    fn default() -> Edge {
        Edge { on_failure: OnFailure::Allow, skip_preflight: true, refusals: refusal::Settings::default() }
    }
}
