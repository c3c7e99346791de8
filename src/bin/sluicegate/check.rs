use std::collections::BTreeSet;

use serde_json::{Value, json};
use sluicegate::policy::{Names, Outline, Policy};

use crate::{
    End,
    args::Check,
    hints,
    input::{self, Failed},
    out::{BOLD, DIM, GREEN, Out, PLAIN, paint},
};

pub(crate) fn run(args: &Check, out: &mut Out) -> End {
    let names = args.names.iter().fold(Names::new(), |names, name| hints::anything(names, name));
    let (mut end, mut shown) = (End::Fine, Vec::new());
    for (place, file) in args.policies.iter().enumerate() {
        let (checked, needed) = match input::read(file, args.format) {
            Ok(policy) => (outline(&policy, &names), hints::all(&policy)),
            Err(failed) => (Err(failed), BTreeSet::new()),
        };
        if args.json {
            shown.push(value(file, &checked));
        }
        match checked {
            Ok(outline) if !args.quiet && !args.json => {
                let between = if place > 0 { "\n" } else { "" };
                let name = if file == "-" { "stdin" } else { file };
                out.result(&format!("{between}{BOLD}{name}{PLAIN}: {GREEN}ok{PLAIN}, {}\n\n", summary(&outline)));
                out.result(&paint(&outline.to_string(), |line| line.starts_with("RULE").then_some(DIM)));
            }
            Ok(_) => {}
            Err(failed) => {
                end = end.max(failed.end());
                if !args.json {
                    failed.tell(out);
                    tell_of_names(file, needed, &failed, out);
                }
            }
        }
    }
    if args.json {
        out.result(&format!("{:#}\n", Value::Array(shown)));
    }
    end
}

/// Everything that building a limiter would say, too.
fn outline(policy: &Policy, names: &Names) -> Result<Outline, Failed> {
    let outline = policy.outline(names)?;
    let _ = policy.explainer(names)?;
    Ok(outline)
}

fn summary(outline: &Outline) -> String {
    let several = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let parts = [
        (outline.rules().count(), "rule"),
        (outline.tiers().count(), "tier"),
        (outline.overrides(), "override"),
        (outline.allowed() + outline.denied(), "list entry"),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts.map(|(count, what)| several(count, what).replace("entrys", "entries")).collect();
    parts.join(", ")
}

/// A name that is unknown may be one that the application registers.
fn tell_of_names(file: &str, needed: BTreeSet<String>, failed: &Failed, out: &mut Out) {
    let Failed::Problems(error) = failed else { return };
    if error.iter().any(|problem| problem.code() == "SG009") {
        let names: Vec<String> = needed.into_iter().collect();
        out.problem(&format!(
            "\nWhere your application registers such names, say so: sluicegate check {file} --name {}\n",
            names.join(",")
        ));
    }
}

fn value(file: &str, checked: &Result<Outline, Failed>) -> Value {
    match checked {
        Ok(outline) => json!({ "policy": file, "ok": true, "problems": [], "outline": outline }),
        Err(Failed::Unread(text)) => {
            let problem = json!({ "code": "SG030", "message": text, "help": "", "line": 0, "column": 0 });
            json!({ "policy": file, "ok": false, "problems": [problem] })
        }
        Err(Failed::Problems(error)) => {
            let problems = error.iter().map(|problem| {
                json!({
                    "code": problem.code(),
                    "message": problem.message(),
                    "help": problem.help(),
                    "line": problem.line(),
                    "column": problem.column(),
                })
            });
            json!({ "policy": file, "ok": false, "problems": problems.collect::<Vec<_>>() })
        }
    }
}
