use serde_json::{Value, json};
use sluicegate::policy::{Applies, Explainer, Explanation, Policy};

use crate::{
    End,
    args::Explain,
    hints,
    input::{self, Failed},
    out::{BOLD, DIM, GREEN, Out, RED, paint},
    request,
};

pub(crate) fn run(args: &Explain, out: &mut Out) -> End {
    match explain(args) {
        Ok((policy, explanation)) => {
            let assumed = assumed(args, &policy, &explanation);
            let missing: Vec<String> = hints::missing(&explanation).into_iter().collect();
            if args.json {
                return json(&explanation, &assumed, &missing, out);
            }
            out.result(&paint(&explanation.to_string(), colour));
            show(&explanation, args, &assumed, &missing, out);
            End::Fine
        }
        Err(failed) => failed.tell(out),
    }
}

fn explain(args: &Explain) -> Result<(Policy, Explanation), Failed> {
    let policy = input::read(&args.policy, args.format)?;
    if let Some(unknown) = request::unknown(args, &policy) {
        return Err(Failed::Unread(unknown));
    }
    let names = request::names(args, &policy);
    let outline = policy.outline(&names)?;
    let mut explainer = policy.explainer(&names)?;
    if let Some(namespace) = &args.namespace {
        explainer = explainer.namespace(namespace).map_err(|error| Failed::Unread(format!("--namespace: {error}")))?;
    }
    if let Some(tier) = &args.tier {
        let tiers: Vec<&str> = outline.tiers().collect();
        if tiers.is_empty() {
            return Err(Failed::Unread("--tier: the policy has no tiers".into()));
        }
        if !tiers.contains(&tier.as_str()) {
            let text = format!("--tier: no tier is called {tier:?}; the tiers are {}", tiers.join(", "));
            return Err(Failed::Unread(text));
        }
        explainer = explainer.tier(tier.as_str());
    }
    explainer = of_customer(explainer, args, outline.customer_by())?;
    let explanation = explainer.explain(&request::head(args));
    Ok((policy, explanation))
}

fn of_customer(explainer: Explainer, args: &Explain, by: Option<&str>) -> Result<Explainer, Failed> {
    match (&args.customer, by) {
        (None, _) => Ok(explainer),
        (Some(customer), Some(_)) => Ok(explainer.customer(customer)),
        (Some(_), None) => {
            let text = "--customer: the policy knows no customers; it has no [customer], by = \"..\"";
            Err(Failed::Unread(text.into()))
        }
    }
}

fn colour(line: &str) -> Option<&'static str> {
    match line.get(..2)? {
        "+ " => Some(GREEN),
        "- " => Some(DIM),
        "! " => Some(RED),
        _ if line.starts_with("  outcome") => Some(BOLD),
        _ => None,
    }
}

/// What was not said, and what is taken for it.
fn assumed(args: &Explain, policy: &Policy, explanation: &Explanation) -> Vec<String> {
    let (needed, mut applying) =
        (policy.code_names(), explanation.rules().filter(|rule| rule.applies() == Applies::Yes));
    let (is_charged, keeps) = (applying.clone().next().is_some(), applying.any(|rule| rule.reserved() > 0));
    let said = |name: &&str| args.costs.iter().any(|(said, _)| said == name);
    let costs = needed.costs().filter(|name| is_charged && !said(name));
    let costs = costs.map(|name| format!("cost {name:?} is taken for 1: say --cost {name}=UNITS"));
    let held = |name: &&str| args.conditions.iter().any(|said| said == name);
    let conditions = needed.conditions().filter(|name| keeps && !held(name));
    let conditions = conditions.map(|name| format!("condition {name:?} is taken not to hold: say --condition {name}"));
    costs.chain(conditions).collect()
}

fn show(explanation: &Explanation, args: &Explain, assumed: &[String], missing: &[String], out: &mut Out) {
    let is_shared = |rule: &sluicegate::policy::ExplainedRule| {
        rule.applies() == Applies::Yes && rule.roll_out() > 0.0 && rule.roll_out() < 100.0
    };
    let mut lines: Vec<String> = assumed.to_vec();
    if args.namespace.is_none() && explanation.rules().any(is_shared) {
        lines.push(
            "which keys a roll-out is enforced for depends on the limiter's namespace: say --namespace NAMESPACE"
                .into(),
        );
    }
    if !missing.is_empty() {
        lines.push(format!("more could be told with {}", missing.join(", ")));
    }
    if !lines.is_empty() {
        out.result(&format!("\n{DIM}Not known here:\n  {}{}\n", lines.join("\n  "), crate::out::PLAIN));
    }
}

fn json(explanation: &Explanation, assumed: &[String], missing: &[String], out: &mut Out) -> End {
    let mut value = json!(explanation);
    if let Value::Object(fields) = &mut value {
        fields.insert("assumed".into(), json!(assumed));
        fields.insert("missing".into(), json!(missing));
    }
    out.result(&format!("{value:#}\n"));
    End::Fine
}
