use super::Wrong;

/// Minutes ahead of UTC: `+01:00`, `-03:30`, `Z`.
pub(in crate::policy) fn utc_offset(text: &str) -> Result<i32, Wrong> {
    let read = || {
        if text == "Z" || text == "UTC" {
            return Some(0);
        }
        let (sign, rest) = match text.split_at_checked(1)? {
            ("+", rest) => (1, rest),
            ("-", rest) => (-1, rest),
            _ => return None,
        };
        let (hours, minutes) = rest.split_once(':')?;
        let two = |digits: &str| {
            let both = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
            both.then(|| digits.parse::<i32>().ok())?
        };
        let (hours, minutes) = (two(hours)?, two(minutes).filter(|minutes| *minutes < 60)?);
        Some(sign * (hours * 60 + minutes))
    };
    let help = "write hours and minutes ahead of UTC or behind it, as \"+01:00\" or \"-03:30\"; it holds all year";
    read().ok_or_else(|| Wrong::new(format!("{text:?} is no offset from UTC"), help))
}

pub(in crate::policy) fn write_utc_offset(minutes: i32) -> String {
    let sign = if minutes < 0 { '-' } else { '+' };
    let minutes = minutes.unsigned_abs();
    format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_and_written() {
        for (text, minutes) in [("+01:00", 60), ("-03:30", -210), ("+05:45", 345), ("+00:00", 0)] {
            assert_eq!(utc_offset(text), Ok(minutes));
            assert_eq!(write_utc_offset(minutes), text);
        }
        assert_eq!(utc_offset("Z"), Ok(0));
        for text in ["", "1", "+1:00", "+01:60", "+0100", "01:00", "é01:00", "+é:00"] {
            assert!(utc_offset(text).is_err(), "{text}");
        }
    }
}
