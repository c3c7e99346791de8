use std::{fmt, future::Future, pin::Pin, sync::Arc};

use http::request::Parts;

use super::{Found, IntoKey, Key};

type Waiting = Pin<Box<dyn Future<Output = Found> + Send>>;

/// How a rule finds its key in a request.
#[derive(Clone)]
#[must_use]
pub struct KeyBy(Way);

#[derive(Clone)]
enum Way {
    Now(Arc<dyn Fn(&Parts) -> Found + Send + Sync>),
    Later(Arc<dyn Fn(Parts) -> Waiting + Send + Sync>),
    /// Cannot be: said when the limiter is built.
    Wrong(Arc<str>),
}

impl KeyBy {
    /// By a closure; [`Rule::key_by`](crate::Rule::key_by) says what it may return.
    pub fn new<K, F>(closure: F) -> KeyBy
    where
        K: IntoKey,
        F: Fn(&Parts) -> K + Send + Sync + 'static,
    {
        KeyBy(Way::Now(Arc::new(move |head| closure(head).into_key())))
    }

    /// By a closure that must wait and gets a head of its own.
    pub fn new_async<K, F, Fut>(closure: F) -> KeyBy
    where
        K: IntoKey,
        F: Fn(Parts) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = K> + Send + 'static,
    {
        KeyBy(Way::Later(Arc::new(move |head| {
            let found = closure(head);
            Box::pin(async move { found.await.into_key() })
        })))
    }

    pub(super) fn wrong(text: String) -> KeyBy {
        KeyBy(Way::Wrong(text.into()))
    }

    /// Counts requests together that agree in both keys. Where either is absent there is none.
    pub fn and(self, other: KeyBy) -> KeyBy {
        KeyBy(match (self.0, other.0) {
            (Way::Wrong(text), _) | (_, Way::Wrong(text)) => Way::Wrong(text),
            (Way::Now(first), Way::Now(second)) => Way::Now(Arc::new(move |head| match first(head) {
                Found::Key(key) => join(key, second(head)),
                other => other,
            })),
            (first, second) => {
                let (first, second) = (KeyBy(first), KeyBy(second));
                Way::Later(Arc::new(move |head| {
                    let (first, second) = (first.clone(), second.clone());
                    Box::pin(async move {
                        match first.find(&head).await {
                            Found::Key(key) => join(key, second.find(&head).await),
                            other => other,
                        }
                    })
                }))
            }
        })
    }

    /// The key of a request, unless finding it must wait.
    pub fn find_now(&self, head: &Parts) -> Option<Found> {
        match &self.0 {
            Way::Now(closure) => Some(closure(head)),
            Way::Later(_) => None,
            Way::Wrong(_) => Some(Found::Absent),
        }
    }

    pub(crate) fn find(&self, head: &Parts) -> impl Future<Output = Found> + Send + use<> {
        let waiting = match &self.0 {
            Way::Now(closure) => Err(closure(head)),
            Way::Later(closure) => Ok(closure(head.clone())),
            Way::Wrong(_) => Err(Found::Absent),
        };
        async move {
            match waiting {
                Ok(waiting) => waiting.await,
                Err(found) => found,
            }
        }
    }

    pub(crate) fn waits(&self) -> bool {
        matches!(self.0, Way::Later(_))
    }

    /// What is wrong with it.
    pub(crate) fn problem(&self) -> Option<&str> {
        match &self.0 {
            Way::Wrong(text) => Some(text),
            _ => None,
        }
    }
}

fn join(first: Key, second: Found) -> Found {
    match second {
        Found::Key(second) => Found::Key(Key::join([first, second])),
        other => other,
    }
}

impl fmt::Debug for KeyBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Way::Now(_) => "KeyBy(closure)",
            Way::Later(_) => "KeyBy(async closure)",
            Way::Wrong(_) => "KeyBy(error)",
        })
    }
}
