use std::{fmt, sync::Arc};

use http::{Extensions, HeaderMap, HeaderName, Response};

use super::{
    Snapshot, ietf,
    names::{POLICY, RATELIMIT, X_LIMIT, X_REMAINING, X_RESET},
    show::{Show, remaining},
};
use crate::decision::Standing;

/// Of so few names it is quicker to look at each: most differ in kind or length, and hashing one takes longer.
const FEW: usize = 12;

/// The fields of one preset.
pub(super) struct Family {
    /// The method that adds it, for messages.
    preset: &'static str,
    lists: Option<Lists>,
    /// Single-valued, and about one rule.
    fields: Box<[Field]>,
    /// That rule, if it is not the tightest.
    rule: Option<Box<str>>,
}

/// List fields, about every rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lists {
    /// Drafts 8 to 11: policies have names; both fields are lists.
    Named,
    /// Drafts 6 and 7: only the policies are a list.
    Older,
}

pub(super) struct Field {
    name: HeaderName,
    show: Show,
}

impl Field {
    pub(super) fn new(name: HeaderName, show: Show) -> Field {
        Field { name, show }
    }

    /// A copy of the name. Those of the default fields are made from constants, which takes less than copying them.
    #[inline]
    fn name(&self) -> HeaderName {
        match &self.show {
            Show::Limit if self.name == X_LIMIT => X_LIMIT,
            Show::Remaining if self.name == X_REMAINING => X_REMAINING,
            Show::Unix if self.name == X_RESET => X_RESET,
            _ => self.name.clone(),
        }
    }
}

impl Family {
    pub(super) fn new(preset: &'static str, lists: Option<Lists>, fields: Box<[Field]>) -> Family {
        Family { preset, lists, fields, rule: None }
    }

    pub(super) fn of_rule(self, rule: &str) -> Family {
        Family { rule: Some(rule.into()), ..self }
    }

    pub(super) fn preset(&self) -> &'static str {
        self.preset
    }

    pub(super) fn lists(&self) -> Option<Lists> {
        self.lists
    }

    pub(super) fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// Whether a rule can be named for it.
    pub(super) fn shows_one_rule(&self) -> bool {
        self.fields.iter().any(|field| !matches!(field.show, Show::Custom(_)))
    }

    pub(super) fn tells_time(&self) -> bool {
        self.fields.iter().any(|field| field.show.tells_time())
    }

    pub(super) fn names(&self) -> impl Iterator<Item = HeaderName> + '_ {
        let policy = self.lists.map(|_| POLICY);
        let standings = (self.lists == Some(Lists::Named)).then_some(RATELIMIT);
        policy.into_iter().chain(standings).chain(self.fields.iter().map(|field| field.name.clone()))
    }

    pub(super) fn write<B>(self: &Arc<Self>, snapshot: &Snapshot<'_>, response: &mut Response<B>) {
        if let Some(lists) = self.lists {
            ietf::write(lists, snapshot, response.headers_mut());
        }
        if self.fields.is_empty() {
            return;
        }
        let standing = match &self.rule {
            None => snapshot.tightest,
            Some(rule) => snapshot.decision.standing(rule).filter(|standing| !standing.is_shadow()),
        };
        let Some(standing) = standing else { return };
        let written =
            self.fill(snapshot, &standing, response.headers_mut()) || self.take_over(snapshot, &standing, response);
        if written && snapshot.noted.nested {
            Shown::note(response.extensions_mut(), Arc::clone(self), &standing);
        }
    }

    /// Writes every field, or none if one of them is there already.
    #[inline]
    fn fill(&self, snapshot: &Snapshot<'_>, standing: &Standing<'_>, headers: &mut HeaderMap) -> bool {
        if self.is_in(headers) {
            return false;
        }
        for field in &self.fields {
            if let Some(value) = field.show.value(snapshot, standing) {
                // There is room: it was made for all fields at once.
                let _ = headers.try_insert(field.name(), value);
            }
        }
        true
    }

    /// Whether a field of this family is there already.
    #[inline]
    fn is_in(&self, headers: &HeaderMap) -> bool {
        if headers.keys_len() <= FEW {
            headers.keys().any(|name| self.fields.iter().any(|field| field.name == *name))
        } else {
            self.fields.iter().any(|field| headers.contains_key(&field.name))
        }
    }

    /// Takes the place of looser families that limiters further in have written. A handler's own stay.
    #[cold]
    fn take_over<B>(&self, snapshot: &Snapshot<'_>, standing: &Standing<'_>, response: &mut Response<B>) -> bool {
        let Some(mut shown) = response.extensions_mut().remove::<Shown>() else { return false };
        let taken: Vec<&HeaderName> =
            self.fields.iter().map(|field| &field.name).filter(|name| response.headers().contains_key(*name)).collect();
        let met = |inner: &Inner| inner.family.fields.iter().any(|field| taken.contains(&&field.name));
        let is_a_limiters =
            |name: &HeaderName| shown.0.iter().any(|inner| inner.family.fields.iter().any(|field| field.name == *name));
        let own = Share::of(standing);
        let may = taken.iter().all(|name| is_a_limiters(name))
            && shown.0.iter().filter(|inner| met(inner)).all(|inner| own.is_tighter_than(inner.share));
        if may {
            shown.0.retain(|inner| {
                let goes = met(inner);
                if goes {
                    inner.family.fields.iter().for_each(|field| drop(response.headers_mut().remove(&field.name)));
                }
                !goes
            });
        }
        response.extensions_mut().insert(shown);
        may && self.fill(snapshot, standing, response.headers_mut())
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.preset)
    }
}

/// What limiters further in have written, in the response's extensions, for the one further out to compare with.
#[derive(Clone, Debug, Default)]
struct Shown(Vec<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    family: Arc<Family>,
    share: Share,
}

impl Shown {
    fn note(extensions: &mut Extensions, family: Arc<Family>, standing: &Standing<'_>) {
        extensions.get_or_insert_default::<Shown>().0.push(Inner { family, share: Share::of(standing) });
    }
}

#[derive(Clone, Copy, Debug)]
struct Share {
    remaining: u64,
    capacity: u64,
}

impl Share {
    fn of(standing: &Standing<'_>) -> Share {
        Share { remaining: remaining(standing), capacity: standing.limit().quota().capacity() }
    }

    fn is_tighter_than(self, other: Share) -> bool {
        u128::from(self.remaining) * u128::from(other.capacity)
            < u128::from(other.remaining) * u128::from(self.capacity)
    }
}
