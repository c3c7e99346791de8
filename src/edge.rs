use std::time::Duration;

use http::request::Parts;

use crate::{
    decision::Decision,
    future::Ruling,
    headers::{Headers, retry_after},
    limiter::{Limiter, Picks, Rules},
    lists::Listed,
    refusal,
};

/// A limiter, and what a layer was told about HTTP. Its services share it: they are cloned for every request.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub(crate) limiter: Limiter,
    pub(crate) skip_preflight: bool,
    pub(crate) refusals: refusal::Settings,
    pub(crate) headers: Headers,
    pub(crate) jitter: bool,
}

impl Edge {
    pub(crate) fn new(limiter: Limiter) -> Edge {
        Edge {
            limiter,
            skip_preflight: true,
            refusals: refusal::Settings::default(),
            headers: Headers::default(),
            jitter: true,
        }
    }

    /// Keeps of the rules' findings what the response is to show, and lets go of what only they were to see.
    #[inline]
    pub(crate) fn picked(&self, limiter: &Limiter, picks: &Picks, head: &mut Parts) {
        self.headers(limiter.rules()).keep_partitions(picks, head);
        limiter.forget_body(head);
    }

    /// The quota fields of responses: as the rules have them, if they say.
    #[inline]
    pub(crate) fn headers<'a>(&'a self, rules: &'a Rules) -> &'a Headers {
        rules.headers().unwrap_or(&self.headers)
    }

    /// The seconds that a refusal by these rules tells to wait. Drawn anew at each call: ask once for a refusal.
    pub(crate) fn retry_after(&self, rules: &Rules, wait: Duration) -> u64 {
        retry_after(wait, self.headers(rules).cap(), self.jitter)
    }
}

impl Limiter {
    #[inline]
    pub(crate) fn ruling(&self, decision: Decision, picks: Picks) -> Ruling {
        let charge = self.charge_of(&decision, picks);
        Ruling::Decided(decision, charge)
    }

    /// Waits where the request is in a queue.
    pub(crate) async fn wait_for_turn(&self, decision: Decision, picks: &Picks) -> Decision {
        let Some(turn) = self.turn(&decision, picks.iter()) else { return decision };
        // Boxed, since few wait.
        Box::pin(turn.come()).await;
        decision.after_turn()
    }

    /// Over who is on a list, as if no rule applied.
    #[cold]
    pub(crate) fn listed_ruling(&self, listed: Listed, head: &mut Parts) -> Ruling {
        self.forget_body(head);
        self.ruling(self.listed(listed), Picks::new())
    }
}
