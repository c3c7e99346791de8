//! Addresses that callers make up: whatever bytes they send, what our proxies wrote decides.

use std::net::IpAddr;

use proptest::prelude::*;
use sluicegate::key::{ClientHeader, TrustedProxies};

use crate::{
    addresses::{PEER, XFF, behind, cidrs, found, headers},
    support::cases::cases,
};

/// What a caller can put into a header, rich in what parsers trip over.
fn made_up() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => prop::sample::select(b"\",;=\\ \t[]:.%_-1f".to_vec()),
        2 => 0x20..0x7f_u8,
        1 => 0x80..=0xff_u8,
    ];
    prop::collection::vec(byte, 0..60)
}

/// An entry, and the address that it is.
fn entry() -> impl Strategy<Value = (String, Option<IpAddr>)> {
    let address = prop_oneof![
        3 => (0..3_u8).prop_map(|last| IpAddr::from([10, 0, 0, last])),
        1 => any::<[u8; 4]>().prop_map(IpAddr::from),
        1 => any::<[u8; 16]>().prop_map(IpAddr::from),
    ];
    let text = (address, 0..4).prop_map(|(address, style)| {
        let text = match (style, address) {
            (0, _) => format!(" {address}\t"),
            (1, _) => format!("\"{address}\""),
            (_, IpAddr::V4(_)) => format!("{address}:{style}"),
            (_, IpAddr::V6(_)) => format!("[{address}]:{style}"),
        };
        (text, Some(address.to_canonical()))
    });
    prop_oneof![9 => text, 1 => prop::sample::select(vec!["unknown", "", "1.2.3", "::1%a"]).prop_map(|text| (text.into(), None))]
}

proptest! {
    #![proptest_config(cases(5_000))]

    #[test]
    fn the_walk_ends_where_a_plain_reading_of_the_rule_does(
        lines in prop::collection::vec(prop::collection::vec(entry(), 1..8), 0..5), hops in 1..6_usize,
    ) {
        let texts: Vec<String> = lines.iter()
            .map(|line| line.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>().join(","))
            .collect();
        let values: Vec<_> = texts.iter().map(|text| (XFF, text.as_bytes())).collect();
        let entries: Vec<Option<IpAddr>> = lines.into_iter().flatten().map(|(_, address)| address).collect();
        let peer: IpAddr = PEER.parse().expect("an address");
        let is_proxy = |address: &IpAddr| matches!(address, IpAddr::V4(address) if address.octets()[0] == 10);

        let right: Vec<IpAddr> = entries.iter().rev().map_while(|entry| *entry).take(32).collect();
        let other = right.iter().find(|address| !is_proxy(address));
        let by_network = *other.or(right.last()).unwrap_or(&peer);
        let counted = right.get(hops - 1).copied().unwrap_or(peer);

        let text = |address: IpAddr| match address {
            IpAddr::V4(address) => format!("v4:{address}"),
            IpAddr::V6(address) => format!("v6:{address}/128"),
        };
        let networks = TrustedProxies::cidrs(["10.0.0.0/8"]);
        prop_assert_eq!(found(behind(networks), Some(PEER), &values), text(by_network));
        prop_assert_eq!(found(behind(TrustedProxies::hops(hops)), Some(PEER), &values), text(counted));
    }

    #[test]
    fn nothing_a_caller_writes_changes_what_our_proxies_wrote(made_up in made_up(), same_line: bool) {
        for (header, name, ours) in [
            (ClientHeader::XForwardedFor, XFF, &b"203.0.113.7, 10.0.0.3"[..]),
            (ClientHeader::Forwarded, "forwarded", b"for=203.0.113.7, for=10.0.0.3"),
        ] {
            let joined = [&made_up[..], b", ", ours].concat();
            let lines: &[(&str, &[u8])] = if same_line { &[(name, &joined)] } else { &[(name, &made_up), (name, ours)] };
            for proxies in [cidrs(), TrustedProxies::hops(2), cidrs().strict(), TrustedProxies::hops(2).strict()] {
                prop_assert_eq!(found(behind(proxies.header(header.clone())), Some(PEER), lines), "v4:203.0.113.7");
            }
        }
    }

    #[test]
    fn no_bytes_make_any_reader_panic(made_up in made_up(), twice: bool) {
        for header in headers() {
            for name in [XFF, "forwarded", "x-real-ip", "cloudfront-viewer-address", "fly-client-ip"] {
                let lines: &[(&str, &[u8])] = &[(name, &made_up), (name, &made_up)];
                let lines = if twice { lines } else { &lines[..1] };
                prop_assert_ne!(found(behind(cidrs().header(header.clone())), Some(PEER), lines), "-");
            }
        }
    }
}
