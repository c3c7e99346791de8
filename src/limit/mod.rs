//! What users say about limits: [`Rule`]s with a [`Quota`] each, checked and turned into [`Limit`]s when a limiter is built.

mod ban;
mod compiled;
mod fair_share;
mod on_failure;
mod penalty;
mod quota;
mod reserve;
mod roll_out;
mod rule;
mod settle;

pub use ban::Ban;
pub(crate) use compiled::micros;
pub use compiled::{Algorithm, Limit};
pub(crate) use fair_share::FairShare;
pub use on_failure::OnFailure;
pub use quota::Quota;
pub(crate) use reserve::Reserve;
pub(crate) use roll_out::RollOut;
pub use rule::Rule;
pub(crate) use rule::{Cost, When};
pub(crate) use settle::Settle;
