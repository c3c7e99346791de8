use std::{fmt, sync::Arc, time::Duration};

use http::{StatusCode, response::Parts};

use super::{Limit, micros, settle::OfResponse};
use crate::{
    algorithm::ban::{self, LARGEST_FACTOR, MOST_STRIKES, THOUSAND},
    error::BuildError,
};

/// Refuses a key of a rule altogether, for a while, after it was refused too often or got too many bad responses: see
/// [`Rule::ban`](crate::Rule::ban) and the [guide](crate::guide::bans).
///
/// ```
/// use sluicegate::{key, Ban, Quota, Rule};
/// use std::time::Duration;
///
/// let (minute, day) = (Duration::from_secs(60), Duration::from_secs(86_400));
/// Rule::sliding_log("logins", Quota::per_minute(20)).key(key::ip()).ban(
///     Ban::after(5)
///         .responses(|response| response.status == 401)   // or .refusals(), which is what counts unless said otherwise
///         .within(15 * minute)
///         .lasting(10 * minute)                           // the first time; then 20, 40 ..
///         .escalating(2.0)
///         .at_most(7 * day)
///         .forgotten_after(day)                           // one ban less counts for each day without one
///         .forbidden(),                                   // 403 instead of 429
/// );
/// ```
///
/// Unless said otherwise: strikes within a minute, ten minutes for the first ban, twice as long each time, a day at most, one ban
/// forgotten a day.
#[derive(Clone)]
#[must_use]
pub struct Ban {
    strikes: u64,
    within: Duration,
    lasting: Duration,
    factor: f64,
    at_most: Option<Duration>,
    forgotten_after: Duration,
    pub(crate) responses: Option<Arc<OfResponse<bool>>>,
    pub(crate) status: StatusCode,
}

const DAY: Duration = Duration::from_secs(86_400);
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(ban::LONGEST);

impl Ban {
    /// So many refusals, or bad responses, in a window are a ban.
    pub fn after(strikes: u64) -> Ban {
        Ban {
            strikes,
            within: Duration::from_secs(60),
            lasting: Duration::from_secs(600),
            factor: 2.0,
            at_most: None,
            forgotten_after: DAY,
            responses: None,
            status: StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// Counts the refusals of its rule, those by the ban itself not among them.
    pub fn refusals(mut self) -> Ban {
        self.responses = None;
        self
    }

    /// Counts the responses of requests under its rule that the closure is true for, instead of refusals.
    pub fn responses<F>(mut self, closure: F) -> Ban
    where
        F: Fn(&Parts) -> bool + Send + Sync + 'static,
    {
        self.responses = Some(Arc::new(closure));
        self
    }

    /// The window in which they count. It begins with the first, and afterwards with the next.
    pub fn within(mut self, window: Duration) -> Ban {
        self.within = window;
        self
    }

    /// How long the first ban lasts.
    pub fn lasting(mut self, length: Duration) -> Ban {
        self.lasting = length;
        self
    }

    /// Each ban is so many times as long as the one before: 1 to 100, in thousandths. With 1 all are alike.
    pub fn escalating(mut self, factor: f64) -> Ban {
        self.factor = factor;
        self
    }

    /// No ban lasts longer: a day unless said otherwise, or the first if that is longer.
    pub fn at_most(mut self, length: Duration) -> Ban {
        self.at_most = Some(length);
        self
    }

    /// One ban less counts for each such time since the last one ended.
    pub fn forgotten_after(mut self, time: Duration) -> Ban {
        self.forgotten_after = time;
        self
    }

    /// Those who are banned get a 403, and gRPC calls `PERMISSION_DENIED`; 429 and `RESOURCE_EXHAUSTED` unless said otherwise. Both
    /// with `Retry-After`.
    pub fn forbidden(mut self) -> Ban {
        self.status = StatusCode::FORBIDDEN;
        self
    }

    /// The ban as a store is asked about it, for the rule of this name.
    ///
    /// # Errors
    ///
    /// What [`LimiterBuilder::build`](crate::LimiterBuilder::build) would say of it.
    pub fn check(&self, rule: &str) -> Result<Limit, BuildError> {
        let bad = |text: String| Err(BuildError::rule(rule, "ban", text));
        if !(1..=MOST_STRIKES).contains(&self.strikes) {
            return bad(format!("after {} strikes is out of range; give 1 to {MOST_STRIKES}", self.strikes));
        }
        let at_most = self.at_most.unwrap_or_else(|| self.lasting.max(DAY));
        let times = [
            ("within", self.within),
            ("lasting", self.lasting),
            ("at_most", at_most),
            ("forgotten_after", self.forgotten_after),
        ];
        for (setter, time) in times {
            if !(SHORTEST..=LONGEST).contains(&time) || !time.subsec_nanos().is_multiple_of(1_000_000) {
                let text = format!("{setter} {time:?} is out of range; give whole milliseconds from 1 ms to 366 days");
                return bad(text);
            }
        }
        if at_most < self.lasting {
            return bad(format!(
                "at_most {at_most:?} is shorter than the first, {:?}; give that or more",
                self.lasting
            ));
        }
        let (first, longest) = (micros(self.lasting) / 1_000, micros(at_most) / 1_000);
        // Also what is not a number is not in there.
        if !(1.0..=LARGEST_FACTOR as f64).contains(&self.factor) {
            return bad(format!("escalating by {} is out of range; give 1 to {LARGEST_FACTOR}", self.factor));
        }
        let factor = (self.factor * THOUSAND as f64).round() as u64;
        if self.factor > 1.0 && first < longest && first * factor / THOUSAND == first {
            return bad(format!("escalating {:?} by {} does not make it longer; give more", self.lasting, self.factor));
        }
        // Where none is longer than another, how many there were does not matter.
        let longest = if factor == THOUSAND { first } else { longest };
        let (window, forget) = (micros(self.within), micros(self.forgotten_after));
        Ok(Limit::of_ban(ban::Params { strikes: self.strikes, window, first, factor, longest, forget }))
    }
}

impl fmt::Debug for Ban {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ban")
            .field("after", &self.strikes)
            .field("of", &if self.responses.is_some() { "responses" } else { "refusals" })
            .field("within", &self.within)
            .field("lasting", &self.lasting)
            .field("escalating", &self.factor)
            .field("at_most", &self.at_most)
            .field("forgotten_after", &self.forgotten_after)
            .field("status", &self.status.as_u16())
            .finish()
    }
}
