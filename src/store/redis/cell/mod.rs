//! To be filled.

use super::{connections::Live, node::Node};
use crate::{
    error::{BuildError, StoreError, StoreErrorKind},
    limit::Limit,
    store::{Answer, Ask},
};

pub(super) fn accept(_: &str, _: &Limit) -> Result<(), BuildError> {
    Ok(())
}

impl Node {
    pub(super) async fn decide_by_cell(&self, _: &Ask<'_>, _: &mut Option<Live>) -> Result<Answer, StoreError> {
        Err(StoreError::new(StoreErrorKind::Permanent, "not built yet"))
    }
}

pub(super) fn names(_: &mut redis::Cmd, _: &[crate::store::Line<'_>]) {}
