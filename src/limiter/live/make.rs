use std::sync::Arc;

use super::{paths::Paths, snapshot::Snapshot};
use crate::{
    error::BuildError,
    limit::{OnFailure, Rule},
    limiter::{
        Core, Limiter,
        ground::{Ground, MOST_RULES, accept},
        rules::{CheckedRule, Rules, Terms},
        shared::Shared,
    },
    lists::Lists,
    policy::{Names, Plan, Planned, Policy, PolicyError, Replacement},
};

/// What limiters are made of whatever the policy says.
pub(in crate::limiter) struct Making {
    pub(in crate::limiter) core: Arc<Core>,
    pub(in crate::limiter) ground: Ground,
    /// Those that the code has.
    pub(in crate::limiter) rules: Vec<Rule>,
    pub(in crate::limiter) lists: Option<Lists>,
    pub(in crate::limiter) names: Names,
}

impl Making {
    /// Makes everything that the policy needs. What was counted in this process under the policy `before` is kept.
    pub(super) fn snapshot(
        &self,
        policy: Policy,
        version: u64,
        before: Option<&Snapshot>,
    ) -> Result<Snapshot, PolicyError> {
        let (policy, plan) = policy.into_plan(&self.names)?;
        let Plan { rules: planned, tiers, tier_by, default_tier, customer_by, overrides, lists, headers, on_failure } =
            plan;
        let mut paths = Paths::new();
        let first = self.rules.len();
        (0u16..).zip(&self.rules).for_each(|(index, _)| paths.add(index, &[], &[]));
        if u16::try_from(first + planned.len()).is_err() {
            let text = format!("{} are too many; give at most 65535", planned.len());
            return Err(BuildError::new("rules", text).into());
        }
        for (index, rule) in (first as u16..).zip(&planned) {
            paths.add(index, &rule.paths, &rule.methods);
        }
        let drafts = self.rules.iter().chain(planned.iter().map(|planned| &planned.rule)).cloned();
        let mut checked = self.ground.check(drafts, on_failure)?;
        if let Some(before) = before {
            checked.iter_mut().for_each(|rule| rule.keep_counts(before.base.rules()));
        }
        let heaviest = paths.heaviest(|index| checked.get(usize::from(index)).map_or(0, CheckedRule::most_counts));
        if heaviest > MOST_RULES {
            let text = format!(
                "up to {heaviest} rules, bans and fair shares may apply to one request; give at most {MOST_RULES}, or narrow their paths \
                 and methods"
            );
            return Err(BuildError::new("rules", text).into());
        }
        accept(&*self.core.store, checked.iter())?;
        let lists = self.lists_with(lists)?;
        let terms = Terms { paths: Some(Arc::new(paths)), headers };
        let rules = Rules::new(self.core.family, checked.into_iter().map(Arc::new).collect(), terms);
        if let Some(lists) = &lists {
            lists.check(|name| rules.has(name))?;
        }
        let base = Limiter::of(Arc::clone(&self.core), Shared::new(rules), lists);
        let tiers = tiers.into_iter().map(|tier| {
            let replaced = self.replaced(&base, &planned, on_failure, &tier.replaced)?;
            Ok((tier, base.with(Shared::new(base.rules().with(replaced)))))
        });
        let tiers = tiers.collect::<Result<_, BuildError>>()?;
        Ok(Snapshot {
            policy: Arc::new(policy),
            version,
            base,
            tiers,
            tier_by,
            usual_tier: default_tier,
            customer_by,
            overrides,
            planned: planned.into(),
            on_failure,
        })
    }

    /// The limiter of a tier with some rules replaced.
    pub(super) fn overridden(
        &self,
        snapshot: &Snapshot,
        tier: Option<usize>,
        replacements: Vec<Replacement>,
    ) -> Result<Limiter, BuildError> {
        let of_tier = snapshot.of_tier(tier);
        if replacements.is_empty() {
            return Ok(of_tier.clone());
        }
        // What an override leaves of a rule is the tier's.
        let by_tier = snapshot.replaced_by(tier);
        let replacements: Vec<Replacement> = replacements.into_iter().map(|own| own.over(by_tier)).collect();
        let replaced = self.replaced(of_tier, &snapshot.planned, snapshot.on_failure, &replacements)?;
        Ok(of_tier.with(Shared::of_few(of_tier.rules().of_customer(replaced))))
    }

    fn replaced(
        &self,
        base: &Limiter,
        planned: &[Planned],
        on_failure: Option<OnFailure>,
        replacements: &[Replacement],
    ) -> Result<Vec<CheckedRule>, BuildError> {
        let mut replaced = Vec::with_capacity(replacements.len());
        for replacement in replacements {
            let Some(planned) = planned.get(replacement.rule) else { continue };
            let rule = replacement.apply(&planned.rule);
            // There are no more, which was checked.
            let index = u16::try_from(self.rules.len() + replacement.rule).unwrap_or(u16::MAX);
            if let Some(mut rule) = self.ground.check_one(index, rule, on_failure)? {
                rule.keep_counts(base.rules());
                replaced.push(rule);
            }
        }
        accept(&*self.core.store, replaced.iter())?;
        Ok(replaced)
    }

    /// The lists of the policy and of the code together. Those of the code stay live.
    fn lists_with(&self, policy: Option<Lists>) -> Result<Option<Lists>, BuildError> {
        match (policy, &self.lists) {
            (None, code) => Ok(code.clone()),
            (Some(policy), None) => Ok(Some(policy)),
            (Some(_), Some(_)) => {
                Err(BuildError::new("lists", "stand in the policy and in code; give them in one of the two"))
            }
        }
    }
}
