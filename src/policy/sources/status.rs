use std::sync::Arc;

use crate::policy::Policy;

/// Which policy of a limiter holds: see [`Limiter::policy_status`](crate::Limiter::policy_status).
#[derive(Clone, Debug)]
pub struct PolicyStatus {
    policy: Arc<Policy>,
    version: u64,
    refused: Option<String>,
}

impl PolicyStatus {
    pub(crate) fn new(policy: Arc<Policy>, version: u64, refused: Option<String>) -> PolicyStatus {
        PolicyStatus { policy, version, refused }
    }

    /// The policy that holds.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The number of the policy that holds. The one that the limiter was built with is the first.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What is wrong with the newest policy of the source that is [followed](crate::Limiter::follow), while an older one holds.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }
}
