//! What limiters tell of their store.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use sluicegate::{Observer, StoreEvent};
use tokio::{sync::Notify, time::timeout};

/// Keeps what it is told of the store. Clones share it.
#[derive(Clone, Default)]
pub struct Events(Arc<Kept>);

#[derive(Default)]
struct Kept {
    list: Mutex<Vec<StoreEvent>>,
    more: Notify,
}

impl Observer for Events {
    fn store(&self, event: &StoreEvent) {
        self.0.list.lock().expect("no panic").push(event.clone());
        self.0.more.notify_waiters();
    }
}

impl Events {
    /// All since the last call.
    pub fn take(&self) -> Vec<StoreEvent> {
        std::mem::take(&mut self.0.list.lock().expect("no panic"))
    }

    /// All there are.
    pub fn all(&self) -> Vec<StoreEvent> {
        self.0.list.lock().expect("no panic").clone()
    }

    pub fn count(&self, wanted: fn(&StoreEvent) -> bool) -> usize {
        self.0.list.lock().expect("no panic").iter().filter(|event| wanted(event)).count()
    }

    pub fn connected(&self) -> usize {
        self.count(|event| *event == StoreEvent::Connected)
    }

    pub fn connect_failed(&self) -> usize {
        self.count(|event| matches!(event, StoreEvent::ConnectFailed(_)))
    }

    pub fn disconnected(&self) -> usize {
        self.count(|event| matches!(event, StoreEvent::Disconnected(_)))
    }

    pub fn scripts_sent(&self) -> usize {
        self.count(|event| *event == StoreEvent::ScriptSent)
    }

    pub fn without_functions(&self) -> usize {
        self.count(|event| *event == StoreEvent::NoFunctions)
    }

    pub fn not_given_back(&self) -> usize {
        self.count(|event| matches!(event, StoreEvent::NotGivenBack(_)))
    }

    /// Waits until it is so; it is looked at again whenever something is told.
    pub async fn until(&self, so: impl Fn(&Events) -> bool) {
        let waiting = async {
            loop {
                let more = self.0.more.notified();
                if so(self) {
                    return;
                }
                more.await;
            }
        };
        assert!(timeout(Duration::from_secs(20), waiting).await.is_ok(), "it never is so: {:?}", self.all());
    }
}
