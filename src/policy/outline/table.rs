use std::fmt::{self, Write};

use super::{Outline, OutlinedRule};

/// More paths of a rule are counted.
const MOST_PATHS: usize = 3;

/// The table, with what is not of single rules under it.
pub(super) fn write(outline: &Outline, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut rows = vec![head(outline)];
    rows.extend(outline.rules.iter().map(|rule| row(outline, rule)));
    let columns = rows.first().map_or(0, Vec::len);
    let wide = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| wide(column).unwrap_or(0)).collect();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            write!(line, "{cell:width$}  ")?;
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    writeln!(f)?;
    match (&outline.tier_by, &outline.default_tier) {
        (Some(by), Some(default)) => writeln!(f, "tier by {by}, else {default}")?,
        (Some(by), None) => writeln!(f, "tier by {by}, else the rules' own quotas")?,
        _ => {}
    }
    if let Some(by) = &outline.customer_by {
        writeln!(f, "customer by {by}: {}", several(outline.overrides, "override"))?;
    }
    match (outline.allowed, outline.denied) {
        (0, 0) => Ok(()),
        (allowed, denied) => writeln!(f, "lists: {allowed} allowed, {denied} denied"),
    }
}

pub(in crate::policy) fn several(count: usize, what: &str) -> String {
    match count {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

fn head(outline: &Outline) -> Vec<String> {
    let mut cells: Vec<String> = ["RULE", "ALGORITHM", "KEY"].map(String::from).into();
    if has_untiered(outline) {
        cells.push(if outline.tiers.is_empty() { "QUOTA".into() } else { "NO TIER".into() });
    }
    cells.extend(outline.tiers.iter().map(|tier| format!("TIER {tier}")));
    cells.extend(["REQUESTS", "NOTES"].map(String::from));
    cells
}

/// Whether requests without a tier have a column: there are none where there is a default.
fn has_untiered(outline: &Outline) -> bool {
    outline.default_tier.is_none()
}

fn row(outline: &Outline, rule: &OutlinedRule) -> Vec<String> {
    let mut cells: Vec<String> = [rule.name(), rule.algorithm(), rule.key()].map(String::from).into();
    if has_untiered(outline) {
        cells.push(rule.quota(None).unwrap_or("-").into());
    }
    cells.extend(outline.tiers.iter().map(|tier| rule.quota(Some(tier)).unwrap_or("-").into()));
    cells.push(requests(rule));
    cells.push(rule.flags().collect::<Vec<_>>().join(", "));
    cells
}

fn requests(rule: &OutlinedRule) -> String {
    let methods = rule.methods().collect::<Vec<_>>().join(",");
    let paths = some_paths(rule.paths());
    match (methods.is_empty(), paths.is_empty()) {
        (true, true) => "all".into(),
        (false, true) => methods,
        (true, false) => paths,
        (false, false) => format!("{methods} {paths}"),
    }
}

/// The first of them.
pub(in crate::policy) fn some_paths<'a>(paths: impl Iterator<Item = &'a str>) -> String {
    let paths: Vec<&str> = paths.collect();
    let shown = paths.iter().take(MOST_PATHS).copied().collect::<Vec<_>>().join(", ");
    match paths.len().saturating_sub(MOST_PATHS) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
