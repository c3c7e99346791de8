use std::{fmt, time::Duration};

/// How much, in how long: `Quota::per_minute(100)` is a hundred units a minute.
///
/// A unit is a request unless the rule gives requests a cost. What is out of range is said when the limiter is built.
///
/// ```
/// use sluicegate::Quota;
/// use std::time::Duration;
///
/// Quota::per_second(10_000);
/// Quota::per_minute(100).burst(20);               // a bucket of 20 that refills 100 a minute
/// Quota::per(3, Duration::from_millis(500));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Quota {
    amount: u64,
    window: Duration,
    burst: Option<u64>,
}

impl Quota {
    /// `amount` units in each `window`.
    pub const fn per(amount: u64, window: Duration) -> Quota {
        Quota { amount, window, burst: None }
    }

    /// `amount` units a second: `per_second(10)` is ten every second.
    pub const fn per_second(amount: u64) -> Quota {
        Quota::per(amount, Duration::from_secs(1))
    }

    /// `amount` units a minute.
    pub const fn per_minute(amount: u64) -> Quota {
        Quota::per(amount, Duration::from_secs(60))
    }

    /// `amount` units an hour.
    pub const fn per_hour(amount: u64) -> Quota {
        Quota::per(amount, Duration::from_secs(3_600))
    }

    /// `amount` units a day.
    pub const fn per_day(amount: u64) -> Quota {
        Quota::per(amount, Duration::from_secs(86_400))
    }

    /// The capacity of a token bucket, a leaky bucket or GCRA: what may be spent at once after a pause.
    ///
    /// Without it the capacity is the amount. Windows and logs have no burst; giving them one is an error when the
    /// limiter is built.
    pub const fn burst(self, units: u64) -> Quota {
        Quota { burst: Some(units), ..self }
    }

    pub(crate) const fn given_burst(&self) -> Option<u64> {
        self.burst
    }

    /// Units in each window.
    pub const fn amount(&self) -> u64 {
        self.amount
    }

    /// The length of a window.
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// The most that can be spent at once.
    pub const fn capacity(&self) -> u64 {
        match self.burst {
            Some(units) => units,
            None => self.amount,
        }
    }
}

/// `100 per 60s, burst 20`.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {:?}", self.amount, self.window)?;
        self.burst.map_or(Ok(()), |units| write!(f, ", burst {units}"))
    }
}
