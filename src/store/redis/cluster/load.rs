//! Loading the map of slots: in a task of its own that outlives the request that wanted it, and one at a time.

use std::{
    sync::{Arc, MutexGuard, PoisonError},
    time::Duration,
};

use redis::Value;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep_until, timeout_at},
};

use super::{Cluster, map, members::Member};
use crate::{
    error::{StoreError, StoreErrorKind},
    store::Id,
};

/// A node that has not told the map by then may hang: the next is asked as well.
const PATIENCE: Duration = Duration::from_millis(200);
/// How often the map is loaded while things fail, in milliseconds; half as much again and again by chance, so that a fleet does
/// not ask in step.
const EVERY: u64 = 750;
/// How long the map is loaded again and again after a node has failed: a replica may take its place, and while a breaker keeps
/// requests from the node none comes upon that.
const FOLLOW: Duration = Duration::from_secs(30);

/// How far loading is.
#[derive(Default)]
pub(super) struct Loading {
    under_way: Option<watch::Receiver<()>>,
    /// Why the last attempt failed.
    failed: Option<StoreError>,
    not_before: Option<Instant>,
    /// The parts that failed, and until when their successors are looked for.
    follow: Vec<(usize, Instant)>,
}

impl Loading {
    /// Looks for this part's successor from now on.
    fn follow(&mut self, part: usize) {
        let until = Instant::now() + FOLLOW;
        match self.follow.iter_mut().find(|(known, _)| *known == part) {
            Some((_, known)) => *known = until,
            None => self.follow.push((part, until)),
        }
    }
}

impl Cluster {
    /// Waits until there is a map.
    pub(super) async fn loaded(self: &Arc<Cluster>) -> Result<(), StoreError> {
        while !self.members().is_loaded() {
            // An error says that the attempt is over.
            let _ = self.load()?.changed().await;
        }
        Ok(())
    }

    /// Loads the map anew, unless that was done just now. Nobody waits for it.
    pub(super) fn refresh(self: &Arc<Cluster>) {
        let _ = self.load();
    }

    /// The same, also if it was done just now, and waits for it. For who is in no hurry.
    pub(super) async fn reload(self: &Arc<Cluster>) {
        self.loading().not_before = None;
        if let Ok(mut under_way) = self.load() {
            // An error says that the attempt is over.
            let _ = under_way.changed().await;
        }
    }

    /// The same for a node that failed. The map is loaded until another has taken its place, or it answers.
    pub(super) fn replace(self: &Arc<Cluster>, member: &Member) {
        self.loading().follow(member.part);
        self.refresh();
    }

    /// Whether any node that failed is still waited for. The others are forgotten.
    fn follows(&self) -> bool {
        let away = |member: &&Arc<Member>| !member.node.connections.is_well();
        let away: Vec<usize> = self.members().list().iter().filter(away).map(|member| member.part).collect();
        let (mut loading, now) = (self.loading(), Instant::now());
        loading.follow.retain(|(part, until)| now < *until && away.contains(part));
        !loading.follow.is_empty()
    }

    fn loading(&self) -> MutexGuard<'_, Loading> {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(self: &Arc<Cluster>) -> Result<watch::Receiver<()>, StoreError> {
        let (done, under_way) = {
            let mut loading = self.loading();
            if let Some(under_way) = &loading.under_way {
                return Ok(under_way.clone());
            }
            let now = Instant::now();
            if loading.not_before.is_some_and(|moment| now < moment) {
                return Err(loading.failed.clone().unwrap_or_else(nobody));
            }
            let chance = Id::random().bits() as u64 % EVERY;
            loading.not_before = Some(now + Duration::from_millis(EVERY + chance * 2 / 3));
            let (done, under_way) = watch::channel(());
            loading.under_way = Some(under_way.clone());
            (done, under_way)
        };
        // Not under the lock: a runtime that shuts down drops the attempt here and now, and dropping it takes the lock.
        let attempt = Attempt { cluster: Arc::clone(self), failed: Some(nobody()), _done: done };
        let cluster = Arc::downgrade(self);
        tokio::spawn(async move {
            attempt.run().await;
            let next = cluster.upgrade().and_then(|cluster| cluster.loading().not_before);
            sleep_until(next.unwrap_or_else(Instant::now)).await;
            if let Some(cluster) = cluster.upgrade().filter(|cluster| cluster.follows()) {
                cluster.refresh();
            }
        });
        Ok(under_way)
    }

    /// Whom to ask: those who are known, from a random one on, then the seeds.
    fn sources(&self) -> Vec<Arc<Member>> {
        let mut sources = self.members().list().to_vec();
        if !sources.is_empty() {
            let turn = Id::random().bits() as usize % sources.len();
            sources.rotate_left(turn);
        }
        for seed in &self.seeds {
            if sources.iter().all(|member| member.address != *seed) {
                sources.extend(self.member(seed, 0));
            }
        }
        sources
    }
}

/// An attempt to load the map. However it ends, also with its runtime, waiters look again.
struct Attempt {
    cluster: Arc<Cluster>,
    failed: Option<StoreError>,
    _done: watch::Sender<()>,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut loading = self.cluster.loading();
        loading.under_way = None;
        loading.failed = self.failed.take();
    }
}

impl Attempt {
    async fn run(mut self) {
        let end = Instant::now() + self.cluster.wiring.connect_timeout;
        let mut sources = self.cluster.sources().into_iter();
        let mut asked = JoinSet::new();
        while Instant::now() < end {
            let patience = match sources.next() {
                Some(source) => {
                    asked.spawn(async move { (slots(&source).await, source) });
                    end.min(Instant::now() + PATIENCE)
                }
                None => end,
            };
            match timeout_at(patience, asked.join_next()).await {
                Ok(Some(Ok((Ok(reply), source)))) => match self.cluster.adopt(&reply, &source) {
                    Ok(()) => {
                        self.failed = None;
                        return;
                    }
                    Err(error) => self.failed = Some(error),
                },
                Ok(Some(Ok((Err(error), _)))) => self.failed = Some(error),
                Ok(None) if sources.len() == 0 => return,
                _ => {}
            }
        }
    }
}

async fn slots(source: &Member) -> Result<Value, StoreError> {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    // Why there is no connection is its own matter: a wrong password, say, or a certificate that is not trusted.
    source.node.connections.get().await?;
    source.node.query(&command).await.map_err(|error| {
        if error.is_transient() {
            return error.uncharged();
        }
        let text = match error.to_string().starts_with("NOPERM") {
            true => "NOPERM: the Redis user may not ask which slots are where; add it with: ACL SETUSER <user> +cluster|slots",
            false => "CLUSTER SLOTS was refused: the address is no Cluster node's",
        };
        StoreError::new(StoreErrorKind::Permanent, text)
    })
}

impl Cluster {
    fn adopt(&self, reply: &Value, source: &Arc<Member>) -> Result<(), StoreError> {
        let ranges = map::read(reply, &source.address);
        if ranges.is_empty() {
            let text = "CLUSTERDOWN: the node is in no Cluster, or no slot has an owner";
            return Err(StoreError::new(StoreErrorKind::Refused, text));
        }
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        members.adopt(&ranges, source, &|address, part| self.member(address, part))?;
        members.enlist(&ranges, &|addresses| self.replicas_at(addresses));
        Ok(())
    }
}

#[cold]
fn nobody() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "no node of the Cluster told in time which slots are where")
        .uncharged()
}
