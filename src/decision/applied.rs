use crate::{
    limiter::Pick,
    store::{Verdict, Wait},
};

/// A rule that applied, and how it stands.
///
/// Whole words, read and written one by one: what is copied in other pieces than it was written in stalls the processor for
/// longer than all the rest of handing on a decision takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applied {
    pub(super) remaining: u64,
    pub(super) cost: u64,
    pub(super) reset_after: u64,
    /// The index of the rule, and flags above it.
    rule: u64,
    /// In microseconds; zero: none, [`NEVER`]. With [`TURN`] added, until its turn comes.
    pub(super) wait: u64,
    receipt: u64,
    tenant_receipt: u64,
}

pub(super) const NEVER: u64 = u64::MAX;
const TURN: u64 = 1 << 63;
/// Flags of a rule that applied: it is only watched; the request may use what it reserves.
const SHADOW: u64 = 1 << 16;
const CRITICAL: u64 = 1 << 17;

#[inline(never)]
fn word_of(wait: Wait) -> u64 {
    match wait {
        Wait::None => 0,
        Wait::Micros(micros) => micros.clamp(1, TURN - 1),
        Wait::Turn(micros) => TURN | micros.min(TURN - 2),
        Wait::Never => NEVER,
    }
}

impl Applied {
    // Always: called, it writes words that the caller copies in pairs.
    #[inline(always)]
    pub(crate) fn new(pick: &Pick, verdict: &Verdict) -> Applied {
        let wait = if verdict.wait == Wait::None { 0 } else { word_of(verdict.wait) };
        let Verdict { remaining, reset_after, receipt, tenant_receipt, .. } = *verdict;
        let flag = |is: bool, flag: u64| if is { flag } else { 0 };
        let rule = u64::from(pick.rule) | flag(pick.shadow, SHADOW) | flag(pick.critical, CRITICAL);
        Applied { remaining, cost: pick.cost, reset_after, rule, wait, receipt, tenant_receipt }
    }

    #[inline]
    pub(crate) fn rule(&self) -> u16 {
        // It was one.
        self.rule as u16
    }

    pub(crate) fn is_critical(&self) -> bool {
        self.rule & CRITICAL != 0
    }

    #[inline]
    pub(crate) fn is_shadow(&self) -> bool {
        self.rule & SHADOW != 0
    }

    #[inline]
    fn fits(&self) -> bool {
        self.wait == 0 || (TURN..NEVER).contains(&self.wait)
    }

    #[inline]
    pub(super) fn is_refused(&self) -> bool {
        !self.fits() && !self.is_shadow()
    }

    #[inline]
    pub(crate) fn would_refuse(&self) -> bool {
        !self.fits() && self.is_shadow()
    }

    /// Until its turn comes, in microseconds. Nobody waits for a shadow.
    #[inline]
    pub(super) fn turn(&self) -> Option<u64> {
        ((TURN..NEVER).contains(&self.wait) && !self.is_shadow()).then_some(self.wait & !TURN)
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let wait = match self.wait {
            0 => Wait::None,
            NEVER => Wait::Never,
            turn if turn >= TURN => Wait::Turn(turn & !TURN),
            micros => Wait::Micros(micros),
        };
        let (remaining, reset_after) = (self.remaining, self.reset_after);
        Verdict { wait, remaining, reset_after, receipt: self.receipt, tenant_receipt: self.tenant_receipt }
    }
}
