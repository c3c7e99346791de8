use std::ops::Deref;

use http::request::Parts;

use super::{Limiter, live::Held};

/// The limiter as it is for one request: its rules do not change under it.
#[derive(Debug)]
pub(crate) enum Now<'a> {
    /// One whose rules never change.
    Same(&'a Limiter),
    /// That of a tier.
    Held(Held),
    /// That of a customer.
    Own(Limiter),
}

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
