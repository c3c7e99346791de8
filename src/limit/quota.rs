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
/// Quota::per_calendar_month(1_000_000);           // a bill's month, 28 to 31 days
/// Quota::unlimited();                             // for the tier that has no limit
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Quota {
    amount: u64,
    period: Period,
    burst: Option<u64>,
    utc_offset: Option<i32>,
}

/// In how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Period {
    Every(Duration),
    CalendarHour,
    CalendarDay,
    CalendarMonth,
    /// There is no limit at all.
    Unlimited,
}

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

impl Quota {
    const fn new(amount: u64, period: Period) -> Quota {
        Quota { amount, period, burst: None, utc_offset: None }
    }

    /// `amount` units in each `window`.
    pub const fn per(amount: u64, window: Duration) -> Quota {
        Quota::new(amount, Period::Every(window))
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
        Quota::per(amount, HOUR)
    }

    /// `amount` units a day: 24 hours.
    pub const fn per_day(amount: u64) -> Quota {
        Quota::per(amount, DAY)
    }

    /// `amount` units in each hour of the calendar, which begins at :00 on a clock that [`utc_offset_minutes`] sets. For
    /// [fixed windows](crate::Rule::fixed_window), here and below.
    ///
    /// [`utc_offset_minutes`]: Quota::utc_offset_minutes
    pub const fn per_calendar_hour(amount: u64) -> Quota {
        Quota::new(amount, Period::CalendarHour)
    }

    /// `amount` units in each day of the calendar, from midnight to midnight.
    pub const fn per_calendar_day(amount: u64) -> Quota {
        Quota::new(amount, Period::CalendarDay)
    }

    /// `amount` units in each month of the calendar, from the first at midnight to the next first at midnight, however many days
    /// it has.
    ///
    /// ```
    /// use sluicegate::{key, Quota, Rule};
    ///
    /// // Ten thousand a month, on the bills of a company in Berlin's winter time.
    /// let quota = Quota::per_calendar_month(10_000).utc_offset_minutes(60);
    /// Rule::fixed_window("monthly", quota).key(key::header("x-customer"));
    /// ```
    pub const fn per_calendar_month(amount: u64) -> Quota {
        Quota::new(amount, Period::CalendarMonth)
    }

    /// No limit, for tiers that have none: a rule with it never refuses.
    ///
    /// It counts nothing, so it costs no call to the store, decisions have no [`Standing`](crate::Standing) of it, and response
    /// headers do not mention it. Its key is still looked for, and a
    /// key closure may refuse the request.
    pub const fn unlimited() -> Quota {
        Quota::new(u64::MAX, Period::Unlimited)
    }

    /// Hours, days and months of the calendar are those of a clock so many minutes ahead of UTC, or behind it if negative: 330
    /// is +05:30. UTC unless said otherwise.
    ///
    /// It stays the same all year. A time zone with summer time has no one offset, and a quota that followed it would have days
    /// of 23 and 25 hours: bills name one offset, mostly UTC.
    pub const fn utc_offset_minutes(self, minutes: i32) -> Quota {
        Quota { utc_offset: Some(minutes), ..self }
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

    pub(crate) const fn given_utc_offset(&self) -> Option<i32> {
        self.utc_offset
    }

    pub(crate) const fn period(&self) -> Period {
        self.period
    }

    /// The same windows with another amount, and no burst.
    pub(crate) const fn with_amount(&self, amount: u64) -> Quota {
        Quota { amount, burst: None, ..*self }
    }

    /// Whether it is [`unlimited`](Quota::unlimited).
    pub const fn is_unlimited(&self) -> bool {
        matches!(self.period, Period::Unlimited)
    }

    /// Whether its windows are those of the calendar.
    pub(crate) const fn is_calendar(&self) -> bool {
        matches!(self.period, Period::CalendarHour | Period::CalendarDay | Period::CalendarMonth)
    }

    /// Units in each window; [`u64::MAX`] without a limit.
    pub const fn amount(&self) -> u64 {
        self.amount
    }

    /// The length of a window: of a calendar's months 31 days, which is the longest; zero without a limit.
    pub const fn window(&self) -> Duration {
        match self.period {
            Period::Every(window) => window,
            Period::CalendarHour => HOUR,
            Period::CalendarDay => DAY,
            Period::CalendarMonth => Duration::from_secs(31 * 86_400),
            Period::Unlimited => Duration::ZERO,
        }
    }

    /// The most that can be spent at once.
    pub const fn capacity(&self) -> u64 {
        match self.burst {
            Some(units) => units,
            None => self.amount,
        }
    }
}

/// `100 per 60s, burst 20`; `10000 per calendar month, UTC+01:00`; `unlimited`.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.period {
            Period::Every(window) => write!(f, "{} per {window:?}", self.amount)?,
            Period::CalendarHour => write!(f, "{} per calendar hour", self.amount)?,
            Period::CalendarDay => write!(f, "{} per calendar day", self.amount)?,
            Period::CalendarMonth => write!(f, "{} per calendar month", self.amount)?,
            Period::Unlimited => f.write_str("unlimited")?,
        }
        if let Some(minutes) = self.utc_offset {
            let sign = if minutes < 0 { '-' } else { '+' };
            let minutes = minutes.unsigned_abs();
            write!(f, ", UTC{sign}{:02}:{:02}", minutes / 60, minutes % 60)?;
        }
        self.burst.map_or(Ok(()), |units| write!(f, ", burst {units}"))
    }
}
