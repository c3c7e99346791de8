//! Which window of a rule runs, and how its count is named.

use crate::{
    algorithm::{Params, fixed_window},
    store::{Line, Time, Verdict, Wait},
};

/// Milliseconds that every TTL is longer than its count matters.
const MARGIN: u64 = 1_000;
/// The same for injected time, which may stand still.
const MARGIN_INJECTED: u64 = 3_600_000;

/// A window of one line's rule.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) name: Vec<u8>,
    pub(super) limit: u64,
    pub(super) cost: u64,
    pub(super) shadow: bool,
    /// What must be left for it to fit.
    need: u64,
    /// For the count, in milliseconds.
    pub(super) ttl: u64,
    start: u64,
    end: u64,
}

impl Window {
    /// The one that runs now. `None` for a rule that has no aligned windows.
    pub(super) fn of(line: &Line<'_>, now: u64, time: Time) -> Option<Window> {
        let Params::FixedWindow(params) = line.limit.params() else { return None };
        if params.start == fixed_window::Start::FirstRequest {
            return None;
        }
        let fixed_window::State { start, window, .. } = params.window_of(now);
        let end = start.saturating_add(window);
        let margin = match time {
            Time::Store => MARGIN,
            Time::Application { tolerance, .. } => MARGIN + tolerance.div_ceil(1_000),
            Time::Injected(_) => MARGIN_INJECTED,
        };
        let mut name = line.name().concat();
        // Escaped names have no `=`, so this is no rule's. Windows live in names, since no script can look into a value.
        name.extend_from_slice(format!("={start}+{window}").as_bytes());
        let ttl = end.saturating_sub(now).div_ceil(1_000) + margin;
        let (limit, cost, need, shadow) = (params.limit, line.cost, line.need(), line.shadow);
        Some(Window { name, limit, cost, need, shadow, ttl, start, end })
    }

    /// What the count may come to with the cost.
    pub(super) fn most(&self) -> u64 {
        self.limit.saturating_sub(self.need.saturating_sub(self.cost))
    }

    /// What to add for its cost. Of a shadow that can never fit nothing.
    pub(super) fn amount(&self) -> i64 {
        if self.need > self.limit { 0 } else { i64::try_from(self.cost).unwrap_or(i64::MAX) }
    }

    /// Whether it is this window at that time.
    pub(super) fn holds(&self, at: u64) -> bool {
        (self.start..self.end).contains(&at)
    }

    /// Whether the charge with this receipt is counted in it.
    pub(super) fn holds_charge(&self, receipt: u64) -> bool {
        self.end == receipt
    }

    /// How the line stands with this count before its cost.
    pub(super) fn judge(&self, count: u64, at: u64) -> Verdict {
        let wait = match self.need {
            0 => Wait::None,
            need if need > self.limit => Wait::Never,
            need if count.saturating_add(need) <= self.limit => Wait::None,
            _ => Wait::Micros(self.end.saturating_sub(at)),
        };
        Verdict { wait, ..self.left(count, at) }
    }

    /// What is left with this count.
    pub(super) fn left(&self, count: u64, at: u64) -> Verdict {
        let reset_after = if count == 0 { 0 } else { self.end.saturating_sub(at) };
        let remaining = self.limit.saturating_sub(count);
        Verdict { wait: Wait::None, remaining, reset_after, receipt: self.end, tenant_receipt: 0 }
    }
}
