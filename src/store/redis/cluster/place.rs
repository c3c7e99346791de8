//! A node's place in its Cluster, for work that outlives the call that it began with.

use std::sync::Weak;

use super::{super::connections::Live, Cluster, address::Address, redirect::Redirect, slot};

#[derive(Clone)]
pub(in super::super) struct Place {
    cluster: Weak<Cluster>,
    address: Address,
}

impl Place {
    pub(super) fn new(cluster: &Weak<Cluster>, address: &Address) -> Place {
        Place { cluster: Weak::clone(cluster), address: address.clone() }
    }

    /// Goes where a node has sent a call for this name: a connection to there, or `None` if that cannot be.
    pub(in super::super) async fn follow(&mut self, redirect: Redirect, name: &[u8]) -> Option<Live> {
        let cluster = self.cluster.upgrade()?;
        let (target, asks) = match redirect {
            Redirect::Moved(target) => (target, false),
            Redirect::Ask(target) => (target, true),
            Redirect::TryAgain => return None,
        };
        let address = Address::read(&target, &self.address)?;
        let member = match asks {
            true => cluster.at(&address),
            false => cluster.moved(slot::of([name, b"", b""]), &address),
        };
        let member = member.ok()?;
        self.address = address;
        let mut live = member.node.connections.get().await.ok()?;
        if asks {
            live.ask_first();
        }
        Some(live)
    }
}
