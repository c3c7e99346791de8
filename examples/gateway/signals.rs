use std::io;

use tokio::sync::watch;

/// Counts how often the process was told to stop: Ctrl-C, and SIGTERM where there is one.
pub(super) struct Signals(watch::Receiver<u32>);

impl Signals {
    /// From now on they do not end the process by themselves.
    pub(super) fn new() -> io::Result<Signals> {
        let (told, times) = watch::channel(0);
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
                let (mut signals, told) = (signal(kind)?, told.clone());
                tokio::spawn(async move {
                    while signals.recv().await.is_some() {
                        told.send_modify(|times| *times += 1);
                    }
                });
            }
        }
        #[cfg(not(unix))]
        tokio::spawn(async move {
            while tokio::signal::ctrl_c().await.is_ok() {
                told.send_modify(|times| *times += 1);
            }
        });
        Ok(Signals(times))
    }

    /// Waits for a signal that nobody has waited for yet.
    pub(super) fn stop(&self) -> impl Future<Output = ()> + use<> {
        let mut times = self.0.clone();
        let so_far = *times.borrow();
        async move {
            if times.wait_for(|now| *now > so_far).await.is_err() {
                std::future::pending().await
            }
        }
    }
}
