use std::convert::Infallible;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use sluicegate::Permit;
use tokio::{io::copy_bidirectional, sync::mpsc};

/// Connections that speak something else than HTTP by now, such as WebSockets.
#[derive(Clone)]
pub(super) struct Tunnels(mpsc::Sender<Infallible>);

/// Knows when there are no more of them.
pub(super) struct AllTunnels(mpsc::Receiver<Infallible>);

impl Tunnels {
    pub(super) fn new() -> (Tunnels, AllTunnels) {
        // Nothing is ever sent: the channel closes with its last sender.
        let (sender, receiver) = mpsc::channel(1);
        (Tunnels(sender), AllTunnels(receiver))
    }

    /// Copies both ways until one side is gone. The permit is the place under a concurrency rule, which a socket holds for as long as it is
    /// open.
    pub(super) fn open(&self, client: OnUpgrade, upstream: OnUpgrade, permit: Option<Permit>) {
        let open = self.0.clone();
        tokio::spawn(async move {
            let copied = async {
                let (client, upstream) = tokio::try_join!(client, upstream)?;
                copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(upstream)).await?;
                Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
            };
            if let Err(error) = copied.await {
                tracing::debug!(%error, "an upgraded connection ended early");
            }
            drop((permit, open));
        });
    }
}

impl AllTunnels {
    /// Waits until the last one has ended, and nobody can open another.
    pub(super) async fn gone(&mut self) {
        while self.0.recv().await.is_some() {}
    }
}
