use http::StatusCode;

use super::Wrong;

/// Which responses: single codes, and classes such as `5xx`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::policy) struct Statuses {
    codes: Vec<u16>,
    classes: Vec<u16>,
}

impl Statuses {
    pub(in crate::policy) fn contain(&self, status: StatusCode) -> bool {
        self.codes.contains(&status.as_u16()) || self.classes.contains(&(status.as_u16() / 100))
    }

    pub(in crate::policy) fn add(&mut self, text: &str) -> Result<(), Wrong> {
        let class = text.strip_suffix("xx").or_else(|| text.strip_suffix("XX"));
        let number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?;
        match (class.map(number), number(text)) {
            (Some(Some(class @ 1..=5)), _) => self.classes.push(class),
            (None, Some(code @ 100..=599)) => self.codes.push(code),
            _ => {
                let help = "give codes from 100 to 599, as 401, and classes, as \"5xx\"";
                return Err(Wrong::new(format!("{text:?} is no status of a response"), help));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_classes_are_read() {
        let mut statuses = Statuses::default();
        for text in ["401", "5xx"] {
            statuses.add(text).expect("a status");
        }
        let contain = |code| statuses.contain(StatusCode::from_u16(code).expect("a status"));
        assert!(contain(401) && contain(500) && contain(599));
        assert!(!contain(400) && !contain(200));
        for text in ["", "xx", "0xx", "6xx", "99", "600", "-1", "+401", "99999", "40x"] {
            assert!(statuses.add(text).is_err(), "{text}");
        }
    }
}
