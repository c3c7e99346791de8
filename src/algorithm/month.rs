//! Months of the Gregorian calendar, as whole days since 1970-01-01. The Lua of a fixed window has the same.

const DAY: i64 = 86_400_000_000;

/// When the month that holds `time` begins and ends, all in microseconds since the Unix epoch. The month is that of a clock which
/// is so much ahead of UTC.
pub(crate) fn month_of(time: u64, utc_offset: i64) -> (u64, u64) {
    let day = (time as i64).saturating_add(utc_offset).div_euclid(DAY);
    let begin = first_of_month(day);
    // No month is longer than 31 days, and none so short that this would be in the one after the next.
    let end = first_of_month(begin + 31);
    // A month that began before the epoch begins with it.
    let moment = |day: i64| u64::try_from(day * DAY - utc_offset).unwrap_or(0);
    (moment(begin), moment(end))
}

/// The first day of the month that this day is in.
fn first_of_month(day: i64) -> i64 {
    // Counted in years that begin in March, so that a leap day is the last day of its year.
    let of_era = (day + 719_468).rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    day - (of_year - (153 * month + 2) / 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Day by day through eight centuries, counting as people do.
    #[test]
    fn every_day_is_in_its_month() {
        let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let mut day = 0;
        for year in 1970..2770 {
            let february = if leap(year) { 29 } else { 28 };
            for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
                for of_month in day..day + length {
                    assert_eq!(first_of_month(of_month), day, "{year}");
                }
                day += length;
            }
        }
    }

    #[test]
    fn months_meet_to_the_microsecond_in_every_offset() {
        for minutes in [-1_080, -330, -1, 0, 1, 60, 345, 840, 1_080] {
            let offset = minutes * 60_000_000;
            let mut time = 1_000;
            for _ in 0..3_000 {
                let (begin, end) = month_of(time, offset);
                assert!(begin <= time && time < end && end - begin <= 31 * DAY as u64, "{time} {minutes}");
                assert_eq!(month_of(end - 1, offset), (begin, end), "{time} {minutes}");
                assert_eq!(month_of(end, offset).0, end, "{time} {minutes}");
                time = end;
            }
        }
    }
}
