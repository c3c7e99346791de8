use std::{collections::HashMap, net::IpAddr};

use super::{ByName, Checker, Code, Key, Told, Wrong, proxies};
use crate::{
    key::{self, Found, KeyBy},
    policy::{
        Names, Override,
        document::Document,
        error::Problems,
        plan::{Planned, Tier},
        read::Step::Name,
        source::Tree,
        text::{KeyReader, KeyText},
    },
};

impl<'a> Checker<'a> {
    pub(super) fn ipv6_prefix(&self) -> u32 {
        self.document.proxies.as_ref().and_then(|proxies| proxies.ipv6_prefix).unwrap_or(64)
    }

    pub(super) fn customer(&mut self) -> Option<KeyText> {
        let document = self.document;
        let Some(customer) = &document.customer else {
            if !document.overrides.is_empty() {
                let help = "say where a request's customer is found: [customer], by = \"header:x-customer\"";
                let wrong = Wrong::new("no request has a customer", help);
                self.told.tell(Code::Overrides, "overrides", wrong, &[Key("overrides")]);
            }
            return None;
        };
        match self.keys.read(&customer.by) {
            Ok(key) if key.by.waits() || key.by.body() > 0 => {
                let wrong =
                    Wrong::new("this key must be waited for", "customers are found in the head of a request, at once");
                self.told.tell(Code::Key, "customer: by", wrong, &[Key("customer"), Key("by")]);
                None
            }
            Ok(key) => Some(key),
            Err(unread) => {
                let code = if unread.unknown { Code::UnknownName } else { Code::Key };
                self.told.tell(code, "customer: by", unread.wrong, &[Key("customer"), Key("by")]);
                None
            }
        }
    }

    pub(super) fn overrides(
        &mut self,
        rules: &[Option<Planned>],
        by_name: &ByName<'a>,
        tiers: &[Tier],
        customer: Option<&KeyText>,
    ) -> HashMap<Box<[u8]>, Override> {
        let document = self.document;
        let mut overrides = HashMap::with_capacity(document.overrides.len());
        for (name, over) in &document.overrides {
            let whose = || format!("override {name:?}");
            let key = customer.map(|customer| stored(name, customer, self.ipv6_prefix()));
            match key {
                None => {}
                Some(Ok(key)) => {
                    let before = overrides.insert(key.into(), over.clone());
                    if before.is_some() {
                        let wrong = Wrong::new("is the same customer as another", "put the two together");
                        self.told.tell(Code::Twice, &whose(), wrong, &[Key("overrides"), Name(name)]);
                    }
                }
                Some(Err((Code::Secret, wrong))) => {
                    // Neither here nor below is it to be shown.
                    self.told.tell(Code::Secret, "overrides", wrong, &[Key("overrides"), Name(name)]);
                    continue;
                }
                Some(Err((code, wrong))) => self.told.tell(code, &whose(), wrong, &[Key("overrides"), Name(name)]),
            }
            if let Some(tier) = &over.tier
                && !document.tiers.contains_key(tier)
            {
                self.unknown_tier(&format!("{}: tier", whose()), tier, &[Key("overrides"), Key(name), Key("tier")]);
            }
            let own = over.tier.as_deref().and_then(|own| tiers.iter().find(|tier| *tier.name == *own));
            // Where it does not say, the customer may be of any tier.
            let possible: Vec<_> = match own {
                Some(tier) => vec![&tier.replaced[..]],
                None if tiers.is_empty() => vec![&[][..]],
                None => tiers.iter().map(|tier| &tier.replaced[..]).collect(),
            };
            for (rule, change) in &over.rules {
                let path = [Key("overrides"), Key(name), Key("rules"), Key(rule)];
                for (place, by_tier) in possible.iter().enumerate() {
                    let whose = match tiers.get(place) {
                        Some(tier) if place > 0 => format!("{}, where its tier is {:?}", whose(), tier.name),
                        _ => whose(),
                    };
                    // Told of one tier, it need not be of others.
                    if self.change(&whose, rule, change, (rules, by_name), by_tier, &path).is_none() {
                        break;
                    }
                }
            }
        }
        overrides
    }
}

/// The key of a customer that somebody names as an override would, or by the secret that it is known by.
pub(in crate::policy) fn customer_key<'a>(
    document: &'a Document,
    tree: Tree<'a>,
    names: &'a Names,
    text: &'a str,
) -> key::Key {
    let mut told = Told { tree, problems: Problems::default() };
    let client = proxies::client(document, &mut told);
    let keys = KeyReader::new(Some(names), client.clone());
    let mut checker = Checker { document, names: Some(names), client, keys, told };
    let customer = checker.customer();
    let stored = customer.map(|customer| (stored(text, &customer, checker.ipv6_prefix()), customer.hashed));
    match stored {
        Some((Ok(stored), _)) => key::Key::stored(stored),
        Some((Err(_), true)) => key::Key::secret(text.as_bytes()),
        _ => key::Key::new(text.as_bytes()),
    }
}

/// The text of a key as it stands in the store, from how it is written in a document.
pub(super) fn stored(text: &str, key: &KeyText, ipv6_prefix: u32) -> Result<Vec<u8>, (Code, Wrong)> {
    let (marks, plain) = match text.find(|letter| letter != '|') {
        Some(at) if key.alternatives => text.split_at(at),
        _ => ("", text),
    };
    if is_digest(plain) {
        return Ok(text.as_bytes().to_vec());
    }
    if key.hashed && marks.is_empty() {
        let help = "write # and 32 digits, as they stand in the store: sluicegate::key::Key::secret(..) gives them, and no document \
                    holds secrets";
        return Err((Code::Secret, Wrong::new("a key of a secret is not written as its digest", help)));
    }
    let mut stored = marks.as_bytes().to_vec();
    if key.address && marks.is_empty() {
        let address = plain.parse::<IpAddr>().ok().and_then(|address| of_address(address, ipv6_prefix));
        let written = plain.starts_with("v4:") || plain.starts_with("v6:");
        match address {
            Some(address) => stored.extend_from_slice(&address),
            None if written => stored.extend_from_slice(plain.as_bytes()),
            None => {
                return Err((
                    Code::Key,
                    Wrong::new(format!("{text:?} is no address"), "write it as 192.0.2.1 or 2001:db8::1"),
                ));
            }
        }
        return Ok(stored);
    }
    key::escape(plain.as_bytes(), &mut stored);
    Ok(stored)
}

/// `#` and the digits of half a SHA-256.
pub(super) fn is_digest(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or_default();
    digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// The very text that rules by address count by.
fn of_address(address: IpAddr, ipv6_prefix: u32) -> Option<Vec<u8>> {
    let (mut head, ()) = http::Request::new(()).into_parts();
    head.extensions.insert(address);
    match KeyBy::from(key::ip().ipv6_prefix(ipv6_prefix)).find_now(&head)? {
        Found::Key(key) => Some(key.as_bytes().to_vec()),
        _ => None,
    }
}
