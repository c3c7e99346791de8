use std::sync::Arc;

use super::{Line, Scope};
use crate::{key::Key, limit::Limit};

/// One of those that share a limit, and how its use is counted.
///
/// A store that is asked for a decision over a line with a tenant counts the line's cost here too, and must leave free of the
/// limit what [`Rule::fair_share`](crate::Rule::fair_share) says. What is given back or owed later is given back or owed here too:
/// see [`Line::of_tenant`]. What was admitted elsewhere is not told by tenants, so where it is taken they have no part in it.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// The key of the limit and that of the tenant.
    key: Key,
    count: Arc<TenantCount>,
}

/// How the use of every tenant of a rule is counted.
#[derive(Debug)]
pub(crate) struct TenantCount {
    pub(crate) scope: Scope,
    pub(crate) limit: Limit,
}

/// Stands between the two keys: their text has none.
const BETWEEN: u8 = b'#';

impl Tenant {
    /// `None`: all that have no name are one tenant.
    pub(crate) fn new(shared: &Key, tenant: Option<&Key>, count: &Arc<TenantCount>) -> Tenant {
        Tenant { key: shared.of_tenant(BETWEEN, tenant), count: Arc::clone(count) }
    }

    /// Its count, in fixed windows.
    pub fn line(&self, cost: u64) -> Line<'_> {
        Line::new(&self.count.scope, self.key.as_bytes(), &self.count.limit, cost)
    }

    /// The full name of its count, `namespace:v1:{key}:rule#share#tenant`, in pieces. It has the hash tag of the limit's own.
    pub fn name(&self) -> [&[u8]; 4] {
        let key = self.key.as_bytes();
        let (shared, tenant) = key.split_at(key.iter().position(|byte| *byte == BETWEEN).unwrap_or(key.len()));
        let [before, _, after] = self.count.scope.name(key);
        [before, shared, after, tenant]
    }
}
