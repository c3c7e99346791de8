use std::fmt;

use super::{Applies, ExplainedCustomer, ExplainedRule, ExplainedTier, Explanation, KnownBy, Origin, Outcome};
use crate::policy::outline::several;

/// The request, whose it is, what it comes to, and then rule by rule: `+` applies, `-` does not, `!` refuses, `?` is not known.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {}", self.method, self.path)?;
        if let Some(tier) = &self.tier {
            writeln!(f, "  tier      {tier}")?;
        }
        if let Some(customer) = &self.customer {
            writeln!(f, "  customer  {customer}")?;
        }
        writeln!(f, "  outcome   {}", self.verdict())?;
        if self.is_preflight {
            writeln!(f, "  preflight it is one of CORS: layers let it pass, and ask no rule, unless told otherwise")?;
        }
        let (applying, others): (Vec<_>, Vec<_>) = self.rules.iter().partition(|rule| rule.applies == Applies::Yes);
        if !applying.is_empty() {
            writeln!(f)?;
        }
        for rule in applying {
            self.write_applying(rule, f)?;
        }
        if !others.is_empty() {
            writeln!(f)?;
        }
        let width = others.iter().map(|rule| rule.name.chars().count()).max().unwrap_or(0);
        for rule in others {
            let (mark, verb) = match rule.applies {
                Applies::Refuses => ('!', "refuses"),
                Applies::Unknown => ('?', "may apply"),
                Applies::NotAsked => ('-', "is not asked"),
                _ => ('-', "does not apply"),
            };
            writeln!(f, "{mark} {:width$}  {verb}: {}", rule.name, rule.why)?;
        }
        let (digests, others) = (self.has_key(|key| key.contains('#')), self.has_key(|key| key.starts_with('|')));
        if digests || others {
            writeln!(f, "\nKeys are as they stand in the store.")?;
        }
        if digests {
            writeln!(f, "One with a # is the digest of a secret, or of a long text.")?;
        }
        if others {
            writeln!(f, "One with a | before it takes the place of one that the request does not have.")?;
        }
        Ok(())
    }
}

impl Explanation {
    fn verdict(&self) -> String {
        let by = |rule: &Option<String>| match rule {
            Some(rule) => format!("by its key of rule {rule:?}"),
            None => "by the client's address".into(),
        };
        match &self.outcome {
            Outcome::Limited => {
                let applying = self.rules.iter().filter(|rule| rule.applies == Applies::Yes).count();
                let of = format!("{} of {}", applying, several(self.rules.len(), "rule"));
                let all = if applying == 1 { "it must admit the request" } else { "all must admit the request" };
                format!("{of} {}; {all}", if applying == 1 { "applies" } else { "apply" })
            }
            Outcome::Unlimited => "let through: no rule applies".into(),
            Outcome::Allowed { rule } => format!("let through: it is on the allow list, {}", by(rule)),
            Outcome::Denied { rule } => format!("refused with 403: it is on the deny list, {}", by(rule)),
            Outcome::Refused { status, rule } => format!("refused with {status}: it has no key for rule {rule:?}"),
        }
    }

    fn write_applying(&self, rule: &ExplainedRule, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "+ {}: {}", rule.name, rule.why)?;
        writeln!(f, "    quota   {} ({}), {}", rule.quota, rule.algorithm, self.source(rule.quota_from))?;
        writeln!(f, "    key     {}, by {:?}", rule.key.as_deref().unwrap_or_default(), rule.key_by)?;
        if let Some(cost) = rule.cost {
            let from = if rule.cost_from == Origin::Rule {
                String::new()
            } else {
                format!(", {}", self.source(rule.cost_from))
            };
            writeln!(f, "    cost    {cost}{from}")?;
        }
        if rule.reserved > 0 {
            let may =
                if rule.critical { "may use them: it is critical" } else { "may not use them: it is not critical" };
            writeln!(f, "    kept    {} of it for critical requests; this one {may}", rule.reserved)?;
        }
        if rule.roll_out < 100.0 {
            let share =
                if rule.roll_out > 0.0 { format!("enforced for {}% of keys, ", rule.roll_out) } else { String::new() };
            let this = match (rule.shadow, rule.roll_out > 0.0) {
                (true, true) => "and not for this one: it counts, and never refuses",
                (true, false) => "it counts, and never refuses",
                (false, _) => "and for this one",
            };
            writeln!(f, "    shadow  {share}{this}, {}", self.source(rule.roll_out_from))?;
        }
        if rule.protects_service {
            writeln!(f, "    status  503 when it refuses: it protects the service")?;
        }
        Ok(())
    }

    fn source(&self, origin: Origin) -> String {
        match origin {
            Origin::Rule => "as the rule says".into(),
            Origin::Tier => {
                format!("by tier {:?}", self.tier.as_ref().and_then(ExplainedTier::name).unwrap_or_default())
            }
            Origin::Override => {
                let customer = self.customer.as_ref().and_then(ExplainedCustomer::key).unwrap_or_default();
                format!("by the override of {customer:?}")
            }
        }
    }

    fn has_key(&self, is: fn(&str) -> bool) -> bool {
        let keys = self.rules.iter().filter_map(ExplainedRule::key);
        keys.chain(self.customer.as_ref().and_then(ExplainedCustomer::key)).any(is)
    }
}

impl fmt::Display for ExplainedTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = self.by.as_deref().unwrap_or_default();
        let name = self.name.as_deref().unwrap_or("none: rules are as they are written");
        match (self.known_by, &self.found) {
            (KnownBy::Request, _) => write!(f, "{name}, found by {by:?}"),
            (KnownBy::Asker, _) => write!(f, "{name}, as asked"),
            (KnownBy::Override, Some(found)) if found != name => {
                write!(f, "{name}, by the customer's override, in place of {found:?}")
            }
            (KnownBy::Override, _) => write!(f, "{name}, by the customer's override"),
            (KnownBy::Default, Some(found)) => write!(f, "{name}, the default: no tier is called {found:?}"),
            (KnownBy::Default, None) => write!(f, "{name}, the default: none was found by {by:?}"),
        }
    }
}

impl fmt::Display for ExplainedCustomer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = self.by.as_deref().unwrap_or_default();
        let Some(key) = &self.key else { return write!(f, "none was found by {by:?}") };
        let known = if self.known_by == KnownBy::Asker { "as asked".into() } else { format!("found by {by:?}") };
        let has = if self.has_override { "has an override" } else { "has no override" };
        write!(f, "{key}, {known}; {has}")
    }
}
