//! The names of counts: whatever the key and the rule are, a Cluster puts them where our own tag says.

use proptest::{
    collection::vec,
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRunner},
};
use sluicegate::{
    Quota, Rule,
    key::{self, Found, IntoKey},
    store::{Line, Scope},
};

use crate::support::{
    cases::cases,
    server::{Server, VERSIONS, free_port},
};

/// Bytes of a key or a rule, rich in what could move a slot.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![3 => prop::sample::select(b"{}{}:%,()~#&".to_vec()), 1 => any::<u8>()], 0..40)
}

fn name_of(key: &[u8], rule: &str) -> (Vec<u8>, Vec<u8>) {
    let limit = Rule::gcra("r", Quota::per_hour(5)).key(key::given()).check().expect("sound");
    let Found::Key(key) = key.to_vec().into_key() else { panic!("bytes are a key") };
    let scope = Scope::new("ns", rule);
    let line = Line::new(&scope, key.as_bytes(), &limit, 1);
    (line.name().concat(), key.as_bytes().to_vec())
}

/// What a Cluster hashes of a name: what stands between the first brace and the next closing one, if anything does.
fn hashed(name: &[u8]) -> &[u8] {
    let Some(open) = name.iter().position(|byte| *byte == b'{') else { return name };
    match name[open + 1..].iter().position(|byte| *byte == b'}') {
        Some(length @ 1..) => &name[open + 1..open + 1 + length],
        _ => name,
    }
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn the_tag_is_the_key(key in bytes(), rule in bytes()) {
        let (name, tag) = name_of(&key, &String::from_utf8_lossy(&rule));
        prop_assert_eq!(hashed(&name), &tag[..]);
    }

    #[test]
    fn other_keys_and_other_rules_have_other_names(one in (bytes(), bytes()), two in (bytes(), bytes())) {
        let name = |(key, rule): &(Vec<u8>, Vec<u8>)| name_of(key, &String::from_utf8_lossy(rule)).0;
        let same = one.0 == two.0 && String::from_utf8_lossy(&one.1) == String::from_utf8_lossy(&two.1);
        prop_assert_eq!(name(&one) == name(&two), same);
    }
}

/// By the servers' own reckoning.
#[tokio::test]
async fn the_slot_is_that_of_the_tag() {
    for version in VERSIONS {
        let server = Server::start_on(version, free_port(), &["--cluster-enabled", "yes"]);
        let mut connection = server.connection().await;
        let mut runner = TestRunner::new(Config::default());
        let mut ask = redis::pipe();
        for _ in 0..500 {
            let (key, rule) = (bytes(), bytes()).new_tree(&mut runner).expect("bytes").current();
            let (name, tag) = name_of(&key, &String::from_utf8_lossy(&rule));
            ask.cmd("CLUSTER").arg("KEYSLOT").arg(name).cmd("CLUSTER").arg("KEYSLOT").arg(tag);
        }
        let slots: Vec<u16> = ask.query_async(&mut connection).await.expect("slots");
        assert!(slots.chunks(2).all(|pair| pair[0] == pair[1]), "{version:?}");
    }
}
