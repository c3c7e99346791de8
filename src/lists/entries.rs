use std::{collections::HashMap, net::IpAddr, ops::BitOr};

use foldhash::fast::RandomState;

use super::{Listed, MOST, nets::Nets};
use crate::key::{Key, Network};

/// Which of the two lists something is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark(u8);

pub(super) const ALLOW: Mark = Mark(1);
pub(super) const DENY: Mark = Mark(2);

impl Mark {
    pub(super) fn has(self, other: Mark) -> bool {
        self.0 & other.0 != 0
    }

    /// Allow beats deny.
    pub(crate) fn listed(self) -> Option<Listed> {
        match self {
            mark if mark.has(ALLOW) => Some(Listed::Allowed),
            mark if mark.has(DENY) => Some(Listed::Denied),
            _ => None,
        }
    }
}

impl BitOr for Mark {
    type Output = Mark;

    fn bitor(self, other: Mark) -> Mark {
        Mark(self.0 | other.0)
    }
}

/// Everything on the two lists.
#[derive(Clone, Default)]
pub(super) struct Entries {
    of_any: Keys,
    /// By the name of the rule; none is empty.
    of_one: HashMap<Box<str>, Keys, RandomState>,
    nets: Nets,
    len: usize,
}

#[derive(Clone, Default)]
struct Keys {
    marks: HashMap<Key, Mark, RandomState>,
    allowed: usize,
}

impl Keys {
    fn of(&self, key: &Key) -> Mark {
        self.marks.get(key).copied().unwrap_or_default()
    }

    fn add(&mut self, key: Key, mark: Mark) {
        let before = self.marks.entry(key).or_default();
        self.allowed += usize::from(mark.has(ALLOW) && !before.has(ALLOW));
        *before = *before | mark;
    }

    fn remove(&mut self, key: &Key) {
        let mark = self.marks.remove(key).unwrap_or_default();
        self.allowed -= usize::from(mark.has(ALLOW));
    }
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn count(&mut self) {
        self.len = self.of_any.marks.len() + self.of_one.values().map(|keys| keys.marks.len()).sum::<usize>();
        self.len += self.nets.len();
    }

    /// Whether there was room, here and below.
    pub(super) fn add_key(&mut self, rule: Option<&str>, key: Key, mark: Mark) -> bool {
        if self.len >= MOST {
            return false;
        }
        match rule {
            None => self.of_any.add(key, mark),
            Some(rule) => match self.of_one.get_mut(rule) {
                Some(keys) => keys.add(key, mark),
                None => self.of_one.entry(rule.into()).or_default().add(key, mark),
            },
        }
        self.count();
        true
    }

    pub(super) fn add_net(&mut self, net: Network, mark: Mark) -> bool {
        if self.len >= MOST {
            return false;
        }
        self.nets.add(net, mark);
        self.count();
        true
    }

    pub(super) fn remove_key(&mut self, rule: Option<&str>, key: &Key) {
        match rule {
            None => self.of_any.remove(key),
            Some(rule) => {
                if let Some(keys) = self.of_one.get_mut(rule) {
                    keys.remove(key);
                    if keys.marks.is_empty() {
                        self.of_one.remove(rule);
                    }
                }
            }
        }
        self.count();
    }

    pub(super) fn remove_net(&mut self, net: Network) {
        self.nets.remove(net);
        self.count();
    }

    pub(super) fn of_key(&self, rule: &str, key: &Key) -> Mark {
        let of_one = self.of_one.get(rule).map(|keys| keys.of(key));
        self.of_any.of(key) | of_one.unwrap_or_default()
    }

    pub(super) fn of_address(&self, address: IpAddr) -> Mark {
        self.nets.of(address)
    }

    /// Whether there are keys, and whether some are allowed.
    pub(super) fn keys(&self) -> (bool, bool) {
        let any = !self.of_any.marks.is_empty() || !self.of_one.is_empty();
        (any, self.of_any.allowed > 0 || self.of_one.values().any(|keys| keys.allowed > 0))
    }

    pub(super) fn has_nets(&self) -> bool {
        self.nets.len() > 0
    }

    /// The rules that are named.
    pub(super) fn rules(&self) -> impl Iterator<Item = &str> {
        self.of_one.keys().map(|rule| &**rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_counted_once_and_bounded() {
        let mut entries = Entries::default();
        let key = |text: &str| Key::new(text.as_bytes());
        for (rule, mark) in [(None, ALLOW), (None, DENY), (None, ALLOW), (Some("r"), DENY), (Some("r"), DENY)] {
            assert!(entries.add_key(rule, key("k"), mark));
        }
        assert!(entries.add_net(Network::read("10.0.0.0/8").expect("a network"), DENY));
        assert_eq!((entries.len(), entries.keys()), (3, (true, true)));
        entries.remove_key(None, &key("k"));
        assert_eq!((entries.len(), entries.keys()), (2, (true, false)));
        entries.remove_key(Some("r"), &key("k"));
        entries.remove_key(Some("r"), &key("k"));
        assert_eq!((entries.len(), entries.keys(), entries.rules().count()), (1, (false, false), 0));
        entries.len = MOST;
        assert!(!entries.add_key(None, key("k"), DENY));
        assert!(!entries.add_net(Network::read("::/0").expect("a network"), DENY));
        entries.remove_net(Network::read("10.0.0.0/8").expect("a network"));
        assert_eq!(entries.len(), 0);
    }
}
