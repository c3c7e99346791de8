use std::ops::Deref;

use http::request::Parts;

use super::{Limiter, live::Held};

/// The limiter as it is for one request: its rules do not change under it.
#[derive(Debug)]
pub(crate) enum Now<'a> {
    /// One whose rules never change.
    Same(&'a Limiter),
    /// That of a tier.
    #[cfg_attr(not(feature = "policy"), allow(dead_code))]
    Held(Held),
    /// That of a customer.
    Own(Limiter),
}

/// What a request was looked at with, before it is called.
#[derive(Clone)]
struct Ahead(Limiter);

impl Now<'_> {
    /// To be kept beyond this moment.
    pub(crate) fn into_owned(self) -> Limiter {
        match self {
            Now::Own(limiter) => limiter,
            now => now.clone(),
        }
    }
}

impl Deref for Now<'_> {
    type Target = Limiter;

    #[inline]
    fn deref(&self) -> &Limiter {
        match self {
            Now::Same(limiter) => limiter,
            Now::Held(held) => held.limiter(),
            Now::Own(limiter) => limiter,
        }
    }
}

impl Limiter {
    /// As it is for this request, by its tier and its customer.
    #[inline]
    pub(crate) fn of_request(&self, head: &Parts) -> Now<'_> {
        match &self.0.live {
            None => Now::Same(self),
            Some(live) => live.of_request(head),
        }
    }

    /// The same for a request that is looked at before it is called: the call goes by these very rules.
    pub(crate) fn look_ahead(&self, head: &mut Parts) -> Now<'_> {
        let now = self.of_request(head);
        if self.0.live.is_none() {
            return now;
        }
        let limiter = now.into_owned();
        head.extensions.insert(Ahead(limiter.clone()));
        Now::Own(limiter)
    }

    /// As it is for this request, which is called.
    #[inline]
    pub(crate) fn of_call(&self, head: &mut Parts) -> Now<'_> {
        if self.0.live.is_none() {
            return Now::Same(self);
        }
        match head.extensions.get::<Ahead>() {
            Some(Ahead(limiter)) if limiter.rules().is_kin(self.rules()) => {
                let limiter = limiter.clone();
                head.extensions.remove::<Ahead>();
                Now::Own(limiter)
            }
            _ => self.of_request(head),
        }
    }

    /// The same, to be kept.
    pub(crate) fn usual_now(&self) -> Limiter {
        let mut held = None;
        self.now(&mut held).clone()
    }

    /// As it is for whoever has neither tier nor override. `held` keeps it.
    #[inline]
    pub(super) fn now<'a>(&'a self, held: &'a mut Option<Limiter>) -> &'a Limiter {
        match &self.0.live {
            None => self,
            Some(live) => held.insert(live.usual()),
        }
    }
}
