use std::time::{Duration, Instant};

use super::*;

/// So many rules, each for a path of its own, in two tiers, with a hundredth as many customers.
fn large(rules: usize) -> String {
    let mut text =
        String::from("[tier]\nby = \"header:x-plan\"\ndefault = \"free\"\n[customer]\nby = \"header:x-customer\"\n");
    for place in 0..rules {
        text.push_str(&format!(
            "[[rules]]\nname = \"rule-{place}\"\nalgorithm = \"token_bucket\"\nquota = \"100/min\"\nburst = 20\nkey = [\"user\", \"route\"]\n\
             paths = [\"/v1/{place}/items/{{id}}\"]\nmethods = [\"POST\"]\n"
        ));
    }
    for (tier, quota) in [("free", "10/min"), ("pro", "1000/min")] {
        text.push_str(&format!("[tiers.{tier}]\n"));
        (0..rules).step_by(10).for_each(|place| text.push_str(&format!("rule-{place} = \"{quota}\"\n")));
    }
    for customer in 0..rules / 100 {
        text.push_str(&format!("[overrides.c{customer}]\nrules.rule-{customer} = \"7/s\"\n"));
    }
    text
}

fn pace(text: &str) -> Duration {
    let once = || {
        let begin = Instant::now();
        let plan = Policy::from_toml(text).and_then(|policy| policy.plan(&names()));
        assert!(plan.is_ok());
        begin.elapsed()
    };
    (0..5).map(|_| once()).min().unwrap_or_default()
}

#[test]
fn large_documents_are_read_in_proportion() {
    let (few, many) = (pace(&large(1_000)), pace(&large(10_000)));
    assert!(many < few * 30, "{many:?} against {few:?}; comparing all with all would take a hundred times as long");
    // As it is built for use.
    #[cfg(not(debug_assertions))]
    assert!(many < Duration::from_millis(80), "{many:?}");
}
