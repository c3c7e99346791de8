//! One call to the node that owns a slot, wherever that leads.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until};

use super::{
    super::{connections::Live, node::Node},
    Cluster,
    address::Address,
    members::Member,
    redirect::Redirect,
};
use crate::{
    error::{StoreError, StoreErrorKind},
    store::{Answer, Ask, Line, Purpose, Settlement, Time},
};

/// More redirects in one call are a Cluster that does not know itself.
const HOPS: usize = 5;
/// How often the keys of one call are waited for, that a migration has torn apart, before they are asked for one by one.
const TORN: usize = 2;
/// How long a slot that is on its way gets before it is asked for again; twice as long each time.
const PAUSE: Duration = Duration::from_millis(1);

/// What is to be done with lines of one slot.
#[derive(Clone, Copy)]
pub(super) enum Work<'a> {
    Decide(Ask<'a>),
    Forget(&'a [Line<'a>]),
    Settle(&'a [Settlement<'a>], &'a [Line<'a>], Time),
}

impl<'a> Work<'a> {
    pub(super) fn lines(&self) -> &'a [Line<'a>] {
        match self {
            Work::Decide(ask) => ask.lines,
            Work::Forget(lines) | Work::Settle(_, lines, _) => lines,
        }
    }

    /// Whether it has an id. Its record stands for the lines that were sent together, so they must not be parted; and it is not
    /// urgent, so whoever sends it tries again later.
    fn is_made_once(&self) -> bool {
        match self {
            Work::Decide(ask) => ask.purpose.id().is_some(),
            Work::Forget(_) => false,
            Work::Settle(..) => true,
        }
    }

    /// The same for some of the lines.
    pub(super) fn of<'b>(&self, lines: &'b [Line<'b>]) -> Work<'b> {
        match self {
            Work::Decide(ask) => Work::Decide(Ask { lines, purpose: ask.purpose, time: ask.time }),
            // Settlements are not parted.
            Work::Forget(_) | Work::Settle(..) => Work::Forget(lines),
        }
    }

    /// The answer; an empty one where nothing was asked.
    async fn run(&self, node: &Node, since: Instant, used: &mut Option<Live>) -> Result<Answer, StoreError> {
        match self {
            Work::Decide(ask) => node.decide(ask, since.elapsed(), used).await,
            Work::Forget(lines) => node.forget(lines, used).await.map(|()| Answer::default()),
            Work::Settle(settlements, _, time) => {
                Box::pin(node.settle(settlements, *time, since, used)).await.map(|()| Answer::default())
            }
        }
    }
}

/// When an ask began and when it must have ended.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) since: Instant,
    pub(super) until: Instant,
}

/// Why a call gave no answer.
pub(super) enum Fault {
    /// The keys are on two nodes for now. Nothing ran; one key at a time can be asked for.
    Torn,
    Failed(StoreError),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Fault {
        Fault::Failed(error)
    }
}

impl Cluster {
    /// Asks the owner of `slot`, in which all lines are. A reply that turns the call away is followed, since nothing ran; a
    /// call whose reply is lost or late is never repeated.
    pub(super) async fn call(self: &Arc<Cluster>, slot: u16, work: &Work<'_>, span: Span) -> Result<Answer, Fault> {
        let Some(mut member) = self.owner(slot) else {
            self.refresh();
            let text = "CLUSTERDOWN: no node owns the slot now";
            return Err(StoreError::new(StoreErrorKind::Refused, text).into());
        };
        // Rare, so it takes its room elsewhere.
        if let Work::Decide(ask) = work
            && ask.purpose == Purpose::Peek
            && self.wiring.cluster_replicas
            && let Some(answer) = Box::pin(self.peek(slot, ask, span)).await
        {
            return Ok(answer);
        }
        let (mut asking, mut hops, mut torn) = (false, 0, 0);
        loop {
            let mut redirect = None;
            let node = &member.node;
            let result = node.within(span.until, async |used| {
                if asking {
                    used.insert(node.connections.get().await?).ask_first();
                }
                let result = work.run(node, span.since, used).await;
                redirect = used.as_mut().and_then(Live::redirect);
                result
            });
            let error = match result.await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            match redirect {
                None => {
                    if error.is_transient() {
                        self.replace(&member);
                    }
                    return Err(error.into());
                }
                Some(Redirect::TryAgain) => {
                    if work.is_made_once() {
                        return Err(error.into());
                    }
                    // A line with a tenant has two keys.
                    let several = work.lines().len() > 1 || work.lines().iter().any(|line| line.tenant.is_some());
                    if torn == TORN && several {
                        return Err(Fault::Torn);
                    }
                    sleep_until(span.until.min(Instant::now() + PAUSE * (1 << torn.min(6)))).await;
                    torn += 1;
                }
                Some(Redirect::Moved(target)) => {
                    self.refresh();
                    member = self.moved(slot, &self.target(&target, &member)?)?;
                    asking = false;
                    hops += 1;
                }
                Some(Redirect::Ask(target)) => {
                    member = self.at(&self.target(&target, &member)?)?;
                    asking = true;
                    hops += 1;
                }
            }
            if hops > HOPS {
                let text = "the Cluster's nodes send the call to one another";
                return Err(StoreError::new(StoreErrorKind::Refused, text).into());
            }
            if Instant::now() >= span.until {
                let text = "the slot is on its way to another node, and did not arrive within the deadline";
                return Err(StoreError::new(StoreErrorKind::Timeout, text).uncharged().into());
            }
        }
    }

    /// The answer of a replica. `None`: the primary is to be asked.
    async fn peek(self: &Arc<Cluster>, slot: u16, ask: &Ask<'_>, span: Span) -> Option<Answer> {
        let replicas = self.members().replicas(slot).cloned()?;
        let answer = replicas.peek(ask, span.until).await?;
        // One that fails may be a primary by now, or another's.
        answer.inspect_err(|_| self.refresh()).ok()
    }

    fn target(&self, target: &str, here: &Member) -> Result<Address, StoreError> {
        Address::read(target, &here.address)
            .ok_or_else(|| StoreError::new(StoreErrorKind::Garbled, "a redirect leads nowhere").uncharged())
    }
}
