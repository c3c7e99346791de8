//! What users say about limits: [`Rule`]s with a [`Quota`] each, checked and turned into [`Limit`]s when a limiter is built.

mod by_body;
mod compiled;
mod on_failure;
mod quota;
mod rule;
mod settle;

pub(crate) use compiled::micros;
pub use compiled::{Algorithm, Limit};
pub use on_failure::OnFailure;
pub use quota::Quota;
pub use rule::Rule;
pub(crate) use rule::{Cost, When};
pub(crate) use settle::Settle;
