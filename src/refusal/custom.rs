use std::{error::Error, fmt, sync::Arc};

use bytes::Bytes;
use http::Response;
use http_body::Body;

use super::{Refusal, RefusalBody};

/// The application's own way to refuse.
#[derive(Clone)]
pub(crate) struct OnRefused(Arc<Closure>);

type Closure = dyn Fn(&Refusal<'_>) -> Option<Response<RefusalBody>> + Send + Sync;

impl OnRefused {
    pub(crate) fn new<F, R, B>(closure: F) -> OnRefused
    where
        F: Fn(&Refusal<'_>) -> R + Send + Sync + 'static,
        R: Into<Option<Response<B>>>,
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        OnRefused(Arc::new(move |refusal| Some(closure(refusal).into()?.map(RefusalBody::own))))
    }

    /// `None`: the layer is to answer in its own way.
    pub(super) fn response(&self, refusal: &Refusal<'_>) -> Option<Response<RefusalBody>> {
        (self.0)(refusal)
    }
}

impl fmt::Debug for OnRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnRefused(closure)")
    }
}
