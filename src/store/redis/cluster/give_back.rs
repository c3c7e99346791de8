//! Gives back what was charged for a request that another slot refused: off the request's path, and once.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use tokio::time::{Instant, sleep};

use super::{
    Cluster,
    call::{Fault, Span, Work},
    join::{Joined, join},
};
use crate::{
    error::{StoreError, StoreErrorKind},
    observer::StoreEvent,
    store::{Ask, Id, Line, OwnedLine, Purpose, Time},
};

/// How often it is tried, with a pause in between that doubles: for some thirteen seconds in all. A failover takes less, and so
/// does moving a slot, in most cases.
const TRIES: u32 = 8;
const PAUSE: Duration = Duration::from_millis(100);
/// How many requests' charges may be on their way back at a time. More are left to time.
pub(super) const MOST: usize = 1_024;

/// A line that outlives its request.
pub(super) struct Kept {
    slot: u16,
    line: OwnedLine,
}

impl Kept {
    pub(super) fn new(slot: u16, line: &Line<'_>) -> Kept {
        Kept { slot, line: OwnedLine::of(line) }
    }
}

impl Cluster {
    /// Sends it now and waits for the reply elsewhere: whoever asks next over the same connections finds it given back.
    pub(super) async fn give_back(self: &Arc<Cluster>, lines: Vec<Kept>, time: Time) {
        let Ok(permit) = Arc::clone(&self.returning).try_acquire_owned() else {
            let text = format!("{MOST} others are on their way back");
            let error = StoreError::new(StoreErrorKind::Unavailable, text);
            return self.wiring.observers.tell(&StoreEvent::NotGivenBack(error));
        };
        let cluster = Arc::clone(self);
        let mut returning: Joined<'static, ()> = Box::pin(async move {
            join(lines.iter().map(|line| -> Joined<'_, ()> { Box::pin(cluster.give_line_back(line, time)) })).await;
            drop(permit);
        });
        if poll_fn(|context| Poll::Ready(returning.as_mut().poll(context))).await.is_pending() {
            tokio::spawn(returning);
        }
    }

    /// One line a call, so that no other holds it up.
    async fn give_line_back(self: &Arc<Cluster>, kept: &Kept, time: Time) {
        let (purpose, began) = (Purpose::Give(Id::random()), Instant::now());
        let mut pause = PAUSE;
        for tried in 1.. {
            let since = Instant::now();
            let time = time.later(since - began);
            let work = Work::Decide(Ask { lines: &[kept.line.line()], purpose, time });
            let span = Span { since, until: since + self.wiring.deadline };
            // The same id each time: where only the reply was lost, the second time changes nothing.
            let Err(Fault::Failed(error)) = self.call(kept.slot, &work, span).await else { return };
            if tried == TRIES || !error.is_transient() {
                return self.wiring.observers.tell(&StoreEvent::NotGivenBack(error));
            }
            sleep(pause).await;
            pause *= 2;
        }
    }
}
