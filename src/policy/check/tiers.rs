use std::sync::Arc;

use http::{HeaderName, request::Parts};

use super::{ByName, Checker, Code, Key, Wrong, change::Misfit, who};
use crate::policy::{
    document::Change,
    names::Tiered,
    plan::{Planned, Replacement, Tier, TierBy},
    read::Step,
    text::{did_you_mean, listed, or_none},
};

impl<'a> Checker<'a> {
    /// How the tier is found, and the default.
    pub(super) fn tier(&mut self) -> (Option<TierBy>, Option<usize>) {
        let document = self.document;
        let Some(tier) = &document.tier else {
            if !document.tiers.is_empty() {
                let help = "say where a request's tier is found: [tier], by = \"header:x-plan\", and default = \"..\"";
                self.told.tell(Code::Tiers, "tiers", Wrong::new("no request is in a tier", help), &[Key("tiers")]);
            }
            return (None, None);
        };
        if document.tiers.is_empty() {
            let wrong = Wrong::new("there are no tiers", "write what each replaces, as [tiers.free], or drop [tier]");
            self.told.tell(Code::Tiers, "tier", wrong, &[Key("tier")]);
        }
        let default = tier.default.as_deref().and_then(|name| {
            let found = document.tiers.keys().position(|tier| tier == name);
            if found.is_none() {
                self.unknown_tier("tier: default", name, &[Key("tier"), Key("default")]);
            }
            found
        });
        (self.tier_by(&tier.by), default)
    }

    pub(super) fn unknown_tier(&mut self, who: &str, name: &str, path: &[Step<'_>]) {
        let tiers = self.document.tiers.keys().map(String::as_str);
        let help = format!("{}the tiers are {}", did_you_mean(name, tiers.clone()), or_none(listed(tiers)));
        self.told.tell(Code::UnknownTier, who, Wrong::new(format!("no tier is called {name:?}"), help), path);
    }

    fn tier_by(&mut self, text: &str) -> Option<TierBy> {
        let forms = "header:NAME, claim:NAME";
        let wrong = match text.split_once(':') {
            Some(("header", name)) => match HeaderName::try_from(name) {
                Ok(name) => return Some(TierBy::Header(name)),
                Err(_) => Wrong::new(format!("{name:?} is not a header name"), "use letters, digits and hyphens"),
            },
            Some(("claim", name)) if !name.is_empty() => return Some(TierBy::Claim(name.into())),
            Some(_) => {
                Wrong::new(format!("{text:?} holds no tier"), format!("give {forms}, or a name that code registers"))
            }
            None => {
                let Some(names) = self.names else {
                    return Some(TierBy::Code(Arc::new(|_: &Parts| Tiered::none())));
                };
                if let Some(closure) = names.tier_named(text) {
                    return Some(TierBy::Code(closure.clone()));
                }
                let guess = did_you_mean(text, names.tiers());
                let help = format!("{guess}code registers {}; or write {forms}", or_none(listed(names.tiers())));
                let wrong = Wrong::new(format!("no tier is found by {text:?}"), help);
                self.told.tell(Code::UnknownName, "tier: by", wrong, &[Key("tier"), Key("by")]);
                return None;
            }
        };
        self.told.tell(Code::Key, "tier: by", wrong, &[Key("tier"), Key("by")]);
        None
    }

    pub(super) fn tiers(&mut self, rules: &[Option<Planned>], by_name: &ByName<'a>) -> Vec<Tier> {
        let document = self.document;
        let mut tiers = Vec::with_capacity(document.tiers.len());
        for (name, changes) in &document.tiers {
            let mut replaced = Vec::with_capacity(changes.len());
            for (rule, change) in changes {
                let path = [Key("tiers"), Key(name), Key(rule)];
                let who = format!("tier {name:?}");
                replaced.extend(self.change(&who, rule, change, (rules, by_name), &[], &path));
            }
            tiers.push(Tier { name: name.as_str().into(), replaced });
        }
        tiers
    }

    /// What a tier or an override says of one rule, at the end of a path. An override goes with what its tier says.
    pub(super) fn change(
        &mut self,
        whose: &str,
        rule: &str,
        change: &Change,
        (rules, by_name): (&[Option<Planned>], &ByName<'a>),
        by_tier: &[Replacement],
        path: &[Step<'_>],
    ) -> Option<Replacement> {
        let Some(place) = by_name.get(rule) else {
            let (last, before) = path.split_last()?;
            let name = match last {
                Step::Key(name) => Step::Name(name),
                other => *other,
            };
            self.unknown_rule(whose, rule, &[before, &[name]].concat());
            return None;
        };
        // What is wrong with the rule itself is told already.
        let planned = rules.get(*place)?.as_ref()?;
        match change.of(*place, planned, planned.quota_with(*place, by_tier)) {
            Ok(replacement) => Some(replacement),
            Err(Misfit { code, field, wrong }) => {
                let field_of = if field.is_empty() { String::new() } else { format!(": {field}") };
                let whose = format!("{whose}: {}{field_of}", who(rule));
                self.told.tell(code, &whose, wrong, &[path, &[Key(field)]].concat());
                None
            }
        }
    }

    pub(super) fn unknown_rule(&mut self, whose: &str, rule: &str, path: &[Step<'_>]) {
        let names = self.document.rules.iter().map(|rule| rule.name.as_str());
        let help = format!("{}the rules are {}", did_you_mean(rule, names.clone()), or_none(listed(names)));
        self.told.tell(Code::UnknownRule, whose, Wrong::new(format!("no rule is called {rule:?}"), help), path);
    }

    /// Every rule has a quota for every request, and a limit for some.
    pub(super) fn quotas(&mut self, rules: &[Option<Planned>], tiers: &[Tier]) {
        let document = self.document;
        let mut given = vec![0; rules.len()];
        let mut limited = vec![false; rules.len()];
        for replacement in tiers.iter().flat_map(|tier| &tier.replaced) {
            if let (Some(given), Some(quota)) = (given.get_mut(replacement.rule), replacement.quota) {
                *given += 1;
                if let Some(limited) = limited.get_mut(replacement.rule) {
                    *limited |= !quota.is_unlimited();
                }
            }
        }
        for (place, planned) in rules.iter().enumerate() {
            let (Some(planned), Some(given), Some(limited)) = (planned, given.get(place), limited.get(place)) else {
                continue;
            };
            let name = &*planned.rule.name;
            let path = [Key("rules"), Step::Index(place), Key("name")];
            if planned.quota_by_tier_only && *given < document.tiers.len().max(1) {
                self.no_quota(name, tiers, place, &path);
            } else if planned.quota_by_tier_only && document.tier.as_ref().is_some_and(|tier| tier.default.is_none()) {
                let help = "give it one of its own, or name a default under [tier]";
                let wrong = Wrong::new("has no quota for requests without a tier", help);
                self.told.tell(Code::NoQuota, &who(name), wrong, &path);
            } else if !*limited && planned.rule.quota.is_unlimited() && document.customer.is_none() {
                // Where there are customers, an override may be kept elsewhere.
                let wrong =
                    Wrong::new("is unlimited for everybody, so it never refuses", "give it a limit, or drop it");
                self.told.tell(Code::Unlimited, &who(name), wrong, &path);
            }
        }
    }

    fn no_quota(&mut self, name: &str, tiers: &[Tier], place: usize, path: &[Step<'_>]) {
        let gives = |tier: &&Tier| tier.replaced.iter().any(|one| one.rule == place && one.quota.is_some());
        // Broken tiers are told already, and may have given one.
        let without: Vec<&str> = tiers.iter().filter(|tier| !gives(tier)).map(|tier| &*tier.name).collect();
        let document = self.document;
        let broken = |tier: &&str| document.tiers.get(*tier).is_some_and(|changes| changes.contains_key(name));
        if without.iter().any(broken) && !self.told.problems.is_empty() {
            return;
        }
        let wrong = if tiers.is_empty() {
            Wrong::new("has no quota", "give one, as quota = \"100/min\", or as limit = 20 for concurrency")
        } else {
            let tiers = if without.len() == 1 { "tier" } else { "tiers" };
            Wrong::new(
                format!("has no quota in {tiers} {}", listed(without)),
                "give it one there, or one of its own for all tiers that give none",
            )
        };
        self.told.tell(Code::NoQuota, &who(name), wrong, path);
    }
}
