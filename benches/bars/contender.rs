//! Who is compared: a limiter through its public face, and the floors.

use std::{sync::Arc, time::Duration};

use redis::aio::{AsyncConnectionConfig, Config};
use redis::aio::MultiplexedConnection;
use sluicegate::{Limiter, LimiterBuilder, RedisStore, Rule};

use crate::{drive::Contender, server::Server};
