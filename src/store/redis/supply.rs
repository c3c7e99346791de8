//! Where connections come from: a pool of our own, or one that the application has already.

use deadpool::managed::{Object, Pool, PoolError};

use super::{failure, greet, link::Link, manager::Manager};
use crate::error::StoreError;

/// A pool. It makes connections and counts them; clones of theirs are lent.
#[derive(Clone, Debug)]
pub(super) enum Supply {
    Own(Pool<Manager>),
    Given(deadpool_redis::Pool),
}

/// A pool's object, held as long as clones of its connection are lent.
pub(super) enum Held {
    Own(Object<Manager>),
    Given(deadpool_redis::Connection),
}

impl Supply {
    /// A connection to a primary.
    pub(super) async fn get(&self) -> Result<Held, StoreError> {
        match self {
            Supply::Own(pool) => match pool.get().await {
                Ok(object) => Ok(Held::Own(object)),
                Err(PoolError::Backend(error)) => Err(error),
                Err(error) => Err(failure::pooling(&error)),
            },
            Supply::Given(pool) => match pool.get().await {
                Ok(connection) => {
                    let held = Held::Given(connection);
                    match greet::primary(&mut held.link().connection).await {
                        Ok(()) => Ok(held),
                        Err(error) => {
                            held.close();
                            Err(error)
                        }
                    }
                }
                Err(PoolError::Backend(error)) => Err(failure::greeting(&error)),
                Err(error) => Err(failure::pooling(&error)),
            },
        }
    }
}

impl Held {
    pub(super) fn link(&self) -> Link {
        match self {
            Held::Own(object) => Link::clone(object),
            Held::Given(connection) => Link::given((**connection).clone()),
        }
    }

    /// Takes it out of the pool, so that it is closed and not lent again.
    pub(super) fn close(self) {
        match self {
            Held::Own(object) => drop(Object::take(object)),
            Held::Given(connection) => drop(deadpool_redis::Connection::take(connection)),
        }
    }
}
