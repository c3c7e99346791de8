use super::{Line, Scope, Tenant};
use crate::limit::{Limit, OnFailure};

/// A line that outlives its ask. `Debug` does not show the key.
#[derive(Clone)]
pub(crate) struct OwnedLine {
    scope: Scope,
    key: Box<[u8]>,
    limit: Limit,
    on_failure: OnFailure,
    pub(crate) cost: u64,
    receipt: u64,
    /// With the receipt of its part.
    tenant: Option<Box<(Tenant, u64)>>,
}

impl OwnedLine {
    pub(crate) fn of(line: &Line<'_>) -> OwnedLine {
        OwnedLine {
            scope: line.scope.clone(),
            key: line.key.into(),
            limit: *line.limit,
            on_failure: line.on_failure,
            cost: line.cost,
            receipt: line.receipt,
            tenant: line.tenant.map(|tenant| Box::new((tenant.clone(), line.tenant_receipt))),
        }
    }

    pub(crate) fn line(&self) -> Line<'_> {
        let (tenant, tenant_receipt) = self.tenant.as_deref().map_or((None, 0), |(tenant, own)| (Some(tenant), *own));
        Line {
            on_failure: self.on_failure,
            receipt: self.receipt,
            tenant,
            tenant_receipt,
            ..Line::new(&self.scope, &self.key, &self.limit, self.cost)
        }
    }
}

impl std::fmt::Debug for OwnedLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.line().fmt(f)
    }
}
