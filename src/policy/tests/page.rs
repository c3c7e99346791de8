use super::*;
use crate::policy::code::Code;

const PAGE: &str = include_str!("../../docs/policy_errors.md");

/// The example of each code on the page that has one.
pub(super) fn examples() -> Vec<(String, String)> {
    let sections = PAGE.split("\n# ").skip(1);
    let example = |section: &str| {
        let code = section.lines().next()?.to_owned();
        let example = section.split_once("```toml\n")?.1.split_once("```")?.0;
        Some((code, example.to_owned()))
    };
    sections.filter_map(example).collect()
}

#[test]
fn every_code_is_on_the_page() {
    for (code, meaning) in Code::ALL {
        assert!(PAGE.contains(&format!("\n# {code}\n\n{meaning}.\n")), "{code}");
        assert!(PAGE.contains(&format!("| [{code}](#{}) | {meaning} |", code.to_lowercase())), "{code}");
    }
    assert_eq!(PAGE.matches("\n# SG").count(), Code::ALL.len());
}

#[test]
fn examples_are_told_what_they_stand_for() {
    let examples = examples();
    assert_eq!(examples.len(), Code::ALL.len() - 3, "all but three can be shown");
    for (code, example) in examples {
        let error = read("x.toml", &example).err().unwrap_or_else(|| panic!("the example of {code} is good"));
        assert!(error.iter().all(|problem| problem.code() == code), "{code}: {error}");
    }
}
