//! Windows of the calendar: hours, days and months in an offset from UTC, against a calendar that is counted day by day.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::{Router, routing::get};
use sluicegate::{
    Clock, Limiter, LimiterBuilder, ManualClock, MemoryStore, Quota, RateLimitLayer, RedisStore, Rule, key,
};

use crate::support::{
    app::{self, field},
    dice::Dice,
    server::VERSIONS,
    stores::{BEGIN, every_store, namespace},
};

const MICROSECOND: Duration = Duration::from_micros(1);
const HOUR: u64 = 3_600_000_000;
const DAY: u64 = 24 * HOUR;
const AMOUNT: u64 = 4;

/// When each month begins, from January 1970 to December 2199, in days since the first; counted as people do.
fn months() -> Vec<u64> {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let lengths = (1970..2200).flat_map(|year| {
        let february = if leap(year) { 29 } else { 28 };
        [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    });
    lengths.scan(0, |day, length| Some(std::mem::replace(day, *day + length))).collect()
}

/// The month that holds `now` on a clock so many minutes ahead of UTC: when it begins and ends. The first begins with the epoch.
fn month(months: &[u64], now: Duration, minutes: i32) -> (Duration, Duration) {
    let ahead = i64::from(minutes) * 60_000_000;
    let day = (now.as_micros() as i64 + ahead) as u64 / DAY;
    let next = months.partition_point(|first| *first <= day);
    let moment = |first: u64| Duration::from_micros(((first * DAY) as i64 - ahead).max(0) as u64);
    (moment(months[next - 1]), moment(months[next]))
}

/// 1 November of the year.
fn november(year: u64) -> Duration {
    Duration::from_micros(months()[(year as usize - 1970) * 12 + 10] * DAY)
}

fn monthly(amount: u64, minutes: i32) -> Rule {
    let quota = Quota::per_calendar_month(amount).utc_offset_minutes(minutes);
    Rule::fixed_window("monthly", quota).key(key::given())
}

/// Spends over years and compares every number with a count by hand.
async fn walk(limiter: &Limiter, clock: &ManualClock, begin: Duration, minutes: i32, name: &str) {
    let (amount, months, steps) = (AMOUNT, months(), 80);
    let mut dice = Dice::new(minutes.unsigned_abs().into());
    let (mut now, mut end, mut used) = (begin, Duration::ZERO, 0);
    let mut edges = 0;
    for step in 0..steps {
        let (_, ends) = month(&months, now, minutes);
        match dice.below(8) {
            // To the edge of the month, and a microsecond before it.
            0 => now = ends,
            1 => now = ends - MICROSECOND,
            2 => now += Duration::from_micros(dice.below(400 * DAY)),
            3 => now += Duration::from_micros(dice.below(DAY)),
            _ => {}
        }
        clock.set(now);
        let (_, ends) = month(&months, now, minutes);
        if ends != end {
            (end, used) = (ends, 0);
            edges += 1;
        }
        let cost = dice.below(3);
        let fits = used + cost <= amount || cost == 0;
        let decision = limiter.acquire(sluicegate::Call::new().key("monthly", "k").cost(cost)).await;
        assert!(decision.failure().is_none(), "{name}: {:?}", decision.failure());
        used += if fits { cost } else { 0 };
        let place = format!("{name} step {step}, UTC{minutes:+} at {now:?}: {decision:?}");
        assert_eq!(decision.is_allowed(), fits, "{place}");
        assert_eq!(decision.retry_after(), (!fits).then(|| end - now), "{place}");
        let standing = decision.standing("monthly").expect("it applies");
        assert_eq!(standing.remaining(), amount - used, "{place}");
        assert_eq!(standing.reset_after(), if used == 0 { Duration::ZERO } else { end - now }, "{place}");
    }
    assert!(edges > steps / 8, "{edges} months");
}

#[tokio::test]
async fn months_are_those_of_the_calendar_on_every_store() {
    for backend in every_store() {
        // Century years are leap years, or are not.
        let walks = [(0, BEGIN), (60, november(1998)), (330, november(2098)), (-570, november(2026))];
        for (minutes, begin) in walks.into_iter().chain([(1_080, november(1971)), (-1_080, november(2099))]) {
            let clock = ManualClock::new(begin);
            let limiter = backend.limiter(&clock, [monthly(AMOUNT, minutes)]);
            limiter.reset([("monthly", "k")]).await.expect("forgotten");
            walk(&limiter, &clock, begin, minutes, &backend.name).await;
        }
    }
}

/// Leap days, which are the last of the year that the arithmetic counts in, and both ends of every month around them: in a year that is
/// divisible by 400, by 100 and by 4, and in one by none.
#[tokio::test]
async fn every_month_of_leap_years_and_others_ends_when_it_should() {
    let (months, half) = (months(), Duration::from_secs(43_200));
    for backend in every_store() {
        for (minutes, years) in [(0, [2000, 2024]), (330, [2100, 2026]), (-570, [2096, 2000])] {
            for year in years {
                let clock = ManualClock::new(BEGIN);
                let limiter = backend.limiter(&clock, [monthly(4, minutes)]);
                // As if it had been counted in one year only.
                limiter.reset([("monthly", "k")]).await.expect("forgotten");
                for place in (year - 1970) * 12..(year - 1969) * 12 {
                    let noon = Duration::from_micros(months[place] * DAY) + half;
                    let (begins, ends) = month(&months, noon + 3 * half, minutes);
                    // A leap day is one from its first moment to its last.
                    let moments = [begins, begins + half, ends - 2 * half, ends - MICROSECOND];
                    for (remaining, now) in (0..4).rev().zip(moments) {
                        clock.set(now);
                        let decision = limiter.acquire([("monthly", "k")]).await;
                        let standing = decision.standing("monthly").expect("it applies");
                        let told = (decision.is_allowed(), standing.remaining(), standing.reset_after());
                        let month = place % 12 + 1;
                        assert_eq!(told, (true, remaining, ends - now), "{} {year}-{month} {now:?}", backend.name);
                    }
                    assert_eq!(limiter.acquire([("monthly", "k")]).await.retry_after(), Some(MICROSECOND));
                }
            }
        }
    }
}

#[tokio::test]
async fn months_need_no_scripts() {
    for version in VERSIONS {
        let store = RedisStore::builder(version.shared().url()).no_scripts().bare().deadline(Duration::from_secs(30));
        let clock = ManualClock::new(BEGIN);
        let builder = Limiter::builder(store.build().expect("sound")).namespace(namespace());
        let limiter = builder.clock(Clock::manual(clock.clone())).rule(monthly(AMOUNT, -300)).build().expect("sound");
        walk(&limiter, &clock, BEGIN, -300, &format!("{version:?} without scripts")).await;
    }
}

#[tokio::test]
async fn hours_and_days_begin_where_their_clock_says() {
    let since_midnight = BEGIN.as_micros() as u64 % DAY;
    assert!(since_midnight < 1_000_000, "at UTC it is midnight");
    for (minutes, day, hour) in
        [(0, 24 * 60, 60), (330, 18 * 60 + 30, 30), (345, 18 * 60 + 15, 15), (-300, 5 * 60, 60), (-1, 1, 1)]
    {
        for backend in every_store() {
            let rules = [
                Rule::fixed_window("day", Quota::per_calendar_day(1).utc_offset_minutes(minutes)).key(key::given()),
                Rule::fixed_window("hour", Quota::per_calendar_hour(9).utc_offset_minutes(minutes)).key(key::given()),
            ];
            let clock = ManualClock::new(BEGIN);
            let limiter = backend.limiter(&clock, rules);
            let both = [("day", minutes), ("hour", minutes)];
            let decision = limiter.acquire(both).await;
            let reset = |rule| decision.standing(rule).expect("it applies").reset_after();
            let until = |minutes: u64| Duration::from_micros(minutes * 60_000_000 - since_midnight);
            assert_eq!((reset("day"), reset("hour")), (until(day), until(hour)), "{} UTC{minutes:+}", backend.name);
            clock.advance(until(day) - MICROSECOND);
            assert!(limiter.acquire(both).await.is_refused(), "{} UTC{minutes:+}", backend.name);
            clock.advance(MICROSECOND);
            assert!(limiter.acquire(both).await.is_allowed(), "{} UTC{minutes:+}", backend.name);
        }
    }
}

/// A rule that moves to the calendar, or to another offset, hands out no fresh quota.
#[tokio::test]
async fn what_was_counted_goes_on_when_the_windows_change() {
    let daily = Rule::fixed_window("monthly", Quota::per_day(10)).key(key::given());
    for backend in every_store() {
        let clock = ManualClock::new(BEGIN);
        let remaining = async |rule: Rule| {
            let decision = backend.limiter(&clock, [rule]).acquire([("monthly", "k")]).await;
            decision.standing("monthly").expect("it applies").remaining()
        };
        assert_eq!(remaining(daily.clone()).await, 9, "{}", backend.name);
        assert_eq!(remaining(monthly(10, 0)).await, 8, "{}", backend.name);
        assert_eq!(remaining(monthly(10, 600)).await, 7, "{}", backend.name);
        assert_eq!(remaining(monthly(5, 600)).await, 1, "{}", backend.name);
        assert_eq!(remaining(daily.clone()).await, 5, "{}", backend.name);
        // Six were used. A month of two is full, and it is all that is carried on.
        assert_eq!(remaining(monthly(2, 600)).await, 0, "{}", backend.name);
        assert_eq!(remaining(daily.clone()).await, 7, "{}", backend.name);
    }
}

/// The calendar says when a month began, too: a rule that leaves it goes on from there. Also on leap days, which are the last of the year
/// that the arithmetic counts in, and in the month that the epoch cut short.
#[tokio::test]
async fn a_month_begins_where_its_clock_says() {
    let (months, first) = (months(), Quota::per(10, Duration::from_secs(40 * 86_400)));
    let noon = |year: usize, of_february: u64| {
        Duration::from_micros((months[(year - 1970) * 12 + 1] + of_february - 1) * DAY + 12 * HOUR)
    };
    let moments = [BEGIN, noon(2000, 29), noon(2024, 29), noon(2100, 28), Duration::from_micros(HOUR)];
    for backend in every_store() {
        for (now, minutes) in
            moments.into_iter().flat_map(|now| [0, 330, -30, 720, 1_080].map(|minutes| (now, minutes)))
        {
            let (begins, _) = month(&months, now, minutes);
            for (place, since) in (0..).zip([Duration::ZERO, Duration::from_secs(3_600), now - begins]) {
                let clock = ManualClock::new(begins + since);
                let call = || [("monthly", format!("{minutes} {begins:?} {place}"))];
                assert!(backend.limiter(&clock, [monthly(10, minutes)]).acquire(call()).await.is_allowed());
                let rule = Rule::fixed_window("monthly", first).from_first_request().key(key::given());
                let decision = backend.limiter(&clock, [rule]).acquire(call()).await;
                let standing = decision.standing("monthly").expect("it applies");
                let told = (standing.remaining(), standing.reset_after());
                let context = format!("{} UTC{minutes:+} {since:?} after {begins:?}", backend.name);
                assert_eq!(told, (8, first.window() - since), "{context}");
            }
        }
    }
}

#[tokio::test]
async fn fields_tell_no_length_of_a_month_and_its_true_end() {
    let end = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after the epoch");
        month(&months(), now, 120).1
    };
    let quotas = [
        ("monthly", Quota::per_calendar_month(3)),
        ("daily", Quota::per_calendar_day(5)),
        ("hourly", Quota::per_calendar_hour(7)),
    ];
    let before = end().as_secs();
    for (name, quota) in quotas {
        let rule = Rule::fixed_window(name, quota.utc_offset_minutes(120)).key(key::global());
        let limiter = Limiter::builder(MemoryStore::new()).rule(rule).build().expect("sound");
        let layer = RateLimitLayer::new(limiter).jitter(false);
        let app = Router::new().route("/", get(|| async {})).layer(layer);
        for place in 0..=quota.amount() {
            let refused = place == quota.amount();
            let response = app::get(&app, "/").await;
            assert_eq!(response.status(), if refused { 429 } else { 200 });
            let policy = match name {
                "monthly" => "\"monthly\";q=3",
                "daily" => "\"daily\";q=5;w=86400",
                _ => "\"hourly\";q=7;w=3600",
            };
            assert_eq!(field(&response, "ratelimit-policy"), Some(policy));
            let reset: u64 = field(&response, "x-ratelimit-reset").expect("a reset").parse().expect("a number");
            let ratelimit = field(&response, "ratelimit").expect("a standing");
            let told: u64 = ratelimit.split_once(";t=").expect("a time").1.parse().expect("a number");
            if name == "monthly" {
                // Rounded up, and the response is written a little after the decision.
                let after = end().as_secs();
                assert!((before..=before + 1).contains(&reset) || (after..=after + 1).contains(&reset), "{reset}");
                let wait = SystemTime::now().duration_since(UNIX_EPOCH).expect("after the epoch");
                let wait = Duration::from_secs(after).saturating_sub(wait).as_secs();
                if refused {
                    // A client is told to come back within a day, since its plan may have changed by then.
                    let retry: u64 = field(&response, "retry-after").expect("a wait").parse().expect("a number");
                    assert_eq!((retry, told), (wait.clamp(1, 86_400), retry));
                } else {
                    assert!(told.abs_diff(wait) <= 2, "{told} of {wait}");
                }
            } else {
                assert!(told <= if name == "daily" { 86_400 } else { 3_600 });
            }
        }
    }
}

#[test]
fn what_no_calendar_has_is_a_build_error() {
    let month = Quota::per_calendar_month(5);
    let window = |quota| Rule::fixed_window("r", quota).key(key::global());
    for (rule, field, remedy) in [
        (Rule::gcra("r", month).key(key::global()), "quota", "Rule::fixed_window"),
        (Rule::sliding_log("r", Quota::per_calendar_day(5)).key(key::global()), "quota", "Rule::fixed_window"),
        (window(month.burst(9)), "burst", "drop .burst(..)"),
        (window(month).from_first_request(), "window", "drop .offset(..)"),
        (window(month).offset(Duration::from_secs(1)), "window", "utc_offset_minutes"),
        (window(month.utc_offset_minutes(1_081)), "utc_offset_minutes", "give -1080 to 1080"),
        (window(month.utc_offset_minutes(i32::MIN)), "utc_offset_minutes", "give -1080 to 1080"),
        (window(Quota::per_day(5).utc_offset_minutes(60)), "utc_offset_minutes", "per_calendar_day"),
        (window(Quota::unlimited().utc_offset_minutes(60)), "utc_offset_minutes", "per_calendar_day"),
        (window(Quota::per_calendar_month(0)), "quota", "give 1 to"),
    ] {
        let error = LimiterBuilder::rule(Limiter::builder(MemoryStore::new()), rule).build().expect_err("a fault");
        assert_eq!((error.rule_name(), error.field()), (Some("r"), field), "{error}");
        assert!(error.to_string().contains(remedy), "{error}");
    }
    assert_eq!(month.utc_offset_minutes(-90).to_string(), "5 per calendar month, UTC-01:30");
}
