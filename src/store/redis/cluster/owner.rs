//! Commands about what is no count, at the node that owns its slot.

use std::{sync::Arc, time::Duration};

use redis::Value;
use tokio::time::{Instant, sleep_until};

use super::{
    super::{
        node::Node,
        policies::{Errand, Turned},
    },
    Cluster,
    address::Address,
    redirect::Redirect,
    slot,
};
use crate::error::{StoreError, StoreErrorKind};

/// More redirects in one call are a Cluster that does not know itself.
const HOPS: u32 = 5;
/// How long a slot that is on its way gets before it is asked for again; twice as long each time.
const PAUSE: Duration = Duration::from_millis(10);

impl Cluster {
    /// The replies of the node that owns this key, by which all keys of the errand are. A reply that turns it away is followed, since
    /// nothing ran.
    pub(in super::super) async fn run_errand(
        self: &Arc<Cluster>,
        key: &[u8],
        errand: &Errand<'_>,
        until: Instant,
    ) -> Result<Vec<Value>, StoreError> {
        self.begin(until).await?;
        let slot = slot::of([key, b"", b""]);
        let Some(mut member) = self.owner(slot) else { return Err(self.nobody()) };
        let mut asking = false;
        for hop in 0..=HOPS {
            let redirect = match member.node.run_errand(errand, asking, until).await {
                Ok(replies) => return Ok(replies),
                Err(Turned::Away(redirect)) => redirect,
                Err(Turned::Failed(error)) => {
                    if error.is_transient() {
                        self.replace(&member);
                    }
                    return Err(error);
                }
            };
            let address = |target: &str| {
                Address::read(target, &member.address)
                    .ok_or_else(|| StoreError::new(StoreErrorKind::Garbled, "a redirect leads nowhere").uncharged())
            };
            match redirect {
                Redirect::TryAgain => sleep_until(until.min(Instant::now() + PAUSE * (1 << hop))).await,
                Redirect::Moved(target) => {
                    self.refresh();
                    member = self.moved(slot, &address(&target)?)?;
                    asking = false;
                }
                Redirect::Ask(target) => {
                    member = self.at(&address(&target)?)?;
                    asking = true;
                }
            }
        }
        Err(StoreError::new(StoreErrorKind::Refused, "the Cluster's nodes send the call to one another"))
    }

    /// The node that owns this key.
    pub(in super::super) async fn owner_of(
        self: &Arc<Cluster>,
        key: &[u8],
        until: Instant,
    ) -> Result<Arc<Node>, StoreError> {
        self.begin(until).await?;
        match self.owner(slot::of([key, b"", b""])) {
            Some(member) => Ok(Arc::clone(&member.node)),
            None => Err(self.nobody()),
        }
    }

    #[cold]
    fn nobody(self: &Arc<Cluster>) -> StoreError {
        self.refresh();
        StoreError::new(StoreErrorKind::Refused, "CLUSTERDOWN: no node owns the slot now")
    }
}
