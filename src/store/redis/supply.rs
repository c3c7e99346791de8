//! Where connections come from: a pool of our own, or one that the application has already.

use deadpool::managed::{Object, Pool, PoolError};
use redis::{RedisError, aio::MultiplexedConnection};

use super::manager::Manager;

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
    pub(super) async fn get(&self) -> Result<Held, PoolError<RedisError>> {
        match self {
            Supply::Own(pool) => pool.get().await.map(Held::Own),
            Supply::Given(pool) => pool.get().await.map(Held::Given),
        }
    }
}

impl Held {
    pub(super) fn connection(&self) -> &MultiplexedConnection {
        match self {
            Held::Own(object) => object,
            Held::Given(connection) => connection,
        }
    }

    /// Takes it out of the pool, so that it is closed and not lent again.
    pub(super) fn close(self) {
        drop(match self {
            Held::Own(object) => Object::take(object),
            Held::Given(connection) => deadpool_redis::Connection::take(connection),
        });
    }
}
