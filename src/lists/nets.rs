use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use foldhash::fast::RandomState;

use super::Mark;
use crate::key::Network;

/// Subnets, by family and length of prefix: an address is looked for once for each length in use, however many subnets there
/// are.
#[derive(Clone, Default)]
pub(super) struct Nets {
    v4: Lengths,
    v6: Lengths,
}

/// By length; none is empty.
type Lengths = BTreeMap<u32, HashMap<u128, Mark, RandomState>>;

impl Nets {
    pub(super) fn len(&self) -> usize {
        self.v4.values().chain(self.v6.values()).map(HashMap::len).sum()
    }

    pub(super) fn add(&mut self, net: Network, mark: Mark) {
        let before = self.lengths(net).entry(net.length()).or_default().entry(net.first()).or_default();
        *before = *before | mark;
    }

    pub(super) fn remove(&mut self, net: Network) {
        let lengths = self.lengths(net);
        if let Some(nets) = lengths.get_mut(&net.length()) {
            nets.remove(&net.first());
            if nets.is_empty() {
                lengths.remove(&net.length());
            }
        }
    }

    /// What all subnets together say that hold the address.
    pub(super) fn of(&self, address: IpAddr) -> Mark {
        let lengths = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        let found = lengths.iter().filter_map(|(length, nets)| nets.get(&Network::first_of(address, *length)));
        found.fold(Mark::default(), |all, mark| all | *mark)
    }

    fn lengths(&mut self, net: Network) -> &mut Lengths {
        if net.is_ipv4() { &mut self.v4 } else { &mut self.v6 }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::Ipv4Addr,
        ops::Range,
        time::{Duration, Instant},
    };

    use super::{
        super::entries::{ALLOW, DENY},
        *,
    };

    /// How long so many looks take at best.
    fn pace(nets: &Nets) -> Duration {
        let looks = || {
            let begin = Instant::now();
            for number in 0..200 {
                assert_eq!(nets.of(Ipv4Addr::from_bits(u32::MAX - number).into()), Mark::default());
            }
            begin.elapsed()
        };
        (0..20).map(|_| looks()).min().unwrap_or_default()
    }

    #[test]
    fn many_are_as_fast_as_few() {
        let mut nets = Nets::default();
        let mut add = |numbers: Range<u32>| {
            for number in numbers {
                let (address, length) = (Ipv4Addr::from_bits(number << 8), 24 + number % 4);
                nets.add(Network::read(&format!("{address}/{length}")).expect("a network"), DENY);
            }
            pace(&nets)
        };
        let (few, many) = (add(0..100), add(100..100_000));
        assert_eq!(nets.len(), 100_000);
        assert!(many < few * 10, "{many:?} against {few:?}; looking through all would take a thousand times as long");
    }

    #[test]
    fn addresses_are_found_in_every_subnet_that_holds_them() {
        let mut nets = Nets::default();
        let net = |text: &str| Network::read(text).expect("a network");
        for (text, mark) in
            [("10.0.0.0/8", DENY), ("10.1.0.0/16", ALLOW), ("10.1.2.3", DENY), ("::/0", DENY), ("2001:db8::/32", ALLOW)]
        {
            nets.add(net(text), mark);
        }
        let both = ALLOW | DENY;
        let of = |nets: &Nets, address: &str| nets.of(address.parse().expect("an address"));
        for (address, expected) in [
            ("10.1.2.3", both),
            ("10.2.0.0", DENY),
            ("10.255.255.255", DENY),
            ("11.0.0.0", Mark::default()),
            ("9.255.255.255", Mark::default()),
            ("2001:db8:ffff::1", both),
            ("2001:db9::", DENY),
            ("::", DENY),
        ] {
            assert_eq!(of(&nets, address), expected, "{address}");
        }
        nets.remove(net("10.1.0.0/16"));
        nets.remove(net("10.0.0.0/9"));
        assert_eq!((of(&nets, "10.1.2.3"), nets.len(), nets.v4.len()), (DENY, 4, 2));
    }
}
