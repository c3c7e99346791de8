//! What tiers and overrides put in the place of a rule's own.

use super::{
    Code, Wrong,
    rule::{code_of, with},
};
use crate::{
    Algorithm, Quota,
    policy::{
        document::{Change, Override},
        error::{PolicyError, Problem, Problems},
        plan::{Planned, Replacement},
        read::Step::Key,
        source::Tree,
        text::{quota, utc_offset},
        words,
    },
};

/// What is wrong with a field of a change.
pub(super) struct Misfit {
    pub(super) code: Code,
    pub(super) field: &'static str,
    pub(super) wrong: Wrong,
}

impl Misfit {
    fn new(code: Code, field: &'static str, wrong: Wrong) -> Misfit {
        Misfit { code, field, wrong }
    }
}

impl Change {
    /// The texts in it, read.
    fn read(&self) -> Result<(Option<Quota>, Option<i32>), Misfit> {
        let quota = self.quota.as_deref().map(quota).transpose();
        let offset = self.utc_offset.as_deref().map(utc_offset).transpose();
        Ok((
            quota.map_err(|wrong| Misfit::new(Code::Quota, "quota", wrong))?,
            offset.map_err(|wrong| Misfit::new(Code::Time, "utc_offset", wrong))?,
        ))
    }

    /// What it puts in the place of what this rule has, checked together with the rest of the rule. `before` is the quota that holds
    /// without it.
    pub(super) fn of(&self, place: usize, planned: &Planned, before: Option<Quota>) -> Result<Replacement, Misfit> {
        let impossible =
            |field, message: &str, help: &str| Err(Misfit::new(Code::Impossible, field, Wrong::new(message, help)));
        let (written, offset) = self.read()?;
        let concurrent = planned.rule.algorithm == Algorithm::Concurrency;
        let quota = match (written, self.limit) {
            (Some(quota), _) if concurrent && !quota.is_unlimited() => {
                return impossible("quota", "a concurrency rule has no quota", "give how many at the same time, as 20");
            }
            (_, Some(_)) if !concurrent => {
                return impossible("limit", "only a concurrency rule has a limit", "give a quota, as \"100/min\"");
            }
            (Some(_), Some(_)) => {
                return impossible("limit", "stands beside an unlimited quota", "give one of the two");
            }
            (None, Some(limit)) => {
                if self.burst.is_some() {
                    return impossible("burst", "a concurrency rule has no burst", "drop it");
                }
                Some(Quota::per(limit, planned.lease))
            }
            (Some(quota), None) => {
                let quota = with(quota, self.burst, planned.utc_offset);
                Some(offset.map_or(quota, |minutes| quota.utc_offset_minutes(minutes)))
            }
            (None, None) if self.burst.is_some() || offset.is_some() => {
                let Some(before) = before else {
                    let field = if self.burst.is_some() { "burst" } else { "utc_offset" };
                    return impossible(
                        field,
                        "stands without a quota",
                        "give quota beside it: the rule has none of its own",
                    );
                };
                let quota = self.burst.map_or(before, |burst| before.burst(burst));
                Some(offset.map_or(quota, |minutes| quota.utc_offset_minutes(minutes)))
            }
            (None, None) => None,
        };
        let roll_out = match (self.shadow, self.roll_out) {
            (Some(true), Some(_)) => {
                let wrong = Wrong::new("stands beside shadow", "a shadow is rolled out to nobody; drop one of the two");
                return Err(Misfit::new(Code::Field, "roll_out", wrong));
            }
            (Some(true), None) => Some(0.0),
            (Some(false), None) => Some(100.0),
            (_, percent) => percent,
        };
        let replacement = Replacement { rule: place, quota, roll_out, cost: self.cost };
        match replacement.apply(&planned.rule).check() {
            Ok(_) => Ok(replacement),
            Err(error) => {
                let field = match error.field() {
                    "quota" if self.limit.is_some() => "limit",
                    "utc_offset_minutes" => "utc_offset",
                    "quota" => "quota",
                    "burst" => "burst",
                    "limit" => "limit",
                    "roll_out" => "roll_out",
                    "cost" => "cost",
                    _ => "",
                };
                let mut wrong = words::split(error.text());
                if field == "cost" {
                    wrong.help = wrong.help.split(", or").next().unwrap_or_default().to_owned();
                }
                if field.is_empty() {
                    wrong.message = format!("{}: {}", error.field(), wrong.message);
                }
                Err(Misfit::new(code_of(field), field, wrong))
            }
        }
    }
}

impl Override {
    /// What can be said of it without knowing its rules.
    pub(in crate::policy) fn check_texts(&self, tree: &Tree<'_>, problems: &mut Problems) {
        for (rule, change) in &self.rules {
            if let Err(Misfit { code, field, wrong }) = change.read() {
                let message = format!("rule {rule:?}: {field}: {}", wrong.message);
                let wrong = Wrong { message, ..wrong };
                problems.add(|| tree.problem(code, wrong, &[Key("rules"), Key(rule), Key(field)]));
            }
        }
    }

    pub(crate) fn tier_name(&self) -> Option<&str> {
        self.tier.as_deref()
    }

    /// What it puts in the place of what rules have, for rules as they are found by name with their places, and what the customer's tier puts
    /// there.
    pub(crate) fn replacements<'p>(
        &self,
        rule_named: impl Fn(&str) -> Option<(usize, &'p Planned)>,
        by_tier: &[Replacement],
    ) -> Result<Vec<Replacement>, PolicyError> {
        let mut problems = Problems::default();
        let mut replaced = Vec::with_capacity(self.rules.len());
        for (name, change) in &self.rules {
            let found = match rule_named(name) {
                Some((place, planned)) => change.of(place, planned, planned.quota_with(place, by_tier)),
                None => {
                    let wrong = Wrong::new("no rule has this name", "name a rule of the policy");
                    Err(Misfit::new(Code::UnknownRule, "", wrong))
                }
            };
            match found {
                Ok(replacement) => replaced.push(replacement),
                Err(Misfit { code, field, wrong }) => {
                    let between = if field.is_empty() { "" } else { ": " };
                    let message = format!("rule {name:?}: {field}{between}{}", wrong.message);
                    problems.add(|| Problem::new(code, Wrong { message, ..wrong }, (0, 0), None));
                }
            }
        }
        if problems.is_empty() { Ok(replaced) } else { Err(PolicyError::of("override".into(), problems)) }
    }
}
