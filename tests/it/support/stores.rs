//! One suite over every store: the memory store, each server version, and Clusters.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use sluicegate::{Clock, Limiter, LimiterBuilder, ManualClock, MemoryStore, RedisStore, Rule};

use super::{
    cluster::Cluster,
    server::{VERSIONS, Version},
};

/// A store, and a namespace that no other test uses.
#[derive(Clone, Debug)]
pub struct Backend {
    pub name: String,
    pub namespace: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Memory(MemoryStore),
    Redis(RedisStore, Version),
    Cluster(RedisStore, bool),
}

const PATIENCE: Duration = Duration::from_secs(30);

/// When manual clocks begin: no multiple of any window.
pub const BEGIN: Duration = Duration::from_micros(1_763_251_200_123_456);

impl Backend {
    pub fn memory() -> Backend {
        Backend { name: "memory".into(), namespace: namespace(), kind: Kind::Memory(MemoryStore::new()) }
    }

    pub fn redis(version: Version) -> Backend {
        let store = patient(&version.shared().url());
        Backend { name: format!("{version:?}"), namespace: namespace(), kind: Kind::Redis(store, version) }
    }

    /// The server with functions instead of scripts.
    pub fn functions(version: Version) -> Backend {
        let store = patient_with_functions(&version.shared().url());
        Backend {
            name: format!("{version:?} with functions"),
            namespace: namespace(),
            kind: Kind::Redis(store, version),
        }
    }

    /// Three primaries; with all counts in one slot, or each wherever its key falls.
    pub fn cluster(version: Version, same_slot: bool) -> Backend {
        let name = format!("a Cluster of {version:?}{}", if same_slot { ", one slot" } else { "" });
        let store = Cluster::shared(version).patient();
        Backend { name, namespace: namespace(), kind: Kind::Cluster(store, same_slot) }
    }

    pub fn is_memory(&self) -> bool {
        matches!(self.kind, Kind::Memory(_))
    }

    /// The single server behind it, if there is one.
    pub fn version(&self) -> Option<Version> {
        match self.kind {
            Kind::Memory(_) | Kind::Cluster(..) => None,
            Kind::Redis(_, version) => Some(version),
        }
    }

    pub fn builder(&self) -> LimiterBuilder {
        let builder = match &self.kind {
            Kind::Memory(store) => Limiter::builder(store.clone()),
            Kind::Redis(store, _) => Limiter::builder(store.clone()),
            Kind::Cluster(store, false) => Limiter::builder(store.clone()),
            Kind::Cluster(store, true) => Limiter::builder(store.clone()).same_slot(),
        };
        builder.namespace(&*self.namespace)
    }

    /// A limiter of these rules by this clock.
    pub fn limiter(&self, clock: &ManualClock, rules: impl IntoIterator<Item = Rule>) -> Limiter {
        let builder = self.builder().clock(Clock::manual(clock.clone()));
        rules.into_iter().fold(builder, LimiterBuilder::rule).build().expect("sound rules")
    }
}

/// The memory store, every server version, those that have functions by these, and Clusters.
pub fn every_store() -> Vec<Backend> {
    let functions = [Version::Redis7, Version::Valkey9].map(Backend::functions);
    let clusters = [(Version::Redis7, false), (Version::Valkey9, true)];
    let clusters = clusters.map(|(version, same_slot)| Backend::cluster(version, same_slot));
    std::iter::once(Backend::memory()).chain(VERSIONS.map(Backend::redis)).chain(functions).chain(clusters).collect()
}

/// A store for tests about numbers, not about time: a busy machine must not make it give up.
pub fn patient(url: &str) -> RedisStore {
    RedisStore::builder(url).deadline(PATIENCE).build().expect("a sound address")
}

pub fn patient_with_functions(url: &str) -> RedisStore {
    RedisStore::builder(url).deadline(PATIENCE).functions().build().expect("a sound address")
}

/// The same without what limiters put around it, for tests about the store's own failures.
pub fn bare(url: &str) -> RedisStore {
    RedisStore::builder(url).deadline(Duration::from_secs(30)).bare().build().expect("a sound address")
}

pub fn namespace() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("t{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
