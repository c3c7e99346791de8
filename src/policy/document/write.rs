//! Overrides as JSON.

use std::fmt::{Display, Write};

use super::{Change, Override};

impl Override {
    /// As JSON, which [`from_json`](Override::from_json) reads: for a database of one's own.
    ///
    /// ```
    /// use sluicegate::{Quota, policy::Override};
    ///
    /// let own = Override::tier("pro").quota("per-user", Quota::per_minute(5_000));
    /// assert_eq!(Override::from_json(&own.to_json())?, own);
    /// # Ok::<(), sluicegate::policy::PolicyError>(())
    /// ```
    pub fn to_json(&self) -> String {
        let mut json = Json(String::new());
        json.open();
        if let Some(tier) = &self.tier {
            json.text("tier", tier);
        }
        if !self.rules.is_empty() {
            json.name("rules");
            json.open();
            for (rule, change) in &self.rules {
                json.name(rule);
                json.change(change);
            }
            json.close();
        }
        json.close();
        json.0
    }
}

/// An object of objects, as it is written.
struct Json(String);

impl Json {
    fn change(&mut self, change: &Change) {
        let Change { quota, burst, limit, utc_offset, shadow, roll_out, cost } = change;
        self.open();
        for (name, text) in [("quota", quota), ("utc_offset", utc_offset)] {
            if let Some(text) = text {
                self.text(name, text);
            }
        }
        for (name, number) in [("burst", burst), ("limit", limit), ("cost", cost)] {
            self.value(name, number.as_ref());
        }
        self.value("shadow", shadow.as_ref());
        self.value("roll_out", roll_out.as_ref());
        self.close();
    }

    fn open(&mut self) {
        self.0.push('{');
    }

    fn close(&mut self) {
        self.0.push('}');
    }

    fn name(&mut self, name: &str) {
        if !self.0.ends_with('{') {
            self.0.push(',');
        }
        self.quoted(name);
        self.0.push(':');
    }

    fn text(&mut self, name: &str, text: &str) {
        self.name(name);
        self.quoted(text);
    }

    /// A number or a truth, which both are written as in Rust.
    fn value(&mut self, name: &str, value: Option<&impl Display>) {
        if let Some(value) = value {
            self.name(name);
            self.0.push_str(&value.to_string());
        }
    }

    fn quoted(&mut self, text: &str) {
        self.0.push('"');
        for letter in text.chars() {
            match letter {
                '"' | '\\' => self.0.extend(['\\', letter]),
                // Writing to a text does not fail.
                '\0'..='\u{1f}' => drop(write!(self.0, "\\u{:04x}", u32::from(letter))),
                letter => self.0.push(letter),
            }
        }
        self.0.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_as_the_same() {
        for text in [
            "{}",
            r#"{"tier":"pro"}"#,
            r#"{"tier":"a \"b\" \\ \u0007 é","rules":{"x \"y\"":{"quota":"5/calendar day","utc_offset":"+02:00"}}}"#,
            r#"{"rules":{"a":{"limit":5},"b":{"burst":7,"cost":3,"shadow":true,"roll_out":12.5},"c":{}}}"#,
        ] {
            let own = Override::from_json(text).expect(text);
            assert_eq!(own.to_json(), text);
        }
    }
}
