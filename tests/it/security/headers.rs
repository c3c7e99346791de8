//! Headers of any length and any bytes.

use proptest::{collection::vec, prelude::*};
use sluicegate::key::TrustedProxies;

use crate::{
    addresses::{PEER, XFF, behind, cidrs, found, headers},
    support::cases::cases,
};

proptest! {
    #![proptest_config(cases(300))]

    /// Up to ten kilobytes in up to three lines: an address comes out, and what our proxy wrote last decides.
    #[test]
    fn ten_kilobytes_of_anything(lines in vec(vec((0x20..=0xff_u8).prop_filter("no header has it", |byte| *byte != 0x7f), 0..10_240), 1..4)) {
        for header in headers() {
            for name in [XFF, "forwarded", "x-real-ip", "cloudfront-viewer-address", "fly-client-ip"] {
                let values: Vec<_> = lines.iter().map(|line| (name, &line[..])).collect();
                prop_assert_ne!(found(behind(cidrs().header(header.clone())), Some(PEER), &values), "-");
            }
        }
        let mut values: Vec<_> = lines.iter().map(|line| (XFF, &line[..])).collect();
        values.push((XFF, b"203.0.113.7, 10.0.0.3"));
        for proxies in [cidrs(), TrustedProxies::hops(2)] {
            prop_assert_eq!(found(behind(proxies), Some(PEER), &values), "v4:203.0.113.7");
        }
    }
}
