use super::Limit;
use crate::{algorithm::fair, key::KeyBy};

/// Who shares a limit, and how much of it each leaves to others.
#[derive(Clone, Debug)]
pub(crate) struct FairShare {
    pub(crate) share: f64,
    pub(crate) tenant: KeyBy,
}

impl FairShare {
    /// The limit as it is shared, or the field that is wrong and why.
    pub(crate) fn check(&self, limit: Limit) -> Result<Limit, (&'static str, String)> {
        if let Some(problem) = self.tenant.problem() {
            return Err(("fair_share", problem.to_owned()));
        }
        let capacity = limit.quota().capacity();
        // At least a unit, or nobody would leave anything.
        let units = (capacity as f64 * self.share).ceil() as u64;
        if !(self.share > 0.0 && self.share < 1.0) || units >= capacity {
            let share = self.share;
            let text = format!(
                "{share} of {capacity} cannot be left to others; give more than 0 and less than 1, of 2 units or more"
            );
            return Err(("fair_share", text));
        }
        if limit.for_tenants().is_none() {
            let text = format!("a {} cannot be shared; give each tenant one of its own", limit.algorithm());
            return Err(("fair_share", text));
        }
        if capacity > fair::LARGEST {
            let text = format!("{capacity} units are too many to share; give at most {}", fair::LARGEST);
            return Err(("fair_share", text));
        }
        Ok(limit.shared(units))
    }
}
