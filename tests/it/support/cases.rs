//! How many cases random tests try.

use proptest::prelude::ProptestConfig;

/// So many, or as many as `PROPTEST_CASES` says: a million, over night.
pub fn cases(number: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig::with_cases(asked.unwrap_or(number))
}
