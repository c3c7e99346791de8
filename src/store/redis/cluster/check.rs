//! The start-up check of every node.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, timeout};

use super::{
    super::check::{add_node, add_replica, node_at},
    Cluster, slot,
};
use crate::store::{Id, Report, Scope};

impl Cluster {
    /// Checks every primary, each with a key in a slot of its own.
    pub(in super::super) async fn check(self: &Arc<Cluster>, namespace: &str, patience: Duration) -> Report {
        let mut report = Report::default();
        if self.members().is_loaded() {
            // Slots may have moved since. If nobody tells, the nodes are asked that are known.
            let _ = timeout(patience, self.reload()).await;
        } else if let Err(error) = self.begin(Instant::now() + patience).await {
            report.problem(error.to_string());
            return report;
        }
        let scope = Scope::new(namespace, "check");
        let mut members = self.members().list().to_vec();
        report.note(format!("a Cluster of {} primaries", members.len()));
        if scope.tag().is_some() {
            let owner = self.owner(slot::of(scope.name(b"")));
            members.retain(|member| owner.as_ref().is_some_and(|owner| owner.part == member.part));
        }
        for member in members {
            // One in as many keys as there are nodes is right, on average.
            let mut keys = (0..100_000).map(|_| format!("{:032x}", Id::random().bits()));
            let is_there = |key: &String| {
                let owner = self.owner(slot::of(scope.name(key.as_bytes())));
                owner.is_some_and(|owner| owner.part == member.part)
            };
            let Some(key) = keys.find(is_there) else {
                report.warn(format!("node {} has no slots", member.part));
                continue;
            };
            let of_node = node_at(&member.node, &scope, &key, namespace, patience).await;
            add_node(&mut report, member.part, &of_node);
            let replicas = self.members().replicas_of(&member).cloned();
            for replica in replicas.iter().flat_map(|replicas| replicas.nodes()) {
                add_replica(&mut report, &node_at(replica, &scope, &key, namespace, patience).await);
            }
        }
        report
    }
}
