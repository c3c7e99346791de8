use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    Algorithm, OnFailure,
    policy::{
        Plan, Planned,
        document::{CostText, RuleText},
        plan::Tier,
        text::write_whole_quota,
    },
};

/// A rule of a policy at a glance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutlinedRule {
    name: String,
    algorithm: &'static str,
    key: String,
    /// None: every tier gives one.
    quota: Option<String>,
    /// By tier.
    tiers: BTreeMap<String, String>,
    paths: Vec<String>,
    methods: Vec<String>,
    flags: Vec<String>,
}

impl OutlinedRule {
    pub(super) fn new(place: usize, text: &RuleText, planned: &Planned, plan: &Plan) -> OutlinedRule {
        let algorithm = planned.rule.algorithm;
        let own = (!planned.quota_by_tier_only).then(|| write_whole_quota(algorithm, planned.rule.quota));
        let of_tier = |tier: &Tier| {
            let replaced = tier.replaced.iter().find(|replaced| replaced.rule == place);
            let quota = replaced.and_then(|replaced| replaced.quota);
            let quota = quota.map(|quota| write_whole_quota(algorithm, quota)).or_else(|| own.clone());
            let mut cell = quota.unwrap_or_default();
            match replaced.and_then(|replaced| replaced.roll_out) {
                Some(percent) if percent <= 0.0 => cell.push_str(" (shadow)"),
                Some(percent) => cell.push_str(&format!(" (for {percent}% of keys)")),
                None => {}
            }
            if let Some(cost) = replaced.and_then(|replaced| replaced.cost) {
                cell.push_str(&format!(" (cost {cost})"));
            }
            (tier.name.to_string(), cell)
        };
        OutlinedRule {
            name: text.name.clone(),
            algorithm: word(algorithm),
            key: text.key.as_slice().join(" + "),
            tiers: plan.tiers.iter().map(of_tier).collect(),
            quota: own,
            paths: text.paths.clone().unwrap_or_default(),
            methods: text.methods.clone().unwrap_or_default(),
            flags: flags(text, plan.on_failure),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its algorithm, as policies write it.
    pub fn algorithm(&self) -> &str {
        self.algorithm
    }

    /// How its key is found. Of several parts, ` + ` stands between.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Its quota for a tier, as text, or for requests without one; `None` where there is no such tier, or no quota but by tier.
    pub fn quota(&self, tier: Option<&str>) -> Option<&str> {
        match tier {
            Some(tier) => self.tiers.get(tier).map(String::as_str),
            None => self.quota.as_deref(),
        }
    }

    /// Which paths it is for; none: all.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(String::as_str)
    }

    /// Which methods it is for; none: all.
    pub fn methods(&self) -> impl Iterator<Item = &str> {
        self.methods.iter().map(String::as_str)
    }

    /// What is special about it, in words: `shadow`, `on_failure refuse`.
    pub fn flags(&self) -> impl Iterator<Item = &str> {
        self.flags.iter().map(String::as_str)
    }
}

/// As policies write it.
pub(in crate::policy) fn word(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::FixedWindow => "fixed_window",
        Algorithm::SlidingLog => "sliding_log",
        Algorithm::SlidingCounter => "sliding_counter",
        Algorithm::TokenBucket => "token_bucket",
        Algorithm::Gcra => "gcra",
        Algorithm::LeakyBucket => "leaky_bucket",
        Algorithm::Concurrency => "concurrency",
        Algorithm::Ban => "ban",
    }
}

fn flags(text: &RuleText, on_failure: Option<OnFailure>) -> Vec<String> {
    let mut flags = Vec::new();
    let mut add = |flag: String| flags.push(flag);
    if text.shadow {
        add("shadow".into());
    }
    if let Some(percent) = text.roll_out {
        add(format!("for {percent}% of keys"));
    }
    match &text.cost {
        Some(CostText::Units(units)) => add(format!("cost {units}")),
        Some(CostText::Name(name)) => add(format!("cost by {name}")),
        None => {}
    }
    if let Some(reserve) = &text.reserve {
        add(format!("{}% reserved for {}", (reserve.share * 1e4).round() / 1e2, reserve.whom));
    }
    match text.on_failure.map(OnFailure::from).or(on_failure) {
        Some(OnFailure::Allow) => add("on_failure allow".into()),
        Some(OnFailure::Refuse) => add("on_failure refuse".into()),
        Some(OnFailure::Local) => add("on_failure local".into()),
        None => {}
    }
    if text.protects_service {
        add("protects_service".into());
    }
    if let Some(queue) = &text.queue {
        add(format!("queue of {} for {}", queue.max_waiters, queue.max_wait));
    }
    if let Some(fair) = &text.fair_share {
        add(format!("fair_share by {}", fair.tenant.as_slice().join(" + ")));
    }
    if let Some(ban) = &text.ban {
        add(format!("ban after {}", ban.after));
    }
    if let Some(counted) = &text.count_responses {
        let counted: Vec<String> = counted.iter().map(ToString::to_string).collect();
        add(format!("counts only {}", counted.join(", ")));
    }
    if let Some(most) = text.max_new_keys {
        add(format!("at most {most} new keys"));
    }
    flags
}
