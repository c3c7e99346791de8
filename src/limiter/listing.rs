//! What the lists say of a request or a call, before any rule is asked.

use std::sync::Arc;

use http::{StatusCode, request::Parts};

use super::{Call, Limiter, Picked, rules::CheckedRule};
use crate::{
    decision::Decision,
    key::{self, Found, Ip, KeyBy},
    lists::{Listed, Lists, Mark},
};

/// The lists of a limiter.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    lists: Lists,
    client: Ip,
}

impl Listing {
    /// Of a limiter whose rules have these keys.
    pub(super) fn new<'a>(lists: Lists, keys: impl Iterator<Item = &'a KeyBy> + Clone) -> Listing {
        let mut clients = keys.filter_map(KeyBy::client);
        let first = clients.clone().next();
        // A rule that names proxies says how clients come here; one that does not may be about the proxies themselves.
        let of_rules = clients.find(|client| client.has_proxies()).or(first).map(|client| Ip::clone(client));
        let client = lists.client().cloned().or(of_rules).unwrap_or_else(key::ip);
        Listing { lists, client }
    }
}

/// Looks at the keys of a request as they are found. Does nothing where the lists are empty.
pub(super) struct Screen<'a> {
    lists: Option<&'a Lists>,
    mark: Mark,
    /// What a key closure refuses with, unless the lists know better.
    refused: Option<StatusCode>,
}

impl Screen<'_> {
    /// Passes on what was found. A closure that refuses is put off, since another key may be allowed.
    #[inline]
    pub(super) fn look(&mut self, rule: &CheckedRule, found: Found) -> Found {
        match self.lists {
            None => found,
            Some(lists) => self.look_up(lists, rule, found),
        }
    }

    #[cold]
    fn look_up(&mut self, lists: &Lists, rule: &CheckedRule, found: Found) -> Found {
        match found {
            Found::Key(key) => {
                self.mark = self.mark | lists.of_key(rule.name(), &key);
                Found::Key(key)
            }
            found => self.put_off(found),
        }
    }

    /// Puts off a closure that refuses, where there are lists that may know better.
    #[inline]
    pub(super) fn put_off(&mut self, found: Found) -> Found {
        match found {
            Found::Refuse(status) if self.lists.is_some() => {
                self.refused.get_or_insert(status);
                Found::Absent
            }
            found => found,
        }
    }

    /// What it all comes to, if the rules are not to be asked.
    #[inline]
    pub(super) fn end(self) -> Option<Picked> {
        match (self.mark.listed(), self.refused) {
            (None, None) => None,
            (Some(listed), _) => Some(Picked::Listed(listed)),
            (None, Some(status)) => Some(Picked::Refuse(status)),
        }
    }
}

impl Limiter {
    /// What the lists say of a key of a rule.
    #[cfg(feature = "policy")]
    pub(super) fn list_of(&self, rule: &str, key: &key::Key) -> Option<Listed> {
        self.0.listing.as_ref()?.lists.of_key(rule, key).listed()
    }

    /// Begins to look at a request. `Err`: no key changes what the lists say.
    #[inline]
    pub(super) fn screen(&self, head: &Parts) -> Result<Screen<'_>, Listed> {
        match self.0.listing.as_ref().filter(|listing| listing.lists.has_any()) {
            None => Ok(Screen { lists: None, mark: Mark::default(), refused: None }),
            Some(listing) => screen(listing, head),
        }
    }

    /// The decision over a call that is on a list. A call with a mistake in it is for the rules to refuse.
    #[inline]
    pub(super) fn listed_call(&self, call: &Call<'_>) -> Option<Decision> {
        let listing = self.0.listing.as_ref().filter(|listing| listing.lists.has_keys())?;
        self.look_up(&listing.lists, call)
    }

    #[cold]
    fn look_up(&self, lists: &Lists, call: &Call<'_>) -> Option<Decision> {
        let mut mark = Mark::default();
        for (name, key) in call.named() {
            self.rules().named(name)?;
            mark = mark | lists.of_key(name, key);
        }
        Some(self.listed(mark.listed()?))
    }

    /// The decision over who is on a list.
    #[cold]
    pub(crate) fn listed(&self, listed: Listed) -> Decision {
        self.told(Decision::listed_as(Arc::clone(self.0.rules.handle()), listed))
    }
}

#[cold]
fn screen<'a>(listing: &'a Listing, head: &Parts) -> Result<Screen<'a>, Listed> {
    let lists = &listing.lists;
    let address = if lists.has_nets() { listing.client.address(head) } else { None };
    let mark = address.map(|address| lists.of_address(address)).unwrap_or_default();
    match mark.listed() {
        Some(Listed::Denied) if lists.has_allowed_keys() => {}
        Some(listed) => return Err(listed),
        None => {}
    }
    Ok(Screen { lists: Some(lists), mark, refused: None })
}
