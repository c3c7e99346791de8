//! A server, a proxy in front of it, and a stream of decisions through both.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use sluicegate::{Limiter, LimiterBuilder, OnFailure, RedisStore, Resilient, store::RedisStoreBuilder};
use tokio::sync::MutexGuard;

use super::{
    checker::{Checker, Sum},
    fault_proxy::FaultProxy,
    leak::{Held, held},
    load::{Load, Phase, alone, part, warm},
    server::{Server, Version, free_port},
};

/// The deadline of decisions.
pub const DEADLINE: Duration = Duration::from_millis(10);
/// A deadline for tests about something else: a busy machine must not make decisions fail.
pub const PATIENT: Duration = Duration::from_secs(5);
/// What a timer's grain and the work of a decision may add to it.
pub const GRAIN: Duration = Duration::from_millis(5);

pub struct Faulted {
    pub server: Server,
    pub proxy: FaultProxy,
    pub load: Load,
    /// A way to the server past the proxy.
    pub direct: MultiplexedConnection,
    /// The stream without a fault.
    pub before: Phase,
    held: Held,
    _alone: MutexGuard<'static, ()>,
}

impl Faulted {
    /// Without a breaker: every decision asks the server.
    pub async fn bare() -> Faulted {
        Faulted::with(&[], RedisStoreBuilder::bare, Limiter::builder).await
    }

    /// With a breaker that opens for a second. Rules admit what cannot be judged, so what the store did not charge nobody does.
    pub async fn resilient() -> Faulted {
        Faulted::with(&[], RedisStoreBuilder::bare, resilient).await
    }

    /// A server with these settings, a store and a limiter as said.
    pub async fn with(
        settings: &[&str],
        store: impl FnOnce(RedisStoreBuilder) -> RedisStoreBuilder,
        limiter: impl FnOnce(RedisStore) -> LimiterBuilder,
    ) -> Faulted {
        let _alone = alone().await;
        let server = Server::start_on(Version::Redis7, free_port(), settings);
        let proxy = FaultProxy::start(server.port, 7);
        let store = store(RedisStore::builder(proxy.url()).deadline(DEADLINE)).build().expect("sound");
        let (checker, limiter) = Checker::begin(limiter(store));
        warm(&limiter).await;
        let load = Load::new(checker, limiter);
        let direct = server.connection().await;
        // The first stretch touches everything once.
        load.run(Duration::from_millis(200)).await;
        // A busy machine may just have cost the store its connection.
        warm(&load.limiter).await;
        let held = held();
        let before = load.run(part(Duration::from_millis(500))).await;
        Faulted { server, proxy, load, direct, before, held, _alone }
    }

    /// Connections, tasks and memory are as before the fault.
    pub async fn leaves_nothing(&self) {
        self.held.is_given_back().await;
    }

    /// After the fault: soon as good as before, every decision charged as it was told, nothing left behind.
    pub async fn is_over(&mut self) -> Sum {
        let since = Instant::now();
        loop {
            let after = self.load.run(part(Duration::from_millis(250))).await;
            if after.is_like(&self.before) {
                break;
            }
            let (then, now) = (self.before.percentile(50), after.percentile(50));
            let failed = after.failures();
            assert!(since.elapsed() < Duration::from_secs(20), "{then:?} then, {now:?} now; {failed:?}");
        }
        self.leaves_nothing().await;
        self.load.checker.check(&mut [self.direct.clone()]).await
    }
}

/// The shortest time that breakers of tests are open.
pub const OPEN: Duration = Duration::from_secs(1);

/// A limiter on a store with a breaker.
pub fn resilient(store: RedisStore) -> LimiterBuilder {
    Limiter::builder(Resilient::new(store).open_for(OPEN)).on_failure(OnFailure::Allow)
}
