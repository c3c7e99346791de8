use std::fmt;

use super::{Cause, Refusal};

/// More names than this are counted, not told: the sentence also goes into a header, and must stay short.
const MOST_NAMES: usize = 3;

/// `The quota "per-user" is used up; retry in 3 seconds.`
impl fmt::Display for Refusal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            Cause::Service if self.can_never_fit() => {
                return f.write_str("The request costs more than the service can take; retrying does not help.");
            }
            Cause::Quota if self.is_above_a_quota() => {
                f.write_str("The request costs more than the ")?;
                self.quotas(f)?;
                f.write_str(if self.named().count() > 1 { " ever allow" } else { " ever allows" })?;
                return f.write_str("; retrying does not help.");
            }
            Cause::Quota => {
                f.write_str("The ")?;
                self.quotas(f)?;
                f.write_str(if self.named().count() > 1 { " are used up" } else { " is used up" })?;
            }
            Cause::Service => f.write_str("The service is at its capacity")?,
            Cause::Ban => {
                f.write_str("Banned under the ")?;
                self.quotas(f)?;
            }
            Cause::Store => f.write_str("The request could not be checked against its quota")?,
            Cause::Body => self.body_fault.map_or(Ok(()), |fault| fault.fmt(f))?,
            Cause::Key | Cause::List => {
                f.write_str(self.status.canonical_reason().unwrap_or("The request was refused"))?
            }
        }
        match self.retry_after {
            Some(1) => f.write_str("; retry in 1 second."),
            Some(seconds) => write!(f, "; retry in {seconds} seconds."),
            None => f.write_str("."),
        }
    }
}

impl<'a> Refusal<'a> {
    /// Whether a quota can never hold the cost, and not only the service.
    fn is_above_a_quota(&self) -> bool {
        let standings = self.decision.into_iter().flat_map(|decision| decision.standings());
        let mut refusing = standings.filter(|standing| standing.is_refused() && !standing.protects_service());
        self.cause == Cause::Quota && refusing.any(|standing| standing.can_never_fit())
    }

    /// The rules to blame: where some can never admit the request, those alone.
    fn named(&self) -> impl Iterator<Item = &'a str> {
        let never = self.is_above_a_quota();
        self.violated().filter(move |standing| !never || standing.can_never_fit()).map(|standing| standing.rule())
    }

    /// `quotas "a", "b", "c" and 2 more`.
    fn quotas(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.named().count();
        f.write_str(if count > 1 { "quotas" } else { "quota" })?;
        for (place, name) in self.named().take(MOST_NAMES).enumerate() {
            write!(f, "{} \"{name}\"", if place == 0 { "" } else { "," })?;
        }
        match count.saturating_sub(MOST_NAMES) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
