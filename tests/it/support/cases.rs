//! How many cases random tests try.

use proptest::prelude::ProptestConfig;

use super::load::soak;

/// So many, fifty times as many in the long form, or as many as `PROPTEST_CASES` says.
pub fn cases(number: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig::with_cases(asked.unwrap_or(if soak() { number * 50 } else { number }))
}
