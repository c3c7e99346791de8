use std::sync::Arc;

use http::response::Parts;

use super::{Ban, Rule};
use crate::error::BuildError;

impl Rule {
    /// Bans a key of this rule after too many refusals or bad responses: see [`Ban`] and the [guide](crate::guide::bans).
    pub fn ban(mut self, ban: Ban) -> Rule {
        self.ban = Some(ban);
        self
    }

    /// Charges so many units more, by the head of the response; zero is no penalty. What a token bucket lacks it owes, others are charged
    /// what they have left. The request itself stays charged as it was.
    ///
    /// ```
    /// use sluicegate::{key, Quota, Rule};
    ///
    /// // Whoever guesses at addresses runs dry ten times as fast.
    /// Rule::token_bucket("per-ip", Quota::per_minute(100))
    ///     .key(key::ip())
    ///     .penalize_by(|response| if response.status == 404 { 9 } else { 0 });
    /// ```
    pub fn penalize_by<F>(mut self, closure: F) -> Rule
    where
        F: Fn(&Parts) -> u64 + Send + Sync + 'static,
    {
        self.settle.penalize_by = Some(Arc::new(closure));
        self
    }

    /// Hands a [`Charge`](crate::Charge) to the handlers of requests that this rule applies to, so that they can
    /// [penalize](crate::Charge::penalize) or settle them. Rules with a cost by closure do so anyway; for others it takes a small
    /// allocation for each request.
    pub fn with_charge(mut self) -> Rule {
        self.settle.offered = true;
        self
    }

    /// A ban is of a rule that has a limit. In a policy that may be one of a tier, and customers without one are not banned.
    pub(crate) fn check_ban_has_limit(&self) -> Result<(), BuildError> {
        if self.ban.is_none() || !self.quota.is_unlimited() {
            return Ok(());
        }
        let text = "a rule without a limit is never asked about; give it a quota, a large one if only the ban matters";
        Err(BuildError::rule(&self.name, "ban", text.into()))
    }
}
