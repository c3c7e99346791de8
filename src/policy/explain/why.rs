use http::request::Parts;

use super::{Applies, ExplainedRule, Explainer, Origin, Said};
use crate::{
    key::Key,
    limiter::{End, Reach, Traced, Whose},
    lists::Listed,
    policy::{
        document::RuleText,
        outline::{some_paths, word},
        plan::{Planned, Replacement},
        text::write_whole_quota,
    },
};

/// Keys are plain ASCII: everything else in them is escaped.
pub(super) fn text(key: &Key) -> String {
    String::from_utf8_lossy(key.as_bytes()).into_owned()
}

impl Explainer {
    pub(super) fn rule(
        &self,
        place: usize,
        traced: &Traced,
        end: &End,
        head: &Parts,
        whose: &Whose,
        said: &Said,
    ) -> Option<ExplainedRule> {
        let (written, planned) = (self.policy.document.rules.get(place)?, self.plan.rules.get(place)?);
        let (applies, key) = self.applies(place, traced, end, head, planned, whose);
        let pick = match &traced.reach {
            Reach::Counts(pick) => Some(pick),
            _ => None,
        };
        let quota_from = self.origin(place, said, |replaced| replaced.quota.is_some());
        let key_by = written.key.as_slice().join(" + ");
        let (roll_out, roll_out_from) = self.roll_out(place, planned, said);
        Some(ExplainedRule {
            why: self.why(applies, written, &key_by, end, head, (quota_from, said), traced),
            name: written.name.clone(),
            applies,
            algorithm: word(traced.limit.algorithm()),
            quota: write_whole_quota(traced.limit.algorithm(), traced.limit.quota()),
            quota_from,
            limit: traced.limit,
            key,
            key_by,
            cost: pick.map(|pick| pick.cost),
            cost_from: self.origin(place, said, |replaced| replaced.cost.is_some()),
            shadow: pick.map_or(roll_out <= 0.0, |pick| pick.shadow),
            roll_out,
            roll_out_from,
            reserved: traced.limit.reserved(),
            critical: pick.is_some_and(|pick| pick.critical),
            protects_service: planned.rule.protects_service,
        })
    }

    fn applies(
        &self,
        place: usize,
        traced: &Traced,
        end: &End,
        head: &Parts,
        planned: &Planned,
        whose: &Whose,
    ) -> (Applies, Option<String>) {
        match &traced.reach {
            Reach::Elsewhere => {
                let for_path = planned.methods.iter().any(|method| whose.limiter.is_for(place, method, head));
                (if for_path { Applies::OtherMethod } else { Applies::OtherPath }, None)
            }
            Reach::Unasked => (Applies::NotAsked, None),
            Reach::NoKey => (Applies::NoKey, None),
            Reach::Unlimited(key) => (Applies::Unlimited, Some(text(key))),
            Reach::Refuses(_) => (Applies::Refuses, None),
            Reach::Waits => (Applies::Unknown, None),
            Reach::Counts(pick) if *end == End::Rules => (Applies::Yes, Some(text(&pick.key))),
            Reach::Counts(pick) => (Applies::NotAsked, Some(text(&pick.key))),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn why(
        &self,
        applies: Applies,
        written: &RuleText,
        key_by: &str,
        end: &End,
        head: &Parts,
        (quota_from, said): (Origin, &Said),
        traced: &Traced,
    ) -> String {
        let methods = || written.methods.as_deref().unwrap_or_default().join(", ");
        let paths = || some_paths(written.paths.iter().flatten().map(String::as_str));
        match applies {
            Applies::Yes => match (&written.methods, &written.paths) {
                (None, None) => "it is for every request".into(),
                (Some(_), None) => format!("it is for {}", methods()),
                (None, Some(_)) => format!("it is for {}", paths()),
                (Some(_), Some(_)) => format!("it is for {} {}", methods(), paths()),
            },
            Applies::OtherPath => format!("it is for other paths: {}", paths()),
            Applies::OtherMethod => format!("it is for {}, and this is {}", methods(), head.method),
            Applies::NoKey => format!("the request has no key by {key_by:?}"),
            Applies::Unlimited => format!("it is unlimited, {}", said.source(quota_from)),
            Applies::Refuses => match &traced.reach {
                Reach::Refuses(status) => {
                    format!("the request has no key by {key_by:?}, so it is refused with {}", status.as_u16())
                }
                _ => String::new(),
            },
            Applies::NotAsked => match end {
                End::Listed(Listed::Allowed, _) => "the request is on the list of those who are let through".into(),
                End::Listed(Listed::Denied, _) => "the request is on the list of those who are refused".into(),
                _ => "the request is refused before anything is counted".into(),
            },
            Applies::Unknown => format!("its key by {key_by:?} must be waited for, or is in the body"),
        }
    }

    /// Who gives a rule something that tiers and overrides may replace.
    fn origin(&self, place: usize, said: &Said, gives: fn(&Replacement) -> bool) -> Origin {
        let has = |replaced: &[Replacement]| replaced.iter().any(|one| one.rule == place && gives(one));
        if said.own.as_ref().is_some_and(|own| has(&own.replaced)) {
            Origin::Override
        } else if self.replaced_by_tier(said).is_some_and(has) {
            Origin::Tier
        } else {
            Origin::Rule
        }
    }

    /// What the tier replaces.
    fn replaced_by_tier(&self, said: &Said) -> Option<&[Replacement]> {
        let name = said.tier.as_ref()?.name()?;
        self.plan.tiers.iter().find(|tier| *tier.name == *name).map(|tier| &*tier.replaced)
    }

    fn roll_out(&self, place: usize, planned: &Planned, said: &Said) -> (f64, Origin) {
        let of = |replaced: &[Replacement]| replaced.iter().find(|one| one.rule == place)?.roll_out;
        if let Some(percent) = said.own.as_ref().and_then(|own| of(&own.replaced)) {
            (percent, Origin::Override)
        } else if let Some(percent) = self.replaced_by_tier(said).and_then(of) {
            (percent, Origin::Tier)
        } else {
            (planned.rule.roll_out, Origin::Rule)
        }
    }
}

impl Said {
    /// `as the rule says`.
    fn source(&self, origin: Origin) -> String {
        match origin {
            Origin::Rule => "as the rule says".into(),
            Origin::Tier => {
                let name = self.tier.as_ref().and_then(|tier| tier.name()).unwrap_or_default();
                format!("by tier {name:?}")
            }
            Origin::Override => "by the customer's override".into(),
        }
    }
}
