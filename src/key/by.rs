use std::{fmt, future::Future, pin::Pin, sync::Arc};

use http::{StatusCode, request::Parts};

use super::{
    Found, IntoKey, Ip, Key,
    body::ReadBody,
    compose::{Closure, Extract, Miss, Writer, both, either, marked},
};

type Waiting = Pin<Box<dyn Future<Output = Found> + Send>>;

/// How a rule finds its key in a request, and what happens where there is none.
///
/// ```
/// use http::StatusCode;
/// use sluicegate::{key, Quota, Rule};
///
/// let quota = Quota::per_minute(100);
/// // Where there is no key, the rule does not apply.
/// Rule::gcra("a", quota).key(key::header("x-tenant"));
/// // The request is refused.
/// Rule::gcra("b", quota).key(key::header("x-tenant").or_refuse(StatusCode::BAD_REQUEST));
/// // Another key takes its place.
/// Rule::gcra("c", quota).key(key::bearer().or(key::ip()));
/// // Requests count together that agree in both.
/// Rule::gcra("d", quota).key(key::header("x-tenant").and(key::route()));
/// ```
#[derive(Clone)]
#[must_use]
pub struct KeyBy {
    pub(super) way: Way,
    /// With how many marks of [`KeyBy::or`] its keys begin at most.
    pub(super) marks: usize,
    /// How much of the request's body it may look at.
    pub(super) body: usize,
    /// How it finds the client's address, if it does.
    pub(super) client: Option<Arc<Ip>>,
}

#[derive(Clone)]
pub(super) enum Way {
    Now(Arc<dyn Extract>),
    Later(Arc<dyn Fn(Parts) -> Waiting + Send + Sync>),
    /// Cannot be: said when the limiter is built.
    Wrong(Arc<str>),
}

impl Way {
    fn later<F, Fut>(find: F) -> Way
    where
        F: Fn(Parts) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Found> + Send + 'static,
    {
        Way::Later(Arc::new(move |head| Box::pin(find(head))))
    }
}

impl KeyBy {
    /// By a closure; [`Rule::key_by`](crate::Rule::key_by) says what it may return.
    pub fn new<K, F>(closure: F) -> KeyBy
    where
        K: IntoKey,
        F: Fn(&Parts) -> K + Send + Sync + 'static,
    {
        KeyBy::of(Way::Now(Arc::new(Closure(closure))))
    }

    /// By a closure that must wait and gets a head of its own.
    pub fn new_async<K, F, Fut>(closure: F) -> KeyBy
    where
        K: IntoKey,
        F: Fn(Parts) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = K> + Send + 'static,
    {
        let find = move |head| {
            let found = closure(head);
            async move { found.await.into_key() }
        };
        KeyBy::of(Way::later(find))
    }

    /// By a closure that writes the key's text itself.
    pub(super) fn writer<F>(write: F) -> KeyBy
    where
        F: Fn(&Parts, &mut Vec<u8>) -> Result<(), Miss> + Send + Sync + 'static,
    {
        KeyBy::of(Way::Now(Arc::new(Writer(write))))
    }

    pub(super) fn wrong(text: String) -> KeyBy {
        KeyBy::of(Way::Wrong(text.into()))
    }

    pub(super) fn of(way: Way) -> KeyBy {
        KeyBy { way, marks: 0, body: 0, client: None }
    }

    pub(super) fn with_client(self, client: Arc<Ip>) -> KeyBy {
        KeyBy { client: Some(client), ..self }
    }

    /// Counts requests together that agree in both keys. Where either is absent there is none.
    pub fn and(self, other: impl Into<KeyBy>) -> KeyBy {
        let (marks, other) = (self.marks, other.into());
        let (body, client) = (self.body.max(other.body), self.client.or(other.client));
        let way = match (self.way, other.way) {
            (Way::Wrong(text), _) | (_, Way::Wrong(text)) => Way::Wrong(text),
            (Way::Now(first), Way::Now(second)) => {
                Way::Now(Arc::new(Writer(move |head: &_, text: &mut _| both(&*first, &*second, head, text))))
            }
            (first, second) => Way::later(move |head| {
                let (first, second) = (first.clone(), second.clone());
                async move {
                    match first.find(&head).await {
                        Found::Key(first) => match second.find(&head).await {
                            Found::Key(second) => Found::Key(Key::join([first, second])),
                            missing => missing,
                        },
                        missing => missing,
                    }
                }
            }),
        };
        KeyBy { way, marks, body, client }
    }

    /// Takes the other key where this one is absent. The two never meet in one count: a caller who sends an address as a
    /// user name does not spend the quota of that address.
    pub fn or(self, other: impl Into<KeyBy>) -> KeyBy {
        let other = other.into();
        let (marks, body, client) = (self.marks + 1, self.body.max(other.body), self.client.or(other.client));
        let way = match (self.way, other.way) {
            (Way::Wrong(text), _) | (_, Way::Wrong(text)) => Way::Wrong(text),
            (Way::Now(first), Way::Now(second)) => {
                Way::Now(Arc::new(Writer(move |head: &_, text: &mut _| either(&*first, &*second, marks, head, text))))
            }
            (first, second) => Way::later(move |head| {
                let (first, second) = (first.clone(), second.clone());
                async move {
                    match first.find(&head).await {
                        Found::Absent => match second.find(&head).await {
                            Found::Key(key) => Found::Key(marked(&key, marks)),
                            missing => missing,
                        },
                        found => found,
                    }
                }
            }),
        };
        KeyBy { way, marks: marks + other.marks, body, client }
    }

    /// Refuses requests without this key, with a status from 400 to 599.
    pub fn or_refuse(self, status: StatusCode) -> KeyBy {
        if !(status.is_client_error() || status.is_server_error()) && self.problem().is_none() {
            return KeyBy::wrong(format!(
                "{} does not refuse a request; give or_refuse(..) a status from 400 to 599",
                status.as_u16()
            ));
        }
        self.or(KeyBy::writer(move |_, _| Err(Miss::Refuse(status))))
    }

    /// The key of a request, unless finding it must wait, or it is in the body. For tests, and to ask [`Limiter::peek`](crate::Limiter::peek) about
    /// the very key that a rule counts by.
    ///
    /// ```
    /// use sluicegate::key::{self, Found};
    ///
    /// let (head, ()) = http::Request::builder().header("x-tenant", "acme").body(())?.into_parts();
    /// let Some(Found::Key(key)) = key::header("x-tenant").and(key::method()).find_now(&head) else { panic!("no key") };
    /// assert_eq!(key.as_bytes(), b"acme,GET");
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn find_now(&self, head: &Parts) -> Option<Found> {
        match &self.way {
            Way::Now(_) if self.body > 0 && ReadBody::of(head).is_none() => None,
            Way::Now(extract) => Some(extract.find(head)),
            Way::Later(_) => None,
            Way::Wrong(_) => Some(Found::Absent),
        }
    }

    pub(crate) fn find(&self, head: &Parts) -> impl Future<Output = Found> + Send + use<> {
        self.way.find(head)
    }

    pub(crate) fn waits(&self) -> bool {
        matches!(self.way, Way::Later(_))
    }

    /// How it finds the client's address, if it does.
    pub(crate) fn client(&self) -> Option<&Arc<Ip>> {
        self.client.as_ref()
    }

    /// What is wrong with it.
    pub(crate) fn problem(&self) -> Option<&str> {
        match &self.way {
            Way::Wrong(text) => Some(text),
            _ => None,
        }
    }
}

impl Way {
    fn find(&self, head: &Parts) -> impl Future<Output = Found> + Send + use<> {
        let waiting = match self {
            Way::Now(extract) => Err(extract.find(head)),
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
}

impl fmt::Debug for KeyBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.way {
            Way::Now(_) => "KeyBy(closure)",
            Way::Later(_) => "KeyBy(async closure)",
            Way::Wrong(_) => "KeyBy(error)",
        })
    }
}
