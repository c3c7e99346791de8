//! A Cluster: counts spread over nodes by slot.
//!
//! The routing is our own. Each node has connections, a clock estimate and scripts of its own, so one that hangs keeps nobody
//! waiting who has no business with it; and no call is ever repeated that may have charged.

mod address;
mod call;
mod check;
mod give_back;
mod join;
mod load;
mod map;
mod members;
#[cfg(feature = "policy")]
mod owner;
mod place;
mod redirect;
mod settle;
mod shares;
mod slot;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak},
};

use redis::ConnectionInfo;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};

use self::{
    address::Address,
    call::{Fault, Span, Work},
    load::Loading,
    members::{Member, Members},
};
use super::{node::Node, replicas::Replicas, wiring::Wiring};
use crate::{
    error::{BuildError, StoreError, StoreErrorKind},
    store::{Answer, Ask, Line},
};

pub(super) use self::{place::Place, redirect::Redirect};

/// The nodes of a Cluster.
pub(super) struct Cluster {
    me: Weak<Cluster>,
    wiring: Arc<Wiring>,
    seeds: Vec<Address>,
    /// How to connect to any node, but for its address.
    like: ConnectionInfo,
    members: RwLock<Members>,
    loading: Mutex<Loading>,
    /// Bounds how many charges are given back at a time.
    returning: Arc<Semaphore>,
}

impl Cluster {
    /// A Cluster that some of its nodes are known of.
    pub(super) fn new(wiring: Arc<Wiring>, seeds: &[ConnectionInfo]) -> Result<Arc<Cluster>, BuildError> {
        let Some(like) = seeds.first() else {
            return Err(BuildError::new("url", "no address; give one or several of the Cluster's nodes"));
        };
        let mut addresses = Vec::new();
        for seed in seeds {
            let Some(address) = Address::of(seed) else {
                return Err(BuildError::new("url", "a Cluster is not reached over a unix socket; give host and port"));
            };
            let database = seed.redis_settings().db();
            if database != 0 {
                let text = format!("a Cluster has no database {database}; leave the number out, and use a namespace");
                return Err(BuildError::new("url", text));
            }
            addresses.push(address);
        }
        Ok(Arc::new_cyclic(|me| Cluster {
            me: Weak::clone(me),
            wiring,
            seeds: addresses,
            like: like.clone(),
            members: RwLock::default(),
            loading: Mutex::default(),
            returning: Arc::new(Semaphore::new(give_back::MOST)),
        }))
    }

    fn members(&self) -> RwLockReadGuard<'_, Members> {
        self.members.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn owner(&self, slot: u16) -> Option<Arc<Member>> {
        self.members().owner(slot).cloned()
    }

    fn at(&self, address: &Address) -> Result<Arc<Member>, StoreError> {
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        members.at(address, &|address, part| self.member(address, part))
    }

    fn moved(&self, slot: u16, address: &Address) -> Result<Arc<Member>, StoreError> {
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        members.moved(slot, address, &|address, part| self.member(address, part))
    }

    fn member(&self, address: &Address, part: usize) -> Result<Arc<Member>, StoreError> {
        let supply = self.wiring.supply_any(address.info(&self.like)).map_err(|_| {
            StoreError::new(StoreErrorKind::Permanent, "a node of the Cluster has an address that leads to no server")
        })?;
        let place = Some(Place::new(&self.me, address));
        let node = Arc::new(Node { place, ..self.wiring.node(&supply) });
        Ok(Arc::new(Member { address: address.clone(), node, part }))
    }

    /// Connections to replicas at these addresses, if they are to be asked and there are any.
    fn replicas_at(&self, addresses: &[Address]) -> Option<Arc<Replicas>> {
        if !self.wiring.cluster_replicas {
            return None;
        }
        let supply = |address: &Address| self.wiring.supply_replica(address.info(&self.like)).ok();
        let replicas = Replicas::new(&addresses.iter().filter_map(supply).collect::<Vec<_>>(), &self.wiring);
        (!replicas.is_empty()).then(|| Arc::new(replicas))
    }

    /// The number of the node that keeps this line now.
    pub(super) fn part(&self, line: &Line<'_>) -> usize {
        self.members().owner(slot::of(line.name())).map_or(0, |member| member.part)
    }

    pub(super) async fn decide(self: &Arc<Cluster>, ask: &Ask<'_>, until: Instant) -> Result<Answer, StoreError> {
        let span = self.begin(until).await?;
        let mut torn = false;
        if let Some(slot) = only_slot(ask.lines) {
            match self.call(slot, &Work::Decide(*ask), span).await {
                Ok(answer) => return Ok(answer),
                Err(Fault::Failed(error)) => return Err(error),
                Err(Fault::Torn) => torn = true,
            }
        }
        // Rarer, so it takes its room elsewhere.
        Box::pin(self.decide_apart(ask, torn, span)).await
    }

    pub(super) async fn forget(self: &Arc<Cluster>, lines: &[Line<'_>], until: Instant) -> Result<(), StoreError> {
        let span = self.begin(until).await?;
        self.forget_apart(lines, span).await
    }

    /// Sees to it that there is a map.
    async fn begin(self: &Arc<Cluster>, until: Instant) -> Result<Span, StoreError> {
        let since = Instant::now();
        if !self.members().is_loaded() {
            match timeout_at(until, self.loaded()).await {
                Ok(loaded) => loaded?,
                Err(_) => {
                    let text = format!("no map of the Cluster within {:?}", self.wiring.deadline);
                    return Err(StoreError::new(StoreErrorKind::Timeout, text).uncharged());
                }
            }
        }
        Ok(Span { since, until })
    }
}

/// The slot that all lines are in, if they are in one.
fn only_slot(lines: &[Line<'_>]) -> Option<u16> {
    let mut slots = lines.iter().map(|line| slot::of(line.name()));
    let first = slots.next()?;
    slots.all(|slot| slot == first).then_some(first)
}

/// Shows no address and no password.
impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({} nodes)", self.members().list().len())
    }
}
