//! The nodes that are known, and which of them owns which slot.

use std::sync::Arc;

use super::{
    super::{node::Node, replicas::Replicas},
    address::Address,
    map::Range,
    slot::SLOTS,
};
use crate::error::StoreError;

/// A node of the Cluster.
pub(super) struct Member {
    pub(super) address: Address,
    pub(super) node: Arc<Node>,
    /// Its number among the parts of the store; 0 stands for the Cluster as a whole.
    pub(super) part: usize,
}

/// The replicas of the primary at an address.
struct Followers {
    primary: Address,
    addresses: Vec<Address>,
    replicas: Arc<Replicas>,
}

const NOBODY: u16 = u16::MAX;

#[derive(Default)]
pub(super) struct Members {
    list: Vec<Arc<Member>>,
    /// The owner's place in the list, by slot. Empty until a map was loaded.
    owners: Box<[u16]>,
    /// Of those that have any, if they are asked at all.
    followers: Vec<Followers>,
}

/// Makes a member that is to have this number.
type Make<'a> = &'a dyn Fn(&Address, usize) -> Result<Arc<Member>, StoreError>;

/// Makes connections to replicas, if they are to be asked.
type Enlist<'a> = &'a dyn Fn(&[Address]) -> Option<Arc<Replicas>>;

impl Members {
    pub(super) fn is_loaded(&self) -> bool {
        !self.owners.is_empty()
    }

    pub(super) fn list(&self) -> &[Arc<Member>] {
        &self.list
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<Member>> {
        self.list.get(usize::from(*self.owners.get(usize::from(slot))?))
    }

    /// The replicas of the slot's owner.
    pub(super) fn replicas(&self, slot: u16) -> Option<&Arc<Replicas>> {
        self.replicas_of(self.owner(slot)?)
    }

    /// The replicas of a member, where there are any to ask.
    pub(super) fn replicas_of(&self, member: &Member) -> Option<&Arc<Replicas>> {
        let mut followers = self.followers.iter();
        followers.find(|followers| followers.primary == member.address).map(|followers| &followers.replicas)
    }

    /// The member there, new or known.
    pub(super) fn at(&mut self, address: &Address, make: Make<'_>) -> Result<Arc<Member>, StoreError> {
        let place = self.place(address, &[], make)?;
        self.list.get(usize::from(place)).cloned().ok_or_else(too_many)
    }

    /// Takes the word of a node that a slot has moved.
    pub(super) fn moved(&mut self, slot: u16, address: &Address, make: Make<'_>) -> Result<Arc<Member>, StoreError> {
        let place = self.place(address, &[], make)?;
        if let Some(owner) = self.owners.get_mut(usize::from(slot)) {
            *owner = place;
        }
        self.list.get(usize::from(place)).cloned().ok_or_else(too_many)
    }

    /// Takes over a map that `source` told of. Members it does not name are dropped, with their connections.
    pub(super) fn adopt(&mut self, ranges: &[Range], source: &Arc<Member>, make: Make<'_>) -> Result<(), StoreError> {
        let mut next = Members { owners: vec![NOBODY; SLOTS].into(), ..Members::default() };
        for range in ranges {
            let known = self.list.iter().find(|member| member.address == range.owner);
            let place = next.place(&range.owner, &self.list, &|address, part| match known {
                Some(member) => Ok(Arc::clone(member)),
                // Its connection is there already.
                None if source.address == *address => {
                    let node = Arc::clone(&source.node);
                    Ok(Arc::new(Member { address: address.clone(), node, part }))
                }
                None => make(address, part),
            })?;
            let slots = usize::from(range.first)..=usize::from(range.last);
            next.owners.get_mut(slots).unwrap_or_default().fill(place);
        }
        next.followers = std::mem::take(&mut self.followers);
        *self = next;
        Ok(())
    }

    /// Takes over which replicas the primaries have. Those of one that has the same ones are left alone.
    pub(super) fn enlist(&mut self, ranges: &[Range], enlist: Enlist<'_>) {
        let mut known = std::mem::take(&mut self.followers);
        for range in ranges {
            if self.followers.iter().any(|followers| followers.primary == range.owner) {
                continue;
            }
            let same =
                |followers: &Followers| followers.primary == range.owner && followers.addresses == range.replicas;
            let followers = match known.iter().position(same) {
                Some(place) => Some(known.swap_remove(place)),
                None => enlist(&range.replicas).map(|replicas| Followers {
                    primary: range.owner.clone(),
                    addresses: range.replicas.clone(),
                    replicas,
                }),
            };
            self.followers.extend(followers);
        }
    }

    /// The place of the member at `address`; it is made if there is none. Its number is none that a member has, nor one of
    /// `others`: whoever remembers failures by number must not blame a newcomer for those of the one it replaces.
    fn place(&mut self, address: &Address, others: &[Arc<Member>], make: Make<'_>) -> Result<u16, StoreError> {
        let known = self.list.iter().position(|member| member.address == *address);
        let place = match known {
            Some(place) => place,
            None => {
                let taken = |part| self.list.iter().chain(others).any(|member| member.part == part);
                let part = (1..).find(|part| !taken(*part)).unwrap_or_default();
                self.list.push(make(address, part)?);
                self.list.len() - 1
            }
        };
        u16::try_from(place).ok().filter(|place| *place != NOBODY).ok_or_else(too_many)
    }
}

#[cold]
fn too_many() -> StoreError {
    StoreError::new(crate::error::StoreErrorKind::Garbled, "the Cluster names more nodes than it has slots")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::{RedisStore, Topology};

    fn address(host: &str) -> Address {
        Address { host: host.into(), port: 1 }
    }

    fn range(first: u16, last: u16, owner: &str) -> Range {
        Range { first, last, owner: address(owner), replicas: Vec::new() }
    }

    #[test]
    fn members_keep_their_number_and_no_newcomer_gets_that_of_one_it_replaces() {
        let store = RedisStore::builder("redis://seed:1").cluster().build().expect("sound");
        let Topology::Cluster(cluster) = &store.0.topology else { panic!("no Cluster") };
        let make = |address: &Address, part| cluster.member(address, part);
        let seed = make(&address("seed"), 0).expect("a member");
        let mut members = Members::default();
        let adopt = |members: &mut Members, owners: [&str; 2]| {
            let ranges = [range(0, 8_000, owners[0]), range(8_001, 16_383, owners[1])];
            members.adopt(&ranges, &seed, &make).expect("a map");
            [0, 16_383].map(|slot| Arc::clone(members.owner(slot).expect("an owner")))
        };
        assert!(!members.is_loaded());
        let [first, second] = adopt(&mut members, ["seed", "b"]);
        assert_eq!([first.part, second.part], [1, 2]);
        assert!(Arc::ptr_eq(&first.node, &seed.node), "the seed's connection is used on");
        let [third, same] = adopt(&mut members, ["c", "b"]);
        assert!(Arc::ptr_eq(&same, &second));
        assert_eq!((third.part, members.list().len()), (3, 2), "the seed is gone");
        let [fourth, _] = adopt(&mut members, ["d", "b"]);
        assert_eq!(fourth.part, 1, "numbers stay small");
        let moved = members.moved(0, &address("e"), &make).expect("a member");
        assert_eq!((moved.part, members.list().len()), (3, 3));
        assert!(Arc::ptr_eq(&moved, members.owner(0).expect("an owner")));
        assert!(Arc::ptr_eq(&moved, &members.at(&address("e"), &make).expect("known")));
        let _ = members.adopt(&[range(5, 5, "b")], &seed, &make);
        assert!(members.owner(4).is_none() && members.owner(5).is_some(), "a slot may have no owner");
    }

    #[test]
    fn replicas_are_connected_to_once_and_those_of_others_left_alone() {
        let store =
            RedisStore::builder("redis://seed:1").cluster().peek_from_cluster_replicas().build().expect("sound");
        let Topology::Cluster(cluster) = &store.0.topology else { panic!("no Cluster") };
        let make = |address: &Address, part| cluster.member(address, part);
        let seed = make(&address("seed"), 0).expect("a member");
        let mut members = Members::default();
        let enlist = |members: &mut Members, replicas: [&[&str]; 2]| {
            let of = |first, last, owner, replicas: &[&str]| {
                let replicas = replicas.iter().map(|replica| address(replica)).collect();
                Range { replicas, ..range(first, last, owner) }
            };
            let ranges = [of(0, 8_000, "seed", replicas[0]), of(8_001, 16_383, "b", replicas[1])];
            members.adopt(&ranges, &seed, &make).expect("a map");
            members.enlist(&ranges, &|addresses| cluster.replicas_at(addresses));
            [0, 16_383].map(|slot| members.replicas(slot).cloned())
        };
        let [Some(first), None] = enlist(&mut members, [&["c", "d"], &[]]) else { panic!("one has replicas") };
        assert_eq!(first.nodes().count(), 2);
        let [Some(same), Some(second)] = enlist(&mut members, [&["c", "d"], &["e"]]) else { panic!("both have") };
        assert!(Arc::ptr_eq(&first, &same), "its connections are used on");
        let [Some(fewer), Some(same)] = enlist(&mut members, [&["d"], &["e"]]) else { panic!("both have") };
        assert!(fewer.nodes().count() == 1 && Arc::ptr_eq(&second, &same));
    }
}
